"""What a party shares of its values, and the public plan of the sums over it: floating-point plans in whole numbers.

Every party computes the plan itself and takes no other, so it comes out the same on every machine. Where machines
differ in a last digit (sums in another order, logarithms), the result is rounded to far fewer digits: released shares
before cells are pooled by them, features and weights to whole numbers, and a search over weights goes on only where it
gains more (`stats/tilting/row_weights.py`). If a number still fell on the edge of two roundings, the parties would
refuse, and the study could be started again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.data.scratch_file import keep_bytes
from verticopula.data.tables import AlignedTable
from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.fixed_point import FEWEST_BITS
from verticopula.mpc.opened_sums import NoisyGram, OpenedCounts
from verticopula.mpc.sums_plan import (
    SumsPlan,
    block_factor,
    check_plan,
    choose_compute,
    count_rows,
    own_columns,
    own_rows,
    person_mu,
    selection_deviation,
)
from verticopula.mpc.verified_cells import Bytes, Codes
from verticopula.mpc.verified_sums import choose_field_bits
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.study_settings import COORDINATOR
from verticopula.schema.units import Unit
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.gaussian_margins import code_values, count_deviation, margin_shares
from verticopula.stats.strict.noise_budget import StrictBudget
from verticopula.stats.tilting.opening_plan import CodedColumn, OpeningPlan, plan_openings
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable
from verticopula.stats.tilting.selection import SelectionReading
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_ROUNDING = 1.1  # rounded to whole numbers, records may be a little longer
_WEIGHT_BITS = 9  # of a record's fractional bits, those of weights; tables have the rest, within these limits
_MOST_TABLE_BITS = 16
_SHARE_UNITS = 2.0**24


@dataclass(frozen=True)
class StrictPlan:
    """The plan of a strict study's openings, as the protocol and as the fit have it.

    Attributes
    ----------
    sums : what is opened, in whole numbers
    openings : the same for the fit: tables and weights are those of `sums`
    """

    sums: SumsPlan
    openings: OpeningPlan


# ---- planning ----------------------------------------------------------------------------


def sums_roles(federation: Federation) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, str, str]]:
    """Who has columns, how many each, and the three that compute: from the federation file alone."""
    parties = tuple(party.name for party in federation.parties)
    widths = tuple(len(party.columns) for party in federation.parties)
    return parties, widths, choose_compute(parties, federation.network.compute or COORDINATOR)


def place_of_response(federation: Federation) -> int | None:
    """The number of the response among all columns; None where the study has none."""
    keys = list(federation.keys)
    return keys.index(federation.response) if federation.response in keys else None


def plan_strict_sums(
    federation: Federation,
    known: Mapping[str, Bools],
    margins: Mapping[ColumnKey, Marginal],
    budget: StrictBudget,
    *,
    rows_agreed: bool = True,
) -> StrictPlan:
    """Which sums are opened and what cells stand for in them: from presence, noisy margins and the budget, all public.

    For unit `block` the sums' mu is the largest that leaves no party's part in them above what it may spend. Unless the
    parties agree on whose rows are the same person's, one person may stand in several rows, and the sums' mu for a
    person is what all blocks move together (`person_mu`).

    Parameters
    ----------
    known : party -> (N,) whom it knows
    margins : of those, from noisy counts
    rows_agreed : whether the parties know which rows are one person's
    """
    parties, widths, compute = sums_roles(federation)
    whom = np.column_stack([known[party] for party in parties])
    if not whom.any():
        raise SettingsError("nobody has a value in any column")
    several = budget.unit is Unit.PERSON and not rows_agreed
    split = budget.parts()
    if several:  # what the choice of tables counts with; noise follows from the pairs
        split = replace(split, tables=split.tables / min(len(parties), math.sqrt(2.0 * len(parties))))
    people = {key: max(int(known[key.party].sum()), 1) for key in federation.keys}
    opening = plan_openings(
        code_columns(federation, margins, budget),
        whom,
        split,
        [_rounded_shares(margins[key], may_be_empty=budget.empties[key]) for key in federation.keys],
        np.array([count_deviation(budget.deviations[key]) / people[key] for key in federation.keys]),
    )
    tables_mu = budget.parts().tables
    selects = bool(opening.selecting.any() and not opening.selecting.all() and split.selection > 0.0)
    bits, tables, weights = round_plan(opening, split.gram / len(parties))
    plan = SumsPlan(
        parties=parties,
        n_columns=widths,
        compute=compute,
        pattern_of=opening.pattern_of,
        weights=weights,
        features=tables,
        groups=tuple(column.groups.astype(np.int64) for column in opening.columns),
        bits=bits,
        cap=opening.cap,
        selecting=opening.selecting,
        base=~opening.selecting if selects else np.zeros_like(opening.selecting),
        most_tables=TILTED_TUNING.most_tables if tables_mu > 0.0 else 0,
        several_rows=several,
        mu=split.gram,
        mu_tables=tables_mu,
        mu_selection=split.selection if selects else 0.0,
    )
    plan = _price(plan, budget, rows_agreed=rows_agreed)
    check_plan(plan)
    return StrictPlan(plan, _rounded_openings(opening, plan))


def code_columns(
    federation: Federation, margins: Mapping[ColumnKey, Marginal], budget: StrictBudget
) -> list[CodedColumn]:
    """What is public about every column before the first opening."""
    numbers = {party.name: number for number, party in enumerate(federation.parties)}
    return [
        CodedColumn(
            margins[key].probabilities.size,
            federation.column(key).kind != "nominal",
            numbers[key.party],
            budget.empties[key],
        )
        for key in federation.keys
    ]


def _rounded_shares(margin: Marginal, *, may_be_empty: bool) -> Floats:
    """`margin_shares` in units of 2^-24, whose sums are exact: which cells are pooled depends on no last digit."""
    return np.asarray(np.rint(margin_shares(margin, may_be_empty=may_be_empty) * _SHARE_UNITS) / _SHARE_UNITS)


def round_plan(opening: OpeningPlan, mu: float) -> tuple[int, tuple[Ints, ...], Ints]:
    """(fractional bits of tables, tables, weights) in whole numbers, as fine as sums over everybody leave room for.

    The fit is made with these numbers, so that rounding costs nothing but a little length.
    """
    total = choose_field_bits(int(opening.counts.sum()), _ROUNDING, mu)
    bits = min(max(total - _WEIGHT_BITS, FEWEST_BITS), _MOST_TABLE_BITS)
    tables = tuple(np.rint(feature.table * 2.0**bits).astype(np.int64) for feature in opening.features)
    whole = np.rint(opening.weights * 2.0 ** (total - bits)).astype(np.int64)
    return bits, tables, np.where(opening.patterns, np.maximum(whole, 1), 0)


def _price(plan: SumsPlan, budget: StrictBudget, *, rows_agreed: bool) -> SumsPlan:
    """The plan at the largest prices that the budget allows."""
    down = 1.0 - 2.0**-40
    if budget.unit is Unit.BLOCK:
        factors = {party: block_factor(plan, party) for party in plan.parties}
        # A party that knows nobody has no part in the sums, and does not limit them. Nor has one whose noisy margins
        # have pooled each of its columns to one cell; where that is all of them, the sums are of nothing but noise.
        gram = [budget.parts(party).gram / own for party, own in factors.items() if own > 0.0]
        whole = sum(own for own, here in zip(plan.longest, plan.base, strict=True) if here)
        selection = [
            budget.parts(party).selection * math.sqrt(max(whole, 1) / max(own, 1))
            for party, own, here in zip(plan.parties, plan.longest, plan.base, strict=True)
            if here
        ]
        return replace(plan, mu=min(gram, default=plan.mu) * down, mu_selection=min(selection, default=0.0) * down)
    plan = replace(plan, mu_selection=plan.mu_selection * down)
    if not rows_agreed:
        return replace(plan, mu=plan.mu * plan.mu / person_mu(plan, rows_agreed=False) * down)
    return plan


def _rounded_openings(opening: OpeningPlan, plan: SumsPlan) -> OpeningPlan:
    """The plan that the fit is made with: tables and weights in whole numbers."""
    features = tuple(
        replace(feature, table=table / 2.0**plan.bits)
        for feature, table in zip(opening.features, plan.features, strict=True)
    )
    return replace(opening, features=features, weights=plan.weights.astype(np.float64))


# ---- a party's part ----------------------------------------------------------------------


def pool_cells(plan: SumsPlan, party: str, table: AlignedTable) -> Codes:
    """(n_k, columns) the pooled cells that a party shares, in the plan's rows. Those of many people lie on disk."""
    rows, columns = own_rows(plan, party), own_columns(plan, party)
    if not np.array_equal(rows, table.known()):
        raise ProtocolError(f"party {party!r}: the plan counts on people whom it does not know")
    kind = np.min_scalar_type(max(len(plan.features[j]) for j in columns) - 1)

    def pooled() -> Iterator[Bytes]:
        for number, column in zip(columns, table.party.columns, strict=True):
            encoded, groups = table.columns[column.name], plan.groups[number].astype(kind)
            empty = table.party.may_be_empty(column.name)
            cells = code_values(encoded, column, rows, groups.size - empty, may_be_empty=empty)
            yield groups[cells].view(np.uint8)

    n_rows = count_rows(plan, party)
    return keep_bytes(pooled(), len(columns) * n_rows * kind.itemsize).view(kind).reshape(len(columns), n_rows).T


