"""Columns with a relation, from their differences back to their values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation

Floats = NDArray[np.float64]


def add_related(federation: Federation, values: Mapping[ColumnKey, Floats]) -> dict[ColumnKey, Floats]:
    """Drawn rows as tables hold them: a column with a relation is its difference and the other column together.

    Where the difference is 0 the two are equal to the last digit. Where one of them is empty, so is the sum.

    Parameters
    ----------
    federation : says which columns have a relation
    values : column -> its rows
    """
    found = dict(values)
    for key in values:
        column = federation.column(key)
        if column.relation is None:
            continue
        base = values[ColumnKey(key.party, column.relation)]
        sums = base + values[key]
        if column.decimals is not None:
            sums = np.where(values[key] == 0.0, base, np.round(sums, column.decimals))
        found[key] = sums
    return found
