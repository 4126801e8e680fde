"""People who were not in the study: given as tables, or left out of a repetition of the study in memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from verticopula.data.id_checks import normalise_ids
from verticopula.data.tables import AlignedTable, align_tables, take_rows
from verticopula.errors import AlignedWarning, NotPrivateWarning, SettingsError
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.schema.columns import ColumnKey
from verticopula.schema.defaults import COORDINATOR
from verticopula.schema.federation import Federation
from verticopula.schema.methods import STRICT
from verticopula.schema.progress import Progress
from verticopula.schema.units import Unit
from verticopula.storage.ledger import Ledger

FEWEST_AUDITED = 50  # people in the study, and left out

Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, repr=False)
class AuditedPeople:
    """The study's people and people who were left out, and the synthetic table to attack. No repr: raw values.

    Attributes
    ----------
    synthesizer : the fitted study whose table it is
    """

    synthesizer: Synthesizer
    members: Mapping[str, AlignedTable]
    others: Mapping[str, AlignedTable]
    synthetic: Frames


def audited(synthesizer: Synthesizer, party: str | None) -> Federation:
    """The federation under audit: the whole one, or one party alone."""
    if party is None:
        return synthesizer.federation
    own = synthesizer.federation.party(party)
    response = ColumnKey(party, own.columns[0].name)
    if synthesizer.federation.response.party == party:
        response = synthesizer.federation.response
    return synthesizer.federation.model_copy(
        update={"parties": (own.model_copy(update={"epsilon": None}),), "response": response}
    )


def restrict(synthesizer: Synthesizer, party: str | None, seed: int | None = None) -> tuple[Federation, Synthesizer]:
    """The federation under audit and an unfitted study with the same settings on it.

    One party alone repeats its own part: the same epsilon for each of its columns, whatever the unit was. With a
    `seed` the repetition can itself be repeated; nothing of it is released.
    """
    settings = replace(synthesizer.study_.settings, seed=seed)
    alone = audited(synthesizer, party)
    if party is None:
        alone = _with_operator(alone)
        return alone, Synthesizer.from_settings(alone, settings)
    if not settings.record.ranks:
        raise SettingsError(
            f"the sums of a study of method {STRICT.name!r} are of all parties together: one party alone cannot repeat "
            "its part"
        )
    own = alone.party(party)
    budgets = {c.name: synthesizer.result_.budgets[ColumnKey(party, c.name)] for c in own.columns}
    columns = tuple(c.model_copy(update={"weight": budgets[c.name].epsilon_ranks}) for c in own.columns)
    alone = alone.model_copy(update={"parties": (own.model_copy(update={"columns": columns}),)})
    settings = replace(
        settings,
        unit=Unit.CLIENT.value,
        epsilon=None,
        epsilon_ranks=sum(b.epsilon_ranks for b in budgets.values()),
        epsilon_marginals=sum(b.epsilon_marginal for b in budgets.values()),
        per_round=settings.record.repeats_ranks,
    )
    return alone, Synthesizer.from_settings(alone, settings)


def _with_operator(federation: Federation) -> Federation:
    """The same, in which the coordinator is nobody's: a study by an earlier version may not say whose it was."""
    network = federation.network.model_copy(update={"operator": COORDINATOR})
    return federation.model_copy(update={"network": network})


def check_same_people(synthesizer: Synthesizer, federation: Federation, aligned: Mapping[str, AlignedTable]) -> None:
    """SettingsError unless these tables have as many people in every column as the study saw; the counts are public."""
    wrong = []
    for party in federation.parties:
        for column in party.columns:
            seen = int(aligned[party.name].columns[column.name].observed.sum())
            expected = synthesizer.missingness_.observed[ColumnKey(party.name, column.name)]
            if seen != expected:
                wrong.append(f"{party.name}.{column.name} has {seen:,} observed values, the study saw {expected:,}")
    if wrong:
        more = f" (and {len(wrong) - 1} more columns)" if len(wrong) > 1 else ""
        raise SettingsError(f"--data does not hold the study's own tables: {wrong[0]}{more}")


def check_no_overlap(federation: Federation, members: Frames, others: Frames) -> None:
    """SettingsError if somebody is in the study and in the hold-out."""
    for party in federation.parties:
        ids = [normalise_ids(frames[party.name][federation.id.name], federation.id) for frames in (members, others)]
        both = int(ids[1].is_in(ids[0].implode()).sum())
        if both:
            raise SettingsError(
                f"{both:,} of the {len(ids[1]):,} people that the hold-out has at {party.name!r} were in the study; a "
                "hold-out must hold nobody who was"
            )


def check_group_sizes(n_members: int, n_others: int) -> None:
    """SettingsError if there are too few people for any conclusion."""
    if min(n_members, n_others) < FEWEST_AUDITED:
        raise SettingsError(
            f"an audit of tables needs at least {FEWEST_AUDITED} people in the study and as many left out; there are "
            f"{n_members:,} and {n_others:,}"
        )


def given_holdout(
    synthesizer: Synthesizer, federation: Federation, frames: Frames, holdout: Frames, synthetic: Frames
) -> AuditedPeople:
    """The study as it is, against people whom the user left out of it."""
    check_no_overlap(federation, frames, holdout)
    members, others = (align_tables(federation, part, need_overlap=False) for part in (frames, holdout))
    check_group_sizes(_size(members), _size(others))
    return AuditedPeople(synthesizer, members, others, synthetic)


def repeat_without(
    fresh: Synthesizer,
    tables: Mapping[str, AlignedTable],
    fraction: float,
    *,
    aligned_rows: bool,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> AuditedPeople:
    """The same settings on a random part of the people, in memory: its ledger and its tables go nowhere."""
    if not 0.0 < fraction < 1.0:
        raise SettingsError("--holdout needs a fraction between 0 and 1, or a folder")
    size = _size(tables)
    left_out = math.floor(size * fraction)
    check_group_sizes(size - left_out, left_out)
    order = rng.permutation(size)
    members, others = (
        {name: take_rows(table, np.sort(rows)) for name, table in tables.items()}
        for rows in (order[left_out:], order[:left_out])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", AlignedWarning)
        fresh.fit_aligned(members, ledger=Ledger(), progress=progress)
        synthetic = fresh.sample(aligned=aligned_rows)
    return AuditedPeople(fresh, members, others, synthetic)


def _size(tables: Mapping[str, AlignedTable]) -> int:
    return int(next(iter(tables.values())).observed().shape[0])
