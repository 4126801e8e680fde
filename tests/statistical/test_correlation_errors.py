"""The standard errors that reports and summaries state are those that correlations have against the population."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.builders import correlated_normals, fit_seeded, make_federation
from verticopula.stats.correlation import Shrinkage
from verticopula.study.correlation_errors import errors_of_pairs

Floats = NDArray[np.float64]

N, SEEDS, RHO = 400, 40, 0.4
FEDERATION = make_federation(
    {
        "bank": {"income": {"kind": "continuous", "bounds": [-6, 6]}, "default": {"kind": "binary"}},
        "court": {
            "age": {"kind": "continuous", "bounds": [-6, 6]},
            "grade": {"kind": "ordinal", "categories": ["low", "middle", "high"]},
        },
        "shop": {
            "orders": {"kind": "count", "bounds": [0, 60]},
            "sector": {"kind": "nominal", "categories": ["a", "b", "c"]},
        },
    }
)
TRUTH = np.eye(8)
TRUTH[:5, :5] += RHO * (1.0 - np.eye(5))  # sectors have nothing to do with anything


def draw_tables(rng: np.random.Generator, missing: float) -> dict[str, pl.DataFrame]:
    """Subjects from the population; the court and the shop do not know everybody."""
    z = correlated_normals(TRUTH[:5, :5], N, rng)
    ids = np.array([f"s{i}" for i in range(N)])
    whole: dict[str, dict[str, Any]] = {
        "bank": {"income": z[:, 0], "default": (z[:, 1] > 0.5).astype(int)},
        "court": {"age": z[:, 2], "grade": np.array(["low", "middle", "high"])[np.digitize(z[:, 3], [-0.4, 0.7])]},
        "shop": {
            "orders": np.clip(np.floor(np.exp(0.6 * z[:, 4] + 1.5)), 0, 60).astype(int),
            "sector": rng.choice(["a", "b", "c"], N),
        },
    }
    frames = {name: pl.DataFrame({"subject_id": ids, **columns}) for name, columns in whole.items()}
    known = {"court": rng.random(N) >= missing, "shop": rng.random(N) >= missing}
    return {name: frame.filter(pl.Series(known.get(name, np.ones(N, bool)))) for name, frame in frames.items()}


@pytest.mark.parametrize(
    ("method", "epsilon", "missing"),
    [("vcds", 40.0, 0.0), ("vcds", 3.0, 0.4), ("evcds", 3.0, 0.3), ("refined", 3.0, 0.4), ("ievcds", 80.0, 0.3)],
)
def test_stated_errors_are_realised(
    method: str, epsilon: float, missing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verticopula.stats.pairwise.shrink", lambda noisy, *_: Shrinkage(noisy, 0, 0.0))
    stated, realised = [], []
    for seed in range(SEEDS):
        tables = draw_tables(np.random.default_rng([seed, 7]), missing)
        study = fit_seeded(FEDERATION, tables, seed, method=method, epsilon=epsilon, unit="client").study_
        pairs, errors = errors_of_pairs(study)
        stated.append(errors**2)
        realised.append([(study.result.copula.correlation - TRUTH)[pair] ** 2 for pair in pairs])
    by_pair = np.sqrt(np.mean(stated, axis=0) / np.mean(realised, axis=0))
    assert np.sqrt(np.mean(stated) / np.mean(realised)) == pytest.approx(1.0, abs=0.25)
    assert np.median(by_pair) == pytest.approx(1.0, abs=0.25)
    # Of one pair the realised error is itself known to 1 / sqrt(2 SEEDS), about a ninth: four of these are allowed.
    assert np.abs(by_pair - 1.0).max() < 0.25 + 4.0 / np.sqrt(2.0 * SEEDS)


def test_noise_alone_would_say_too_little() -> None:
    study = fit_seeded(FEDERATION, draw_tables(np.random.default_rng(0), 0.0), 0, epsilon=40.0, unit="client").study_
    pairs, errors = errors_of_pairs(study)
    assert np.median(errors) > 3.0 * np.median([study.result.report.standard_error[pair] for pair in pairs])
