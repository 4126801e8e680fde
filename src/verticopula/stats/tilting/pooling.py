"""Pooled cells: the few cells of a column that dependence is learnt between, by a rule on its released margin.

Cells that cannot be told from empty, and rare categories, are pooled; they come back at the end by their margin. An
ordered column's pooled cells are runs of neighbours, so a value inside of one can follow the latent normal. An empty
value is the last public cell of a column that may have one; it is a pooled cell of its own, or where it is too rare
it belongs to the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PooledColumn:
    """A column's pooled cells.

    Attributes
    ----------
    groups : (C,) the pooled cell of every public cell
    probabilities : (C,) released margin of the public cells
    ordered : whether pooled cells, but for an empty one, are runs of a latent normal
    empty : whether the last pooled cell stands for an empty value
    """

    groups: Ints
    probabilities: Floats
    ordered: bool
    empty: bool

    @cached_property
    def n_cells(self) -> int:
        """How many pooled cells there are."""
        return int(self.groups.max()) + 1

    @cached_property
    def shares(self) -> Floats:
        """(c,) the released margin of the pooled cells."""
        return np.bincount(self.groups, weights=self.probabilities, minlength=self.n_cells).astype(np.float64)

    @property
    def n_filled(self) -> int:
        """How many pooled cells stand for values."""
        return self.n_cells - int(self.empty)


def pool_column(
    probabilities: Floats,
    *,
    ordered: bool,
    may_be_empty: bool = False,
    least_share: float,
    most_cells: int,
) -> PooledColumn:
    """The pooled cells of a column, at least two of them where it has two.

    Parameters
    ----------
    probabilities : (C,) released margin; the last cell stands for an empty value where there `may_be_empty` ones
    least_share : rarer cells are pooled
    most_cells : of values, and one more for an empty value
    """
    p = np.asarray(probabilities, dtype=np.float64)
    values = p[:-1] if may_be_empty else p
    least = least_share * max(float(values.sum()), 1e-12)
    most = max(most_cells, 2)
    groups = _pool_runs(values, least, most) if ordered else _pool_categories(values, least, most)
    if not may_be_empty:
        return PooledColumn(groups, p, ordered, False)
    if p[-1] >= least_share:
        return PooledColumn(np.append(groups, groups.max() + 1), p, ordered, True)
    largest = int(np.argmax(np.bincount(groups, weights=values)))
    return PooledColumn(np.append(groups, largest), p, ordered, False)


def _pool_runs(p: Floats, least: float, most: int) -> Ints:
    """(C,) runs of neighbours: again and again the rarest joins its rarer neighbour, until none is rare."""
    starts, masses = list(range(p.size)), p.tolist()
    while len(starts) > 2:
        rarest = int(np.argmin(masses))
        if masses[rarest] >= least and len(starts) <= most:
            break
        sides = [side for side in (rarest - 1, rarest + 1) if 0 <= side < len(starts)]
        first = min(rarest, min(sides, key=lambda side: masses[side]))
        masses[first : first + 2] = [masses[first] + masses[first + 1]]
        del starts[first + 1]
    return np.searchsorted(starts, np.arange(p.size), side="right").astype(np.int64) - 1


def _pool_categories(p: Floats, least: float, most: int) -> Ints:
    """(C,) common categories in their order, all others in one last cell, which takes in more until it is not rare."""
    if p.size <= 2:
        return np.arange(p.size, dtype=np.int64)
    order = np.argsort(-p, kind="stable")
    kept = max(int((p >= least).sum()), 1)
    if kept > most or kept < p.size:
        kept = min(kept, most - 1)
        while kept > 1 and p[order[kept:]].sum() < least:
            kept -= 1
    groups = np.full(p.size, kept, dtype=np.int64)
    groups[np.sort(order[:kept])] = np.arange(kept)
    return groups


def restore_cells(column: PooledColumn, pooled: Ints, position: Floats) -> tuple[Ints, Floats]:
    """(public cells, position inside of each) of pooled cells, by the column's margin inside of every pooled cell.

    Parameters
    ----------
    pooled : (n,) pooled cells
    position : (n,) in (0, 1), uniform inside a pooled cell; for an ordered column it grows with the latent
    """
    cells, inside = np.zeros(pooled.size, dtype=np.int64), np.zeros(pooled.size)
    for group in range(column.n_cells):
        members, here = np.flatnonzero(column.groups == group), np.flatnonzero(pooled == group)
        mass = np.maximum(column.probabilities[members], 0.0)
        total = mass.sum()
        shares = mass / total if total > 0.0 else np.full(mass.size, 1.0 / mass.size)
        ends = np.cumsum(shares)
        ends[int(np.flatnonzero(shares)[-1]) :] = 1.0
        chosen = np.minimum(np.searchsorted(ends, position[here], side="right"), members.size - 1)
        chosen = np.minimum(chosen, int(np.flatnonzero(shares)[-1]))
        cells[here] = members[chosen]
        below = np.where(chosen > 0, ends[chosen - 1], 0.0)
        inside[here] = np.clip((position[here] - below) / np.maximum(shares[chosen], 1e-12), 0.0, 1.0)
    return cells, inside
