"""Standard errors and intervals of selected coefficients.

The target is the selected columns' effects in the population, as selected: what maximum likelihood on these columns
would find if everybody were seen. Each source of errors says what it knows of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from verticopula.glm.families import Family
from verticopula.glm.selection_intervals import interval_outside

Floats = NDArray[np.float64]
Source = Literal["likelihood", "copula", "bootstrap"]

TARGET_NOTE = "They are about the selected columns' effects in the population, as selected."
WHOLE_TARGET_NOTE = "They are about the columns' effects in the population."
MOVED_NOTE = "Intervals are moved back by known biases, so an estimate can lie outside its own."
SOURCES: dict[Source, str] = {
    "likelihood": "They ignore privacy noise{ignored}: right only if the rows are {n_effective:,.0f} real "
    "people{given}.",
    "copula": "They know of privacy noise, missing blocks, {known}.",
    "bootstrap": "They know of privacy noise, missing blocks, {known} ({copies} repetitions of the whole study on data "
    "drawn from the fitted copula).",
}
_SELECTED = {
    "ignored": ", missing blocks and the selection of columns",
    "given": " and the columns were chosen beforehand",
    "known": "finite numbers of people and rows, and the selection of columns",
}
_ALL_COLUMNS = {"ignored": " and missing blocks", "given": "", "known": "and finite numbers of people and rows"}


@dataclass(frozen=True)
class InferenceTuning:
    """Chosen constants of intervals. All were chosen by hand; studies of 500 people suggested that there is a doubt.

    Attributes
    ----------
    bias_doubt : the standard error of a bias, as a share of it
    """

    bias_doubt: float = 0.5


INFERENCE_TUNING = InferenceTuning()


@dataclass(frozen=True)
class Inference:
    """Uncertainty of the selected coefficients, the intercept first where there is one.

    Attributes
    ----------
    estimate, standard_error : (s,)
    bias : (s,) mean of the draws or repetitions less the estimate. Intervals from draws are moved back by it; a
        bootstrap has it in its error
    source : what the errors come from: `likelihood`, `copula` or `bootstrap`
    n_effective : subjects that the rows stand for
    degrees_of_freedom : of the t distribution, one or (s,); infinite for the normal one
    copies : draws or repetitions behind it; 1 for the likelihood's own
    cuts : (s,) how near to 0 an estimate could have come before its column would have been dropped; None for 0
    identified : False where columns are linearly dependent, so that many coefficients fit equally well
    covariance : (s, s) of the likelihood's own estimates; None otherwise
    """

    estimate: Floats
    standard_error: Floats
    bias: Floats
    degrees_of_freedom: float | Floats
    source: Source
    n_effective: float
    copies: int = 1
    cuts: Floats | None = None
    identified: bool = True
    covariance: Floats | None = None

    def intervals(self, confidence: float) -> tuple[Floats, Floats]:
        """Lower and upper ends at a confidence level."""
        # An error that comes from few draws is wider by what t is wider than the normal distribution.
        wider = stats.t.ppf(0.5 + confidence / 2.0, self.degrees_of_freedom) / stats.norm.ppf(0.5 + confidence / 2.0)
        error = wider * self.standard_error
        ends = np.full((2, error.size), np.nan)
        for j, (value, cut) in enumerate(zip(self.estimate, self._cuts, strict=True)):
            if error[j] > 0.0:
                ends[:, j] = error[j] * np.array(interval_outside(value / error[j], cut / error[j], confidence))
            elif error[j] == 0.0:
                ends[:, j] = value
        shift = self.bias if self.source == "copula" else np.zeros(error.size)
        return ends[0] - shift, ends[1] - shift

    def p_values(self) -> Floats:
        """Two-sided, for a coefficient of zero, as if columns had been chosen beforehand."""
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.abs(self.estimate) / self.standard_error
        return np.asarray(2.0 * stats.t.sf(z, self.degrees_of_freedom))

    @property
    def _cuts(self) -> Floats:
        return np.zeros(self.estimate.size) if self.cuts is None else self.cuts

    def note(self, *, selects: bool = True) -> str:
        """What the intervals know of and what they ignore; no word of selection where no column can be dropped."""
        words = _SELECTED if selects else _ALL_COLUMNS
        return SOURCES[self.source].format(n_effective=self.n_effective, copies=self.copies, **words)


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
        covariance=covariance,
    )


def infer_from_bootstrap(
    estimate: Floats, repetitions: Floats, n_effective: float, cuts: Floats | None = None
) -> Inference:
    """From (B, s) estimates of repetitions of the whole study on data from the fitted copula.

    The error is the repetitions' root mean square distance from the estimate, their bias included. Correcting the
    estimate by that bias instead would count its own error twice, since it comes from one synthetic sample: such
    intervals cover far less.
    """
    distance = repetitions - estimate
    error = np.sqrt(np.sum(distance**2, axis=0) / (len(repetitions) - 1))
    freedom, bias = float(len(repetitions) - 1), distance.mean(axis=0)
    return Inference(estimate, error, bias, freedom, "bootstrap", n_effective, len(repetitions), cuts)


@dataclass(frozen=True)
class ErrorParts:
    """Where errors of s coefficients come from.

    Attributes
    ----------
    people : (s,) standard errors from the finite number of people, all columns of them seen without noise
    correlations : (s,) what noise and missing blocks add through the correlations
    margins : (M, s) moves over draws of the margins
    rows : (s,) standard errors from the finite number of synthetic rows
    doubtful_bias, known_bias : (s,) how far the estimate is expected to be off: roughly, and for certain
    """

    people: Floats
    correlations: Floats
    margins: Floats
    rows: Floats
    doubtful_bias: Floats
    known_bias: Floats


def infer_from_parts(
    estimate: Floats, parts: ErrorParts, n_effective: float, cuts: Floats | None = None
) -> Inference | None:
    """From the known errors of what stands behind synthetic tables; None where one of them is not a number.

    Intervals are moved back by both biases, and a part of the doubtful one counts as error. Few draws of the margins
    leave their variance uncertain; t's degrees of freedom are those of Satterthwaite (1946).
    """
    draws = len(parts.margins)
    margins = np.var(parts.margins, axis=0, ddof=1) * (1.0 + 1.0 / draws)
    doubt = (INFERENCE_TUNING.bias_doubt * parts.doubtful_bias) ** 2
    variance = parts.people**2 + parts.correlations**2 + parts.rows**2 + margins + doubt
    if not np.isfinite(variance).all():
        return None
    with np.errstate(divide="ignore"):
        freedom = (draws - 1.0) * (variance / margins) ** 2
    bias = parts.doubtful_bias + parts.known_bias
    return Inference(estimate, np.sqrt(variance), bias, freedom, "copula", n_effective, draws, cuts)
