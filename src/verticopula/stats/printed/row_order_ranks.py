"""Ranks as the paper's v_ii' defines them: ties are broken by row number. And noisy ranks in order."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.schema.columns import Column

Ints = NDArray[np.int64]


def rank_by_row(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n,) ranks from 1 to n; of two equal values, the later row has the larger rank.

    The paper sets v_ii' = 1 for i < i' if X_i > X_i', and 0 otherwise. In a tie the earlier row is therefore the
    smaller one.
    """
    ranks = np.empty(values.size, dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(1, values.size + 1)
    return ranks


def rank_at_random(values: NDArray[np.float64], words: NDArray[np.uint64]) -> Ints:
    """(n,) ranks from 1 to n; equal values in the order of their random words."""
    ranks = np.empty(values.size, dtype=np.int64)
    ranks[np.lexsort((words, values))] = np.arange(1, values.size + 1)
    return ranks


@njit(cache=True, nogil=True)
def order_ranks(ranks: Ints) -> tuple[Ints, Ints, Ints]:
    """Positions in the order of noisy ranks, and for each place in it where its ties begin and end.

    Of equal ranks the earlier row comes first. Counts ranks in place of comparing them: they are whole numbers from 1
    to about n.
    """
    n = ranks.size
    counts = np.zeros(ranks.max() + 2 if n else 1, dtype=np.int64)
    for rank in ranks:
        counts[rank + 1] += 1
    for rank in range(1, counts.size):
        counts[rank] += counts[rank - 1]
    first, following = counts.copy(), counts[1:]
    order, begins, ends = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for i in range(n):
        rank = ranks[i]
        place = first[rank]
        first[rank] += 1
        order[place], begins[place], ends[place] = i, counts[rank], following[rank]
    return order, begins, ends


def as_number(column: Column) -> Column:
    """The column as the paper ranks it: the categories of a nominal one are numbers, in the order of the schema."""
    return column.model_copy(update={"kind": "ordinal"}) if column.kind == "nominal" else column
