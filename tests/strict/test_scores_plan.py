"""Public scores, the patterns that are opened, and how long a record may be."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.strict_central import add_up, draw, factor_correlation, make, open_all
from verticopula.mpc.fixed_point import squared_norms
from verticopula.mpc.sums_plan import check_plan, own_bounds, own_columns
from verticopula.schema.federation import Column
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.latent_scores import LatentScore, latent_scores, score_table
from verticopula.stats.strict.opened_patterns import choose_patterns
from verticopula.stats.strict.pattern_weights import choose_weights
from verticopula.stats.strict.score_plan import clip_factor, party_scores, share_scores

ORDINAL = Column(name="x", kind="ordinal", categories=(1, 2, 3, 4))
NOMINAL = Column(name="x", kind="nominal", categories=("u", "v", "w"))


def test_scores_have_mean_zero_and_variance_one_among_the_observed():
    for p in ([0.1, 0.2, 0.3, 0.4], [0.9, 0.05, 0.03, 0.02], [0.5, 0.0, 0.0, 0.5]):
        table = score_table(Marginal(ORDINAL, np.array(p), 0.0))
        assert p @ table[:, 0] == pytest.approx(0.0, abs=1e-12)
        assert p @ table[:, 0] ** 2 == pytest.approx(1.0)
        assert np.all(np.diff(table[:, 0]) >= 0.0)


def test_a_nominal_column_has_one_standardised_indicator_per_category():
    p = np.array([0.2, 0.3, 0.5])
    table = score_table(Marginal(NOMINAL, p, 0.0))
    expected = (np.eye(3) - p) / np.sqrt(p * (1.0 - p))
    assert table == pytest.approx(expected)


def test_slope_is_the_covariance_of_score_and_latent():
    score = latent_scores(Marginal(ORDINAL, np.array([0.1, 0.2, 0.3, 0.4]), 0.0))[0]
    z = np.random.default_rng(0).standard_normal(200_000) + 0.3
    read = score.read(z)
    assert score.slope(0.3) == pytest.approx(np.mean((z - 0.3) * read), abs=4 / np.sqrt(200_000))
    assert score.moments(0.3)[0] == pytest.approx(read.mean(), abs=4 / np.sqrt(200_000))


def test_all_mass_in_one_cell_says_nothing():
    score = LatentScore.of(Marginal(ORDINAL, np.array([1.0, 0.0, 0.0, 0.0]), 0.0))
    assert score.is_flat
    assert np.isfinite(score.scores).all()


def test_what_a_party_shares_is_within_its_bounds_and_a_function_of_its_own_row():
    made = make({"a": "cob", "b": "cnb"}, draw(factor_correlation(6), 3000), {"b": np.arange(3000) < 1500})
    opened = open_all(made, 1.0)
    own = {
        c.name: opened.marginals[k] for k in made.federation.keys if k.party == "b" for c in [made.federation.column(k)]
    }
    shared = share_scores(opened.plan, "b", made.tables["b"], own)
    assert np.all(squared_norms(shared) <= own_bounds(opened.plan, "b"))
    scores = party_scores(made.tables["b"], own)
    assert np.isnan(scores[1500:]).all()
    same = (scores[:1500] == scores[0]).all(axis=1)
    assert len(np.unique(shared[same], axis=0)) == 1


def test_sums_without_noise_are_those_of_weighted_scores():
    made = make({"a": "co", "b": "bn"}, draw(factor_correlation(4), 2000), {})
    opened = open_all(made, 1.0)
    exact = add_up(made, opened.plan, opened.marginals, 5)
    # Noise of the promised size, and nothing else: 14 numbers within 5 standard deviations.
    shared = [
        share_scores(
            opened.plan, p.name, made.tables[p.name], {c.name: opened.marginals[p.name, c.name] for c in p.columns}
        )
        for p in made.federation.parties
    ]
    records = np.hstack(shared) / 2.0**opened.plan.bits
    miss = exact[0].products - records.T @ records
    assert np.all(np.abs(miss) <= 5.0 * exact[0].deviation_on)
    assert own_columns(opened.plan, "b") == slice(2, 4)


def test_rare_patterns_are_counted_with_fewer_columns_or_left_out():
    observed = np.ones((1000, 3), dtype=bool)
    observed[:400, 2] = False
    observed[0, :2] = [False, True]  # only the second column: no larger pattern is inside it
    observed[1:3] = [True, False, True]  # two people: the third and the first
    observed[5] = False
    found = choose_patterns(observed, 10.0)
    assert found.counts.tolist() == [600, 396]
    assert found.left_out == 3
    assert (found.pattern_of[[0, 1, 2, 5]] == -1).all()
    scattered = np.ones((1000, 3), dtype=bool)
    scattered[:5, 2] = False
    scattered[500:, 1:] = False
    found = choose_patterns(scattered, 10.0)
    assert found.merged == 5
    assert found.columns[found.pattern_of[0]].tolist() == [True, False, False]


def test_no_more_patterns_are_opened_than_allowed():
    rng = np.random.default_rng(0)
    found = choose_patterns(rng.random((5000, 12)) < 0.8, 0.001, most=20)
    assert found.columns.shape[0] == 20
    assert np.bincount(found.pattern_of[found.pattern_of >= 0], minlength=20).min() > 0
    covered = found.columns[found.pattern_of[found.pattern_of >= 0]]
    assert covered.any(axis=1).all()


def test_where_everything_is_noise_something_is_opened():
    found = choose_patterns(np.ones((5, 2), dtype=bool), 1e6)
    assert found.counts.tolist() == [5]


def test_weights_give_room_to_those_who_rarely_meet():
    counts = np.array([50_000, 1_000])
    widths = np.array([[0.0, 0.0, 20.0], [6.0, 6.0, 20.0]])
    weights = choose_weights(counts, widths, 1.0, 5.0)
    assert weights[0, :2].tolist() == [0.0, 0.0]
    assert min(weights[1, :2]) > 2.0 * weights[1, 2]


def test_weights_lower_what_they_are_chosen_for():
    counts, widths, noise = np.array([9_000, 3_000, 500]), np.array([[5.0, 0, 9], [5, 5, 9], [0, 5, 9]]), 4.0

    def errors(v):
        s = noise * (1.0 + (widths * v).sum(axis=1))
        information = sum(
            n**2 * np.outer(w, w) / (t**2 + n * np.outer(w, w)) for n, w, t in zip(counts, v, s, strict=True)
        )
        return float(np.sum(np.outer(widths.max(0), widths.max(0)) / (50.0 + information)))

    assert errors(choose_weights(counts, widths, 1.0, noise)) < 0.95 * errors((widths > 0).astype(float))


def test_cutting_is_looser_with_more_people_and_less_noise():
    factors = [clip_factor(mu, n) for mu, n in ((0.2, 1000), (0.6, 72_000), (2.0, 72_000), (2.0, 10**6), (50.0, 10**7))]
    assert factors == sorted(factors)
    assert factors[0] == 1.0
    assert factors[-1] == 6.0


def test_a_plan_with_scattered_gaps_is_a_valid_plan():
    rng = np.random.default_rng(0)
    seen = {f"a{i}": rng.random(2000) < 0.9 for i in range(5)}
    made = make({"a": "cobnc", "b": "cb"}, draw(factor_correlation(7), 2000), seen)
    opened = open_all(made, 3.0)
    check_plan(opened.plan)
    assert 1 <= opened.plan.columns.shape[0] <= 64
