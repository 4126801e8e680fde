"""Which pairs have their tables opened: a deterministic function of what was released before.

For every pair the first opening says how far its features' products are from what the copula makes of them. The
likelihood of that gives tau^2, how much the pair's table deviates. What a table is then worth is the distance it takes
away: deviations are expected to be S_ij tau before, and the posterior's after it was opened with the noise of all m
tables. m is the least number for which all chosen ones together take away nearly the most that any number does: what
tables take away overlaps. A pair without evidence is never chosen.

Where models will be made for a response of a few classes, its tables with all other columns are opened in any case:
they are small, and the first opening has too much noise to say which of them matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.cell_features import CellFeatures
from verticopula.stats.tilting.copula_estimate import CopulaEstimate
from verticopula.stats.tilting.openings import OpenedGram, count_noise, feature_places
from verticopula.stats.tilting.pair_scan import PairScan
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_kernels import distances_taken
from verticopula.stats.tilting.table_prior import (
    DeviationVariance,
    SideCache,
    TableReading,
    copula_table,
)
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PairEvidence:
    """What the first opening says about a pair beyond the copula.

    Attributes
    ----------
    pair : the two columns
    spread : how much its table deviates from the copula's
    """

    pair: tuple[int, int]
    spread: DeviationVariance


def read_pairs(
    gram: OpenedGram, features: Sequence[CellFeatures], columns: Sequence[PooledColumn], owners: Ints
) -> list[TableReading]:
    """What the first opening says about the table of every pair that somebody has both columns of."""
    places = feature_places([f.table.shape[1] for f in features])
    found = []
    for b in range(len(columns)):
        for a in range(b):
            total = float(gram.totals[owners[a], owners[b]])
            if total > 0.0:
                values = gram.matrix[places[a], places[b]] / total
                left, right = features[a].table, features[b].table
                people = float(gram.people[owners[a], owners[b]])
                found.append(TableReading((a, b), values, left, right, gram.deviation / total, people, False))
    return found


def weigh_pairs(
    readings: Sequence[TableReading],
    columns: Sequence[PooledColumn],
    copula: CopulaEstimate,
) -> list[PairEvidence]:
    """The evidence on every pair of which a copula cannot say all."""
    several = [reading for reading in readings if reading.values.size > 1]
    scan = PairScan(several, columns, SideCache(columns))
    squared, evidence = (own.tolist() for own in scan.against_copula(copula.latent_of, copula.correlation))
    return [
        PairEvidence(reading.pair, DeviationVariance(*spread))
        for reading, *spread in zip(several, squared, evidence, strict=True)
    ]


def expected_table(columns: Sequence[PooledColumn], copula: CopulaEstimate, pair: tuple[int, int]) -> Floats:
    """The copula's own table of a pair."""
    latents = copula.latent_of[pair[0]], copula.latent_of[pair[1]]
    r = float(copula.correlation[latents]) if min(latents) >= 0 else 0.0
    return copula_table(columns[pair[0]], columns[pair[1]], r)


def select_pairs(
    evidence: Sequence[PairEvidence],
    columns: Sequence[PooledColumn],
    people: NDArray[np.float64],
    mu: float,
    most: int,
    response: int | None = None,
) -> list[tuple[int, int]]:
    """The pairs whose tables are opened: a response's, if it has classes, then the most valuable first.

    Parameters
    ----------
    people : (p, p) how many people have both columns
    mu : of all tables together
    most : tables, at most
    response : the column that models will be made for, if there is one: its pairs count more
    """
    opened = _response_pairs(evidence, columns, people, response)[:most]
    taken = {e.pair for e in opened}
    worth = [
        e
        for e in evidence
        if e.pair not in taken and e.spread.evidence >= TUNING.least_evidence and people[e.pair] > 0.0
    ]
    gain = _GainOfPairs(columns, people)
    counted = np.array([TUNING.response_weight if response in e.pair else 1.0 for e in worth])
    found: list[tuple[float, list[int]]] = []
    for m in range(min(len(worth), most - len(opened)) + 1):
        noise = count_noise(max(m + len(opened), 1), mu)
        gains = gain(worth, noise) * counted
        order = np.argsort(-gains, kind="stable")[:m]
        own = TUNING.response_weight * float(gain(opened, noise).sum())
        found.append((own + float(gains[order].sum()), order.tolist()))
        if found[-1][0] < TUNING.enough_gain * max(found)[0]:
            break
    most_gain = max(found)[0]
    chosen = next(order for total, order in found if total >= TUNING.enough_gain * most_gain)
    return [e.pair for e in opened] + [worth[k].pair for k in chosen]


def has_classes(column: PooledColumn) -> bool:
    """Whether a response has so few cells that they count as classes."""
    return 2 <= column.n_filled <= TUNING.most_classes


def _response_pairs(
    evidence: Sequence[PairEvidence],
    columns: Sequence[PooledColumn],
    people: NDArray[np.float64],
    response: int | None,
) -> list[PairEvidence]:
    """All pairs of a response with classes that somebody has both columns of, the clearest first."""
    if response is None or not has_classes(columns[response]):
        return []
    known = {e.pair: e for e in evidence}
    pairs = [(min(j, response), max(j, response)) for j in range(len(columns)) if j != response]
    own = [known.get(p, PairEvidence(p, DeviationVariance(0.0, 0.0))) for p in pairs if people[p] > 0.0]
    return sorted(own, key=lambda e: -e.spread.squared)


class _GainOfPairs:
    """The total variation distances that tables take away.

    Parameters
    ----------
    people : (p, p) how many people have both columns
    """

    def __init__(self, columns: Sequence[PooledColumn], people: Floats) -> None:
        self._cells = np.array([column.n_cells for column in columns], dtype=np.int64)
        self._shares = np.zeros((len(columns), int(self._cells.max(initial=1))))
        for j, column in enumerate(columns):
            self._shares[j, : column.n_cells] = column.shares
        self._people = people

    def __call__(self, evidence: Sequence[PairEvidence], deviation: float) -> Floats:
        """Of each pair's table, if counts are opened with noise of this standard deviation."""
        pairs = np.array([e.pair for e in evidence], dtype=np.int64).reshape(-1, 2)
        spreads = np.sqrt(np.array([e.spread.squared for e in evidence], dtype=np.float64))
        noises = (deviation / self._people[tuple(pairs.T)]) ** 2
        out = np.empty(len(pairs))
        distances_taken(pairs, spreads, noises, self._shares, self._cells, TUNING.distance_factor, out)
        return out
