"""Blocks missing at random: what `refined` corrects, what `evcds` does not, and that nothing is lost without need."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from tests.builders import CONTINUOUS, correlated_normals, fit_seeded, make_federation, make_tables
from verticopula import Federation, Synthesizer
from verticopula.schema.columns import ColumnKey

Floats = NDArray[np.float64]

X1 = ColumnKey("right", "x1")
TOY = np.array([[1.0, 0.7], [0.7, 1.0]])


# ---- the toy of Theorem 3 ----------------------------------------------------------------


def toy_federation() -> Federation:
    return make_federation({"left": {"x2": CONTINUOUS}, "right": {"x1": CONTINUOUS}})


def fit_toy(method: str, seed: int, epsilon: float, n: int = 5_000, **settings: Any) -> Synthesizer:
    """r = 0.7, and X1 is missing where X2 is high; `epsilon` is per comparison."""
    z = correlated_normals(TOY, n, np.random.default_rng(100 + seed))
    tables = make_tables(toy_federation(), {"x2": z[:, 0], "x1": z[:, 1]})
    tables["right"] = tables["right"].filter(pl.Series(z[:, 0] < 0.3))
    shares = {"epsilon": None, "epsilon_ranks": epsilon, "epsilon_marginals": epsilon}
    return fit_seeded(toy_federation(), tables, seed, method=method, unit="variable", **shares, **settings)


def median_grade(fitted: Synthesizer, *, observed: bool = False) -> float:
    """F1(0), 0.5 in truth."""
    margins = fitted.result_.observed_margins if observed else fitted.result_.copula.margins
    return float(margins[X1].cdf(np.array([0.0]))[0])


def average_toy(method: str, runs: int, epsilon: float, **settings: Any) -> tuple[float, float, float]:
    """Mean correlation, mean F1(0), and mean F1(0) among the observed."""
    fits = [fit_toy(method, seed, epsilon, **settings) for seed in range(runs)]
    found = [(f.correlation_.iloc[0, 1], median_grade(f), median_grade(f, observed=True)) for f in fits]
    r, corrected, observed = np.mean(found, axis=0)
    return float(r), float(corrected), float(observed)


def test_refined_corrects_correlation_and_margin() -> None:
    r, corrected, observed = average_toy("refined", 6, 0.5)
    assert r == pytest.approx(0.7, abs=0.04)
    assert corrected == pytest.approx(0.5, abs=0.02)
    assert observed > 0.65


def test_evcds_stays_near_the_observed_margin_and_the_pairwise_correlation() -> None:
    r, corrected, observed = average_toy("evcds", 4, 0.5)
    assert corrected == pytest.approx(observed, abs=0.02)
    assert corrected > 0.6
    assert r == pytest.approx(average_toy("vcds", 4, 0.5)[0], abs=1e-9)
    assert r < 0.6


def test_ievcds_comes_nearer_to_the_truth_round_by_round_and_needs_many() -> None:
    """From a margin of 0.68 and a correlation of 0.54, which missing blocks leave, to 0.5 and 0.7."""
    few, many = (average_toy("ievcds", 3, 0.5, n=2_500, rounds=rounds, per_round=True) for rounds in (4, 12))
    assert 0.5 < many[1] < 0.54 < few[1] < few[2]
    assert few[0] < 0.6 < many[0] < 0.7


def test_a_column_that_hardly_anybody_has_does_not_switch_the_correction_off() -> None:
    study = make_federation({"left": {"x2": CONTINUOUS}, "right": {"x1": CONTINUOUS}, "third": {"w": CONTINUOUS}})
    found = []
    for seed in range(3):
        z = correlated_normals(TOY, 3_000, np.random.default_rng(seed))
        tables = make_tables(study, {"x2": z[:, 0], "x1": z[:, 1], "w": z[:, 0] / 2})
        tables["right"] = tables["right"].filter(pl.Series(z[:, 0] < 0.3))
        tables["third"] = tables["third"].head(8)
        fitted = fit_seeded(study, tables, seed, method="refined", unit="variable", epsilon=1.0)
        found.append([fitted.correlation_.iloc[0, 1], median_grade(fitted)])
    assert np.mean(found, axis=0) == pytest.approx([0.7, 0.5], abs=0.06)


def tails_and_spread(method: str, runs: int, epsilon: float) -> tuple[float, float]:
    """Mean share of synthetic X1 beyond 3, and mean standard deviation: 0.0027 and 1 in truth."""
    found = []
    for seed in range(runs):
        rows = fit_toy(method, seed, epsilon).sample(20_000)["right"]["x1"].to_numpy()
        found.append([np.mean(np.abs(rows) > 3.0), rows.std()])
    beyond, deviation = np.mean(found, axis=0)
    return float(beyond), float(deviation)


@pytest.mark.parametrize("epsilon", [0.5, 1.5, 3.0])
def test_a_corrected_margin_has_no_more_in_its_tails_than_the_truth_and_the_noise_had(epsilon: float) -> None:
    beyond, deviation = tails_and_spread("refined", 2, epsilon)
    noise, _ = tails_and_spread("vcds", 2, epsilon)
    assert beyond < 0.0027 + 3.0 * noise  # a steep curve takes the observed noise along
    assert deviation < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.5, 3.0])
def test_refined_has_hardly_any_bias_left(epsilon: float) -> None:
    r, corrected, _ = average_toy("refined", 20, epsilon)
    assert r == pytest.approx(0.7, abs=0.02)
    assert corrected == pytest.approx(0.5, abs=0.01)


# ---- without bias to correct, nothing is lost --------------------------------------------

LATENT = np.array(
    [
        [1.0, 0.5, -0.4, 0.3, 0.6],
        [0.5, 1.0, -0.2, 0.4, 0.3],
        [-0.4, -0.2, 1.0, 0.1, -0.5],
        [0.3, 0.4, 0.1, 1.0, 0.2],
        [0.6, 0.3, -0.5, 0.2, 1.0],
    ]
)
CATEGORIES = ["p", "q", "r", "s"]


def mixed_federation(nominal: bool = True) -> Federation:
    return make_federation(
        {
            "left": {"event": {"kind": "binary"}, "size": CONTINUOUS},
            "right": {
                "grade": {"kind": "ordinal", "categories": ["a", "b", "c", "d"]},
                "visits": {"kind": "count", "bounds": [0, 40]},
                **({"group": {"kind": "nominal", "categories": CATEGORIES}} if nominal else {}),
            },
        }
    )


def mixed_values(n: int, rng: np.random.Generator) -> dict[str, Any]:
    z = correlated_normals(LATENT, n, rng)
    pulls = np.column_stack([z[:, 4], -z[:, 4], np.zeros(n), np.zeros(n)]) + rng.gumbel(size=(n, 4))
    return {
        "event": (z[:, 0] > 0.8).astype(int),
        "size": np.clip(z[:, 1], -8, 8),
        "grade": np.array(["a", "b", "c", "d"])[np.digitize(z[:, 2], [-0.5, 0.5, 1.5])],
        "visits": np.minimum(stats.poisson.ppf(ndtr(z[:, 3]), 2.5), 40).astype(int),
        "group": np.array(CATEGORIES)[np.argmax(pulls, axis=1)],
    }


def fit_both(
    tables: dict[str, pl.DataFrame], seed: int, epsilon: float = 6.0, nominal: bool = True
) -> tuple[Synthesizer, Synthesizer]:
    """VCDS and refined on the very same releases: a seeded party's coins do not depend on the method."""
    vcds, refined = (
        fit_seeded(mixed_federation(nominal), tables, seed, method=method, unit="variable", epsilon=epsilon)
        for method in ("vcds", "refined")
    )
    return vcds, refined


