"""The paper's three measures of an estimated coefficient vector (Section 5.1), and the distance of a margin."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def rmse(coef: FloatArray, truth: FloatArray) -> float:
    """Root mean square error, sqrt(||coef - truth||^2 / p)."""
    coef, truth = _paired(coef, truth)
    return float(np.sqrt(np.mean((coef - truth) ** 2)))


def g_means(coef: FloatArray, truth: FloatArray) -> float:
    """Geometric mean of sensitivity and specificity of the selected columns; 1 is perfect.

    The truth must have both zero and non-zero coefficients: otherwise one of the two has no value.
    """
    coef, truth = _paired(coef, truth)
    selected, important = coef != 0, truth != 0
    if important.all() or not important.any():
        raise ValueError("G-Means needs a truth with both zero and non-zero coefficients")
    sensitivity = selected[important].mean()
    specificity = (~selected[~important]).mean()
    return float(np.sqrt(sensitivity * specificity))


def fdr(coef: FloatArray, truth: FloatArray) -> float:
    """Share of the selected columns that are irrelevant; 0 if nothing is selected."""
    coef, truth = _paired(coef, truth)
    selected = coef != 0
    return float(np.sum(selected & (truth == 0)) / max(int(selected.sum()), 1))


METRICS: Mapping[str, Callable[[FloatArray, FloatArray], float]] = {"rmse": rmse, "gmeans": g_means, "fdr": fdr}
METRIC_NAMES = {"rmse": "RMSE (0 is best)", "gmeans": "G-Means (1 is best)", "fdr": "FDR (0 is best)"}


def direction(metric: str) -> float:
    """1 where more is better (G-Means), -1 where less is."""
    return 1.0 if metric == "gmeans" else -1.0


def score_coef(coef: FloatArray, truth: FloatArray) -> dict[str, float]:
    """The paper's three measures."""
    return {name: measure(coef, truth) for name, measure in METRICS.items()}


def kolmogorov(cdf: Callable[[FloatArray], FloatArray], values: FloatArray, *, discrete: bool) -> float:
    """Largest difference of a fitted distribution function from the values' own; discrete values are codes from 0."""
    ordered = np.sort(values)
    if discrete:
        levels = np.arange(ordered[-1] + 1)
        shares = np.searchsorted(ordered, levels, side="right") / ordered.size
        return float(np.max(np.abs(cdf(levels) - shares)))
    fitted, steps = cdf(ordered), np.arange(ordered.size + 1) / ordered.size
    return float(np.max(np.maximum(np.abs(fitted - steps[1:]), np.abs(fitted - steps[:-1]))))


def _paired(coef: FloatArray, truth: FloatArray) -> tuple[FloatArray, FloatArray]:
    coef, truth = np.asarray(coef, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if coef.ndim != 1 or coef.shape != truth.shape:
        raise ValueError(f"expected two vectors of one length, got shapes {coef.shape} and {truth.shape}")
    return coef, truth
