"""Draws of a copula's correlations from their posterior, given everything that was released: free post-processing.

A synthetic table looks as if all its columns rested on all subjects. Where blocks are missing, some pairs of columns
rest on few, and a regression on the table believes too much. Here the covariance K of the readings is drawn from its
posterior, again and again, by data augmentation (Tanner and Wong 1987):

    missing readings | K            normal, as in the E-step of `em.py`
    K | completed readings          inverse Wishart(products + c 1, N + c + q + 1)

With c imaginary subjects, those of the refinement's ridge, this is the prior under which each correlation alone is
about uniform (Barnard, McCulloch and Meng 2000). What the draws differ in is what the releases leave open. The coins'
noise is in it, being part of the readings; the noise of the margins is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from verticopula.errors import SettingsError
from verticopula.stats.copula import FittedCopula, find_rare, indicators_to_latents
from verticopula.stats.em import Pattern, ReadingTable, by_column, iterate_blocks, regress
from verticopula.stats.matrix_repair import to_correlation
from verticopula.stats.readings import Readings

Floats = NDArray[np.float64]
Rng = np.random.Generator


@dataclass(frozen=True)
class PosteriorDrawTuning:
    """Length of the chain of correlations. All were chosen by hand, not tuned.

    Attributes
    ----------
    draws : that are kept
    burn_in : steps before the first of them
    thin : steps from one to the next
    """

    draws: int = 200
    burn_in: int = 20
    thin: int = 2


POSTERIOR_DRAW_TUNING = PosteriorDrawTuning()


@dataclass(frozen=True, repr=False)
class PosteriorDraws:
    """Draws of the latents' correlations, less their mean.

    Attributes
    ----------
    deviations : (T, q, q)
    """

    copula: FittedCopula
    deviations: Floats

    @classmethod
    def of(
        cls,
        copula: FittedCopula,
        readings: Readings,
        covariance: Floats,
        prior_subjects: float,
        rng: Rng,
    ) -> PosteriorDraws:
        """From readings whose covariance was fitted; to first order, as the copula's own correlations came from it."""
        draws = draw_covariances(readings.table, readings.table.patterns, covariance, prior_subjects, rng)
        draws -= draws.mean(axis=0)
        links = np.where(readings.links > 0.0, readings.links, np.inf)
        draws /= np.outer(links, links)
        unknown = ~np.isfinite(links) | find_rare(copula.layout, copula.margins)
        turn = indicators_to_latents(copula.layout, copula.margins, unknown)
        draws = turn @ draws @ turn.T
        draws[:, copula.layout.nominal_blocks() | np.eye(links.size, dtype=bool)] = 0.0
        return cls(copula, draws)

    def save(self, path: Path) -> None:
        """To a file: the pairs of latents once each, in single precision, which is far finer than the draws' error."""
        pairs = np.triu_indices(self.deviations.shape[1], 1)
        np.savez_compressed(path, pairs=self.deviations[:, *pairs].astype(np.float32))

    @classmethod
    def load(cls, path: Path, copula: FittedCopula) -> PosteriorDraws:
        """What `save` wrote for this copula; SettingsError if it is no such file."""
        q = copula.correlation.shape[0]
        rows, columns = np.triu_indices(q, 1)
        try:
            with np.load(path, allow_pickle=False) as kept:
                pairs = kept["pairs"]
            if pairs.dtype != np.float32 or pairs.shape[1:] != rows.shape or not np.isfinite(pairs).all():
                raise ValueError
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            raise SettingsError(f"{path}: not of this study, or damaged; delete it to do without it") from None
        deviations = np.zeros((len(pairs), q, q))
        deviations[:, rows, columns] = deviations[:, columns, rows] = pairs
        return cls(copula, deviations)


