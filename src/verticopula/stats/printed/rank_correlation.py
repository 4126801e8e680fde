"""The copula's correlation from debiased noisy ranks, by the rank correlations that the paper names.

Conventions: `ranks` is (N, q), any number where `observed` is False. A pair of columns is correlated over the subjects
that both have.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.data.missingness import count_common
from verticopula.schema.printed_choices import RankCorrelation
from verticopula.stats.matrix_repair import Repair, nearest_correlation

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ShortInts = NDArray[np.int32]


def correlate_ranks(ranks: Floats, observed: Bools, kind: RankCorrelation) -> Repair:
    """(q, q) latent correlations, made positive definite where they are not: the paper does not say how."""
    if kind == "kendall":
        latent = np.sin(np.pi / 2.0 * kendall(ranks, observed))
    else:
        latent = 2.0 * np.sin(np.pi / 6.0 * spearman(ranks, observed))
    np.fill_diagonal(latent, 1.0)
    return nearest_correlation(latent)


def kendall(ranks: Floats, observed: Bools) -> Floats:
    """(q, q) Kendall's tau: concordant less discordant pairs of subjects, as a share of all pairs.

    Debiasing is affine and changes no sign, so this is also the tau of the noisy ranks. Sorts, as Knight (1966)
    does, in place of looking at all pairs.
    """
    n, q = ranks.shape
    places, orders = np.full((q, n), -1, dtype=np.int32), np.zeros((q, n), dtype=np.int32)
    for j in range(q):
        seen = np.flatnonzero(observed[:, j])
        order = seen[np.argsort(ranks[seen, j], kind="stable")]
        places[j, order] = np.cumsum(np.diff(ranks[order, j], prepend=ranks[order[:1], j]) > 0.0)
        orders[j, : n - seen.size], orders[j, n - seen.size :] = np.flatnonzero(~observed[:, j]), order
    common = count_common(observed)
    return np.asarray(_count_agreement(places, orders) / np.maximum(common * (common - 1) / 2.0, 1.0))


@njit(cache=True, nogil=True)
def _count_agreement(places: ShortInts, orders: ShortInts) -> Floats:
    """(q, q) concordant less discordant pairs of subjects.

    Parameters
    ----------
    places : (q, N) of every column's values in their own order, equal ones sharing a place; -1 where not observed
    orders : (q, N) subjects in the order of each column
    """
    q = places.shape[0]
    total = np.zeros((q, q))
    for j in range(q):
        for k in range(j + 1):
            total[j, k] = total[k, j] = _agreement_of_two(places[j], places[k], orders[j])
    return total


@njit(cache=True, nogil=True)
def _agreement_of_two(first: ShortInts, second: ShortInts, order: ShortInts) -> int:
    """Subjects in the order of the first column, each compared in the second with all that came before.

    How many of these have a smaller place is kept in three levels: places within sixteens, sixteens within 256, and
    these. Then counting one takes three steps, and adding one a fixed number.
    """
    n, n_large = order.size, second.max() // 256 + 1
    large, middle = np.zeros(n_large, dtype=np.int32), np.zeros(16 * n_large, dtype=np.int32)
    small, same = np.zeros(256 * n_large, dtype=np.int32), np.zeros(256 * n_large, dtype=np.int32)
    total, before, begin = 0, 0, 0
    while begin < n:
        end, place_of_first = begin, first[order[begin]]
        while end < n and first[order[end]] == place_of_first:
            place = second[order[end]]
            if place_of_first >= 0 and place >= 0:
                below = large[place >> 8] + middle[place >> 4] + small[place]
                total += 2 * below + same[place] - before
            end += 1
        for i in range(begin, end):  # after all of them: ties in the first column are not compared with each other
            place = second[order[i]]
            if place_of_first >= 0 and place >= 0:
                same[place] += 1
                before += 1
                for digit in range(16):
                    small[(place >> 4 << 4) + digit] += digit > (place & 15)
                for digit in range(16):
                    middle[(place >> 8 << 4) + digit] += digit > (place >> 4 & 15)
                for digit in range(n_large):
                    large[digit] += digit > place >> 8
        begin = end
    return total


def spearman(ranks: Floats, observed: Bools) -> Floats:
    """(q, q) Spearman's rho: the sample correlation of the ranks."""
    seen = observed.astype(np.float64)
    filled = np.where(observed, ranks, 0.0)
    filled = (filled - filled.sum(axis=0) / np.maximum(seen.sum(axis=0), 1.0)) * seen
    common = np.maximum(seen.T @ seen, 1.0)
    means = filled.T @ seen / common  # of column j over the subjects that j and k have
    covariance = filled.T @ filled / common - means * means.T
    variance = (filled**2).T @ seen / common - means**2
    scale = np.sqrt(variance * variance.T)
    return np.asarray(np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0.0))
