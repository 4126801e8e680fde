"""Can a classifier tell real rows from synthetic ones? The propensity score's mean squared error, pMSE.

Snoke, Raab, Nowok, Dibben and Slavkovic (2018). A classifier sees real and synthetic rows in one heap; pMSE is the mean
squared distance of its scores from the synthetic share. Its null expectation is what rows of one and the same
distribution would give. For a logistic score that is known; for a tree it comes from exchanged labels.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from verticopula.glm.feature_encoding import code_schema_column
from verticopula.report.report_data import ReportData
from verticopula.schema.columns import ColumnKey

Floats = NDArray[np.float64]

FEWEST_ROWS = 100


@dataclass(frozen=True)
class PropensityTuning:
    """How a classifier tells real rows from synthetic ones. Chosen by hand, not tuned.

    Attributes
    ----------
    most_rows : of either kind
    exchanges : how often labels are exchanged, for what chance alone gives
    leaf, depth : fewest rows of a tree's leaf, and how deep the tree is
    """

    most_rows: int = 2_000
    exchanges: int = 10
    leaf: int = 20
    depth: int = 8


PROPENSITY_TUNING = PropensityTuning()


def propensity_scores(subject: ReportData) -> list[dict[str, Any]]:
    """One entry per party whose table is here, and one for all together where all are: complete rows only.

    Synthetic rows are drawn with the observed subjects' margins, because the real rows are observed subjects.
    """
    copula = subject.result.copula
    alike = replace(copula, margins=subject.result.observed_margins)
    groups = {name: [name] for name in subject.real}
    if len(subject.real) == len(subject.federation.parties) > 1:
        groups["all parties"] = list(subject.real)
    rng = np.random.default_rng(0)
    found = []
    for label, names in groups.items():
        seen = np.all([subject.real[name].observed().all(axis=1) for name in names], axis=0)
        rows = np.flatnonzero(seen)
        if rows.size < FEWEST_ROWS:
            found.append({"label": label, "rows": int(rows.size)})
            continue
        rows = rng.permutation(rows)[: PROPENSITY_TUNING.most_rows]
        keys = [ColumnKey(name, c.name) for name in names for c in subject.federation.party(name).columns]
        drawn = alike.sample(rows.size, rng)
        complete = np.flatnonzero(np.isfinite(np.column_stack([drawn[key] for key in keys])).all(axis=1))
        if complete.size < FEWEST_ROWS:
            found.append({"label": label, "rows": int(complete.size)})
            continue
        rows, drawn = rows[: complete.size], {key: drawn[key][complete] for key in keys}
        real = _features(subject, keys, {k: subject.real[k.party].columns[k.column].values[rows] for k in keys})
        both = np.vstack([real, _features(subject, keys, drawn)])
        found.append({"label": label, "rows": int(rows.size), **compare(both, rng)})
    return found


def compare(both: Floats, rng: np.random.Generator) -> dict[str, Any]:
    """pMSE of a logistic score and of a tree, the first half of the rows real; with what chance alone would give."""
    both = StandardScaler().fit_transform(both[:, both.std(axis=0) > 0.0])
    n = both.shape[0]
    synthetic = np.repeat([0, 1], n // 2)
    logistic = _pmse(LogisticRegression(C=np.inf, max_iter=300), both, synthetic)
    # (parameters without the intercept) * (1 - c)^2 c / n, for c = 1/2
    expected = np.linalg.matrix_rank(both) / (8.0 * n)
    tree = DecisionTreeClassifier(
        min_samples_leaf=PROPENSITY_TUNING.leaf, max_depth=PROPENSITY_TUNING.depth, random_state=0
    )
    grown = _pmse(tree, both, synthetic)
    by_chance = float(
        np.mean([_pmse(tree, both, rng.permutation(synthetic)) for _ in range(PROPENSITY_TUNING.exchanges)])
    )
    return {
        "logistic": {"pmse": logistic, "expected": float(expected), "ratio": logistic / expected},
        "tree": {"pmse": grown, "expected": by_chance, "ratio": grown / by_chance},
    }


def _pmse(model: Any, rows: Floats, labels: NDArray[np.int_]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a score all but perfect is what we want to hear about
        model.fit(rows, labels)
    return float(np.mean((model.predict_proba(rows)[:, 1] - 0.5) ** 2))


def _features(subject: ReportData, keys: list[ColumnKey], values: dict[ColumnKey, Floats]) -> Floats:
    parts = [code_schema_column(subject.federation.column(key)).spread(values[key]) for key in keys]
    return np.column_stack(parts)