@pytest.mark.parametrize(
    ("missing", "nominal"),
    [(0.0, False), (0.0, True), (0.3, True)],
    ids=["complete", "complete with a nominal column", "completely at random"],
)
def test_refined_agrees_with_vcds_where_there_is_nothing_to_correct(missing: float, nominal: bool) -> None:
    n, repeats = 2_500, 5
    rng = np.random.default_rng(1)
    differences, errors = [], []
    for seed in range(repeats):
        tables = make_tables(mixed_federation(nominal), mixed_values(n, rng))
        tables["right"] = tables["right"].filter(pl.Series(rng.random(n) >= missing))
        vcds, refined = fit_both(tables, seed, 4.0, nominal)
        differences.append((refined.correlation_ - vcds.correlation_).to_numpy())
        errors.append(refined.correlation_.to_numpy()[:4, :4] - LATENT[:4, :4])
        for key, before in vcds.result_.copula.margins.items():
            after = refined.result_.copula.margins[key]
            moved = np.max(np.abs(np.cumsum(after.probabilities - before.probabilities)))
            # Five standard errors of a share, of which the missing 30 % hide less than half.
            assert moved <= (5 * 0.5 / math.sqrt(0.7 * n) * missing if missing else 1e-9)
        assert refined.result_.refinement is not None
        assert refined.result_.refinement.converged
    # Both estimate the same from the same releases: means agree to two hundredths (shrinkage, scores against grades).
    assert np.max(np.abs(np.mean(differences, axis=0))) < 0.03
    spread = np.std(errors, axis=0).max() / math.sqrt(repeats)
    assert np.max(np.abs(np.mean(errors, axis=0))) < 0.02 + 5 * spread


