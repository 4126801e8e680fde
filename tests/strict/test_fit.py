"""The whole fit: recovery at moderate sizes, and odd studies."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from benchmarks.strict_central import Made, add_up, draw, factor_correlation, fit, make, open_all
from verticopula.stats.copula import FittedCopula
from verticopula.stats.fit_result import find_unidentified
from verticopula.stats.strict.strict_fit import StrictReport

KINDS = {"a": "cobncb", "b": "cnobcc", "c": "ccbon"}
Q = 17


def rmse(found, truth):
    off = ~np.eye(len(truth), dtype=bool)
    return float(np.sqrt(np.mean((found - truth)[off] ** 2)))


def selected(n=20_000, seed=0):
    """Two parties' blocks missing given what the third, whom everybody is known to, has."""
    truth = factor_correlation(Q)
    latent = draw(truth, n, seed)
    rng = np.random.default_rng([seed, 9])
    seen = {
        "a": rng.random(n) < 1.0 / (1.0 + np.exp(-0.5 - latent[:, 12])),
        "b": rng.random(n) < 1.0 / (1.0 + np.exp(-0.2 + 0.8 * latent[:, 13])),
    }
    return truth, latent, make(KINDS, latent, seen)


@pytest.fixture(scope="module")
def at_three():
    truth, latent, made = selected()
    return truth, latent, made, fit(made, open_all(made, 3.0))


def test_correlations_are_found_under_noise_for_whole_persons(at_three):
    truth, _, _, found = at_three
    assert rmse(found.correlation, truth) < 0.04  # three seeds gave 0.016 to 0.020
    assert np.linalg.eigvalsh(found.correlation)[0] > 0.0
    assert found.strict.converged


def test_margins_move_from_the_observed_to_the_population(at_three):
    _, _, made, found = at_three
    opened = open_all(made, 3.0)
    before, after = [], []
    for key in made.federation.keys:
        if key.party == "c":
            continue
        points = np.unique(np.quantile(made.values[key], np.linspace(0, 1, 200)))
        truth = np.searchsorted(np.sort(made.values[key]), points, side="right") / made.values[key].size
        before.append(np.max(np.abs(opened.marginals[key].cdf(points) - truth)))
        after.append(np.max(np.abs(found.marginals[key].cdf(points) - truth)))
    assert np.mean(after) < 0.6 * np.mean(before)


def test_the_report_says_what_can_be_relied_on(at_three):
    _, _, _, found = at_three
    report = found.strict
    assert report.parties == ("a", "b", "c")
    assert report.supported.all()
    assert report.raw_error[0, 1] > report.raw_error[2, 2]  # fewer people, more noise
    assert np.all(report.expected_error <= report.raw_error + 1e-9)
    again = StrictReport.from_dict(report.to_dict())
    assert again.to_dict() == report.to_dict()


def test_the_same_releases_give_the_same_fit(at_three):
    _, _, made, found = at_three
    again = fit(made, open_all(made, 3.0))
    assert np.array_equal(again.correlation, found.correlation)


def test_more_budget_less_error():
    truth, _, made = selected(n=10_000, seed=3)
    errors = [rmse(fit(made, open_all(made, epsilon)).correlation, truth) for epsilon in (0.3, 10.0)]
    assert errors[0] > 2.0 * errors[1]


def test_next_to_no_noise_ends_in_em():
    truth, _, made = selected(n=10_000)
    found = fit(made, open_all(made, 1e4))
    assert rmse(found.correlation, truth) < 0.025  # some 3,000 people have the rarest pairs
    assert found.strict.converged


def test_two_parties_that_never_meet_are_named():
    n = 8_000
    latent = draw(factor_correlation(Q), n)
    half = np.arange(n) % 2 == 0
    made = make(KINDS, latent, {"a": half, "b": ~half})
    found = fit(made, open_all(made, 3.0))
    assert ("a", "b") in found.strict.unsupported
    assert np.isinf(found.strict.raw_error[0, 1])
    apart = find_unidentified(found.correlation, made.layout, found.report.overlap)
    assert len(apart) == 36
    assert np.isfinite(found.correlation).all()


