"""Public weights of rows in the first opening: how much of a record's length each party's part has.

Noise is as large as the longest record that is possible. A record of few parties may therefore stretch their parts, and
a party that few people are known to may take more of a record than one that everybody is known to. With one number
c_k a party, a person of pattern S has weights u_k^2 = c_k / sum over m in S of c_m B_m, so every record can have
squared length 1. The c_k make the sum over pairs of columns of the products' variances least; all of it is public.

Every party computes these weights, and they must come out the same on every machine. So the logarithms of the c_k are
multiples of a public step, and a search over them goes on only where it gains far more than arithmetic can differ by.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LEAST_GAIN = 1e-9  # relative; two machines differ by less than 1e-12


def choose_row_weights(patterns: Bools, counts: Ints, longest: Floats, n_columns: Ints, noise: float) -> Floats:
    """(P, K) weights; 0 where a party does not know a pattern's people.

    Parameters
    ----------
    patterns : (P, K) presence patterns
    counts : (P,) people of each
    longest : (K,) largest squared length of a party's features
    n_columns : (K,) how many columns a party has
    noise : standard deviation of the noise on a sum of products, for records of squared length 1
    """
    pairs = np.outer(n_columns, n_columns).astype(np.float64)

    def lost(logs: Floats) -> float:
        u = _weights(patterns, longest, np.exp(logs))
        totals = (u * counts[:, None]).T @ u
        squares = (u**2 * counts[:, None]).T @ u**2
        met = totals > 0.0
        safe = np.where(met, totals, 1.0)
        variance = np.where(met, (noise**2 + squares) / safe**2, np.inf)
        return float(np.sum(pairs / (1.0 / TUNING.prior_variance + 1.0 / variance)))

    logs = np.zeros(patterns.shape[1])
    if len(patterns) > 1:
        logs = _search(lost, logs)
    return _weights(patterns, longest, np.exp(logs))


def _search(lost: Callable[[Floats], float], point: Floats) -> Floats:
    """A point in the search's range at which no step along one coordinate, however short, gains anything."""
    best = lost(point)
    for step in TUNING.weight_steps:
        gained = True
        while gained:
            gained = False
            for k in range(point.size):
                for sign in (step, -step):
                    other = point.copy()
                    other[k] = min(max(point[k] + sign, -TUNING.farthest_weight), TUNING.farthest_weight)
                    value = lost(other)
                    if value < best * (1.0 - _LEAST_GAIN):
                        point, best, gained = other, value, True
                        break
    return point


def _weights(patterns: Bools, longest: Floats, sizes: Floats) -> Floats:
    length = patterns @ (sizes * longest)
    safe = np.where(length > 0.0, length, 1.0)
    return np.asarray(np.sqrt(np.where(patterns, sizes, 0.0) / safe[:, None]))
