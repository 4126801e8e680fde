"""What a regression on synthetic tables may be off by, because the copula behind them may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.glm.feature_encoding import Coding
from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import FittedCopula
from verticopula.stats.posterior_draws import PosteriorDraws

Floats = NDArray[np.float64]

_POINTS = 4096  # at which a column's values are seen to follow its latents


@dataclass(frozen=True, repr=False)
class ScoreErrors:
    """Draws of the error of a regression's mean score, E[x (y - mean)], on the features' own scale.

    Values follow their own latents alone, so a covariance is off by (loading of one) D (loading of the other) where the
    latents' correlations are off by D; to first order, so is everything that depends on them.

    Attributes
    ----------
    deviations : (T, q, q) draws of D
    features : (p, q) covariances of every feature with the latents, those of its own column
    response : (q,) the response's
    """

    deviations: Floats
    features: Floats
    response: Floats

    @classmethod
    def of(
        cls, draws: PosteriorDraws, codings: Sequence[tuple[ColumnKey, Coding]], response: tuple[ColumnKey, Coding]
    ) -> ScoreErrors:
        """Of features coded like these."""
        features = [_load(draws.copula, key, coding) for key, coding in codings]
        return cls(draws.deviations, np.concatenate(features), _load(draws.copula, *response)[0])

    @classmethod
    def of_tables(
        cls, tables: Any, codings: Sequence[tuple[ColumnKey, Coding]], response: ColumnKey
    ) -> ScoreErrors | None:
        """What the maker of the tables knows of their errors; None where it says nothing, or they have changed."""
        posterior_draws = getattr(tables, "posterior_draws", None)
        if posterior_draws is None or tables.changed_columns() & {str(key) for key in (response, *dict(codings))}:
            return None
        return cls.of(posterior_draws(), codings, (response, Coding(response.column)))

    def draw(self, coef: Floats, curvature: float) -> Floats:
        """(T, p) where the coefficients are these and the mean bends by so much on average (1 for gaussian)."""
        direction = self.response - curvature * (coef @ self.features)
        return np.asarray((self.deviations @ direction) @ self.features.T)


def _load(copula: FittedCopula, key: ColumnKey, coding: Coding) -> Floats:
    """(d, q) covariances of a column's features with the latents; latents of one column are independent."""
    part = copula.layout.slices[copula.layout.keys.index(key)]
    width = part.stop - part.start
    if width == 1:
        latents = ndtri((np.arange(_POINTS) + 0.5) / _POINTS)[:, None]
    else:
        latents = np.random.default_rng(0).standard_normal((4 * _POINTS, width))  # any seed: it is an integral
    values = coding.spread(copula.decoder(key, part)(latents))
    loading = np.zeros((values.shape[1], copula.correlation.shape[0]))
    loading[:, part] = (values - values.mean(axis=0)).T @ latents / len(latents)
    return loading
