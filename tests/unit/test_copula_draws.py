"""Copulas that a study could have found: how far they spread, and where nobody knows."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from verticopula import Federation, Synthesizer
from verticopula.simulate import copula_draws
from verticopula.simulate.copula_draws import CopulaDrawTuning, draw_copulas, keep_share, why_errors_are_unknown
from verticopula.study.fitted_study import FittedStudy

N, SHARED, DRAWS = 2_000, 0.5, 60


@pytest.fixture(scope="module")
def study() -> FittedStudy:
    """All but no noise: errors are those of sampling, which are known."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((N, 2)) @ np.linalg.cholesky(np.array([[1.0, SHARED], [SHARED, 1.0]])).T
    ids = [f"s{i}" for i in range(N)]
    column = {"kind": "continuous", "bounds": [-8.0, 8.0], "clamp": True}
    parties = [{"name": name, "column": [{"name": "x", **column}]} for name in ("a", "b")]
    federation = Federation.from_dict({"name": "draws", "response": "a.x", "id": "id", "party": parties})
    tables = {name: pl.DataFrame({"id": ids, "x": x[:, j]}) for j, name in enumerate(("a", "b"))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Synthesizer(federation, "vcds", epsilon=40.0, unit="variable", random_state=1).fit(tables).study_


@pytest.mark.parametrize("most_people", [20_000, 500], ids=["all people", "a quarter of them"])
def test_correlations_spread_as_samples_do(
    study: FittedStudy, most_people: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copula_draws, "COPULA_DRAW_TUNING", CopulaDrawTuning(most_people))
    drawn = list(draw_copulas(study, None, DRAWS, 0))
    found = np.array([copula.correlation[0, 1] for copula in drawn])
    r = float(study.result.copula.correlation[0, 1])
    # Spearman's has 1.06 times the standard error of Pearson's here; a spread of 60 draws is off by a tenth.
    assert found.std() == pytest.approx(1.06 * (1.0 - r**2) / math.sqrt(N), rel=0.35)
    assert abs(found.mean() - r) < 4.0 * found.std() / math.sqrt(DRAWS)
    for copula in drawn:
        for margin in copula.marginals.values():
            assert margin.probabilities.min() >= -1e-12
            assert margin.probabilities.sum() == pytest.approx(1.0)


def test_draws_are_repeatable_and_differ(study: FittedStudy) -> None:
    once, again = (list(draw_copulas(study, None, 2, 7)) for _ in range(2))
    np.testing.assert_array_equal(once[0].correlation, again[0].correlation)
    assert not np.array_equal(once[0].correlation, once[1].correlation)


def test_fewer_people_keep_the_pattern(study: FittedStudy) -> None:
    fewer = keep_share(study.result.missingness, 0.25)
    assert fewer.n_subjects == N // 4
    assert {key: count * 4 for key, count in fewer.observed.items()} == dict(study.result.missingness.observed)


def test_errors_that_nobody_knows(study: FittedStudy) -> None:
    assert why_errors_are_unknown(study, None) == ""
    by_method = {
        name: why_errors_are_unknown(replace(study, settings=replace(study.settings, method=name)), None)
        for name in ("evcds", "ievcds", "refined")
    }
    assert "repetitions of the study only" in by_method["evcds"]
    assert "repetitions of the study only" in by_method["ievcds"]
    assert "without the draws" in by_method["refined"]
    printed = replace(study, settings=replace(study.settings, variant="as-printed"))
    assert "as printed" in why_errors_are_unknown(printed, None)
