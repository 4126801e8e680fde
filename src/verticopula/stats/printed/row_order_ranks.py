"""Ranks as the paper's v_ii' defines them: ties are broken by row number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.federation import Column


def rank_by_row(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n,) ranks from 1 to n; of two equal values, the later row has the larger rank.

    The paper sets v_ii' = 1 for i < i' if X_i > X_i', and 0 otherwise. In a tie the earlier row is therefore the
    smaller one.
    """
    ranks = np.empty(values.size, dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(1, values.size + 1)
    return ranks


def as_number(column: Column) -> Column:
    """The column as the paper ranks it: the categories of a nominal one are numbers, in the order of the schema."""
    return column.model_copy(update={"kind": "ordinal"}) if column.kind == "nominal" else column
