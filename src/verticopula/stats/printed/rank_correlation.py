"""The copula's correlation from debiased noisy ranks, by the rank correlations that the paper names.

Conventions: `ranks` is (N, q), any number where `observed` is False. A pair of columns is correlated over the subjects
that both have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import count_common
from verticopula.schema.printed_choices import RankCorrelation
from verticopula.stats.matrix_repair import Repair, nearest_correlation

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


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

    Debiasing is affine and changes no sign, so this is also the tau of the noisy ranks.
    """
    total = np.zeros((ranks.shape[1], ranks.shape[1]))
    seen, placed = observed.astype(np.float32), ranks.astype(np.float32)
    for i in range(ranks.shape[0] - 1):
        signs = np.sign(placed[i + 1 :] - placed[i])
        signs *= seen[i + 1 :] * seen[i]
        total += signs.T @ signs
    common = count_common(observed)
    return np.asarray(total / np.maximum(common * (common - 1) / 2.0, 1.0))


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
