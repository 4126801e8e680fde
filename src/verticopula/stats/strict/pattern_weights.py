"""How much of a record's length each party's part may have, pattern by pattern.

Noise is as large as a whole record may be long, so in a pattern where rarely observed parties meet, the columns of a
party that is observed elsewhere anyway should take up little of it. With squared weights v (P, K) a pattern's records
have squared norm B_p = 1 + sum_k m_pk v_pk, and the noise on a mean product of unit scores of parties a and b
has standard deviation s_p / (n_p sqrt(v_pa v_pb)), s_p = noise * B_p. What all patterns together say about one
correlation of the two is

    I_ab = sum_p n_p^2 v_pa v_pb / (s_p^2 + n_p v_pa v_pb),

sampling variance included; weights minimise the sum over all pairs of columns of 1/(1/prior variance + I_ab). The
appended 1 is one more party, whose weight is 1: products with it are the sums. All of it is public.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def choose_weights(counts: Ints, widths: Floats, noise: float) -> Floats:
    """(P, K) squared weights; 0 where a party has no columns.

    Parameters
    ----------
    counts : (P,) people
    widths : (P, K) largest squared norm of a party's part at weight 1
    noise : standard deviation of the noise on a sum, per squared norm of a record
    """
    present = widths > 0.0
    if not present.any():
        return np.zeros(widths.shape)
    n = counts.astype(np.float64)
    typical = widths.max(axis=0)
    importance = np.outer(np.append(typical, TUNING.means_weight), np.append(typical, TUNING.means_weight))
    importance[-1, -1] = 0.0

    def lost(logs: Floats) -> tuple[float, Floats]:
        v = np.zeros(widths.shape)
        v[present] = np.exp(logs)
        part = widths * v
        s = noise * (1.0 + part.sum(axis=1))
        full = np.column_stack([v, np.ones(len(n))])
        pair = full[:, :, None] * full[:, None, :]
        below = s[:, None, None] ** 2 + n[:, None, None] * pair
        information = np.sum((n**2)[:, None, None] * pair / below, axis=0)
        remaining = 1.0 / (1.0 / TUNING.prior_variance + information)
        value = 0.5 * float(np.sum(importance * remaining))
        pull = -importance * remaining**2
        by_pair = pull * (n**2 * s**2)[:, None, None] * pair / below**2
        by_noise = np.sum(pull * (n**2 * s * noise)[:, None, None] * pair / below**2, axis=(1, 2))
        gradient = by_pair.sum(axis=2)[:, :-1] - by_noise[:, None] * part
        return value, gradient[present]

    start = np.zeros(int(present.sum()))
    found = minimize(
        lost,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-TUNING.most_log_weight, TUNING.most_log_weight)] * start.size,
    )
    weights = np.zeros(widths.shape)
    weights[present] = np.exp(found.x)
    return weights
