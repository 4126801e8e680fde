"""Attacking the first opening as one of the parties: can numbers that are no cells lift another party's block out of
the noise?

A dishonest party shares one of the forgeries of `forged_cells`. Where a check refuses it, nothing is opened and nothing
is told. Where none does, the sums are opened, and what they tell about another party's replaced block is measured as in
`sums_attacks`. The attacker knows what it has shared, so it subtracts the exact sums with its forgery, modulo p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.bounds.mechanism_audit import check_trials
from verticopula.auditing.bounds.trials import run_trials
from verticopula.auditing.sums.forged_cells import FORGERIES, Forged, Forgery, ForgingDealer, Target
from verticopula.auditing.sums.sums_attacks import (
    MeasuredSums,
    MuBound,
    SumsRelease,
    all_deviations,
    describe_bound,
    judge_sums,
)
from verticopula.auditing.sums.sums_neighbours import Cells, SumsNeighbours, no_pairs, repeat_subjects
from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.prime_field import HALF, PRIME
from verticopula.mpc.sums_plan import SumsPlan, features_of_cells, own_features, own_rows, own_statement
from verticopula.mpc.verified_cells import column_starts
from verticopula.privacy.noise import Noise
from verticopula.schema.defaults import DEFAULT_DELTA

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORGED_TRIALS = 200  # a forgery that passes is seen at once
FORGED_COPIES = 32  # of the plan's people, so that there are several groups of numbers to combine
OPENINGS = 10  # of one study's proven cells


@dataclass(frozen=True)
class ForgedRelease:
    """The first opening with one dishonest dealer, less what the dealer knows.

    The plan's people are there many times over, all of them known to the attacker. The one who is replaced stands
    where the forgery is.

    Attributes
    ----------
    plan : one pattern
    known : the data set whose exact sums the attacker subtracts
    """

    plan: SumsPlan
    dealer: str
    forgery: Forgery
    known: Cells
    copies: int = FORGED_COPIES

    def __call__(self, cells: Cells, noise: Noise) -> Floats:
        """(openings * numbers,) in claimed standard deviations; zeros where the study is refused."""
        plan = repeat_subjects(self.plan, self.copies)
        target = find_target(self.plan, self.dealer, self.copies)
        dealers = {self.dealer: partial(ForgingDealer, self.forgery, target)}
        release = SumsRelease(plan, np.zeros(0), copies=OPENINGS, dealers=dealers)
        exact = self.exact(self.known)
        try:
            opened = release.open_copies(self.whole(cells), noise)
        except ProtocolError:  # a check has failed: nothing is opened
            return np.zeros(OPENINGS * len(exact))
        return np.concatenate([self._standardise(numbers, exact) for numbers in opened])

    def whole(self, cells: Cells) -> dict[str, Ints]:
        """Everybody's cells: the known ones, and these where the forgery is."""
        subjects = self.plan.pattern_of.size
        copy = int(self.forge().rows[0]) // subjects
        found = {}
        for party, known in self.known.items():
            found[party] = np.tile(known, (self.copies, 1))
            if len(known):
                found[party][copy * subjects : (copy + 1) * subjects] = cells[party]
        return found

    def exact(self, cells: Cells) -> list[int]:
        """The products modulo p without noise, in units of 4^-bits."""
        plan, everybody, parts = repeat_subjects(self.plan, self.copies), self.whole(cells), []
        for party in plan.parties:
            if party == self.dealer:
                parts.append(self._forged_scores())
            elif own_rows(plan, party).any():
                parts.append(features_of_cells(plan, party, everybody[party]).astype(object))
            else:
                width = sum(table.shape[1] for table in own_features(plan, party))
                parts.append(np.zeros((plan.pattern_of.size, width), dtype=object))
        rows = np.hstack(parts)
        return [int(number) % PRIME for number in (rows.T @ rows)[np.triu_indices(plan.width)]]

    def forge(self) -> Forged:
        """What the dealer shares; its own cells are the same in both data sets."""
        statement = own_statement(repeat_subjects(self.plan, self.copies), "", "", self.dealer)
        codes = np.tile(self.known[self.dealer], (self.copies, 1))
        return self.forgery.forge(statement, codes, find_target(self.plan, self.dealer, self.copies))

    def direction(self, second: Cells) -> Floats:
        """How far the other data set moves the opened numbers, in claimed standard deviations."""
        moved = np.array(self.exact(second), dtype=np.float64) / 4.0**self.plan.bits
        return self._standardise(moved, self.exact(self.known))

    def _forged_scores(self) -> NDArray[np.object_]:
        """What the maps of the sums make of the forged numbers."""
        statement = own_statement(repeat_subjects(self.plan, self.copies), "", "", self.dealer)
        values = self.forge().values.astype(object)
        edges = (*column_starts(statement), statement.width)
        scores = []
        for column, table in enumerate(own_features(self.plan, self.dealer)):
            whole = table.astype(object)
            scores.append(values[:, edges[column] : edges[column + 1]] @ (whole[:-1] - whole[-1]) + whole[-1])
        return np.hstack(scores) * int(self.plan.weights[0, self.plan.parties.index(self.dealer)])

    def _standardise(self, opened: Floats, known: Sequence[int]) -> Floats:
        unit = 4.0**self.plan.bits
        rest = [(int(number * unit) - exact + HALF) % PRIME - HALF for number, exact in zip(opened, known, strict=True)]
        return np.array(rest, dtype=np.float64) / unit / all_deviations(self.plan, no_pairs())


