"""Columns that are constant, or that nobody or one subject has a value in, are fitted like any other and named."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, make_federation
from verticopula import Synthesizer
from verticopula.errors import SchemaError
from verticopula.schema.columns import ColumnKey

N = 300
FEDERATION = make_federation(
    {
        "left": {"y": {"kind": "binary"}, "a": CONTINUOUS},
        "middle": {"n": {"kind": "count", "bounds": [0, 9]}, "o": {"kind": "ordinal", "categories": [1, 2, 3]}},
        "right": {"g": {"kind": "nominal", "categories": ["u", "v", "w"]}, "b": CONTINUOUS},
    }
)
WHERE = {column.name: party.name for party in FEDERATION.parties for column in party.columns}
pytestmark = [
    pytest.mark.usefixtures("few_fitted_rows"),
    pytest.mark.filterwarnings("ignore::verticopula.errors.CellsWarning"),
    pytest.mark.filterwarnings("ignore::verticopula.errors.NotPrivateWarning"),
]


def tables(column: str, keep: int, *, constant: bool) -> dict[str, pl.DataFrame]:
    """`column` has values for the first `keep` subjects."""
    rng = np.random.default_rng(4)
    a = np.clip(rng.standard_normal(N), -5, 5)
    values: dict[str, Any] = {
        "y": (a > 0).astype(int),
        "a": a,
        "n": rng.integers(0, 10, N),
        "o": rng.integers(1, 4, N),
        "g": np.array(["u", "v", "w"])[rng.integers(0, 3, N)],
        "b": np.clip(a + rng.standard_normal(N), -5, 5),
    }
    frame = pl.DataFrame({"subject_id": [f"s{i}" for i in range(N)], **values})
    chosen = pl.col(column).first() if constant else pl.col(column)
    frame = frame.with_columns(pl.when(pl.int_range(pl.len()) < keep).then(chosen).otherwise(None).alias(column))
    return {p.name: frame.select("subject_id", *(c.name for c in p.columns)) for p in FEDERATION.parties}


def fit(
    method: str, column: str, keep: int, *, constant: bool = False, epsilon: float = 8.0, seed: int | None = None
) -> Synthesizer:
    strict: dict[str, Any] = {"unit": "person", "delta": 1e-6} if method == "strict" else {"unit": "variable"}
    synthesizer = Synthesizer(FEDERATION, method, epsilon, random_state=seed, **strict)
    return synthesizer.fit(tables(column, keep, constant=constant))


def assert_sane(fitted: Synthesizer) -> None:
    correlation = fitted.result_.copula.correlation
    assert np.isfinite(correlation).all()
    assert np.linalg.eigvalsh(correlation).min() > -1e-9
    for party in FEDERATION.parties:
        table = fitted.sample(200)[party.name]
        for column in party.columns:
            values = table[column.name].drop_nulls()
            empty = fitted.result_.copula.margins[ColumnKey(party.name, column.name)].empty
            assert values.len() == 200 or empty > 0.0  # empty values come out where the margin has some
            if column.bounds is None:
                assert set(values) <= set(column.categories or ())
            else:
                assert values.is_between(*column.bounds).all()


@pytest.mark.parametrize("column", WHERE)
@pytest.mark.parametrize("method", ["refined", "strict"])
@pytest.mark.parametrize("keep", [0, 1])
def test_columns_that_nobody_or_one_subject_has_a_value_in(method: str, column: str, keep: int) -> None:
    # In `strict` a noisy margin says how many values there are, and now and then it says too many: a seed for it.
    fitted = fit(method, column, keep, seed=1 if method == "strict" else None)
    assert_sane(fitted)
    said = fitted.summary()
    assert "1 column with fewer than 10 observed subjects" in said
    assert f"mostly noise: {WHERE[column]}.{column}." in said
    if method == "strict":  # whose value is empty is private there: the noisy margin says that nearly all are
        key = ColumnKey(WHERE[column], column)
        assert fitted.result_.observed_margins[key].empty > 0.5
        assert fitted.result_.missingness.observed[key] == N
        assert fitted.sample(200)[WHERE[column]][column].null_count() > 100


@pytest.mark.parametrize("column", WHERE)
@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds", "refined", "strict"])
def test_constant_columns(method: str, column: str) -> None:
    fitted = fit(method, column, N, constant=True, epsilon=2_000.0 if method != "strict" else 200.0)
    assert_sane(fitted)
    # The noise of 300 subjects' sums hides it in `strict`; test_strict_study.py has one that is found.
    if method != "strict":
        assert f"{WHERE[column]}.{column}" in next(
            line for line in fitted.summary().splitlines() if "nearly all values in one cell" in line
        )


def test_a_column_without_common_subjects_is_refused_by_methods_that_need_them_from_public_masks() -> None:
    with pytest.raises(SchemaError, match="never observed together"):
        fit("vcds", "a", 1)