def odd_studies():
    n = 3000
    latent = draw(factor_correlation(Q), n)
    rng = np.random.default_rng(0)
    one = np.zeros(n, dtype=bool)
    one[0] = True
    constant = latent.copy()
    constant[:, 2] = -5.0
    gaps = {f"{party}{i}": rng.random(n) < 0.93 for party in "ab" for i in range(6)}
    return {
        "a pattern with one person": make(KINDS, latent, {"a": one | (np.arange(n) > 1500), "b": one}),
        "a block of two people": make(KINDS, latent, {"b": np.arange(n) < 2}),
        "a constant column": make(KINDS, constant, {"a": np.arange(n) < 1500}),
        "scattered gaps": make(KINDS, latent, gaps),
        "nominal columns": make({"a": "cmb", "b": "mcmo"}, latent[:, :7], {"b": np.arange(n) < 1500}),
        "forty people": make(KINDS, latent[:40], {}),
        "nobody is known to everybody": make(
            KINDS, latent, {"a": np.arange(n) < 2000, "b": np.arange(n) > 500, "c": np.arange(n) % 3 > 0}
        ),
    }


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [*((name, 3.0) for name in odd_studies()), ("a pattern with one person", 0.05), ("forty people", 0.05)],
)
def test_odd_studies_are_fitted_without_nonsense(name, epsilon):
    made: Made = odd_studies()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit(made, open_all(made, epsilon))
    assert np.isfinite(found.correlation).all()
    assert np.diag(found.correlation) == pytest.approx(1.0)
    assert np.linalg.eigvalsh(found.correlation)[0] > 0.0
    for marginal in found.marginals.values():
        assert np.isfinite(marginal.probabilities).all()
        assert marginal.probabilities.min() >= 0.0
        assert marginal.probabilities.sum() == pytest.approx(1.0)
    assert found.strict.iterations <= 20


def test_blocks_have_a_price_of_their_own():
    truth, _, made = selected(n=5_000)
    found = fit(made, open_all(made, 10.0, unit="block"))
    assert rmse(found.correlation, truth) < 0.05


def test_nominal_columns_keep_their_association():
    # Two columns that agree: three categories of one latent each time.
    latent = draw(np.array([[1.0, 0.8], [0.8, 1.0]]), 20_000)
    made = make({"a": "m", "b": "m"}, latent, {})
    found = fit(made, open_all(made, 20.0))
    copula = FittedCopula(made.layout, found.marginals, found.correlation)
    drawn = copula.sample(20_000, np.random.default_rng(0))
    agree = [float(np.mean(table[k1] == table[k2])) for table in (drawn, made.values) for k1, k2 in [made.layout.keys]]
    by_chance = 0.3**2 + 0.5**2 + 0.2**2
    assert agree[1] > by_chance + 0.15
    # A latent per category knows no order, so it cannot agree as much as two cut normals do.
    assert by_chance + 0.5 * (agree[1] - by_chance) < agree[0] < agree[1] + 0.02


def test_negative_noised_variances_do_no_harm():
    _, _, made = selected(n=4000)
    opened = open_all(made, 1.0)
    sums = add_up(made, opened.plan, opened.marginals, 3)
    for pattern in sums:
        np.fill_diagonal(pattern.products, -abs(np.diag(pattern.products)))
    found = fit(made, type(opened)(opened.budget, opened.marginals, opened.plan, sums))
    assert np.linalg.eigvalsh(found.correlation)[0] > 0.0


def test_a_flat_column_is_named_and_uncorrelated():
    n = 3000
    latent = draw(factor_correlation(Q), n)
    latent[:, 2] = -5.0
    made = make(KINDS, latent, {})
    found = fit(made, open_all(made, 50.0))
    assert found.strict.flat == ("a.a2",)
    assert np.max(np.abs(np.delete(found.correlation[2], 2))) < 1e-6
