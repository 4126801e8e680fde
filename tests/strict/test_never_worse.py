"""Strict is never worse than independent columns with the same margins: generated tables, and data of scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import datasets

from benchmarks.coded_studies import CodedStudy, simulate_opening
from tests.tilting.test_simulated_study import independent, mixed_study, pair_distance
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.tilting.opening_plan import CodedColumn
from verticopula.stats.tilting.tilted_fit import draw_rows
from verticopula.stats.tilting.tilted_model import decode_rows

Study = tuple[np.ndarray, list[CodedColumn]]
EPSILONS = (0.1, 0.5, 2.0, 10.0, 100.0)


def code_numbers(values: np.ndarray, cells: int = 8) -> np.ndarray:
    """Numbers in equal cells of their range, which counts as public here."""
    low, high = values.min(axis=0), values.max(axis=0)
    return np.minimum(((values - low) / np.maximum(high - low, 1e-12) * cells).astype(np.int64), cells - 1)


def sklearn_study(name: str, most: int = 14) -> Study:
    """One of scikit-learn's data sets, its columns dealt to two parties in turn; the target is nominal."""
    raw = getattr(datasets, f"load_{name}")()
    codes = code_numbers(raw.data[:, np.ptp(raw.data, axis=0) > 0.0][:, :most])
    coded = [CodedColumn(8, True, j % 2) for j in range(codes.shape[1])]
    if name == "diabetes":
        return np.column_stack([codes, code_numbers(raw.target[:, None])]), [*coded, CodedColumn(8, True, 1)]
    target = raw.target.astype(np.int64)
    return np.column_stack([codes, target]), [*coded, CodedColumn(int(target.max()) + 1, False, 1)]


def class_study(seed: int, n: int = 3_000) -> Study:
    """Latent classes: nothing that a copula of ordered columns knows, and a column of 200 categories."""
    rng = np.random.default_rng([seed, 1])
    sizes = (2, 3, 5, 9, 200)
    group = rng.choice(4, n)
    shares = [np.array([rng.dirichlet(np.full(size, 0.5)) for _ in range(4)]) for size in sizes]
    codes = np.column_stack(
        [
            np.minimum((rng.random(n)[:, None] > np.cumsum(own, axis=1)[group]).sum(axis=1), own.shape[1] - 1)
            for own in shares
        ]
    )
    return codes, [CodedColumn(size, False, j % 2) for j, size in enumerate(sizes)]


def split_study(seed: int, n: int = 2_000) -> Study:
    """Four ordered columns in common factors, and a rare response that one of them decides on."""
    rng = np.random.default_rng([seed, 3])
    latent = rng.standard_normal((n, 1)) + rng.standard_normal((n, 4))
    response = (latent[:, 0] + 0.5 * rng.standard_normal(n) > 2.0).astype(np.int64)
    codes = np.column_stack([code_numbers(latent), response])
    return codes, [*(CodedColumn(8, True, j % 2) for j in range(4)), CodedColumn(2, True, 1)]


def differences(studies: list[Study], epsilon: float, response: int | None = None) -> np.ndarray:
    """Distance of synthetic rows to the real ones, less that of independent columns with the same margins."""
    found = []
    for seed, (codes, coded) in enumerate(studies):
        rng = np.random.default_rng([seed, 2])
        opened: CodedStudy = simulate_opening(codes, coded, mu_of(epsilon, 1e-5), rng=rng, response=response)
        fit = opened.fit(max(len(codes), 2_000), rng=rng)
        rows = decode_rows(fit.model, draw_rows(fit.model, fit.targets, len(codes), rng=rng), rng)[0]
        rival = independent(opened, len(codes), np.random.default_rng(seed))
        found.append(pair_distance(codes, rows) - pair_distance(codes, rival))
    return np.array(found)


def check(found: np.ndarray) -> None:
    """The mean over seeds is not above 0 by more than two standard errors."""
    assert found.mean() <= 2.0 * found.std(ddof=1) / math.sqrt(found.size)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ["wine", "breast_cancer", "diabetes"])
def test_on_data_that_ship_with_scikit_learn(name: str, epsilon: float) -> None:
    check(differences([sklearn_study(name, 7)] * 4, epsilon))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_on_latent_classes(epsilon: float) -> None:
    found = differences([class_study(seed) for seed in range(4)], epsilon)
    check(found)
    if epsilon >= 10.0:  # and it has learnt something
        assert found.mean() < -0.01


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_where_all_tables_of_a_response_are_opened(epsilon: float) -> None:
    """Of two classes, whose latent the model goes without, and of three."""
    check(differences([class_study(seed) for seed in range(4)], epsilon, response=0))
    check(differences([sklearn_study("wine", 7)] * 4, epsilon, response=7))
    check(differences([split_study(seed) for seed in range(4)], epsilon, response=4))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_on_all_of_them_with_more_seeds(epsilon: float) -> None:
    for name in ("iris", "wine", "breast_cancer", "diabetes", "digits"):
        check(differences([sklearn_study(name)] * 12, epsilon))
    check(differences([class_study(seed) for seed in range(12)], epsilon))
    check(differences([mixed_study(seed) for seed in range(12)], epsilon))
