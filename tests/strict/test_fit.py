"""The whole fit: recovery at moderate sizes, what the report says, and odd studies."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from benchmarks.strict_central import Made, draw, factor_correlation, fit, make, open_all
from verticopula.stats.fit_result import find_unidentified
from verticopula.stats.strict_report import StrictReport
from verticopula.stats.tilting.tilted_study import values_of

KINDS = {"a": "cobncb", "b": "cnobcc", "c": "ccbon"}
Q = 17
ROWS = 4_000


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
    return truth, make(KINDS, latent, seen)


@pytest.fixture(scope="module")
def at_three():
    truth, made = selected()
    return truth, made, fit(made, open_all(made, 3.0), n_rows=ROWS)


def test_correlations_are_recovered(at_three):
    truth, _, found = at_three
    assert rmse(found.copula.correlation, truth) < 0.04  # three seeds gave 0.016 to 0.018


def test_next_to_no_noise_leaves_next_to_no_error():
    truth, made = selected(n=10_000)
    found = fit(made, open_all(made, 1e4), n_rows=ROWS)
    assert rmse(found.copula.correlation, truth) < 0.025  # some 3,000 people have the rarest pairs


def test_margins_are_corrected_for_missing_blocks(at_three):
    _, made, found = at_three
    before, after = [], []
    for key in (k for k in made.federation.keys if k.party in "ab"):
        column, margin = made.column(key), found.copula.margins[key]
        points = np.unique(np.quantile(column.values, np.linspace(0, 1, 200)))
        whole = np.searchsorted(np.sort(column.values), points, side="right") / column.values.size
        seen = np.sort(column.values[column.observed])
        before.append(np.max(np.abs(np.searchsorted(seen, points, side="right") / seen.size - whole)))
        after.append(np.max(np.abs(margin.cdf(points) - whole)))
    assert np.mean(after) < 0.6 * np.mean(before)


def test_the_report_says_what_can_be_relied_on(at_three):
    report = at_three[2].strict
    assert report.parties == ("a", "b", "c")
    assert report.supported.all()
    assert report.learnt
    assert report.raw_error[0, 1] > report.raw_error[2, 2]  # fewer people, more noise
    assert np.all(report.expected_error <= report.raw_error + 1e-9)
    again = StrictReport.from_dict(report.to_dict())
    assert again.to_dict() == report.to_dict()


def test_the_same_releases_give_the_same_fit(at_three):
    _, made, found = at_three
    again = fit(made, open_all(made, 3.0), n_rows=ROWS)
    assert np.array_equal(again.copula.correlation, found.copula.correlation)
    rows = [f.copula.sample(50, np.random.default_rng(0)) for f in (found, again)]
    assert all(np.array_equal(rows[0][key], rows[1][key]) for key in rows[0])


def test_more_budget_less_error():
    truth, made = selected(n=10_000, seed=3)
    errors = [
        rmse(fit(made, open_all(made, epsilon), n_rows=ROWS).copula.correlation, truth) for epsilon in (0.3, 10.0)
    ]
    assert errors[0] > 2.0 * errors[1]


def test_two_parties_that_never_meet_are_named():
    n = 8_000
    latent = draw(factor_correlation(Q), n)
    half = np.arange(n) % 2 == 0
    made = make(KINDS, latent, {"a": half, "b": ~half})
    found = fit(made, open_all(made, 3.0), n_rows=ROWS)
    assert ("a", "b") in found.strict.unsupported
    assert np.isinf(found.strict.raw_error[0, 1])
    apart = find_unidentified(found.copula.correlation, made.layout, found.report.overlap)
    assert len(apart) == 36
    assert np.isfinite(found.copula.correlation).all()


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
        "nominal columns alone": make({"a": "m", "b": "mm"}, latent[:, :3], {}),
        "forty people": make(KINDS, latent[:40], {}),
        "nobody is known to everybody": make(
            KINDS, latent, {"a": np.arange(n) < 2000, "b": np.arange(n) > 500, "c": np.arange(n) % 3 > 0}
        ),
        "one row": make({"a": "cm", "b": "ob"}, latent[:1, :4], {}),
    }


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [*((name, 3.0) for name in odd_studies()), ("a pattern with one person", 0.05), ("forty people", 0.05)],
)
def test_odd_studies_are_fitted_without_nonsense(name, epsilon):
    made: Made = odd_studies()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit(made, open_all(made, epsilon), n_rows=ROWS)
    assert np.isfinite(found.copula.correlation).all()
    assert np.diag(found.copula.correlation) == pytest.approx(1.0)
    assert np.linalg.eigvalsh(found.copula.correlation)[0] > 0.0
    for margin in found.copula.margins.values():
        assert np.isfinite(margin.probabilities).all()
        assert margin.probabilities.min() >= 0.0
        assert margin.probabilities.sum() == pytest.approx(1.0)
    rows = found.copula.sample(64, np.random.default_rng(0))
    for key, margin in found.copula.margins.items():
        filled = rows[key][np.isfinite(rows[key])]
        low, high = margin.column.bounds or (0, len(margin.column.categories or ()) - 1)
        assert ((filled >= low) & (filled <= high)).all()
        assert filled.size == 64 or margin.empty > 0.0


def test_one_row_and_forty_people_teach_nothing_and_it_is_said() -> None:
    for name in ("one row", "forty people"):
        made = odd_studies()[name]
        found = fit(made, open_all(made, 1.0), n_rows=ROWS)
        assert not found.strict.learnt
        response = str(made.federation.response)  # its tables are opened in any case, and add nothing
        assert all(response in (pair.first, pair.second) for pair in found.strict.pairs)
        assert max((pair.added for pair in found.strict.pairs), default=0.0) < 0.05


def test_blocks_have_a_price_of_their_own():
    truth, made = selected(n=5_000)
    found = fit(made, open_all(made, 10.0, unit="block"), n_rows=ROWS)
    assert rmse(found.copula.correlation, truth) < 0.05


def test_nominal_columns_keep_their_association():
    # Two columns that agree: three categories of one latent each time.
    latent = draw(np.array([[1.0, 0.8], [0.8, 1.0]]), 20_000)
    made = make({"a": "m", "b": "m"}, latent, {})
    found = fit(made, open_all(made, 20.0))
    drawn = found.copula.sample(20_000, np.random.default_rng(0))
    first, second = made.layout.keys
    agree = float(np.mean(drawn[first] == drawn[second]))
    real = float(np.mean(made.column(first).values == made.column(second).values))
    assert agree == pytest.approx(real, abs=0.01)
    assert [(pair.first, pair.second, pair.opened) for pair in found.strict.pairs] == [("a.a0", "b.b0", True)]
    assert found.strict.pairs[0].added == pytest.approx(found.strict.pairs[0].missed, rel=0.5)
    own = np.diag(found.copula.correlation[:3, 3:])  # latents of one category in both
    assert own.min() > 0.3
    assert (found.copula.correlation[:3, 3:] - np.diag(own)).max() < own.min()


def test_empty_values_come_out_empty_and_where_they_belong() -> None:
    latent = draw(np.array([[1.0, 0.6], [0.6, 1.0]]), 20_000)
    rng = np.random.default_rng(0)
    some = (latent[:, 1] > 0.5) | (rng.random(20_000) < 0.5)  # the poor often have no value
    wide = make({"a": "cb", "b": "c"}, np.column_stack([latent[:, 0], latent[:, 0], latent[:, 1]]), {"a0": some})
    found = fit(wide, open_all(wide, 20.0))
    rows = found.copula.sample(20_000, np.random.default_rng(1))
    first, _, last = wide.layout.keys
    empty = np.isnan(rows[first])
    assert empty.mean() == pytest.approx((~some).mean(), abs=0.01)
    assert found.copula.margins[first].empty == pytest.approx((~some).mean(), abs=0.01)
    real = latent[~some, 1].mean() - latent[some, 1].mean()
    assert rows[last][empty].mean() - rows[last][~empty].mean() == pytest.approx(real, abs=0.15)
    assert not np.isnan(rows[last]).any()


def test_continuous_values_follow_the_settled_margin() -> None:
    latent = draw(np.array([[1.0, 0.5], [0.5, 1.0]]), 10_000)
    made = make({"a": "c", "b": "c"}, latent, {})
    found = fit(made, open_all(made, 10.0), n_rows=ROWS)
    rows = found.copula.sample(10_000, np.random.default_rng(1))
    for key, margin in found.copula.margins.items():
        grades = margin.cdf(np.sort(rows[key]))
        assert np.max(np.abs(grades - (np.arange(10_000) + 0.5) / 10_000)) < 0.015
        column = found.copula.model.columns[made.layout.keys.index(key)]
        cells = np.arange(margin.probabilities.size)
        ends = values_of(column, margin, cells, np.full(cells.size, 0.5))
        assert (np.diff(ends) >= 0.0).all()


def test_people_are_drawn_independently_and_rows_are_settled() -> None:
    latent = draw(np.array([[1.0, 0.8], [0.8, 1.0]]), 20_000)
    made = make({"a": "m", "b": "m"}, latent, {})
    copula = fit(made, open_all(made, 20.0), n_rows=ROWS).copula
    key = made.layout.keys[0]
    share = copula.margins[key].probabilities[0]
    spread = {}
    for name, draw_rows in (("rows", copula.sample), ("people", copula.draw_people)):
        spread[name] = np.std([np.mean(draw_rows(400, np.random.default_rng(s))[key] == 0.0) for s in range(60)])
    binomial = np.sqrt(share * (1.0 - share) / 400)
    assert spread["people"] == pytest.approx(binomial, rel=0.3)
    assert spread["rows"] < 0.5 * binomial


def test_a_flat_column_is_named_and_uncorrelated():
    n = 3000
    latent = draw(factor_correlation(Q), n)
    latent[:, 2] = -5.0
    made = make(KINDS, latent, {})
    found = fit(made, open_all(made, 50.0), n_rows=ROWS)
    assert found.strict.flat == ("a.a2",)
    assert np.max(np.abs(np.delete(found.copula.correlation[2], 2))) < 1e-6
