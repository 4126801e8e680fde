"""Public cells of columns: cuts that everybody knows before anybody has counted, and values to cells.

Conventions: `cells` are integer codes 0..C-1; `t` is a position in [0, 1] on a column's public scale.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.columns import Column

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MarginTuning:
    """Chosen constants of the margins.

    `cell_rate` and `bernstein_order` were tuned by `python -m benchmarks errors`, on normal, lognormal and beta
    columns. The others were chosen by hand, not tuned.

    Attributes
    ----------
    cell_rate : cells of a continuous column per (epsilon n)^(2/3)
    fewest_cells, most_cells : of a continuous column
    bernstein_order : h of Eq. (9), which the paper leaves open
    most_count_cells : of a count column near 0; with more values cells grow outwards
    cell_growth, more_growth : by which factor they do, and by which it grows until they are few enough
    most_even_cells : of one that is far from 0: a century of years has a cell for each of them
    tail_deviations : a running sum within so many standard deviations of the noise counts as an empty tail
    empty_deviations : a category within so many of them may be empty
    fewest_people : in a category from which anything is learnt, as in tests of contingency tables
    """

    cell_rate: float = 0.75
    fewest_cells: int = 4
    most_cells: int = 256
    bernstein_order: int = 10
    most_count_cells: int = 64
    cell_growth: float = 1.25
    more_growth: float = 1.1
    most_even_cells: int = 128
    tail_deviations: float = 3.0
    empty_deviations: float = 4.0
    fewest_people: float = 5.0

    def continuous_cells(self, balance: float) -> int:
        """Number of cells where noise and smoothing balance at this epsilon times the number of subjects."""
        return int(np.clip(round(self.cell_rate * balance ** (2.0 / 3.0)), self.fewest_cells, self.most_cells))

    def rarest_share(self, n_observed: int, deviation: float) -> float:
        """Share below which a category cannot be told from an empty one, for this noise on its count."""
        return max(self.fewest_people, self.empty_deviations * deviation) / n_observed


MARGIN_TUNING = MarginTuning()


def continuous_cell_count(n_observed: int, epsilon: float) -> int:
    """Number of cells of a continuous column, from public quantities only.

    Departs from Corollary 1's l = (εn / log(1/δ))^(1/(h+1)), which balances noise that grows like
    l against smoothing error. Noise on cells, summed up, grows only like sqrt(l), which moves
    the balance to (εn)^(2/3) (`MarginTuning`).
    """
    return MARGIN_TUNING.continuous_cells(epsilon * n_observed)


def to_unit(values: Floats, column: Column) -> Floats:
    """Position of each value on the column's public scale, in [0, 1]."""
    low, high = column.bounds or (0.0, 1.0)
    stretched, bottom, top = _stretch(values, column), _stretch(low, column), _stretch(high, column)
    return np.clip((stretched - bottom) / (top - bottom), 0.0, 1.0)


def from_unit(t: Floats, column: Column) -> Floats:
    """Inverse of `to_unit`, rounded to the column's decimals and kept within its bounds."""
    low, high = column.bounds or (0.0, 1.0)
    bottom, top = _stretch(low, column), _stretch(high, column)
    stretched = bottom + t * (top - bottom)
    if column.scale == "log":
        values = np.exp(stretched)
    elif column.scale == "symlog":
        values = column.threshold * np.sign(stretched) * np.expm1(np.abs(stretched))
    else:
        values = stretched
    if column.decimals is not None:
        values = np.round(values, column.decimals)
    return np.clip(values, low, high)


def _stretch(values: Floats | float, column: Column) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if column.scale == "log":
        return np.log(np.maximum(array, np.finfo(np.float64).tiny))
    if column.scale == "symlog":
        return np.sign(array) * np.log1p(np.abs(array) / column.threshold)
    return array


