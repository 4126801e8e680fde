"""Attacks on a strict study's claims: a replaced person and a replaced block, in its openings and in its margins.

The plan of the openings is rebuilt from what a finished study keeps, and cut down: one pattern at a time, few people,
few columns. How long records of the pattern may be, fractional bits and mu stay. Nobody's data is needed: the two data
sets are the worst that the plan allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.auditing.bounds.claims import Claim
from verticopula.auditing.bounds.mechanism_audit import MeasuredClaim, Neighbours, check_trials
from verticopula.auditing.bounds.trials import AUDIT_STUDY, run_trials
from verticopula.auditing.releases.attack_plan import MechanismFinding
from verticopula.auditing.releases.neighbours import replaced_value
from verticopula.auditing.sums.dealer_attacks import FORGED_TRIALS, audit_forgeries, dishonest_parties
from verticopula.auditing.sums.sums_attacks import audit_sums, judge_sums, mu_low
from verticopula.auditing.sums.sums_neighbours import (
    SUBJECTS,
    SumsNeighbours,
    cut_plan,
    replaced_block,
    replaced_record,
    without_tables,
)
from verticopula.data.tables import AlignedTable
from verticopula.errors import ProtocolError, SettingsError
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.mpc.sums_plan import SumsPlan, own_columns
from verticopula.mpc.verified_sums import features_bound
from verticopula.privacy.gaussian_dp import compose, gaussian_epsilon
from verticopula.privacy.noise import Noise, SeededNoise
from verticopula.privacy.release import Release
from verticopula.protocol.party.charging import Charging
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.strict_messages import GaussianMarginsReply, GaussianMarginsRequest, MarginQuery
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Party
from verticopula.schema.methods import STRICT
from verticopula.schema.progress import Progress
from verticopula.schema.units import Unit
from verticopula.stats.margin_cells import to_cells
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count
from verticopula.stats.strict.noise_budget import plan_strict_budget
from verticopula.stats.strict.strict_plan import plan_strict_sums
from verticopula.storage.ledger import Ledger

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_COLUMNS = 8  # opened together in an attack, more only where there are more parties
MARGIN_SUBJECTS = 20
_BLOCK = "one replaced block of "
_COUNTED = 0.8  # of the trials, see `sums_attacks.judge_sums`

SCALED_DOWN_NOTE = (
    "Sums and tables were attacked in a study cut down from the real one: {patterns} of its {real} presence patterns, "
    "{subjects} people in place of {people:,}, {columns} of {all} features, {tables} tables. How long a record of the "
    "pattern may be, fractional bits and mu are the study's. Nothing was released and no budget was spent."
)
TOGETHER_NOTE = (
    "Openings and margins are attacked one by one. What the study states is about all together: ε = {person:.3g} per "
    "person, {block:.3g} per block at δ = {delta:g}."
)
FEW_TRIALS_NOTE = (
    "With {trials:,} trials a bound on μ is {short:.2g} below the truth: noise that is gone is found, noise that is "
    "somewhat too small is not. More --trials."
)


@dataclass(frozen=True)
class MarginsRelease:
    """The margins of one party's columns through the product's own party, in claimed standard deviations."""

    deviations: Mapping[str, float]

    def __call__(self, table: AlignedTable, noise: Noise) -> Floats:
        return self._ask(table, noise, Ledger())

    def entries(self, table: AlignedTable) -> list[Release]:
        """What the party writes to its ledger for it."""
        ledger = Ledger()
        self._ask(table, SeededNoise(0), ledger)
        return list(ledger)

    def _ask(self, table: AlignedTable, noise: Noise, ledger: Ledger) -> Floats:
        orders = tuple(MarginQuery(name, deviation) for name, deviation in self.deviations.items())
        party = LocalParty(ReleaseControl(table, noise, charging=Charging(ledger)))
        reply = party.handle(GaussianMarginsRequest(AUDIT_STUDY, STRICT.name, orders))
        if not isinstance(reply, GaussianMarginsReply):
            raise ProtocolError("the party under audit did not answer with margins")
        return self._standardise(reply.cells)

    def exact(self, table: AlignedTable) -> Floats:
        """What would be released without noise."""
        found = []
        for name, deviation in self.deviations.items():
            column, values = table.party.column(name), table.columns[name].values
            size = gaussian_cell_count(column, values.size, deviation)
            cells = to_cells(values, column, size)  # nobody is without a value, also where there is a cell for it
            found.append(np.bincount(cells, minlength=size + table.party.may_be_empty(name)))
        return self._standardise(found)

    def _standardise(self, cells: Sequence[Ints]) -> Floats:
        """Of two cells the second follows from the first."""
        parts = [
            (counts[:1] if counts.size == 2 else counts) / deviation
            for counts, deviation in zip(cells, self.deviations.values(), strict=True)
        ]
        return np.concatenate(parts)


def plan_of(synthesizer: Synthesizer) -> SumsPlan:
    """The plan of a finished study's openings, from what it keeps: presence patterns, noisy margins, mu."""
    result, federation = synthesizer.result_, synthesizer.federation
    if result.spending is None:
        raise SettingsError(f"this is no study of method {STRICT.name!r}")
    known = result.missingness
    rows = np.repeat(
        np.array([pattern for pattern, _ in known.patterns], dtype=np.bool_),
        [count for _, count in known.patterns],
        axis=0,
    )
    people = {party: rows[:, known.parties.index(party)] for party in known.parties}
    counts = {key: int(people[key.party].sum()) for key in federation.keys}
    budget = plan_strict_budget(federation, synthesizer.budget, counts, known.n_subjects)
    plan = plan_strict_sums(federation, people, result.observed_margins, budget).sums
    same_empties = result.spending.empties == {key for key, empty in budget.empties.items() if empty}
    if (result.spending.tables > 0.0) != (plan.most_tables > 0) or not same_empties:
        raise SettingsError("the study is of an earlier version, whose openings cannot be attacked any more")
    return replace(plan, mu=result.spending.mu, mu_tables=result.spending.tables)


