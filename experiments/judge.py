"""How every table, real or synthetic, is turned into coefficients: a regression without an intercept, as in the paper.

Three judges look at the same table. `paper` is the paper's: SCAD with BIC = 2N f + df log N of the penalised fit, which
is also what is returned. `library` is the package's default: the same path, but BIC compares maximum likelihood on
the columns that each strength selects. `bayes` is its `select="bayes"`, with the probability above which users' columns
are selected, too. N is the number of real subjects behind the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from experiments.designs import FAMILY_OF_MODEL, Model
from experiments.federated import sample_posterior_in_parts, trace_in_parts
from experiments.metrics import score_coef
from experiments.scad import sample_rows, trace_scad
from experiments.study import MethodFailure, Outcome, Study, covariate_keys, stack_numbers
from verticopula.estimators.score_errors import ScoreErrors
from verticopula.glm.bayes import BAYES_TUNING, Posterior, default_bar
from verticopula.glm.feature_encoding import Coding

Floats = NDArray[np.float64]
JudgeName = Literal["paper", "library", "bayes"]
Coefs = dict[JudgeName, Floats]

JUDGE_NAMES: tuple[JudgeName, ...] = get_args(JudgeName)
ON_ONE_PATH: tuple[JudgeName, ...] = ("paper", "library")
TITLES: Mapping[JudgeName, str] = {
    "paper": "the paper's judge (SCAD with BIC = 2N f + df log N of the penalised fit)",
    "library": "the library's default (SCAD with BIC of refits)",
    "bayes": "the library's select=“bayes” (posterior probabilities)",
}
MODEL_OF_FAMILY: Mapping[str, Model] = {family: model for model, family in FAMILY_OF_MODEL.items()}


def judge(outcome: Outcome, study: Study, judges: Collection[JudgeName] = JUDGE_NAMES) -> Coefs:
    """(p,) coefficients by judge: the method's own, or those that are found on its tables.

    Who asks for one of the two judges that share a path gets both.
    """
    if outcome.coef is not None:
        return dict.fromkeys(JUDGE_NAMES, outcome.coef)
    x, y = stack_numbers(study.federation, outcome.tables)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise MethodFailure("the table has cells that are not finite")
    if np.ptp(y) == 0.0:
        raise MethodFailure("the response of the synthetic table is constant")
    if not outcome.stay_apart:
        errors = find_errors(outcome, study) if "bayes" in judges else None
        return judge_numbers(x, y, MODEL_OF_FAMILY[study.family], judges, outcome.n_subjects, errors)
    found: Coefs = {}
    if not set(ON_ONE_PATH).isdisjoint(judges):
        found["paper"], found["library"] = trace_in_parts(study.federation, outcome.tables, study.family)
    if "bayes" in judges:
        posterior = sample_posterior_in_parts(study.federation, outcome.tables, study.family)
        found["bayes"] = select_columns(posterior, default_bar(outcome.n_subjects))
    return found


def find_errors(outcome: Outcome, study: Study) -> ScoreErrors | None:
    """What the maker of the tables knows of their errors, every covariate being a number; None if it says nothing."""
    codings = [(key, Coding(key.column)) for key in covariate_keys(study.federation)]
    return ScoreErrors.of_tables(outcome.tables, codings, study.federation.response)


def judge_numbers(
    x: Floats,
    y: Floats,
    model: Model,
    judges: Collection[JudgeName] = JUDGE_NAMES,
    n_subjects: int | None = None,
    errors: ScoreErrors | None = None,
) -> Coefs:
    """What the judges find on rows that stand for so many subjects; None for as many as there are rows."""
    n_effective = n_subjects or len(y)
    found: Coefs = {}
    if not set(ON_ONE_PATH).isdisjoint(judges):
        path = trace_scad(x, y, model=model, n_effective=n_effective, fit_intercept=False)
        found["paper"], found["library"] = path.penalised.coef, path.refitted.coef
    if "bayes" in judges:
        posterior = sample_rows(x, y, model=model, n_effective=n_effective, fit_intercept=False, errors=errors)
        bar = default_bar(n_effective) if errors is None else BAYES_TUNING.known_errors_bar
        found["bayes"] = select_columns(posterior, bar)
    return found


def select_columns(posterior: Posterior, bar: float) -> Floats:
    """Posterior means of columns that are no groups, where their probability is above the bar."""
    return posterior.select(np.arange(posterior.mean.size + 1), bar)


def name_score(judge_name: JudgeName, metric: str) -> str:
    """How a judge's measure is called in what is kept: `paper rmse`."""
    return f"{judge_name} {metric}"


def score(coefs: Mapping[JudgeName, Floats], truth: Floats) -> dict[str, float]:
    """The paper's three measures by every judge."""
    return {
        name_score(name, metric): value
        for name, coef in coefs.items()
        for metric, value in score_coef(coef, truth).items()
    }