@threadpool_limits.wrap(limits=1, user_api="blas")  # the matrices are small: threads only wait for each other
def draw_covariances(
    readings: Floats | ReadingTable,
    patterns: Sequence[Pattern],
    start: Floats,
    prior_subjects: float,
    rng: Rng,
    *,
    n_draws: int = POSTERIOR_DRAW_TUNING.draws,
    thin: int = POSTERIOR_DRAW_TUNING.thin,
) -> Floats:
    """(T, q, q) correlation matrices of the readings from their posterior, every `thin`-th of the chain."""
    q = start.shape[0]
    columns = by_column(readings)
    groups = [_Group.of(columns, pattern) for pattern in patterns]
    degrees = sum(group.count for group in groups) + prior_subjects + q + 1.0
    burn_in = POSTERIOR_DRAW_TUNING.burn_in
    covariance, drawn = start, np.empty((n_draws, q, q))
    for step in range(burn_in + thin * n_draws):
        products = prior_subjects * np.eye(q)
        for group in groups:
            group.add_completed(products, covariance, rng)
        covariance = to_correlation(draw_inverse_wishart(products, degrees, rng))
        if step >= burn_in and (step - burn_in) % thin == 0:
            drawn[(step - burn_in) // thin] = covariance
    return drawn


@dataclass(frozen=True)
class _Group:
    """The subjects of one pattern, as few rows as have the same products.

    n rows of o readings have the products of at most o rows, their triangular factor: the n - o others are zero, and
    what is drawn for them is noise alone, of which only the products are needed.
    """

    observed: NDArray[np.int64]
    missing: NDArray[np.int64]
    rows: Floats
    products: Floats
    count: int

    @classmethod
    def of(cls, readings: Floats | ReadingTable, pattern: Pattern) -> _Group:
        rows = np.empty((0, pattern.observed.size))
        for block in iterate_blocks(readings, pattern):
            rows = np.vstack([rows, block.T])
            if rows.shape[0] > rows.shape[1]:
                rows = np.asarray(np.linalg.qr(rows, mode="r"))
        return cls(pattern.observed, pattern.missing, rows, rows.T @ rows, pattern.rows.size)

    def add_completed(self, products: Floats, covariance: Floats, rng: Rng) -> None:
        """Add the products of the completed readings, in place."""
        seen, missing, rows = self.observed, self.missing, self.rows
        down, across = seen[:, None], missing[:, None]  # np.ix_ takes longer than what it is for
        products[down, seen] += self.products
        if missing.size == 0:
            return
        between = covariance[down, missing]
        weights = regress(covariance, seen, missing)
        root: Floats = np.asarray(np.linalg.cholesky(covariance[across, missing] - weights @ between))
        noise = rng.standard_normal((rows.shape[0], missing.size)) @ root.T
        drawn: Floats = rows @ weights.T + noise
        mixed = drawn.T @ rows
        products[across, seen] += mixed
        products[down, missing] += mixed.T
        products[across, missing] += drawn.T @ drawn + _draw_products(self.count - len(rows), root, rng)


def _draw_products(count: int, root: Floats, rng: Rng) -> Floats:
    """Products of so many normal rows of covariance root root': a Wishart matrix (Bartlett 1933)."""
    d = root.shape[0]
    if count <= d:
        rows = rng.standard_normal((count, d)) @ root.T
        return np.asarray(rows.T @ rows)
    factor = root @ _bartlett(float(count), d, rng)
    return np.asarray(factor @ factor.T)


def draw_inverse_wishart(scale: Floats, degrees: float, rng: Rng) -> Floats:
    """A covariance matrix whose inverse is Wishart(scale^-1, degrees)."""
    d = scale.shape[0]
    root = np.linalg.cholesky(scale)
    # scale = L L': if W = A A' is standard Wishart, (L^-T W L^-1)^-1 = (L A^-T)(L A^-T)'.
    factor = solve_triangular(_bartlett(degrees, d, rng), root.T, lower=True, check_finite=False)
    return np.asarray(factor.T @ factor)


def _bartlett(degrees: float, d: int, rng: Rng) -> Floats:
    """The lower triangular factor of a standard Wishart matrix."""
    factor = np.tril(rng.standard_normal((d, d)), -1)
    factor[np.diag_indices(d)] = np.sqrt(rng.chisquare(degrees - np.arange(d)))
    return factor