def find_target(plan: SumsPlan, dealer: str, copies: int) -> Target:
    """The first person of every copy, in the dealer's column where a large number moves the scores most."""
    slopes = [
        np.linalg.norm((table[:-1] - table[-1]).astype(np.float64), axis=1) for table in own_features(plan, dealer)
    ]
    column = max(range(len(slopes)), key=lambda k: (slopes[k].size > 1 and slopes[k].max() > 0, slopes[k].max()))
    cell = int(np.argmax(slopes[column]))
    others = [k for k in np.argsort(slopes[column]).tolist() if k != cell]
    return Target(np.arange(copies) * plan.pattern_of.size, column, cell, others[0] if others else None)


def dishonest_parties(neighbours: SumsNeighbours) -> list[str]:
    """Who could attack the replaced block: one party that computes and one that does not, where there are."""
    plan, pair = neighbours.plan, neighbours.pair
    others = [
        party
        for k, party in enumerate(plan.parties)
        if plan.parts[0, k] and np.array_equal(pair.first[party], pair.second[party])
    ]
    kinds = [[party for party in others if (party in plan.compute) is computes] for computes in (True, False)]
    return [kind[0] for kind in kinds if kind]


def audit_forgery(
    neighbours: SumsNeighbours,
    dealer: str,
    forgery: Forgery,
    trials: int = FORGED_TRIALS,
    *,
    delta: float = DEFAULT_DELTA,
    confidence: float = 0.95,
    seed: int | None = None,
    copies: int = FORGED_COPIES,
) -> MeasuredSums | None:
    """The largest mu that one party can refute with one forgery; None where the forgery does not fit into its cells.

    Parameters
    ----------
    neighbours : a replaced block of another party, of which the first opening alone is seen
    dealer : who forges
    forgery : what it does to its cells
    trials : openings in all, where the forgery passes; a refused one is tried once with each data set
    delta : at which mu is told as an epsilon
    confidence : of the bound
    seed : makes it repeatable; None for cryptographic noise
    """
    check_trials(trials, confidence)
    plan, pair = neighbours.plan, neighbours.pair
    if not np.array_equal(pair.first[dealer], pair.second[dealer]):
        raise SettingsError(f"party {dealer!r} cannot attack its own replaced block")
    release = ForgedRelease(plan, dealer, forgery, pair.first, copies)
    if release.forge().rows.size == 0:
        return None
    direction, each = release.direction(pair.second), -(-trials // 2)

    def run(studies: int, label: str, data: Cells) -> Floats:
        return run_trials(release, data, studies, label=label, seed=seed).reshape(-1, direction.size)

    sides = (("first", pair.first), ("second", pair.second))
    if not any(run(1, f"one {label}", data).any() for label, data in sides):
        return describe_bound(neighbours, MuBound(0.0, 0.0, "refused"), delta, 2, confidence)
    first, second = (run(-(-each // OPENINGS), label, data)[:each] for label, data in sides)
    return describe_bound(neighbours, judge_sums(first, second, direction, confidence), delta, 2 * each, confidence)


def audit_forgeries(
    neighbours: SumsNeighbours,
    trials: int = FORGED_TRIALS,
    *,
    delta: float = DEFAULT_DELTA,
    confidence: float = 0.95,
    seed: int | None = None,
) -> MeasuredSums:
    """The first forgery that refutes the claim, or the best of all; SettingsError where no other party takes part.

    Parameters
    ----------
    neighbours : a replaced block of another party, of which the first opening alone is seen
    trials : openings in all of each forgery, where it passes
    delta : at which mu is told as an epsilon
    confidence : with which the bounds of all forgeries hold together
    seed : makes it repeatable; None for cryptographic noise
    """
    dealers = dishonest_parties(neighbours)
    if not dealers:
        raise SettingsError("no other party takes part in these sums")
    each = 1.0 - (1.0 - confidence) / (len(dealers) * len(FORGERIES))
    found: list[MeasuredSums] = []
    for dealer, forgery in product(dealers, FORGERIES):
        one = audit_forgery(neighbours, dealer, forgery, trials, delta=delta, confidence=each, seed=seed)
        found += [] if one is None else [one]
        if one is not None and not one.holds:
            break
    best = max(found, key=lambda one: one.mu_low)
    return replace(best, trials=sum(one.trials for one in found))
