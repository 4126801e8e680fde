"""The copula's correlation from debiased noisy ranks, by the rank correlations that the paper names.

Conventions: `ranks` is (N, q), any number where `observed` is False. A pair of columns is correlated over the subjects
that both have.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.data.missingness import count_common
from verticopula.schema.printed_choices import PrintedChoices
from verticopula.stats.matrix_repair import Repair, nearest_correlation

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
ShortInts = NDArray[np.int32]
Counts = NDArray[np.int16] | NDArray[np.int32]

_ROW = 32  # places counted together
_FEW = 2**15  # subjects, whose counts fit into 16 bits


def correlate_ranks(ranks: Floats, observed: Bools, choices: PrintedChoices) -> Repair:
    """(q, q) latent correlations, made positive definite where they are not: the paper does not say how."""
    if choices.known_normaliser:
        latent = 2.0 * np.sin(np.pi / 6.0 * known_spearman(ranks, observed))
    elif choices.rank_correlation == "kendall":
        latent = np.sin(np.pi / 2.0 * kendall(ranks, observed))
    else:
        latent = 2.0 * np.sin(np.pi / 6.0 * spearman(ranks, observed))
    np.fill_diagonal(latent, 1.0)
    return nearest_correlation(latent) if choices.nearest_repair else nearest_correlation(latent, projections=0)


def kendall(ranks: Floats, observed: Bools) -> Floats:
    """(q, q) Kendall's tau: concordant less discordant pairs of subjects, as a share of all pairs.

    Debiasing is affine and changes no sign, so this is also the tau of the noisy ranks. Sorts, as Knight (1966)
    does, in place of looking at all pairs.
    """
    n, q = ranks.shape
    places, orders, last_of_ties = np.full((q, n), -1), np.zeros((q, n), dtype=np.int32), np.ones((q, n), dtype=bool)
    for j in range(q):
        seen = np.flatnonzero(observed[:, j])
        order = seen[np.argsort(ranks[seen, j])]
        rises = np.diff(ranks[order, j]) > 0.0
        places[j, order] = np.cumsum(np.concatenate([[0], rises]))[: order.size]
        orders[j, : order.size], last_of_ties[j, : rises.size] = order, rises
    n_rows = (int(places.max(initial=0)) + 1) // _ROW + 1
    places[places < 0] = n_rows * _ROW - 1  # behind all others, where they change no count
    counts = np.zeros((n_rows, _ROW), dtype=np.int16 if n < _FEW else np.int32)
    agreement = _count_agreement(places.astype(np.uint32), orders, last_of_ties, observed.sum(axis=0), counts)
    common = count_common(observed.T)
    return np.asarray(agreement / np.maximum(common * (common - 1) / 2.0, 1.0))


@njit(cache=True, nogil=True)
def _count_agreement(
    places: NDArray[np.uint32], orders: ShortInts, last_of_ties: Bools, sizes: Ints, counts: Counts
) -> Floats:
    """(q, q) concordant less discordant pairs of subjects.

    Parameters
    ----------
    places : (q, N) of every column's values in their own order, equal ones sharing a place; the last where not observed
    orders : (q, N) subjects in the order of each column, as many of them as it has
    last_of_ties : (q, N) where in this order the next subject has another place
    sizes : (q,) subjects of each column
    counts : (rows, 32) zeros for all places
    """
    q, n = places.shape
    total, along = np.zeros((q, q)), np.empty(n, dtype=np.uint64)
    below, same, rows_below = counts.copy(), counts.copy().reshape(-1), np.zeros_like(counts[:, 0])
    for j in range(q):
        for k in range(j + 1):
            for i in range(sizes[j]):
                along[i] = places[k, orders[j, i]]
            below[:], same[:], rows_below[:] = 0, 0, 0
            total[j, k] = _agreement_of_two(along[: sizes[j]], last_of_ties[j], below, same, rows_below)
            total[k, j] = total[j, k]
    return total


@njit(cache=True, nogil=True)
def _agreement_of_two(
    along: NDArray[np.uint64], last_of_ties: Bools, below: Counts, same: Counts, rows_below: Counts
) -> int:
    """Subjects in the order of one column, each compared in another with all that came before.

    How many of these have a smaller place is kept in two levels: places within their row of 32, and rows. Then
    counting one takes two steps, and adding one a fixed number.

    Parameters
    ----------
    along : places in the other column
    below, same, rows_below : zeros; how many came before in a row's smaller places, at a place, and in smaller rows
    """
    unseen, row_size = np.uint64(same.size - 1), np.uint64(_ROW)
    total, before, added = 0, 0, 0
    for i in range(along.size):
        place = along[i]
        row = place // row_size
        smaller = np.int64(rows_below[row]) + np.int64(below[row, place % row_size])
        total += (2 * smaller + np.int64(same[place]) - before) * (place != unseen)
        while last_of_ties[i] and added <= i:  # then: ties in the first column are not compared with each other
            place = along[added]
            same[place] += 1
            before += place != unseen
            _add_to_larger(below[place // row_size], place % row_size)
            _add_to_larger(rows_below, place // row_size)
            added += 1
    return total


@njit(cache=True, nogil=True, inline="always")
def _add_to_larger(counts: Counts, place: np.uint64) -> None:
    """Add one to all counts behind a place. In 16 bits, because that is what vectorises."""
    if counts.size > _FEW:  # of more than a million subjects
        for other in range(np.int64(place) + 1, counts.size):
            counts[other] += 1
        return
    short = np.int16(place)
    for other in range(counts.size):
        counts[other] += np.int16(other) > short


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


def known_spearman(ranks: Floats, observed: Bools) -> Floats:
    """(q, q) Spearman's rho of debiased ranks, normalised by the variance of 1..n, which is known.

    Without noise and with everybody observed it is the sample's own: 12 / (n (n^2 - 1)) times the centred products.
    """
    seen, sizes = observed.astype(np.float64), observed.sum(axis=0)
    deviation = np.sqrt(np.maximum(sizes**2 - 1.0, 1.0) / 12.0)
    standardised = np.where(observed, (ranks - (sizes + 1.0) / 2.0) / deviation, 0.0)
    return np.clip(standardised.T @ standardised / np.maximum(seen.T @ seen, 1.0), -1.0, 1.0)
