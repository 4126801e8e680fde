"""The copula of ordered columns from the first opening: latent correlations, moved as far as their noise says.

One pass, without a loop between steps: products of scores become covariances by the released margins, covariances
become latent correlations by the bridge of the two step functions, and these are moved towards a few factors and
towards nothing (`factor_structure`). Where nothing stands out of the noise the result is the identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from verticopula.stats.bridge import STRONGEST_IN_SERIES, hermite_coefficients, invert_series
from verticopula.stats.matrix_repair import nearest_correlation
from verticopula.stats.tilting.category_shifts import estimate_shifts, read_latents
from verticopula.stats.tilting.cell_features import CellFeatures, features_mean
from verticopula.stats.tilting.factor_structure import (
    FactorStructure,
    fit_structure,
    group_pairs,
    start_structure,
)
from verticopula.stats.tilting.openings import OpenedGram, feature_places
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_prior import latent_cuts
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CopulaEstimate:
    """Latent correlations of the ordered columns.

    Attributes
    ----------
    latent_of : (p,) a column's latent, -1 for a nominal column and where nothing can be learnt
    correlation : (q, q) positive definite
    noisy, variance : (q, q) what was opened, and its variance; infinite where nobody has both
    structure : the factors that correlations were moved towards
    shifts : nominal column -> (c, q) covariances of its indicators with the latents (`category_shifts`)
    """

    latent_of: Ints
    correlation: Floats
    noisy: Floats
    variance: Floats
    structure: FactorStructure
    shifts: Mapping[int, Floats] = field(default_factory=dict)

    def without(self, column: int) -> CopulaEstimate:
        """The same of all other columns: this one has no latent."""
        k = int(self.latent_of[column])
        if k < 0:
            return self
        latent_of = np.where(self.latent_of > k, self.latent_of - 1, self.latent_of)
        latent_of[column] = -1
        kept = np.flatnonzero(np.arange(len(self.correlation)) != k)
        inner = np.ix_(kept, kept)
        structure = replace(self.structure, loadings=self.structure.loadings[kept], groups=self.structure.groups[inner])
        shifts = {j: own[:, kept] for j, own in self.shifts.items()}
        return CopulaEstimate(
            latent_of, self.correlation[inner], self.noisy[inner], self.variance[inner], structure, shifts
        )


def plain_copula(ordered: NDArray[np.bool_], correlation: Floats, shifts: Mapping[int, Floats]) -> CopulaEstimate:
    """A copula that was estimated elsewhere: nothing is known of its noise.

    Parameters
    ----------
    ordered : (p,) the columns that have a latent
    correlation : (q, q) of their latents
    shifts : as `CopulaEstimate` has them
    """
    q = len(correlation)
    structure = FactorStructure(np.zeros((q, 1)), np.full(2, 1e-6), np.zeros((q, q), dtype=np.int64))
    latent_of = np.where(ordered, np.cumsum(ordered) - 1, -1).astype(np.int64)
    return CopulaEstimate(latent_of, correlation, correlation, np.zeros((q, q)), structure, shifts)


def number_latents(features: Sequence[CellFeatures]) -> Ints:
    """(p,) the latent of every column that has one, in order; -1 for others."""
    alive = [f.score is not None and f.scale > 0.0 for f in features]
    return np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int64)


@threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator, unused-ignore]
def estimate_copula(
    gram: OpenedGram, features: Sequence[CellFeatures], columns: Sequence[PooledColumn], owners: Ints
) -> CopulaEstimate:
    """The copula of the ordered columns, and how categories shift their latents.

    Parameters
    ----------
    columns : with margins of everybody, which may be others than those that the features were made from
    owners : (p,) number of a column's party
    """
    latent_of = number_latents(features)
    held = np.flatnonzero(latent_of >= 0)
    coefficients = [_coefficients(features[j], columns[j]) for j in held.tolist()]
    noisy, variance = _noisy_correlations(gram, features, columns, owners, held, coefficients)
    groups = group_pairs(owners[held], np.zeros((held.size, held.size), dtype=bool))
    structure, correlation = FactorStructure(np.zeros((held.size, 1)), np.full(2, 1e-6), groups), np.eye(held.size)
    if held.size > 1:
        structure = fit_structure(start_structure(noisy, variance, groups), noisy, variance)
        blended = np.clip(structure.blend(noisy, variance), -STRONGEST_IN_SERIES, STRONGEST_IN_SERIES)
        np.fill_diagonal(blended, 1.0)
        correlation = nearest_correlation(blended, floor=TUNING.smallest_eigenvalue, projections=20).correlation
    if not held.size:
        return CopulaEstimate(latent_of, correlation, noisy, variance, structure)
    latents = read_latents(features, columns, held, np.array([own[0] for own in coefficients]))
    shifts = estimate_shifts(gram, features, columns, owners, latents, structure, correlation)
    return CopulaEstimate(latent_of, correlation, noisy, variance, structure, shifts)


def _noisy_correlations(
    gram: OpenedGram,
    features: Sequence[CellFeatures],
    columns: Sequence[PooledColumn],
    owners: Ints,
    held: Ints,
    coefficients: Sequence[Floats],
) -> tuple[Floats, Floats]:
    places = feature_places([f.table.shape[1] for f in features])
    first = np.array([places[j].start for j in held], dtype=np.int64)
    totals = gram.totals[np.ix_(owners[held], owners[held])]
    people = gram.people[np.ix_(owners[held], owners[held])]
    met = totals > 0.0
    safe = np.where(met, totals, 1.0)
    means = np.array([features_mean(features[j], columns[j])[0] for j in held])
    products = gram.matrix[np.ix_(first, first)] / safe
    scale = np.array([features[j].scale for j in held])
    filled = np.array([columns[j].shares[: columns[j].n_filled].sum() for j in held])
    units = np.outer(scale * filled, scale * filled)
    covariance = np.where(met, (products - np.outer(means, means)) / np.where(met, units, 1.0), 0.0)
    latent, slope = invert_series(coefficients, covariance) if held.size else (covariance, covariance)
    np.fill_diagonal(latent, 1.0)
    noise = (slope * gram.noise_at(first, first) / (safe * units)) ** 2
    sampling = (1.0 - latent**2) ** 2 / np.maximum(people, 1.0) * 1.5
    variance = np.where(met, noise + sampling, np.inf)
    return latent, variance


def _coefficients(features: CellFeatures, column: PooledColumn) -> Floats:
    assert features.score is not None
    return hermite_coefficients(latent_cuts(column)[1:-1], np.diff(features.score.scores))
