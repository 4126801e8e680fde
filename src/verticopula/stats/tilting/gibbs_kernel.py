"""Sweeps of synthetic rows through a copula tilted by tables: compiled, and the same on any number of threads.

A row has a cell in every column and a latent normal in every ordered column. One sweep draws each column in turn given
all others: a cell with probability proportional to (chance of its interval under the latent's conditional normal, or
its share) times its margin's tilt times exp theta of every table it is in; then the latent inside the interval.
Every row has a stream of random numbers of its own (xorshift64*), so how rows are spread over threads does not matter.
"""

from __future__ import annotations

import copy
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

_REACH = 8.0
_PER_UNIT = 256
_NDTR = ndtr(np.linspace(-_REACH, _REACH, int(2 * _REACH) * _PER_UNIT + 2)).astype(np.float64)
_FEWEST_ROWS = 2048
_ROWS_CALIBRATED = 1 << 14
_ROWS_TOGETHER = 64  # whose chances and latents stay in the processor's cache


@dataclass(frozen=True)
class GibbsTables:
    """Everything that a sweep needs, in flat arrays.

    Attributes
    ----------
    cells : (p,) number of cells of every column
    latent_of : (p,) its latent, -1 for none
    cuts : (p, c+1) ends of the cells' intervals; unused ones are +8, and so is no end at all on either side
    empty : (p,) whether the last cell is an empty value
    weights : (p, c) what a cell counts before its interval and its tables
    slopes : (q, q) regression of every latent on the others, 0 on the diagonal
    deviations : (q,) what those regressions leave
    starts : (p+1,) where a column's tables begin in `others` and `places`
    others : the other column of a table
    places : where its exp theta begin in `factors`: rows by the other column's cell, this column's cells side by side
    factors : exp theta of all tables, each of them twice
    mirrors : where the same table begins with rows by this column's cell
    shifting : (J,) columns whose cells shift latents
    discriminant_of : (p,) where a column's cells begin in `discriminants`, -1 for none
    discriminants : (s, q) a cell counts exp(discriminants'z)
    mean_shifts : (q, s) how far a cell moves the mean of every latent
    """

    cells: Ints
    latent_of: Ints
    cuts: Floats
    empty: NDArray[np.bool_]
    weights: Floats
    slopes: Singles
    deviations: Floats
    starts: Ints
    others: Ints
    places: Ints
    factors: Singles
    mirrors: Ints
    shifting: Ints
    discriminant_of: Ints
    discriminants: Singles
    mean_shifts: Singles

    # Compiled functions take the arrays one by one. In a named tuple a sweep takes half as long again: references to
    # arrays are counted again for every cell that is drawn.

    @property
    def columns(self) -> tuple[Any, ...]:
        """Cells and latents, as compiled functions take them."""
        return (
            *(self.cells, self.latent_of, self.cuts, self.empty, self.weights, self.slopes, self.deviations),
            *(self.shifting, self.discriminant_of, self.discriminants, self.mean_shifts),
        )

    @property
    def links(self) -> tuple[Any, ...]:
        """Tables, as compiled functions take them."""
        return self.starts, self.others, self.places, self.factors


