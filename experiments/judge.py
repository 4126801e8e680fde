"""How every table, real or synthetic, is turned into coefficients: SCAD without an intercept, as in the paper.

`library` is the package's own regression, BIC on refits, and judges by default. `ridge` adds a ridge term and chooses
by gMDL: the rule of `benchmarks accuracy`, better in small logistic designs (see `experiments.scad`). `mixed` takes the
first for linear and the second for logistic tables. `bayes` is the package's
`select="bayes"`: posterior means of the columns that are probably not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from experiments.federated import fit_posterior_in_parts, fit_refit_in_parts
from experiments.metrics import fdr, g_means, rmse
from experiments.scad import Model, ScadFit, fit_posterior, fit_scad, fit_scad_refit
from experiments.study import MethodFailure, Outcome, Study, stack_numbers

Floats = NDArray[np.float64]
JudgeName = Literal["library", "ridge", "bayes"]
Scores = dict[str, float]

JUDGES: Mapping[str, Callable[..., ScadFit]] = {
    "library": fit_scad_refit,
    "ridge": fit_scad,
    "bayes": fit_posterior,
}
JUDGES_APART: Mapping[str, Callable[..., Floats]] = {
    "library": fit_refit_in_parts,
    "ridge": fit_refit_in_parts,
    "bayes": fit_posterior_in_parts,
}
JUDGE_NAMES: tuple[JudgeName, ...] = get_args(JudgeName)
MIXED = "mixed"
MIXTURE: Mapping[str, JudgeName] = {"linear": "library", "logistic": "ridge"}
METRICS = {"rmse": rmse, "gmeans": g_means, "fdr": fdr}
LARGER_IS_BETTER = {"rmse": False, "gmeans": True, "fdr": False}
MODELS: Mapping[str, Model] = {"gaussian": "linear", "binomial": "logistic"}


def judge(outcome: Outcome, study: Study, name: JudgeName) -> Floats:
    """(p,) the method's own coefficients, or those that the judge finds on its tables."""
    if outcome.coef is not None:
        return outcome.coef
    x, y = stack_numbers(study.federation, outcome.tables)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise MethodFailure("the table has cells that are not finite")
    if np.ptp(y) == 0.0:
        raise MethodFailure("the response of the synthetic table is constant")
    if outcome.stay_apart:
        return JUDGES_APART[name](study.federation, outcome.tables, study.family)
    return judge_numbers(x, y, MODELS[study.family], name, outcome.n_subjects)


def judge_numbers(x: Floats, y: Floats, model: Model, name: JudgeName, n_subjects: int | None = None) -> Floats:
    """(p,) what the judge finds on rows that stand for so many subjects; None for as many as there are rows."""
    return JUDGES[name](x, y, model=model, n_effective=n_subjects or len(y), fit_intercept=False).coef


def score(coef: Floats, truth: Floats) -> Scores:
    """The paper's three measures."""
    return {name: measure(coef, truth) for name, measure in METRICS.items()}