# ---- every kind of column is corrected ---------------------------------------------------


def shares_of(values: Any, categories: list[Any]) -> Floats:
    return np.array([np.mean(np.asarray(values) == c) for c in categories])


def test_margins_of_discrete_and_nominal_columns_are_corrected_too() -> None:
    """The right party lacks subjects whose size (at the left party) is high."""
    n, repeats = 4_000, 3
    rng = np.random.default_rng(2)
    kinds: dict[str, list[Any]] = {"grade": ["a", "b", "c", "d"], "visits": list(range(41)), "group": CATEGORIES}
    misses: dict[tuple[str, str], list[float]] = {}
    for seed in range(repeats):
        z = correlated_normals(TOY, n, rng)
        x = z[:, 1]
        pulls = np.column_stack([1.5 * x, -1.5 * x, np.zeros(n), np.zeros(n)]) + rng.gumbel(size=(n, 4))
        values: dict[str, Any] = {
            "event": (z[:, 0] + rng.normal(size=n) > 0).astype(int),
            "size": z[:, 0],
            "grade": np.array(["a", "b", "c", "d"])[np.digitize(x, [-0.5, 0.5, 1.5])],
            "visits": np.minimum(stats.poisson.ppf(ndtr(x), 2.5), 40).astype(int),
            "group": np.array(CATEGORIES)[np.argmax(pulls, axis=1)],
        }
        tables = make_tables(mixed_federation(), values)
        tables["right"] = tables["right"].filter(pl.Series(z[:, 0] < 0.3))
        for method, fitted in zip(("vcds", "refined"), fit_both(tables, seed, epsilon=4.0), strict=True):
            for name, categories in kinds.items():
                found = fitted.result_.copula.margins[ColumnKey("right", name)].probabilities
                truth = shares_of(values[name], categories)
                misses.setdefault((name, method), []).append(float(np.abs(found - truth).sum()) / 2)
    for name in kinds:
        before, after = np.mean(misses[name, "vcds"]), np.mean(misses[name, "refined"])
        assert before > 0.08
        assert after < 0.5 * before


# ---- heavy noise -------------------------------------------------------------------------


def test_at_strong_privacy_refined_is_not_much_worse_than_vcds() -> None:
    """Thirty columns share a client's epsilon of 1: there is little to correct with, and little may be broken."""
    n, half = 800, 15
    names = {"left": [f"a{i}" for i in range(half)], "right": [f"b{i}" for i in range(half)]}
    federation = make_federation({p: dict.fromkeys(columns, CONTINUOUS) for p, columns in names.items()})
    rng = np.random.default_rng(3)
    misses: dict[str, list[float]] = {"vcds": [], "refined": []}
    for seed in range(3):
        factor = rng.standard_normal(n)
        values = {c: (factor + rng.standard_normal(n)) / math.sqrt(2) for columns in names.values() for c in columns}
        tables = make_tables(federation, values)
        tables["right"] = tables["right"].filter(pl.Series(values["a0"] < 0.5))
        for method in misses:
            fitted = fit_seeded(federation, tables, seed, method=method, unit="client", epsilon=1.0)
            assert np.all(np.isfinite(fitted.correlation_))
            for column in names["right"]:
                margin = fitted.result_.copula.margins[ColumnKey("right", column)]
                assert np.all(np.isfinite(margin.probabilities))
                misses[method].append(
                    float(np.max(np.abs(margin.cdf(np.linspace(-3, 3, 25)) - ndtr(np.linspace(-3, 3, 25)))))
                )
    assert np.mean(misses["refined"]) < np.mean(misses["vcds"]) + 0.02