def sum_selected(plan: SumsPlan, party: str, codes: Codes) -> Ints:
    """(selecting parties, features) sums of a base party's features over those whom each of them knows.

    Parameters
    ----------
    codes : as `pool_cells` makes them
    """
    patterns, sums = plan.pattern_of[own_rows(plan, party)], []
    for other in np.flatnonzero(plan.selecting):
        whom = (plan.weights[:, other] > 0)[patterns]
        tables = [plan.features[j] for j in own_columns(plan, party)]
        counts = [np.bincount(codes[whom, j], minlength=len(table)) for j, table in enumerate(tables)]
        sums.append(np.concatenate([count @ table for count, table in zip(counts, tables, strict=True)]))
    return np.array(sums, dtype=np.int64)


# ---- what was opened ---------------------------------------------------------------------


def read_gram(plan: StrictPlan, opened: NoisyGram) -> OpenedGram:
    """The first opening, for the fit."""
    return plan.openings.gram(opened.matrix, opened.deviation_off)


def read_selection(plan: StrictPlan, sent: Mapping[str, Ints]) -> SelectionReading | None:
    """What base parties released, for the fit; None where they released nothing.

    Parameters
    ----------
    sent : base party -> (selecting parties, features) noisy sums, in units of 2^-bits
    """
    sums = plan.sums
    if not sums.base.any():
        return None
    present = (sums.weights > 0) * sums.counts[:, None]
    both = present.T @ (sums.weights > 0)  # people whom two parties know
    means = []
    for number, party in enumerate(sums.parties):
        if sums.base[number]:
            whole = np.zeros((len(sums.parties), sent[party].shape[1]))
            whole[sums.selecting] = sent[party] / 2.0**sums.bits
            means.append(whole / np.maximum(both[:, number], 1)[:, None])
    counts = np.maximum(both[:, sums.base].min(axis=1), 1)
    deviation = count_deviation(selection_deviation(sums)) / 2.0**sums.bits
    return SelectionReading(plan.openings.base, sums.selecting, np.hstack(means), deviation / counts)


def read_counts(plan: StrictPlan, opened: Sequence[OpenedCounts]) -> tuple[OpenedTable, ...]:
    """The second opening, for the fit."""
    people = plan.openings.people
    found = []
    for table in opened:
        n = max(int(people[table.pair]), 1)
        found.append(OpenedTable(table.pair, table.counts / n, table.deviation / n, int(people[table.pair])))
    return tuple(found)
