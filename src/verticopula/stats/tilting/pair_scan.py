"""The evidence of all pairs' products of features at once: what one pair's says is in `table_prior.py`.

A study of 500 columns has 125,000 pairs. They are gone through in compiled loops, without an object for any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_kernels import (
    SERIES_TERMS,
    STRONGEST_IN_TABLES,
    TINY,
    WORD_BITS,
    count_marked,
    integrate_rectangles,
    mark_cells,
    products_of,
    scale_to_margins,
    sum_rectangles,
    weigh_products,
    write_series,
)
from verticopula.stats.tilting.table_prior import (
    DEVIATION_SPREADS,
    ROUNDS,
    ROUNDS_NEARBY,
    SideCache,
    TableReading,
    feature_variances,
    latent_cuts,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


class PairScan:
    """Readings of many pairs, in flat arrays.

    Parameters
    ----------
    readings : of a column always the same features, or indicators of all of its cells
    columns, sides : the study's
    """

    def __init__(self, readings: Sequence[TableReading], columns: Sequence[PooledColumn], sides: SideCache) -> None:
        self._pairs = np.array([reading.pair for reading in readings], dtype=np.int64).reshape(-1, 2)
        sizes = np.array([reading.values.size for reading in readings], dtype=np.int64)
        self._ends = np.concatenate([[0], np.cumsum(sizes)])
        self._values = np.concatenate([np.zeros(0), *(reading.values.ravel() for reading in readings)])
        self._deviations = _spread_deviations(readings, sizes)
        self._people = np.array([reading.people for reading in readings])
        self._columns = columns
        cells, widths = np.array([c.n_cells for c in columns], dtype=np.int64), np.zeros(len(columns), dtype=np.int64)
        widths[self._pairs] = np.array([reading.values.shape for reading in readings], dtype=np.int64).reshape(-1, 2)
        self._cells, self._widths = cells, widths
        most, widest = int(cells.max(initial=1)), int(widths.max(initial=1))
        self._shares = np.zeros((len(columns), most))
        self._features = np.zeros((len(columns), most, widest))
        self._variances, self._sizes = np.zeros((len(columns), widest)), np.zeros((len(columns), widest))
        self._vectors = np.zeros((len(columns), widest, widest))
        for j, column in enumerate(columns):
            self._shares[j, : column.n_cells] = column.shares
        seen = np.zeros(len(columns), dtype=np.bool_)
        for reading in readings:
            a, b = reading.pair
            if seen[a] and seen[b]:
                continue
            for j, features, side in zip(reading.pair, (reading.left, reading.right), sides.of(reading), strict=True):
                c, k = features.shape
                self._features[j, :c, :k] = features
                self._variances[j, :k] = feature_variances(features, columns[j].shares)
                self._sizes[j, :k], self._vectors[j, :k, :k] = side.sizes, side.vectors
                seen[j] = True

    @property
    def _arrays(self) -> tuple[NDArray[np.generic], ...]:
        return (
            *(self._pairs, self._ends, self._values, self._deviations, self._people, self._cells, self._widths),
            *(self._shares, self._features, self._variances, self._sizes, self._vectors, DEVIATION_SPREADS),
        )

    def against_copula(self, latent_of: Ints, correlation: Floats) -> tuple[Floats, Floats]:
        """tau^2 and evidence of every pair beyond a copula. Products of two scores have gone into it."""
        p, filled = len(self._columns), np.array([c.n_filled for c in self._columns], dtype=np.int64)
        most = int(filled.max(initial=1))
        cuts, series = np.full((p, most + 1), 8.0), np.zeros((p, most, SERIES_TERMS))
        for j in np.flatnonzero(latent_of >= 0).tolist():
            own = latent_cuts(self._columns[j])
            cuts[j, : own.size] = own
            write_series(own, series[j, : own.size - 1])
        found = np.zeros((len(self._pairs), 2))
        strengths = np.ascontiguousarray(correlation, dtype=np.float64)
        _scan_copula(*self._arrays, latent_of, strengths, filled, cuts, series, found)
        return found[:, 0], found[:, 1]

    def against_rows(self, y: Bytes) -> Floats:
        """The evidence of every pair beyond the tables of a model's rows."""
        ends = np.concatenate([[0], np.cumsum(self._cells)]).astype(np.int64)
        marked = np.zeros((ends[-1], -(-len(y) // WORD_BITS)), dtype=np.uint64)
        mark_cells(y, ends, marked)
        counts = np.concatenate([np.bincount(y[:, j], minlength=c)[:c] for j, c in enumerate(self._cells.tolist())])
        found = np.zeros((len(self._pairs), 2))
        _scan_rows(*self._arrays, ends, marked, counts.astype(np.int64), len(y), found)
        return found[:, 1]


def _spread_deviations(readings: Sequence[TableReading], sizes: Ints) -> Floats:
    """One deviation for every value."""
    if all(isinstance(reading.deviation, float) for reading in readings):
        return np.repeat([float(reading.deviation) for reading in readings], sizes)
    spread = (np.broadcast_to(reading.deviation, reading.values.shape).ravel() for reading in readings)
    return np.concatenate([np.zeros(0), *spread])


@njit(cache=True, nogil=True)
def _scan_copula(
    pairs: Ints,
    ends: Ints,
    values: Floats,
    deviations: Floats,
    people: Floats,
    cells: Ints,
    widths: Ints,
    shares: Floats,
    features: Floats,
    variances: Floats,
    sizes: Floats,
    vectors: Floats,
    spreads: Floats,
    latent_of: Ints,
    correlation: Floats,
    filled: Ints,
    cuts: Floats,
    series: Floats,
    found: Floats,
) -> None:
    for number in range(len(pairs)):
        a, b = pairs[number]
        both = latent_of[a] >= 0 and latent_of[b] >= 0
        r = correlation[latent_of[a], latent_of[b]] if both else 0.0
        table = np.empty((cells[a], cells[b]))
        for i in range(cells[a]):
            for j in range(cells[b]):
                table[i, j] = shares[a, i] * shares[b, j]
        if r != 0.0:
            m, n = filled[a], filled[b]
            inside = np.empty((m, n))
            if abs(r) <= STRONGEST_IN_TABLES:
                sum_rectangles(series[a, :m], series[b, :n], r, inside)
            else:
                integrate_rectangles(cuts[a, : m + 1], cuts[b, : n + 1], r, inside)
            table[:m, :n] = inside * (table[:m, :n].sum() / max(inside.sum(), TINY))
        scale_to_margins(table, shares[a, : cells[a]], shares[b, : cells[b]], ROUNDS)
        own = values[ends[number] : ends[number + 1]].reshape((widths[a], widths[b]))
        noise = deviations[ends[number] : ends[number + 1]].reshape((widths[a], widths[b]))
        missed = np.empty((widths[a], widths[b]))
        products_of(features[a, : cells[a], : widths[a]], table, features[b, : cells[b], : widths[b]], missed)
        for i in range(widths[a]):
            for j in range(widths[b]):
                missed[i, j] = own[i, j] - missed[i, j]
        if both:
            missed[0, 0] = 0.0
        found[number, 0], found[number, 1] = weigh_products(
            missed, noise, 1.0 / max(people[number], 1.0), variances[a], variances[b],
            vectors[a], vectors[b], sizes[a], sizes[b], spreads,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _scan_rows(
    pairs: Ints,
    ends: Ints,
    values: Floats,
    deviations: Floats,
    people: Floats,
    cells: Ints,
    widths: Ints,
    shares: Floats,
    features: Floats,
    variances: Floats,
    sizes: Floats,
    vectors: Floats,
    spreads: Floats,
    places: Ints,
    marked: Words,
    counts: Ints,
    n_rows: int,
    found: Floats,
) -> None:
    for number in range(len(pairs)):
        a, b = pairs[number]
        here, there = slice(places[a], places[a + 1]), slice(places[b], places[b + 1])
        table = np.empty((cells[a], cells[b]))
        count_marked(marked[here], marked[there], counts[here], counts[there], table)
        for i in range(cells[a]):
            for j in range(cells[b]):
                table[i, j] += 0.5 * shares[a, i] * shares[b, j] * table.size
        scale_to_margins(table, shares[a, : cells[a]], shares[b, : cells[b]], ROUNDS_NEARBY)
        own = values[ends[number] : ends[number + 1]].reshape((widths[a], widths[b]))
        noise = deviations[ends[number] : ends[number + 1]].reshape((widths[a], widths[b]))
        missed = np.empty((widths[a], widths[b]))
        products_of(features[a, : cells[a], : widths[a]], table, features[b, : cells[b], : widths[b]], missed)
        for i in range(widths[a]):
            for j in range(widths[b]):
                missed[i, j] = own[i, j] - missed[i, j]
        sampling = 1.0 / max(people[number], 1.0) + 1.0 / n_rows
        found[number, 0], found[number, 1] = weigh_products(
            missed, noise, sampling, variances[a], variances[b],
            vectors[a], vectors[b], sizes[a], sizes[b], spreads,
        )  # fmt: skip
