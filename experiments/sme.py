"""The SME study of Section 6 on `make_sme`: splits, the methods of Table 8, and what each finds.

Every split puts 92 complete cases aside; the rest, complete or not, is what the parties hold. A method's tables are
fitted by the library's SCAD with BIC on refits, an intercept included, and predict the cases put aside. Unlike the
paper's data these have a truth: which variables matter is known.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from experiments.central_path import trace_path
from experiments.methods import METHODS
from experiments.study import MethodFailure, Outcome, Spent, Study, keep_common
from verticopula.datasets import SmeStudy
from verticopula.glm.central_solver import null_point
from verticopula.glm.families import find_family
from verticopula.glm.feature_design import Features, join_features, standardise
from verticopula.glm.feature_encoding import Coding, code_schema_column, encode_response, encode_table
from verticopula.glm.lasso import largest_strength
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import RefitRule, choose_point, geometric_strengths, information_criterion
from verticopula.schema.federation import Federation

Floats = NDArray[np.float64]

SME_METHODS = (
    *("Single-VCDS", "CC-VCDS", "Impute-VCDS", "VCDS"),
    *("Single-EVCDS", "CC-EVCDS", "Impute-EVCDS", "EVCDS"),
    *("EVCDS-free", "IEVCDS", "IEVCDS-free", "Refined", "Refined-aligned"),
)
SUBJECTS, TEST_CASES, SPLITS = 71_827, 92, 10
EPSILON = 1.0


@dataclass(frozen=True)
class SmeScores:
    """What one method found on one split.

    Attributes
    ----------
    recall : share of the risky test cases predicted as risky: above the share of risky ones among the rows fitted on
    recall_half : the same with a threshold of one half
    selected : `party.column` of the selected variables
    """

    recall: float
    recall_half: float
    auc: float
    selected: tuple[str, ...]
    spent: Spent


@dataclass(frozen=True)
class Split:
    """The parties' tables without the test cases, and those, complete."""

    tables: dict[str, pl.DataFrame]
    test: dict[str, pl.DataFrame]


def split_study(study: SmeStudy, number: int, *, test_cases: int = TEST_CASES) -> Split:
    """Put complete cases aside at random; at most half of them, where there are few."""
    name = study.federation.id.name
    whole = keep_common(study.federation, study.tables)
    ids = whole[study.federation.response.party][name].sort()
    rng = np.random.default_rng([number, len(ids)])
    chosen = ids.gather(rng.permutation(len(ids))[: min(test_cases, len(ids) // 2)])
    if len(chosen) == 0:
        raise MethodFailure("no complete case to put aside: take more subjects")
    return Split(
        {party: table.filter(~pl.col(name).is_in(chosen.implode())) for party, table in study.tables.items()},
        {party: table.filter(pl.col(name).is_in(chosen.implode())) for party, table in whole.items()},
    )


def make_study(federation: Federation, split: Split, seed: int) -> Study:
    """What the parties hold, for the methods."""
    return Study(federation, split.tables, "binomial", EPSILON, seed)


def measure(study: Study, split: Split, method: str) -> SmeScores:
    """One method on the study of one split; free and aligned rows of a method share what was fitted on it."""
    federation = study.federation
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = METHODS[method](study)
        model = fit_tables(federation, outcome)
        predicted = model.predict(split.test)
    response = federation.response
    truth = _response(federation, split.test[response.party])
    risky = truth == 1.0
    return SmeScores(
        recall=recall(predicted, risky, model.share),
        recall_half=recall(predicted, risky, 0.5),
        auc=auc(predicted, risky),
        selected=model.selected,
        spent=outcome.spent,
    )


def recall(predicted: Floats, risky: NDArray[np.bool_], threshold: float) -> float:
    """TP / (TP + FN); 0 without risky cases."""
    return float(np.mean(predicted[risky] > threshold)) if risky.any() else 0.0


def auc(predicted: Floats, risky: NDArray[np.bool_]) -> float:
    """The probability that a risky case has a higher prediction than another one, ties counting half."""
    if risky.all() or not risky.any():
        return 0.5
    high, low = predicted[risky][:, None], predicted[~risky]
    return float(np.mean((high > low) + 0.5 * (high == low)))


@dataclass(frozen=True)
class Fitted:
    """A regression on a method's tables.

    Attributes
    ----------
    share : of the rows fitted on that are risky
    """

    codings: Mapping[str, tuple[Coding, ...]]
    coef: Floats
    intercept: float
    share: float
    selected: tuple[str, ...]

    def predict(self, tables: Mapping[str, pl.DataFrame]) -> Floats:
        """(n,) probabilities of being risky."""
        eta = _encode(self.codings, tables).values @ self.coef + self.intercept
        return find_family("binomial").mean(eta)


def fit_tables(federation: Federation, outcome: Outcome) -> Fitted:
    """SCAD on all columns of the tables, BIC on refits with the number of real subjects."""
    response = federation.response
    codings = {
        party: tuple(
            code_schema_column(column)
            for column in federation.party(party).columns
            if (party, column.name) != response and column.name in outcome.tables[party].columns
        )
        for party in outcome.tables
    }
    features, y = _encode(codings, outcome.tables), _response(federation, outcome.tables[response.party])
    if np.ptp(y) == 0.0:
        raise MethodFailure("the response of the synthetic table is constant")
    family, design = find_family("binomial"), standardise(features, centre=True)
    null = null_point(design, y, family, fit_intercept=True)
    residual = family.residual(np.full(y.size, null.intercept), y)
    strengths = geometric_strengths(largest_strength(design.columns, residual, design.starts, design.factors))
    # With more columns than subjects the best noise column passes BIC's bar: as in VerticalGLM.
    n, q = outcome.n_subjects, len(features.names)
    rule = RefitRule(float(np.log(max(n, q**2 if q >= n else 1))), n)
    path = trace_path(design, y, family, Penalty.build("scad"), strengths, refit=rule)
    found = [(point.degrees_of_freedom, point.refit) for point in path if point.refit is not None]
    if not found:
        raise MethodFailure("no strength of the path could be fitted again")
    scores = [information_criterion(family, refit.loss, df, n, rule.charge) for df, refit in found]
    refit = found[choose_point(scores)][1]
    names = [f"{party}.{coding.name}" for party, own in codings.items() for coding in own for _ in coding.names]
    kept = dict.fromkeys(name for name, b in zip(names, refit.coef, strict=True) if b != 0.0)
    return Fitted(codings, refit.coef, refit.intercept, float(y.mean()), tuple(kept))


def _encode(codings: Mapping[str, tuple[Coding, ...]], tables: Mapping[str, pl.DataFrame]) -> Features:
    return join_features([encode_table(tables[party], own, party) for party, own in codings.items()])


def _response(federation: Federation, table: pl.DataFrame) -> Floats:
    response = federation.response
    return encode_response(table[response.column], federation.column(response), response.party)