def narrow(plan: SumsPlan, most: int = MOST_COLUMNS) -> SumsPlan:
    """A plan of one pattern with few columns of every party that has a part in it.

    What stands for their cells is as much longer as there are fewer, so bounds stay as they are up to rounding.
    """
    taking_part = [party for k, party in enumerate(plan.parties) if plan.parts[0, k]]
    each = max(most // max(len(taking_part), 1), 1)
    tables, groups, n_columns = [], [], []
    for k, party in enumerate(plan.parties):
        numbers = list(own_columns(plan, party))
        longest = {j: features_bound([plan.features[j]]) for j in numbers}
        kept = [j for j in sorted(numbers, key=lambda j: plan.features[j].shape[1]) if longest[j] > 0][:each]
        factor = math.sqrt(plan.longest[k] / max(sum(longest[j] for j in kept), 1))
        kept = kept or numbers[:1]
        tables += [np.trunc(plan.features[j] * factor).astype(np.int64) for j in kept]
        groups += [plan.groups[j] for j in kept]
        n_columns.append(len(kept))
    return replace(plan, n_columns=tuple(n_columns), features=tuple(tables), groups=tuple(groups))


def plan_sums_attacks(plan: SumsPlan, party: str | None) -> list[tuple[str, SumsNeighbours]]:
    """(what differs, the two data sets): a person, and each party's block, where they move the openings most."""
    longest = plan.parts.sum(axis=1)
    attacks = []
    if party is None:
        whole = narrow(cut_plan(plan, int(np.argmax(longest)), SUBJECTS))
        attacks.append(("one replaced person", replaced_record(whole)))
    for k, name in enumerate(plan.parties):
        if party in (None, name) and plan.parts[:, k].any():
            worst = int(np.argmax(np.where(plan.parts[:, k] > 0, _block_share(plan, k), -1.0)))
            attacks.append((f"{_BLOCK}{name}", replaced_block(narrow(cut_plan(plan, worst, SUBJECTS)), name)))
    return attacks


def _block_share(plan: SumsPlan, party: int) -> Floats:
    """(P,) what replacing a party's part moves the products of each pattern by, relative to the longest record."""
    part, whole = plan.parts[:, party].astype(np.float64), plan.parts.sum(axis=1).astype(np.float64)
    return np.asarray(np.where(2 * part <= whole, 2.0 * np.sqrt(part * (whole - part)), whole) / plan.bound)


def attack_strict(
    synthesizer: Synthesizer,
    trials: int,
    *,
    confidence: float,
    party: str | None = None,
    seed: int | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> tuple[list[MechanismFinding], list[str]]:
    """(findings, notes) about the claims of a strict study, or about one party's; all bounds hold together."""
    check_trials(trials, confidence)
    plan, result = plan_of(synthesizer), synthesizer.result_
    assert result.spending is not None  # `plan_of` has seen to it
    delta = synthesizer.delta or 0.0
    sums = plan_sums_attacks(plan, party)
    owners = [own for own in synthesizer.federation.parties if party in (None, own.name)]
    total, found = len(sums) + 1 + len(owners), []
    each = 1.0 - (1.0 - confidence) / total
    visible = gaussian_epsilon(_most_mu(trials, each), delta)
    for k, (change, neighbours) in enumerate(sums):
        if progress is not None:
            progress("attacking opened sums", k, total)
        got = audit_sums(neighbours, trials, delta=delta, confidence=each, seed=seed, workers=workers)
        claim = Claim(got.unit.value, got.epsilon, delta)
        measured = MeasuredClaim(claim, got.epsilon_low, visible, got.trials, each)
        what = f"opened sums and tables (μ = {got.mu:.3g})"
        found.append(MechanismFinding(what, change, "chosen", neighbours.plan.pattern_of.size, measured))
    if progress is not None:
        progress("attacking the check of shared cells", len(sums), total)
    found += _attack_check(sums, delta, each, seed)
    for k, own in enumerate(owners):
        if progress is not None:
            progress(f"attacking margins of {own.name}", len(sums) + 1 + k, total)
        deviations = {c.name: result.spending.deviations[ColumnKey(own.name, c.name)] for c in own.columns}
        found.append(_attack_margins(own, deviations, delta, trials, each, seed, workers, visible))
    return found, _notes(synthesizer, plan, [pair for _, pair in sums], trials, each)


def _attack_check(
    attacks: Sequence[tuple[str, SumsNeighbours]], delta: float, confidence: float, seed: int | None
) -> list[MechanismFinding]:
    """Another party shares numbers that are no cells: the first replaced block for which there is such a party."""
    for change, neighbours in attacks:
        if neighbours.unit is Unit.BLOCK and dishonest_parties(neighbours):
            alone = without_tables(neighbours, change.removeprefix(_BLOCK))
            got = audit_forgeries(alone, FORGED_TRIALS, delta=delta, confidence=confidence, seed=seed)
            visible = gaussian_epsilon(_most_mu(FORGED_TRIALS, got.confidence), delta)
            measured = MeasuredClaim(
                Claim(got.unit.value, got.epsilon, delta), got.epsilon_low, visible, got.trials, confidence
            )
            what = f"opened sums, a party shares no cells (μ = {got.mu:.3g})"
            return [MechanismFinding(what, change, "chosen", neighbours.plan.pattern_of.size, measured)]
    return []


def _attack_margins(
    own: Party,
    deviations: Mapping[str, float],
    delta: float,
    trials: int,
    confidence: float,
    seed: int | None,
    workers: int,
    visible: float,
) -> MechanismFinding:
    """One person's value from one end to the other, in all of a party's columns."""
    pair: Neighbours[AlignedTable] = replaced_value(own, list(deviations), MARGIN_SUBJECTS)
    release = MarginsRelease(deviations)
    mu = compose(entry.mu for entry in release.entries(pair.first))
    known = release.exact(pair.first)
    half = -(-trials // 2)
    first, second = (
        run_trials(release, data, half, label=f"margins {own.name} {label}", seed=seed, workers=workers) - known
        for label, data in (("first", pair.first), ("second", pair.second))
    )
    judged = judge_sums(first, second, release.exact(pair.second) - known, confidence)
    claim = Claim(Unit.BLOCK.value, gaussian_epsilon(mu, delta), delta)
    measured = MeasuredClaim(claim, gaussian_epsilon(judged.mu_low, delta), visible, 2 * half, confidence)
    what, change = f"margins of {own.name} (μ = {mu:.3g})", f"{_BLOCK}{own.name}"
    return MechanismFinding(what, change, "chosen", MARGIN_SUBJECTS, measured)


def _most_mu(trials: int, confidence: float) -> float:
    """The bound that so many trials would give if every guess were right."""
    counted = _counted(trials)
    return mu_low(counted, counted, 0, counted, 1.0 - confidence)


def _counted(trials: int) -> int:
    """Of each data set, after some were spent on choosing."""
    return max(int(_COUNTED * trials / 2), 1)


def _notes(
    synthesizer: Synthesizer, plan: SumsPlan, attacked: list[SumsNeighbours], trials: int, confidence: float
) -> list[str]:
    # Cut in the middle, a probit has a standard error of sqrt(pi/2/n); the bound gives away two half-widths.
    short = -2.0 * float(ndtri((1.0 - confidence) / 2.0)) * math.sqrt(math.pi / 2.0 / _counted(trials))
    known = {pair.plan.weights.tobytes() for pair in attacked}
    widest = max(pair.plan.width for pair in attacked)
    return [
        SCALED_DOWN_NOTE.format(
            patterns=len(known),
            real=len(plan.weights),
            subjects=SUBJECTS,
            people=plan.pattern_of.size,
            columns=widest,
            all=plan.width,
            tables=max(len(pair.pairs) for pair in attacked),
        ),
        TOGETHER_NOTE.format(
            person=synthesizer.privacy_.person,
            block=max(stated.block for stated in synthesizer.privacy_.parties.values()),
            delta=synthesizer.delta or 0.0,
        ),
        FEW_TRIALS_NOTE.format(trials=trials, short=short),
    ]
