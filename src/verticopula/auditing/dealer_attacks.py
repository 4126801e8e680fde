"""Attacking the opened sums as one of the parties: can numbers that are no cells lift another party's block out of
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

from verticopula.auditing.forged_cells import FORGERIES, Forged, Forgery, ForgingDealer, Target
from verticopula.auditing.mechanism_audit import check_trials
from verticopula.auditing.sums_attacks import (
    MeasuredSums,
    MuBound,
    SumsRelease,
    all_deviations,
    describe_bound,
    judge_sums,
)
from verticopula.auditing.sums_neighbours import Cells, SumsNeighbours, repeat_plan
from verticopula.auditing.trials import run_trials
from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.prime_field import HALF, PRIME
from verticopula.mpc.sums_plan import SumsPlan, own_statement, own_tables, score_cells
from verticopula.mpc.verified_cells import column_starts
from verticopula.privacy.noise import Noise
from verticopula.schema.defaults import DEFAULT_DELTA

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORGED_TRIALS = 200  # a forgery that passes is seen at once
FORGED_COPIES = 32  # so that there are several groups of numbers to combine


@dataclass(frozen=True)
class ForgedRelease:
    """Secure sums with one dishonest dealer; what is opened of the forged copies, less what the dealer knows.

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
        """(forged copies * numbers,) in claimed standard deviations; zeros where the study is refused."""
        target = find_target(self.plan, self.dealer, self.copies)
        release = SumsRelease(
            self.plan,
            np.zeros(0),
            self.copies,
            dealers={self.dealer: partial(ForgingDealer, self.forgery, target)},
        )
        exact = self.exact(self.known)
        try:
            opened = release.open_copies(cells, noise)
        except ProtocolError:  # a check has failed: nothing is opened
            return np.zeros(len(exact) * all_deviations(self.plan).size)
        return np.concatenate([self._standardise(opened[copy], numbers) for copy, numbers in exact.items()])

    def exact(self, cells: Cells) -> dict[int, list[int]]:
        """Forged copy -> the sums modulo p without noise, in units of 4^-bits: products, then sums."""
        forged = self.forge(cells)
        subjects = self.plan.pattern_of.size
        return {copy: self._exact_copy(cells, forged, copy * subjects) for copy in (forged.rows // subjects).tolist()}

    def forge(self, cells: Cells) -> Forged:
        """What the dealer shares of all copies."""
        statement = own_statement(repeat_plan(self.plan, self.copies), "", "", self.dealer)
        codes = np.tile(cells[self.dealer], (self.copies, 1))
        return self.forgery.forge(statement, codes, find_target(self.plan, self.dealer, self.copies))

    def direction(self, second: Cells) -> Floats:
        """How far the other data set moves a forged copy, in claimed standard deviations."""
        first, moved = self.exact(self.known), self.exact(second)
        copy = next(iter(first))
        return self._standardise(np.array(moved[copy], dtype=np.float64) / 4.0**self.plan.bits, first[copy])

    def _exact_copy(self, cells: Cells, forged: Forged, start: int) -> list[int]:
        parts = []
        for party in self.plan.parties:
            if party == self.dealer:
                parts.append(self._forged_scores(forged, start))
            elif self.plan.bounds[0, self.plan.parties.index(party)]:
                parts.append(score_cells(self.plan, party, cells[party]).astype(object))
            else:
                parts.append(np.zeros((self.plan.pattern_of.size, self.plan.widths[len(parts)]), dtype=object))
        rows = np.hstack(parts)[:, self.plan.columns[0]]
        products = (rows.T @ rows)[np.triu_indices(rows.shape[1])]
        sums = rows.sum(axis=0) * (1 << self.plan.bits)
        return [int(number) % PRIME for number in (*products, *sums)]

    def _forged_scores(self, forged: Forged, start: int) -> NDArray[np.object_]:
        """What the maps of the sums make of the forged numbers."""
        statement = own_statement(self.plan, "", "", self.dealer)
        values = forged.values[start : start + statement.rows].astype(object)
        edges = (*column_starts(statement), statement.width)
        scores = []
        for column, table in enumerate(own_tables(self.plan, self.dealer)):
            whole = table[0].astype(object)
            scores.append(values[:, edges[column] : edges[column + 1]] @ (whole[:-1] - whole[-1]) + whole[-1])
        return np.hstack(scores)

    def _standardise(self, opened: Floats, known: Sequence[int]) -> Floats:
        unit = 4.0**self.plan.bits
        rest = [(int(number * unit) - exact + HALF) % PRIME - HALF for number, exact in zip(opened, known, strict=True)]
        return np.array(rest, dtype=np.float64) / unit / all_deviations(self.plan)


def find_target(plan: SumsPlan, dealer: str, copies: int) -> Target:
    """The first person of every copy, in the dealer's column where a large number moves the scores most."""
    slopes = [
        np.linalg.norm((table[0, :-1] - table[0, -1]).astype(np.float64), axis=1) for table in own_tables(plan, dealer)
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
        if plan.bounds[0, k] and np.array_equal(pair.first[party], pair.second[party])
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
    neighbours : a replaced block of another party
    trials : opened patterns in all, where the forgery passes; a refused one is tried once with each data set
    """
    check_trials(trials, confidence)
    plan, pair = neighbours.plan, neighbours.pair
    if not np.array_equal(pair.first[dealer], pair.second[dealer]):
        raise SettingsError(f"party {dealer!r} cannot attack its own replaced block")
    release = ForgedRelease(plan, dealer, forgery, pair.first, copies)
    found = release.forge(pair.first).rows.size
    if found == 0:
        return None
    direction, each = release.direction(pair.second), -(-trials // 2)

    def run(studies: int, label: str, data: Cells) -> Floats:
        return run_trials(release, data, studies, label=label, seed=seed).reshape(-1, direction.size)

    sides = (("first", pair.first), ("second", pair.second))
    if not any(run(1, f"one {label}", data).any() for label, data in sides):
        return describe_bound(neighbours, MuBound(0.0, 0.0, "refused"), delta, 2, confidence)
    first, second = (run(-(-each // found), label, data)[:each] for label, data in sides)
    return describe_bound(neighbours, judge_sums(first, second, direction, confidence), delta, 2 * each, confidence)


def audit_forgeries(
    neighbours: SumsNeighbours,
    trials: int = FORGED_TRIALS,
    *,
    delta: float = DEFAULT_DELTA,
    confidence: float = 0.95,
    seed: int | None = None,
) -> MeasuredSums:
    """The first forgery that refutes the claim, or the best of all. Their bounds hold together with `confidence`.

    SettingsError where no other party takes part in the sums.
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