@njit(cache=True, nogil=True)
def next_uniform(state: np.uint64) -> tuple[np.uint64, float]:
    """The stream's next state, and a number in (0, 1)."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    word = state * np.uint64(2685821657736338717)
    return state, (float(word >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _below(x: float, table: Floats) -> float:
    """Phi(x) to about 1e-6."""
    place = min(max((x + 8.0) * 256.0, 0.0), 4096.0)
    index = int(place)
    low = table[index]
    return float(low + (table[index + 1] - low) * (place - index))


@njit(cache=True, nogil=True)
def normal_quantile(u: float) -> float:
    """The standard normal quantile to about 1e-9 (Acklam's rational approximations)."""
    if u < 0.02425 or u > 0.97575:
        tail = min(u, 1.0 - u)
        q = math.sqrt(-2.0 * math.log(max(tail, 1e-300)))
        above = (
            ((((-7.784894002430293e-3 * q - 3.223964580411365e-1) * q - 2.400758277161838) * q - 2.549732539343734) * q)
            + 4.374664141464968
        ) * q + 2.938163982698783
        below = (
            ((7.784695709041462e-3 * q + 3.224671290700398e-1) * q + 2.445134137142996) * q + 3.754408661907416
        ) * q + 1.0
        return above / below if u < 0.5 else -above / below
    q = u - 0.5
    r = q * q
    above = (
        ((((-3.969683028665376e1 * r + 2.209460984245205e2) * r - 2.759285104469687e2) * r + 1.383577518672690e2) * r)
        - 3.066479806614716e1
    ) * r + 2.506628277459239
    below = (
        ((((-5.447609879822406e1 * r + 1.615858368580409e2) * r - 1.556989798598866e2) * r + 6.680131188771972e1) * r)
        - 1.328068155288572e1
    ) * r + 1.0
    return above * q / below


_FAST = {"reassoc", "contract", "nsz"}  # sums in any order; numbers that are none stay what they are


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _weigh_latents(
    first: int,
    rows: int,
    j: int,
    y: Bytes,
    z: Singles,
    latent_of: Ints,
    slopes: Singles,
    shifting: Ints,
    discriminant_of: Ints,
    mean_shifts: Singles,
    mean: Singles,
) -> None:
    """Means of column j's latent given all other latents of their rows, and the cells that shift it."""
    k = latent_of[j]
    mean[:rows] = np.float32(0.0)
    for other in range(z.shape[0]):
        slope, others = slopes[k, other], z[other]
        for row in range(rows):
            mean[row] += slope * others[row]
    for other in shifting:
        for row in range(rows):
            mean[row] += mean_shifts[k, discriminant_of[other] + y[first + row, other]]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _weigh_intervals(
    rows: int, cuts: Floats, filled: int, inverse: float, mean: Singles, weights: Floats, table: Floats, edge: Floats,
    chance: Floats,
) -> None:  # fmt: skip
    """Chances of the cells of an ordered column: of the intervals of normals with these means, and of no value."""
    for row in range(rows):
        ends, chances, centre = edge[row], chance[row], float(mean[row])
        for cell in range(filled + 1):
            ends[cell] = _below((cuts[cell] - centre) * inverse, table)
        if cuts[0] <= -_REACH:
            ends[0] = 0.0
        if cuts[filled] >= _REACH:
            ends[filled] = 1.0
        for cell in range(filled):
            chances[cell] = weights[cell] * (ends[cell + 1] - ends[cell])
        for cell in range(filled, weights.size):
            chances[cell] = weights[cell]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _weigh_categories(rows: int, z: Singles, weights: Floats, discriminants: Singles, chance: Floats) -> None:
    """Chances of the cells of a column without a latent."""
    for row in range(rows):
        chance[row, : weights.size] = weights
        for cell in range(len(discriminants)):
            total = np.float32(0.0)
            for other in range(len(z)):
                total += discriminants[cell, other] * z[other, row]
            chance[row, cell] *= math.exp(total)


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _choose_cell(chance: Floats, u: float) -> int:
    """The cell with a chance that u, in (0, 1), falls into; -1 where no cell has any."""
    whole = 0.0
    for cell in range(chance.size):
        whole += chance[cell]
    target, running, below = u * whole, 0.0, 0
    for cell in range(chance.size):  # to the end: where a loop ends depends on nothing that is drawn
        running += chance[cell]
        below += running <= target
    if below < chance.size:
        return below
    for cell in range(chance.size - 1, -1, -1):  # rounding, or no chance at all
        if chance[cell] > 0.0:
            return cell
    return -1


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _draw_column(
    first: int,
    rows: int,
    j: int,
    y: Bytes,
    z: Singles,
    states: Words,
    free: NDArray[np.bool_],
    cells: Ints,
    latent_of: Ints,
    cuts: Floats,
    empty: NDArray[np.bool_],
    weights: Floats,
    slopes: Singles,
    deviations: Floats,
    shifting: Ints,
    discriminant_of: Ints,
    discriminants: Singles,
    mean_shifts: Singles,
    starts: Ints,
    others: Ints,
    places: Ints,
    factors: Singles,
    table: Floats,
    chance: Floats,
    edge: Floats,
    mean: Singles,
) -> None:
    """Cells and latents of some rows in column j, each drawn given all others of its row.

    One step after the other for all of these rows: a processor works on several rows at once then.

    Parameters
    ----------
    first, rows : the rows' numbers
    z : (q, rows) their latents
    chance, edge, mean : room for so many rows
    """
    c, k = cells[j], latent_of[j]
    filled = c - 1 if empty[j] else c
    if k >= 0:
        _weigh_latents(first, rows, j, y, z, latent_of, slopes, shifting, discriminant_of, mean_shifts, mean)
        _weigh_intervals(rows, cuts[j], filled, 1.0 / deviations[k], mean, weights[j, :c], table, edge, chance)
    else:
        start = max(discriminant_of[j], 0)
        stop = start + c if discriminant_of[j] >= 0 else start
        _weigh_categories(rows, z, weights[j, :c], discriminants[start:stop], chance)
    for place in range(starts[j], starts[j + 1]):
        begin, other = places[place], others[place]
        for row in range(rows):
            here = begin + c * y[first + row, other]
            own, chances = factors[here : here + c], chance[row]
            for cell in range(c):
                chances[cell] *= own[cell]
    for row in range(rows):
        if not free[first + row, j]:
            continue
        state, u = next_uniform(states[first + row])
        found = _choose_cell(chance[row, :c], u)
        chosen = int(y[first + row, j]) if found < 0 else found
        y[first + row, j] = chosen
        if k >= 0:
            state, u = next_uniform(state)
            low, high = 0.0, 1.0
            if chosen < filled:
                low, high = edge[row, chosen], edge[row, chosen + 1]
            grade = min(max(low + (high - low) * u, 1e-9), 1.0 - 1e-9)
            value = float(mean[row]) + deviations[k] * normal_quantile(grade)
            if chosen < filled:
                value = min(max(value, cuts[j, chosen]), cuts[j, chosen + 1])
            z[k, row] = value
        states[first + row] = state


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _sweep_rows(
    start: int,
    stop: int,
    y: Bytes,
    z: Singles,
    states: Words,
    free: NDArray[np.bool_],
    cells: Ints,
    latent_of: Ints,
    cuts: Floats,
    empty: NDArray[np.bool_],
    weights: Floats,
    slopes: Singles,
    deviations: Floats,
    shifting: Ints,
    discriminant_of: Ints,
    discriminants: Singles,
    mean_shifts: Singles,
    starts: Ints,
    others: Ints,
    places: Ints,
    factors: Singles,
    table: Floats,
) -> None:
    width = weights.shape[1]
    chance, edge = np.zeros((_ROWS_TOGETHER, width)), np.zeros((_ROWS_TOGETHER, width + 1))
    mean, latents = np.zeros(_ROWS_TOGETHER, dtype=np.float32), np.zeros((z.shape[1], _ROWS_TOGETHER), dtype=np.float32)
    for first in range(start, stop, _ROWS_TOGETHER):
        rows = min(_ROWS_TOGETHER, stop - first)
        latents[:, :rows] = z[first : first + rows].T
        for j in range(y.shape[1]):
            if latent_of[j] >= 0 or discriminant_of[j] >= 0 or starts[j] < starts[j + 1]:
                _draw_column(
                    first, rows, j, y, latents, states, free, cells, latent_of, cuts, empty, weights, slopes,
                    deviations, shifting, discriminant_of, discriminants, mean_shifts,
                    starts, others, places, factors, table, chance, edge, mean,
                )  # fmt: skip
        z[first : first + rows] = latents[:, :rows].T


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _calibrate_rows(
    start: int,
    stop: int,
    y: Bytes,
    z: Singles,
    states: Words,
    free: NDArray[np.bool_],
    cells: Ints,
    latent_of: Ints,
    cuts: Floats,
    empty: NDArray[np.bool_],
    weights: Floats,
    slopes: Singles,
    deviations: Floats,
    shifting: Ints,
    discriminant_of: Ints,
    discriminants: Singles,
    mean_shifts: Singles,
    starts: Ints,
    others: Ints,
    places: Ints,
    factors: Singles,
    table: Floats,
    mirrors: Ints,
    wanted: Floats,
    gain: float,
) -> None:
    width = weights.shape[1]
    chance, edge, mean = np.zeros((1, width)), np.zeros((1, width + 1)), np.zeros(1, dtype=np.float32)
    latents = np.zeros((z.shape[1], 1), dtype=np.float32)
    n = stop - start
    excess, stiff, live = -n * wanted, gain / np.sqrt(n * wanted + 1.0), np.empty_like(factors)
    for i in range(start, stop):
        for j in range(y.shape[1]):
            for place in range(starts[j], starts[j + 1]):
                excess[places[place] + cells[j] * y[i, others[place]] + y[i, j]] += 1.0
    for cell in range(factors.size):
        live[cell] = factors[cell] * math.exp(-excess[cell] * stiff[cell])
    for i in range(start, stop):
        latents[:, 0] = z[i]
        for j in range(y.shape[1]):
            if latent_of[j] < 0 and discriminant_of[j] < 0 and starts[j] == starts[j + 1]:
                continue
            before = y[i, j]
            _draw_column(
                i, 1, j, y, latents, states, free, cells, latent_of, cuts, empty, weights, slopes,
                deviations, shifting, discriminant_of, discriminants, mean_shifts,
                starts, others, places, live, table, chance, edge, mean,
            )  # fmt: skip
            after = y[i, j]
            if after == before:
                continue
            for place in range(starts[j], starts[j + 1]):
                b = others[place]
                v = y[i, b]
                for x, change in ((before, -1.0), (after, 1.0)):
                    here, there = places[place] + cells[j] * v + x, mirrors[place] + cells[b] * x + v
                    excess[here] += change
                    excess[there] += change
                    tilt = math.exp(-excess[here] * stiff[here])
                    live[here] = factors[here] * tilt
                    live[there] = factors[there] * tilt
        z[i] = latents[:, 0]


@njit(cache=True, nogil=True)
def _count_rows(
    start: int, stop: int, y: Bytes, first: Ints, second: Ints, width: Ints, places: Ints, out: Ints
) -> None:
    for i in range(start, stop):
        for pair in range(first.size):
            out[places[pair] + width[pair] * y[i, first[pair]] + y[i, second[pair]]] += 1


class RowSweeper:
    """Synthetic rows that sweeps move, with the threads that move them."""

    def __init__(self, y: Bytes, z: Singles, rng: np.random.Generator, threads: int = 1) -> None:
        self.y, self.z = y, z
        self._states = rng.integers(1, 2**63, size=len(y), dtype=np.uint64)
        self._threads = max(threads, 1)

    def narrow(self, columns: Ints, latents: Ints) -> RowSweeper:
        """Copies of some columns and latents, which go on with the rows' own streams of random numbers."""
        part = copy.copy(self)
        part.y, part.z = np.ascontiguousarray(self.y[:, columns]), np.ascontiguousarray(self.z[:, latents])
        return part

    def _each(self, work: Any, size: int | None = None) -> list[Any]:
        n = len(self.y)
        size = size or max(_FEWEST_ROWS, -(-n // self._threads))
        parts = [(start, min(start + size, n)) for start in range(0, n, size)]
        if self._threads == 1 or len(parts) == 1:
            return [work(*part) for part in parts]
        with ThreadPoolExecutor(self._threads) as executor:
            return list(executor.map(lambda part: work(*part), parts))

    def sweep(self, tables: GibbsTables, free: NDArray[np.bool_] | None = None) -> None:
        """Draw every column of every row once given all others.

        Parameters
        ----------
        free : (n, p) which cells, with their latents, are drawn; the others stay. None for all
        """
        drawn = np.ones(self.y.shape, dtype=np.bool_) if free is None else free
        arrays = (drawn, *tables.columns, *tables.links, _NDTR)
        self._each(lambda start, stop: _sweep_rows(start, stop, self.y, self.z, self._states, *arrays))

    def calibrate(self, tables: GibbsTables, wanted: Floats, gain: float) -> None:
        """Draw every column of every row once, with a correction of all tables towards the shares that are wanted.

        A cell that has e rows too many counts exp(-gain * e/sqrt(rows wanted)) less while rows are drawn one after the
        other: what chance alone would leave in the rows' tables is taken out. Parts of fixed size are calibrated each.

        Parameters
        ----------
        wanted : shares in the places of `factors`
        gain : 0 for a plain sweep
        """
        drawn = np.ones(self.y.shape, dtype=np.bool_)
        arrays = (drawn, *tables.columns, *tables.links, _NDTR, tables.mirrors, wanted, gain)
        self._each(
            lambda start, stop: _calibrate_rows(start, stop, self.y, self.z, self._states, *arrays), _ROWS_CALIBRATED
        )

    def count(self, first: Ints, second: Ints, width: Ints, places: Ints, size: int) -> Ints:
        """(size,) how many rows are in each cell of all tables, which begin at `places`, row by row."""

        def work(start: int, stop: int) -> Ints:
            out = np.zeros(size, dtype=np.int64)
            _count_rows(start, stop, self.y, first, second, width, places, out)
            return out

        return np.asarray(np.sum(self._each(work), axis=0), dtype=np.int64)
