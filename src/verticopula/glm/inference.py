"""Standard errors of selected coefficients: Theorem 8's normality, and what a seller of p-values should say.

All of them are those of maximum likelihood on the selected columns, as if these had been chosen beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from verticopula.glm.families import Family

Floats = NDArray[np.float64]
Source = Literal["likelihood", "copies", "bootstrap"]

SELECTION_NOTE = "Intervals and p-values take the selected columns as given: they do not account for the selection."
SOURCES: dict[Source, str] = {
    "likelihood": "Standard errors are those of maximum likelihood on {n_effective:,.0f} subjects. If the rows are "
    "synthetic, they leave out what missing blocks and privacy cost: see bootstrap().",
    "copies": "Standard errors combine {copies} synthetic copies of {n_effective:,.0f} subjects. They leave out what "
    "missing blocks and privacy cost: see bootstrap().",
    "bootstrap": "Standard errors come from {copies} repetitions of the whole study, privacy noise and missing blocks "
    "included, on data drawn from the fitted copula.",
}


@dataclass(frozen=True)
class Inference:
    """Uncertainty of the selected coefficients, the intercept first where there is one.

    Attributes
    ----------
    estimate, standard_error : (s,)
    bias : (s,) the repetitions' mean less the estimate, for information; 0 without a bootstrap
    degrees_of_freedom : of the t distribution; infinite for the normal one
    copies : repetitions or synthetic copies behind it; 1 for the likelihood's own
    identified : False where columns are linearly dependent, so that many coefficients fit equally well
    """

    estimate: Floats
    standard_error: Floats
    bias: Floats
    degrees_of_freedom: float
    source: Source
    n_effective: float
    copies: int = 1
    identified: bool = True

    def intervals(self, level: float) -> tuple[Floats, Floats]:
        """Lower and upper ends at a confidence level."""
        reach = stats.t.ppf(0.5 + level / 2.0, self.degrees_of_freedom) * self.standard_error
        return self.estimate - reach, self.estimate + reach

    def p_values(self) -> Floats:
        """Two-sided, for a coefficient of zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.abs(self.estimate) / self.standard_error
        return np.asarray(2.0 * stats.t.sf(z, self.degrees_of_freedom))

    def note(self) -> str:
        return SOURCES[self.source].format(n_effective=self.n_effective, copies=self.copies)


def infer_from_likelihood(
    columns: Floats, coef: Floats, intercept: float | None, y: Floats, family: Family, n_effective: float
) -> Inference:
    """From the Fisher information at the coefficients.

    Parameters
    ----------
    columns : (n, s) the selected features
    intercept : None where none was fitted
    n_effective : subjects that the n rows stand for
    """
    # On a common scale, and centred where there is an intercept, so that the rank does not depend on units.
    scale, shift = columns.std(axis=0), np.zeros(columns.shape[1])
    scale = np.where(scale > 0.0, scale, 1.0)
    back = np.diag(1.0 / scale)
    rows = columns / scale
    estimate, eta = coef, columns @ coef
    if intercept is not None:
        shift = columns.mean(axis=0)
        rows = np.column_stack([np.ones(len(y)), (columns - shift) / scale])
        back = np.block([[np.ones((1, 1)), -(shift / scale)[None, :]], [np.zeros((coef.size, 1)), back]])
        estimate, eta = np.append(intercept, coef), eta + intercept
    information = (rows.T * family.curvature(eta)) @ rows / len(y)
    identified = estimate.size == 0 or bool(np.linalg.matrix_rank(information, hermitian=True) == estimate.size)
    dispersion, freedom = 1.0, np.inf
    if family.name == "gaussian":
        freedom = n_effective - estimate.size
        # With as many coefficients as subjects nothing is left to judge the errors by.
        dispersion = float(np.mean((y - eta) ** 2)) * n_effective / freedom if freedom > 0 else np.nan
    covariance = back @ (dispersion * np.linalg.pinv(information, hermitian=True) / n_effective) @ back.T
    error = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    return Inference(
        estimate,
        error if identified else np.full_like(error, np.nan),
        np.zeros_like(estimate),
        float(max(freedom, 1.0)),
        "likelihood",
        n_effective,
        identified=identified,
    )


def combine_copies(fits: list[Inference]) -> Inference:
    """The combining rule for m synthetic copies of one fitted model.

    The estimate is the copies' mean. Each copy's own variance already stands for the real subjects; what the finite
    number of synthetic rows adds is seen between the copies, and averaging divides it by m (Raab, Nowok and
    Dibben 2016).
    """
    estimates = np.array([fit.estimate for fit in fits])
    within = np.mean([fit.standard_error**2 for fit in fits], axis=0)
    between = np.var(estimates, axis=0, ddof=1) if len(fits) > 1 else np.zeros(estimates.shape[1])
    mean = estimates.mean(axis=0)
    return Inference(
        mean,
        np.sqrt(within + between / len(fits)),
        np.zeros_like(mean),
        fits[0].degrees_of_freedom,
        "copies",
        fits[0].n_effective,
        len(fits),
    )


def infer_from_bootstrap(estimate: Floats, repetitions: Floats, n_effective: float) -> Inference:
    """From (B, s) estimates of repetitions of the whole study on data from the fitted copula.

    The error is the repetitions' root mean square distance from the estimate, their bias included. Correcting the
    estimate by that bias instead would count its own error twice, since it comes from one synthetic sample: such
    intervals cover far less.
    """
    distance = repetitions - estimate
    error = np.sqrt(np.sum(distance**2, axis=0) / (len(repetitions) - 1))
    freedom = float(len(repetitions) - 1)
    return Inference(estimate, error, distance.mean(axis=0), freedom, "bootstrap", n_effective, len(repetitions))