def count_ranges(low: int, high: int, *, even: bool = False) -> Ints:
    """First value of each cell of a count column on low..high, and high+1 at the end.

    One cell per value where that gives at most 64; otherwise cells of one value near `low`, which
    then grow by a quarter each: counts are skewed, and the cuts must not look at the data. Or at most 128 `even` ones,
    for years and dates.
    """
    most = MARGIN_TUNING.most_even_cells if even else MARGIN_TUNING.most_count_cells
    if high - low < most:
        return np.arange(low, high + 2, dtype=np.int64)
    if even:
        return np.array([low + k * (high + 1 - low) // most for k in range(most + 1)], dtype=np.int64)
    growth = MARGIN_TUNING.cell_growth
    while True:
        firsts = [low]
        while firsts[-1] <= high:
            offset = firsts[-1] - low
            firsts.append(firsts[-1] + max(1, math.floor(offset * (growth - 1.0))))
        if len(firsts) <= MARGIN_TUNING.most_count_cells + 1:
            return np.array([*firsts[:-1], high + 1], dtype=np.int64)
        growth *= MARGIN_TUNING.more_growth


def count_cells(column: Column) -> Ints:
    """First value of each public cell of a count column, and what follows its upper bound; atoms are cells of one."""
    low, high = column.bounds or (0, 1)
    firsts = count_ranges(int(low), int(high), even=column.has_even_cells)
    if not column.atoms:
        return firsts
    atoms = np.array(column.atoms, dtype=np.int64)
    return np.unique(np.concatenate([firsts, atoms, atoms + 1]))


@dataclass(frozen=True)
class Piece:
    """A run of public cells of a continuous column: one atom, or all that lies between two.

    Attributes
    ----------
    low, high : positions on the public scale
    start, stop : its cells
    atom : its one value; None between atoms
    """

    low: float
    high: float
    start: int
    stop: int
    atom: float | None = None

    @property
    def size(self) -> int:
        return self.stop - self.start


def _gaps_between_atoms(column: Column) -> list[tuple[float, float]]:
    """Positions between which a continuous column has no atom, in order; also where such a gap has no length."""
    ends = [0.0, *to_unit(np.array(column.atoms), column).tolist(), 1.0]
    return list(itertools.pairwise(ends))


def add_atoms(column: Column, n_cells: int) -> int:
    """Number of public cells of a continuous column with its atoms, where it has so many without."""
    gaps = sum(high > low for low, high in _gaps_between_atoms(column))
    return max(n_cells, gaps) + len(column.atoms) if column.atoms else n_cells


def scale_pieces(column: Column, n_cells: int) -> list[Piece]:
    """The pieces of a continuous column with so many public cells: gaps have cells by their length, at least one."""
    if not column.atoms:
        return [Piece(0.0, 1.0, 0, n_cells)]
    gaps = _gaps_between_atoms(column)
    lengths = np.array([high - low for low, high in gaps])
    filled = lengths > 0.0
    spare = (n_cells - len(column.atoms) - int(filled.sum())) * lengths / lengths.sum()
    sizes = filled + np.floor(spare).astype(np.int64)
    for gap in np.argsort(np.floor(spare) - spare, kind="stable")[: n_cells - len(column.atoms) - int(sizes.sum())]:
        sizes[gap] += 1
    found, start = [], 0
    for k, ((low, high), size) in enumerate(zip(gaps, sizes.tolist(), strict=True)):
        if size:
            found.append(Piece(low, high, start, start + size))
        start += size
        if k < len(column.atoms):
            found.append(Piece(high, high, start, start + 1, column.atoms[k]))
            start += 1
    return found


def cell_count(column: Column, n_observed: int, epsilon: float) -> int:
    """Number of public cells of a column."""
    if column.kind == "continuous":
        return add_atoms(column, continuous_cell_count(n_observed, epsilon))
    if column.kind == "count":
        return count_cells(column).size - 1
    return len(column.categories or ())


def to_cells(values: Floats, column: Column, cells: int) -> Ints:
    """Cell of each value. Discrete columns other than counts come as category codes already."""
    if column.kind == "continuous":
        t = to_unit(values, column)
        if column.atoms:
            return _by_piece(t, values, column, cells)
        return np.minimum((t * cells).astype(np.int64), cells - 1)
    if column.kind == "count":
        return np.searchsorted(count_cells(column), values, side="right") - 1
    return values.astype(np.int64)


def _by_piece(t: Floats, values: Floats, column: Column, cells: int) -> Ints:
    """The same for a continuous column with atoms: a value is an atom only if it is exactly that."""
    found = np.zeros(values.size, dtype=np.int64)
    above = -np.inf
    for piece in scale_pieces(column, cells):
        if piece.atom is not None:
            found[values == piece.atom] = piece.start
            above = piece.atom
        else:
            inside = np.clip((t - piece.low) / (piece.high - piece.low) * piece.size, 0.0, piece.size - 1)
            found = np.where(values > above, piece.start + inside.astype(np.int64), found)
    return found
