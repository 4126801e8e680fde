"""Margins without the noise in their tails: what a column may really look like, for errors of a regression.

A public range that is wider than the data leaves cells that hold noise alone. What it leaves far out makes a column's
variance too large and every coefficient of it too small. The tails' mass is known far better than how far out it lies.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.margin_cells import MARGIN_TUNING
from verticopula.stats.marginals import Marginal

Floats = NDArray[np.float64]

_INSIDE = 3  # cells next to a tail that say how high it begins


def shorten_tails(margin: Marginal, deviation: float) -> Marginal:
    """The margin with the same mass in its tails, falling geometrically from the cells next to them.

    Tails are found as in `marginals.smooth_tails`. A tail of mass m next to cells of mass f each has the ratio
    m / (m + f); of all tails whose logarithm is concave, and that begin as high, this is the longest. A margin of
    categories stays as it is.

    Parameters
    ----------
    deviation : standard deviation of the noise on a cell's share
    """
    if margin.column.kind not in ("continuous", "count"):
        return margin
    shares = margin.probabilities.copy()
    for view in (shares, shares[::-1]):
        tail = _tail_size(view, deviation)
        inside = view[tail : tail + _INSIDE].mean() if tail < view.size else 0.0
        mass = view[:tail].sum()
        if tail > 1 and mass > 0.0 and inside > 0.0:
            fall = (mass / (mass + inside)) ** np.arange(tail, 0, -1)
            view[:tail] = mass * fall / fall.sum()
    return replace(margin, probabilities=shares)


def _tail_size(shares: Floats, deviation: float) -> int:
    """The most cells from the start on that may be empty together: one of them alone may seem not to be."""
    bound = MARGIN_TUNING.tail_deviations * deviation * np.sqrt(np.arange(1, shares.size + 1))
    within = np.flatnonzero(np.cumsum(shares) <= bound)
    return int(within[-1]) + 1 if within.size else 0
