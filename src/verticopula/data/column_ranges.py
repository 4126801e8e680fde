"""Which numbers a column's public description allows: bounds, or codes of its categories."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.columns import Column


def public_range(column: Column) -> tuple[float, float]:
    """The smallest and the largest value: the bounds, or the codes of the first and the last category."""
    return column.bounds if column.bounds is not None else (0.0, float(len(column.categories or ("", "")) - 1))


def can_hold(column: Column, values: NDArray[np.float64] | NDArray[np.int64]) -> bool:
    """Whether these can all be values of the column: in its public range, and whole where it is not continuous."""
    low, high = public_range(column)
    whole = column.kind == "continuous" or bool(np.all(values == np.floor(values)))
    return whole and bool(np.all((values >= low) & (values <= high)))
