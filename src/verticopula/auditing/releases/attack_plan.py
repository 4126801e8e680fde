"""Which attacks a study calls for: every kind of release, every unit, each with its own kind of neighbour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verticopula.auditing.bounds.claims import Claim
from verticopula.auditing.bounds.mechanism_audit import MeasuredClaim, Neighbours, audit_release, check_trials
from verticopula.auditing.releases.attacked_outputs import OutputRelease
from verticopula.auditing.releases.attacked_releases import CompletedRelease, PartyRelease, PersonRelease, claim_of
from verticopula.auditing.releases.neighbours import (
    between,
    fill,
    flipped_comparison,
    replaced_person_tables,
    replaced_value,
    typical_people,
)
from verticopula.data.column_ranges import public_range
from verticopula.data.tables import AlignedTable
from verticopula.errors import SettingsError
from verticopula.privacy.budget import ColumnBudget, StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.rank_messages import ColumnQuery, Imputation
from verticopula.schema.columns import ColumnKey
from verticopula.schema.dependence import DEFAULT_DEPENDENCE
from verticopula.schema.federation import Federation, Party
from verticopula.schema.methods import METHODS
from verticopula.schema.progress import Progress
from verticopula.schema.study_settings import StudySettings
from verticopula.schema.units import Unit
from verticopula.stats.copula import latent_count

ALL, ONE_PER_KIND = "all", "one-per-kind"
COLUMN_CHOICES = (ALL, ONE_PER_KIND)
AUDIT_SIZE = 200  # subjects in attacks on a whole block or person
_CELLS_SIZE = 20  # and on a marginal: few, so that nothing but the noise hides a count
_PAIRS = 4  # of typical people
_FEWEST = 400  # trials of an attack on many columns
_ENTRIES = SeededNoise(0)  # for reading a claim off a ledger: the noise of that release does not matter


@dataclass(frozen=True)
class StudyTerms:
    """What a study promised: its columns, what each may spend, and how ranks are drawn."""

    federation: Federation
    budgets: Mapping[ColumnKey, ColumnBudget]
    sampler: str
    method: str
    delta: float
    bounds_from_data: bool = False
    budget: StudyBudget | None = None
    dependence: str = DEFAULT_DEPENDENCE


@dataclass(frozen=True)
class Attack:
    """One claim and how it is attacked.

    Attributes
    ----------
    what : which release
    change : how the two data sets differ, in words
    pairs : `chosen` for the worst that the schema allows, `typical` for people of a real table
    n_subjects : in the data sets of the attack
    trials : of its own, in place of the audit's
    """

    what: str
    change: str
    pairs: str
    n_subjects: int
    claim: Claim
    release: Any
    neighbours: Neighbours[Any] | Sequence[Neighbours[Any]]
    columns: int = 1
    trials: int | None = None


@dataclass(frozen=True)
class MechanismFinding:
    """What an attack on one mechanism has measured.

    Attributes
    ----------
    what, change : the release, and how the two data sets differ
    pairs : as `Attack` has it
    n_subjects : in each of them
    """

    what: str
    change: str
    pairs: str
    n_subjects: int
    measured: MeasuredClaim


def plan_attacks(
    terms: StudyTerms,
    *,
    tables: Mapping[str, AlignedTable] | None = None,
    party: str | None = None,
    n_subjects: int = AUDIT_SIZE,
    output_trials: int = 0,
    columns: str | None = None,
    rng: np.random.Generator | None = None,
) -> list[Attack]:
    """The attacks on one study, or on one party's part of it.

    `tables` are the real ones, for the attacks on typical people; without them only chosen data sets are used.
    `output_trials` are for whole studies up to their synthetic tables, which are slow; none if zero.
    `columns` are one of `COLUMN_CHOICES`; by default all of one party, one of each kind of several.
    """
    parties = [p for p in terms.federation.parties if party in (None, p.name)]
    columns = columns or (ALL if party is not None else ONE_PER_KIND)
    check_columns(columns)
    keys = _one_of_each_kind(terms, parties) if columns == ONE_PER_KIND else _all_columns(parties)
    attacks = [a for key in keys for a in _on_column(terms, key, n_subjects)]
    rng = rng or np.random.default_rng(0)
    for own in parties:
        attacks += _on_party(terms, own, n_subjects)
        if tables is not None and own.name in tables:
            attacks.append(_on_typical(terms, {own.name: tables[own.name]}, Unit.BLOCK, n_subjects, rng))
    if party is None:
        attacks.append(_on_person(terms, n_subjects))
        if output_trials:
            attacks.append(_on_output(terms, attacks[-1], output_trials))
        if tables is not None:
            attacks.append(_on_typical(terms, tables, Unit.PERSON, n_subjects, rng))
    return attacks


def check_columns(columns: str) -> None:
    """SettingsError for a choice of columns that there is not."""
    if columns not in COLUMN_CHOICES:
        raise SettingsError(f"unknown choice of columns {columns!r}; known: {', '.join(COLUMN_CHOICES)}")


def run_attacks(
    attacks: Sequence[Attack],
    trials: int,
    *,
    confidence: float = 0.95,
    seed: int | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[MechanismFinding]:
    """All bounds hold together with the given confidence; an attack on many columns gets fewer trials."""
    check_trials(trials, confidence)
    each = 1.0 - (1.0 - confidence) / max(len(attacks), 1)
    found = []
    for k, attack in enumerate(attacks):
        if progress is not None:
            progress(f"attacking {attack.what}", k, len(attacks))
        measured = audit_release(
            attack.release,
            attack.neighbours,
            attack.claim,
            attack.trials or max(trials // attack.columns, min(trials, _FEWEST)),
            confidence=each,
            seed=seed,
            label=f"{k}",
            workers=workers,
        )
        found.append(MechanismFinding(attack.what, attack.change, attack.pairs, attack.n_subjects, measured))
    return found


# ---- one column ----------------------------------------------------------------------------


def _one_of_each_kind(terms: StudyTerms, parties: Sequence[Party]) -> Iterator[ColumnKey]:
    """Of each kind of column the one that spends most: the code is the same for the others."""
    best: dict[tuple[str, bool], ColumnKey] = {}
    for own in parties:
        for column in own.columns:
            key, kind = ColumnKey(own.name, column.name), (column.kind, latent_count(column) > 1)
            if kind not in best or terms.budgets[key].epsilon_ranks > terms.budgets[best[kind]].epsilon_ranks:
                best[kind] = key
    yield from best.values()


def _all_columns(parties: Sequence[Party]) -> Iterator[ColumnKey]:
    for own in parties:
        for column in own.columns:
            yield ColumnKey(own.name, column.name)


def _on_column(terms: StudyTerms, key: ColumnKey, n_subjects: int) -> Iterator[Attack]:
    party, column = terms.federation.party(key.party), terms.federation.column(key)
    whole = _release(terms, party, [key.column], rows=(0, 1))
    ranks, cells = replace(whole, parts=("ranks",)), replace(whole, parts=("cells",))
    what = f"{key} ({column.kind})"
    pair = flipped_comparison(party, [key.column])
    yield _attack(f"ranks of {what}", "one flipped comparison", 2, Unit.VARIABLE, terms, ranks, pair)
    pair = replaced_value(party, [key.column], _CELLS_SIZE)
    yield _attack(f"marginal of {what}", "one replaced value", _CELLS_SIZE, Unit.VARIABLE, terms, cells, pair)
    pair = replaced_value(party, [key.column], 2)
    change = "one replaced value, which is in one comparison"
    yield _attack(f"all of {what}", change, 2, Unit.VARIABLE, terms, whole, pair)
    pair = replaced_value(party, [key.column], n_subjects)
    change = f"one replaced value, which is in {n_subjects - 1} comparisons"
    first = replace(ranks, rows=(0,))
    yield _attack(f"ranks of {what}", change, n_subjects, Unit.BLOCK, terms, first, pair)
    if METHODS[terms.method].repeats_ranks:
        yield _on_completed(terms, key, n_subjects)


def _on_completed(terms: StudyTerms, key: ColumnKey, n_subjects: int) -> Attack:
    """Later rounds of IEVCDS: a quarter of the subjects were completed, and shift with the replaced value."""
    party, column = terms.federation.party(key.party), terms.federation.column(key)
    n_missing = n_subjects // 4
    seen = np.arange(n_subjects) < n_subjects - n_missing
    low, high = public_range(column)
    others = between(column, n_subjects - 1)
    pair = Neighbours(*(fill(party, {key.column: np.r_[end, others]}, seen) for end in (low, high)))
    epsilon = terms.budgets[key].epsilon_ranks
    grades = (np.arange(n_missing) + 0.5) / n_missing
    curve = (np.arange(n_subjects - n_missing) + 0.5) / (n_subjects - n_missing)
    if column.is_discrete:
        codes = np.resize(between(column, n_subjects - 1), n_missing).astype(np.int64)
        imputation = Imputation(key.column, epsilon, np.empty(0), np.empty(0), codes)
    else:
        imputation = Imputation(key.column, epsilon, curve, grades, None)
    release = CompletedRelease(terms.sampler, imputation, (0,))
    claim = claim_of(Unit.BLOCK, release.entries(pair.first, _ENTRIES), terms.delta)
    change = f"one replaced value among {n_subjects - n_missing} observed and {n_missing} completed"
    return Attack(f"completed ranks of {key} ({column.kind})", change, "chosen", n_subjects, claim, release, pair)


# ---- everything about one person -------------------------------------------------------------


def _on_party(terms: StudyTerms, party: Party, n_subjects: int) -> Iterator[Attack]:
    names = [c.name for c in party.columns]
    release = _release(terms, party, names, rows=(0, 1))
    pair = replaced_value(party, names, 2)
    change = "one comparison and one value in each column"
    yield _attack(f"everything from {party.name}", change, 2, Unit.CLIENT, terms, release, pair, columns=len(names))
    pair = replaced_value(party, names, n_subjects)
    first = replace(release, rows=(0,))
    what, change = f"everything from {party.name}", "one replaced block"
    yield _attack(what, change, n_subjects, Unit.BLOCK, terms, first, pair, columns=len(names))


def _on_person(terms: StudyTerms, n_subjects: int) -> Attack:
    pair = replaced_person_tables(terms.federation.parties, n_subjects)
    release = _person_release(terms, terms.federation.parties)
    claim = claim_of(Unit.PERSON, release.entries(pair.first, _ENTRIES), terms.delta)
    what, change = "everything from all parties", "one replaced person"
    return Attack(what, change, "chosen", n_subjects, claim, release, pair, len(terms.federation.keys))


def _on_output(terms: StudyTerms, person: Attack, trials: int) -> Attack:
    """The same person, seen through synthetic tables by the study's own method: they may not leak more."""
    assert terms.budget is not None  # a study has one
    check_trials(trials, 0.95)
    if not METHODS[terms.method].ranks:
        raise SettingsError(f"--output-trials cannot repeat a study with method {terms.method!r}")
    study_budget = terms.budget
    if study_budget.unit is not Unit.VARIABLE:  # the study's own shares, which need no calibration in every trial
        sums: dict[str, tuple[float, float]] = {}
        for key, budget in terms.budgets.items():
            ranks, margins = sums.get(key.party, (0.0, 0.0))
            sums[key.party] = (ranks + budget.epsilon_ranks, margins + budget.epsilon_marginal)
        study_budget = replace(study_budget, unit=Unit.CLIENT, parties=sums, per_round=True)  # a budget is of one round
    release = OutputRelease(terms.federation, study_budget, StudySettings(terms.method, dependence=terms.dependence))
    assert isinstance(person.neighbours, Neighbours)
    claim = claim_of(Unit.PERSON, release.entries(person.neighbours.first, _ENTRIES), terms.delta)
    return replace(person, what="the synthetic tables", claim=claim, release=release, trials=trials)


