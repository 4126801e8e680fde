"""How maximum likelihood on given rows moves when their columns move: a few steps of Newton's method, or one to first
order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.families import Family
from verticopula.privacy.root_finding import halve_until_lower

Floats = NDArray[np.float64]

_STEPS, _HALVINGS = 30, 10
_SMALLEST_MOVE = 1e-7  # in standard deviations of eta per column
_APART = 0.25  # of eta, for derivatives by differences


@dataclass(frozen=True)
class RowEffects:
    """A regression without a penalty on (n, s) columns.

    Attributes
    ----------
    family : of the response
    has_intercept : whether one is fitted; it then is the first coefficient
    """

    family: Family
    has_intercept: bool

    def maximise(self, columns: Floats, y: Floats, start: Floats) -> Floats:
        """The coefficients that maximise the likelihood; not a number where Newton's method finds none.

        Parameters
        ----------
        columns, y : (n, s), (n,) rows
        start : coefficients to begin with
        """
        mean, scale = self._standard(columns)
        rows = self._bordered((columns - mean) / scale)
        if self.family.name == "gaussian":
            return self._to_data(self._solve(rows.T @ rows, rows.T @ y), mean, scale)
        first = int(self.has_intercept)
        coef = start.copy()
        coef[first:] = start[first:] * scale
        if first:
            coef[0] = start[0] + float(mean @ start[1:])
        eta = rows @ coef
        for _ in range(_STEPS):
            hessian = (rows.T * self.family.curvature(eta)) @ rows
            step = -self._solve(hessian, rows.T @ self.family.residual(eta, y))
            step = step * self._share_of(rows @ step, eta, y)
            coef, eta = coef + step, eta + rows @ step
            if np.max(np.abs(step), initial=0.0) < _SMALLEST_MOVE:
                return self._to_data(coef, mean, scale)
        return np.full(coef.size, np.nan)

    def _share_of(self, change: Floats, eta: Floats, y: Floats) -> float:
        """How much of a step to go: as far as the loss does not rise, or a little where it rises everywhere."""
        loss = self.family.loss(eta, y)
        share = halve_until_lower(lambda part: self.family.loss(eta + part * change, y), loss, _HALVINGS)
        return share or 0.5**_HALVINGS

    def gradients(self, columns: Floats, coef: Floats, loadings: tuple[Floats, Floats]) -> Floats:
        """(s or s + 1, q, q) symmetric: coefficients move by the sum of their own times D if correlations move by D.

        Covariances of two columns then move by (loading of one) D (loading of the other). So the mean score moves by
        u D v, u being the loadings of the features and v those of the response less the mean's slope times those of
        eta; and by what another variance of eta, w D w, makes of the mean, which is curved.

        Parameters
        ----------
        columns, coef : (n, s) rows and their coefficients, the intercept first
        loadings : (q,) and (s, q) covariances of the response and the features with their latents
        """
        response, features = loadings
        mean = columns.mean(axis=0) if self.has_intercept else np.zeros(columns.shape[1])
        slopes = coef[int(self.has_intercept) :]
        rows, eta = self._bordered(columns - mean), columns @ slopes + (coef[0] if self.has_intercept else 0.0)
        low, bend, high = (self.family.curvature(eta + step) for step in (-_APART, 0.0, _APART))
        predictor = slopes @ features
        rest = response - float(np.mean(bend)) * predictor
        # d E[x mean(eta)] / d(variance of eta) = E[x psi''']/2, x held: here by the row's own third derivative.
        curved = 0.5 * (rows.T @ ((high - low) / (2.0 * _APART))) / len(columns)
        score = np.zeros((rows.shape[1], response.size, response.size))
        score[int(self.has_intercept) :] = features[:, :, None] * rest
        score -= curved[:, None, None] * np.outer(predictor, predictor)
        found = np.tensordot(np.linalg.pinv((rows.T * bend) @ rows / len(columns), hermitian=True), score, axes=1)
        if self.has_intercept:
            found[0] -= np.tensordot(mean, found[1:], axes=1)
        return np.asarray(found + found.transpose(0, 2, 1)) / 2.0

    def _standard(self, columns: Floats) -> tuple[Floats, Floats]:
        scale = columns.std(axis=0)
        mean = columns.mean(axis=0) if self.has_intercept else np.zeros(columns.shape[1])
        return mean, np.where(scale > 0.0, scale, 1.0)

    def _bordered(self, columns: Floats) -> Floats:
        return np.column_stack([np.ones(len(columns)), columns]) if self.has_intercept else columns

    def _to_data(self, coef: Floats, mean: Floats, scale: Floats) -> Floats:
        if not self.has_intercept:
            return coef / scale
        slopes = coef[1:] / scale
        return np.append(coef[0] - mean @ slopes, slopes)

    @staticmethod
    def _solve(matrix: Floats, right: Floats) -> Floats:
        try:
            return np.asarray(np.linalg.solve(matrix, right))
        except np.linalg.LinAlgError:
            return np.full(right.size, np.nan)
