"""How noisy readings depend on the latents, and latents drawn given them.

`readings.py` says what a reading is; a fitted copula says how all latents hang together. Together they say where a
subject's latents may lie, those of columns it has no value in among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from verticopula.stats.copula import FittedCopula
from verticopula.stats.em import PackedMoments, Pattern, em_step, gather_moments
from verticopula.stats.latent_draws import draw_posterior
from verticopula.stats.matrix_repair import clip_eigenvalues
from verticopula.stats.nominal import boundary_matrix, solve_thresholds
from verticopula.stats.readings import Readings

Floats = NDArray[np.float64]

_LEAST_ERROR = 1e-6


@dataclass(frozen=True)
class Loadings:
    """reading = loading @ latent + error, to first order.

    Attributes
    ----------
    correlation : (q, q) of the latents
    loading : (q, q)
    error : (q, q) covariance of the errors
    """

    correlation: Floats
    loading: Floats
    error: Floats

    @classmethod
    def of(cls, copula: FittedCopula, readings: Readings, own: Sequence[Floats]) -> Loadings:
        """From what is known of single readings; `own` has the covariance of each column's readings."""
        loading = _loading(copula, readings)
        implied = loading @ copula.correlation @ loading.T
        error = np.zeros_like(implied)
        for part, covariance in zip(copula.layout.slices, own, strict=True):
            # A column's own readings have the covariance they have; what the latents leave is error.
            error[part, part] = clip_eigenvalues(covariance - implied[part, part], _LEAST_ERROR)
        return cls(copula.correlation, loading, error)

    @property
    def implied(self) -> Floats:
        """(q, q) covariance of the readings if correlation and errors are right."""
        return np.asarray(self.loading @ self.correlation @ self.loading.T + self.error)

    def allow_for(self, readings: Floats, patterns: Sequence[Pattern]) -> Loadings:
        """The same with errors as large as the readings show them to be.

        A nearly singular correlation says that some combination of readings is nearly constant. Where the readings
        say otherwise, predictions from that combination would be far too large. The readings' second moments S,
        completed by one E-step, are compared with the implied C in C's own metric. The error grows until
        C + growth >= S / edge, where `edge` is how far sampling alone takes the largest ratio (Marchenko and Pastur).
        The mean squares of predictions from n of N subjects are then at most edge * N/n, whatever the correlation is.
        """
        implied, (n_subjects, q) = self.implied, readings.shape
        found = em_step(implied, PackedMoments.of(gather_moments(readings, patterns)))
        ratios, vectors = eigh(found, implied)
        edge = (1.0 + np.sqrt(q / n_subjects)) ** 2
        root = implied @ vectors  # implied = root @ root.T
        growth = (root * (np.maximum(ratios / edge, 1.0) - 1.0)) @ root.T
        return Loadings(self.correlation, self.loading, self.error + (growth + growth.T) / 2.0)

    def draw_latents(self, readings: Floats, patterns: Sequence[Pattern], rng: np.random.Generator) -> Floats:
        """(N, q) latents of all subjects, given the readings there are."""
        return draw_posterior(readings, patterns, self.correlation, self.loading, self.error, rng)


def _loading(copula: FittedCopula, readings: Readings) -> Floats:
    """(q, q): how readings depend on latents, to first order."""
    loading = np.diag(readings.links)
    for key, part in zip(copula.layout.keys, copula.layout.slices, strict=True):
        if part.stop - part.start > 1:
            shares = np.clip(copula.margins[key].probabilities, 1e-6, 1.0 - 1e-6)
            boundary = boundary_matrix(solve_thresholds(shares))
            scale = readings.reliability[part] / np.sqrt(shares * (1.0 - shares))
            loading[part, part] = scale[:, None] * boundary
    return loading
