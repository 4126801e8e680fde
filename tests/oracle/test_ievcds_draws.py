"""What IEVCDS imputes, against the distribution it should come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from tests.builders import CONTINUOUS, correlated_normals, make_federation
from verticopula.privacy.budget import ColumnBudget, StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.rank_messages import CompletedRanksRequest
from verticopula.protocol.rank_methods import ask_completed
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.evcds import prepare_missing
from verticopula.stats.marginals import Marginal
from verticopula.stats.pairwise import correlate_pairs, fit_pairwise
from verticopula.stats.rank_release import RankRelease
from verticopula.stats.ranks import flip_comparisons
from verticopula.stats.readings import read_release

Floats = NDArray[np.float64]

N = 6_000
R = np.array([[1.0, 0.5, 0.6, 0.5], [0.5, 1.0, 0.4, 0.3], [0.6, 0.4, 1.0, 0.4], [0.5, 0.3, 0.4, 1.0]])
COLUMNS: dict[str, Any] = {
    "gone": CONTINUOUS,
    "flag": {"kind": "binary"},
    "size": CONTINUOUS,
    "count": {"kind": "count", "bounds": (0, 2)},
}
FEDERATION = make_federation({"left": COLUMNS})


def as_values(z: Floats) -> dict[str, Floats]:
    flag, count = (z[:, 1] > 0.3).astype(float), (z[:, 3] > -0.5).astype(float) + (z[:, 3] > 0.8)
    return {"gone": z[:, 0], "flag": flag, "size": z[:, 2], "count": count}


def release(values: dict[str, Floats], observed: NDArray[np.bool_], epsilon: float) -> RankRelease:
    """Margins without noise, ranks with it."""
    layout = Layout.of({key: FEDERATION.column(key) for key in FEDERATION.keys})
    margins, ranks, seen, budgets = {}, {}, {}, {}
    for j, key in enumerate(FEDERATION.keys):
        own = values[key.column][observed[:, j]]
        cells = (
            np.histogram(norm.cdf(own), 64, (0, 1))[0]
            if key.column in ("gone", "size")
            else np.bincount(own.astype(int), minlength=2)
        )
        margins[key] = Marginal(FEDERATION.column(key), cells / cells.sum(), 0.0)
        ranks[key] = flip_comparisons(own, epsilon, SeededNoise(3).stream(key.column))[:, None]
        seen[key], budgets[key] = observed[:, j], ColumnBudget(epsilon, 1.0)
    return RankRelease.build(layout, margins, seen, ranks, budgets, "exact")


def draw_gone(z: Floats, epsilon: float) -> tuple[RankRelease, Floats, NDArray[np.bool_]]:
    """Releases, the latents drawn for the first column, and whose they are: all but every twentieth subject's."""
    observed = np.ones((N, 4), dtype=bool)
    observed[:, 0] = np.arange(N) % 20 == 0
    released = release(as_values(z), observed, epsilon)
    copula = FittedCopula(released.layout, released.margins, R)
    drawn = prepare_missing(released, copula, observed)(np.zeros((N, 4)), np.random.default_rng(2))
    assert not drawn[observed].any()
    return released, drawn[~observed[:, 0], 0], ~observed[:, 0]


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_missing_latents_depend_on_what_was_read_as_the_copula_says_whatever_the_noise(epsilon: float) -> None:
    released, gone, missing = draw_gone(correlated_normals(R, N, np.random.default_rng(1)), epsilon)
    readings = read_release(released)
    assert gone.var() == pytest.approx(1.0, abs=0.06)
    for j in (1, 2, 3):
        found = np.mean(gone * readings.values[missing, j]) / readings.links[j]
        assert found == pytest.approx(R[0, j], abs=0.05)


def test_without_much_noise_missing_latents_depend_on_the_true_values_alike() -> None:
    z = correlated_normals(R, N, np.random.default_rng(1))
    _, gone, missing = draw_gone(z, 3.0)
    assert np.corrcoef(gone, z[missing, 2])[0, 1] == pytest.approx(0.6, abs=0.03)
    flag = as_values(z)["flag"][missing] == 1.0
    between = norm.pdf(0.3) * (1.0 / norm.sf(0.3) + 1.0 / norm.cdf(0.3))
    assert gone[flag].mean() - gone[~flag].mean() == pytest.approx(0.5 * between, abs=0.08)


def test_completed_values_are_values_of_the_column_and_no_grades_where_it_is_discrete() -> None:
    z = correlated_normals(R, 400, np.random.default_rng(4))
    observed = np.random.default_rng(5).random((400, 4)) < 0.7
    released = release(as_values(z), observed, 3.0)
    copula = FittedCopula(released.layout, released.margins, R)
    request = StudyBudget.build(FEDERATION, unit="variable", epsilon=1.0, delta=None, rounds=2)
    budgets = {key: ColumnBudget(0.5, 0.5) for key in FEDERATION.keys}
    asked = ask_completed(FEDERATION, request, "s", 2, copula, z, observed, budgets)["left"]
    assert isinstance(asked, CompletedRanksRequest)
    for j, item in enumerate(asked.imputations):
        missing = int((~observed[:, j]).sum())
        if item.column in ("gone", "size"):
            assert item.codes is None
            assert item.grades.size == missing
        else:
            assert item.codes is not None
            assert item.curve.size == item.grades.size == 0
            assert item.codes.size == missing
            shares = np.bincount(item.codes, minlength=2) / missing
            np.testing.assert_allclose(shares, copula.margins[FEDERATION.keys[j]].probabilities, atol=0.12)


def test_completed_rows_are_no_evidence() -> None:
    z = correlated_normals(R, 400, np.random.default_rng(6))
    observed = np.ones((400, 4), dtype=bool)
    observed[100:, 0] = False
    released = release(as_values(z), np.ones((400, 4), dtype=bool), 1.0)
    pairs = correlate_pairs(released)
    fewer = pairs.resting_on(observed)
    np.testing.assert_allclose(fewer.variance[0, 1:], 4.0 * pairs.variance[0, 1:])
    np.testing.assert_allclose(fewer.variance[1:, 1:], pairs.variance[1:, 1:])
    np.testing.assert_array_equal(fewer.correlation, pairs.correlation)
    assert fit_pairwise(released, observed)[1].overlap[0, 1] == 100
