"""The server's latents: lines 7 to 14 of Algorithm 2, and missing ones as Algorithm 3 begins with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.printed_choices import DEFAULT_INTERPRETATION, PrintedChoices
from verticopula.stats.em import find_patterns, regress
from verticopula.stats.latent_draws import SMALLEST_VARIANCE, adjust_to_order, draw_truncated
from verticopula.stats.matrix_repair import clipped_root
from verticopula.stats.printed.row_order_ranks import order_ranks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def draw_latents(
    correlation: Floats,
    observed: Bools,
    ranks: Sequence[Ints],
    rng: np.random.Generator,
    choices: PrintedChoices = DEFAULT_INTERPRETATION,
) -> Floats:
    """(N, q) latents Z' in about the order of the noisy ranks; column 0 is the response.

    Z is drawn from N(0, Ω), and each of its columns is sorted by noisy rank. Then Z'_ij is drawn given Z'_i0 ...
    Z'_i,j-1, between the sorted Z of the next lower and the next higher rank, Eq. (6). Eq. (6) has Z there, not Z', so
    neighbours may change places. A subject without a value has no interval.

    Parameters
    ----------
    ranks : per column, the noisy ranks of the observed subjects in cohort order
    """
    n_subjects, q = observed.shape
    start = rng.standard_normal((n_subjects, q)) @ np.linalg.cholesky(correlation).T
    latents = np.empty((n_subjects, q), order="F")  # column by column in memory, as they are used
    for j in range(q):
        rows = np.flatnonzero(observed[:, j])
        sorted_column, low, high = sort_by_ranks(start[:, j], rows, ranks[j], earlier_first=choices.earlier_first)
        latents[:, j] = sorted_column
        if j == 0:
            continue
        given = slice(0 if choices.given_response or j == 1 else 1, j)
        with_others = correlation[given, j].copy()
        weights = np.linalg.solve(correlation[given, given], with_others)
        variance = correlation[j, j] - float(weights @ with_others)
        mean, deviation = latents[:, given] @ weights, float(np.sqrt(max(variance, 1e-12)))
        latents[:, j] = draw_truncated(mean, deviation, low, high, rng)
        if not choices.sorted_bounds:
            inside = rows[np.argsort(sorted_column[rows])]  # here between neighbours that may have been drawn already
            latents[inside, j] = adjust_to_order(sorted_column[inside], mean[inside], deviation, rng)
        if not choices.missing_given_others:
            latents[~observed[:, j], j] = start[~observed[:, j], j]
    return latents


def sort_by_ranks(
    column: Floats, rows: Ints, ranks: Ints, *, earlier_first: bool = True
) -> tuple[Floats, Floats, Floats]:
    """The column with these rows' values in the order of their ranks, and every row's interval (z_l, z_u) of Eq. (6).

    Of equal ranks the earlier row comes first, or the later one. Other rows keep their value and have no bounds.
    """
    if not earlier_first:
        rows, ranks = rows[::-1], ranks[::-1]
    sorted_column, low, high = column.copy(), np.full(column.size, -np.inf), np.full(column.size, np.inf)
    order, begins, ends = order_ranks(ranks)
    values, places = np.sort(column[rows]), rows[order]
    padded = np.concatenate([[-np.inf], values, [np.inf]])
    sorted_column[places] = values
    low[places] = padded[begins]
    high[places] = padded[ends + 1]
    return sorted_column, low, high


def draw_missing(latents: Floats, correlation: Floats, observed: Bools, rng: np.random.Generator) -> Floats:
    """The latents, those of missing values drawn from the conditional normal given the subject's observed ones.

    The paper prints (Ω_mis,obs)^-1 in the mean, which is not square; (Ω_obs,obs)^-1 is meant.
    """
    drawn = latents.copy()
    for pattern in find_patterns(observed):
        if pattern.missing.size == 0:
            continue
        weights = regress(correlation, pattern.observed, pattern.missing)
        mean = latents[pattern.rows][:, pattern.observed] @ weights.T
        left = correlation[np.ix_(pattern.missing, pattern.missing)]
        left = left - weights @ correlation[np.ix_(pattern.observed, pattern.missing)]
        noise = rng.standard_normal(mean.shape) @ clipped_root(left, SMALLEST_VARIANCE).T
        drawn[np.ix_(pattern.rows, pattern.missing)] = mean + noise
    return drawn