def _on_typical(
    terms: StudyTerms,
    tables: Mapping[str, AlignedTable],
    unit: Unit,
    n_subjects: int,
    rng: np.random.Generator,
) -> Attack:
    """Real subjects; the claim is the weakest over the pairs, which may have different empty cells."""
    parties = [p for p in terms.federation.parties if p.name in tables]
    size = min(n_subjects, next(iter(tables.values())).observed().shape[0] - 1)
    pairs = typical_people(tables, size, _PAIRS, rng)
    release = _person_release(terms, parties)
    claims = [claim_of(unit, release.entries(pair.first, _ENTRIES), terms.delta) for pair in pairs]
    claim = max(claims, key=lambda c: c.epsilon)
    person = unit is Unit.PERSON
    what = "everything from all parties" if person else f"everything from {parties[0].name}"
    change = f"one replaced {'person' if person else 'block'}"
    columns = sum(len(p.columns) for p in parties)
    return Attack(what, change, "typical", size, claim, release, pairs, columns)


def _person_release(terms: StudyTerms, parties: Sequence[Party]) -> PersonRelease:
    return PersonRelease({p.name: _release(terms, p, [c.name for c in p.columns], rows=(0,)) for p in parties})


def _release(terms: StudyTerms, party: Party, names: Sequence[str], rows: tuple[int, ...]) -> PartyRelease:
    orders = []
    for name in names:
        budget = terms.budgets[ColumnKey(party.name, name)]
        orders.append(ColumnQuery(name, budget.epsilon_ranks, budget.epsilon_marginal))
    return PartyRelease(terms.sampler, tuple(orders), rows, bounds_from_data=terms.bounds_from_data)


def _attack(
    what: str,
    change: str,
    n_subjects: int,
    unit: Unit,
    terms: StudyTerms,
    release: PartyRelease,
    pair: Neighbours[AlignedTable],
    columns: int = 1,
) -> Attack:
    claim = claim_of(unit, release.entries(pair.first, _ENTRIES), terms.delta)
    return Attack(what, change, "chosen", n_subjects, claim, release, pair, columns)
