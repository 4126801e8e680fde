"""How every table, real or synthetic, is turned into coefficients: a regression without an intercept, as in the paper.

`library` is the package's default, SCAD with BIC on refits. `bayes`, by which the tables are judged, is its
`select="bayes"`: posterior means of the columns that are probably not zero. Real rows are judged by the package as it
comes, and so are linear tables that say how sure they are of what they show (`refined`). Others have a bar of their
own, INCLUSION. In a linear table evidence is overwhelming or absent, and a high bar only keeps out what an
overconfident table adds (its rows do not know how few subjects stand behind a block); in a logistic one evidence is
scarce, and the bar is low. Where it is so scarce that few columns pass by honest probabilities, G-Means rewards
guessing: logistic tables are taken at face value whatever they say. What the package makes of those that know their
errors is kept beside it, and so is what other bars would have given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from experiments.federated import fit_refit_in_parts, sample_posterior_in_parts
from experiments.metrics import score_coef
from experiments.scad import Model, fit_scad_refit, sample_rows
from experiments.study import MethodFailure, Outcome, Study, covariate_keys, stack_numbers
from verticopula.estimators.score_errors import ScoreErrors
from verticopula.glm.bayes import BAYES_TUNING, Posterior, default_bar
from verticopula.glm.feature_encoding import Coding

Floats = NDArray[np.float64]
JudgeName = Literal["library", "bayes"]
Scores = dict[str, float]

JUDGE_NAMES: tuple[JudgeName, ...] = get_args(JudgeName)
INCLUSION: Mapping[str, float] = {"linear": 0.95, "logistic": 0.7}
OTHER_BARS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
MODELS: Mapping[str, Model] = {"gaussian": "linear", "binomial": "logistic"}


@dataclass(frozen=True)
class MuBound:
    """(p,) coefficients as the rule decides, and as it would with other bars, where it has any.

    `knowing` is what it would decide if it used what the tables say of their errors.
    """

    coef: Floats
    others: Mapping[float, Floats] = field(default_factory=dict)
    knowing: Floats | None = None

    @classmethod
    def decide(cls, posterior: Posterior, bar: float) -> MuBound:
        """By the posterior probabilities of columns that are no groups."""
        starts = np.arange(posterior.mean.size + 1)
        others = {other: posterior.select(starts, other) for other in OTHER_BARS}
        return cls(posterior.select(starts, bar), others)


def judge(outcome: Outcome, study: Study, name: JudgeName) -> MuBound:
    """The method's own coefficients, or those that the judge finds on its tables."""
    if outcome.coef is not None:
        return MuBound(outcome.coef)
    x, y = stack_numbers(study.federation, outcome.tables)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise MethodFailure("the table has cells that are not finite")
    if np.ptp(y) == 0.0:
        raise MethodFailure("the response of the synthetic table is constant")
    model = MODELS[study.family]
    bar = INCLUSION[model] if outcome.synthetic else default_bar(outcome.n_subjects)
    if not outcome.stay_apart:
        errors = find_errors(outcome, study) if name == "bayes" else None
        if errors is None:
            return judge_numbers(x, y, model, name, outcome.n_subjects, bar)
        knowing = judge_numbers(x, y, model, name, outcome.n_subjects, BAYES_TUNING.known_errors_bar, errors)
        if model == "linear":
            return knowing
        return replace(judge_numbers(x, y, model, name, outcome.n_subjects, bar), knowing=knowing.coef)
    if name == "bayes":
        return MuBound.decide(sample_posterior_in_parts(study.federation, outcome.tables, study.family), bar)
    return MuBound(fit_refit_in_parts(study.federation, outcome.tables, study.family))


def find_errors(outcome: Outcome, study: Study) -> ScoreErrors | None:
    """What the maker of the tables knows of their errors, every covariate being a number; None if it says nothing."""
    codings = [(key, Coding(key.column)) for key in covariate_keys(study.federation)]
    return ScoreErrors.of_tables(outcome.tables, codings, study.federation.response)


def judge_numbers(
    x: Floats,
    y: Floats,
    model: Model,
    name: JudgeName,
    n_subjects: int | None = None,
    bar: float | None = None,
    errors: ScoreErrors | None = None,
) -> MuBound:
    """What the judge finds on rows that stand for so many subjects; None for as many as there are rows.

    `bar` is the probability above which a column is taken; None for that of synthetic tables.
    """
    n_effective = n_subjects or len(y)
    if name == "bayes":
        found = sample_rows(x, y, model=model, n_effective=n_effective, fit_intercept=False, errors=errors)
        return MuBound.decide(found, INCLUSION[model] if bar is None else bar)
    return MuBound(fit_scad_refit(x, y, model=model, n_effective=n_effective, fit_intercept=False).coef)


def score(judged: MuBound, truth: Floats) -> Scores:
    """The paper's three measures, then those of other bars, and of what tables know."""
    scores = score_coef(judged.coef, truth)
    for bar, coef in judged.others.items():
        scores |= {f"{name} at {bar:g}": value for name, value in score_coef(coef, truth).items()}
    if judged.knowing is not None:
        scores |= {f"{name} knowing": value for name, value in score_coef(judged.knowing, truth).items()}
    return scores
