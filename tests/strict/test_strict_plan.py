"""Public scores, how long a record may be, and what a party shares."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.strict_central import draw, factor_correlation, make, open_all
from verticopula.errors import ProtocolError
from verticopula.mpc.sums_plan import own_columns
from verticopula.stats.strict.strict_plan import pool_cells
from verticopula.stats.tilting.latent_scores import LatentScore, choose_cap, solve_shift


def test_scores_have_mean_zero_and_variance_one_among_the_observed() -> None:
    for p in ([0.1, 0.2, 0.3, 0.4], [0.9, 0.05, 0.03, 0.02], [0.5, 0.0, 0.0, 0.5]):
        scores = LatentScore.of(np.array(p), 2.0).scores
        assert p @ scores == pytest.approx(0.0, abs=1e-12)
        assert p @ scores**2 == pytest.approx(1.0)
        assert np.all(np.diff(scores) >= 0.0)


def test_slope_is_the_covariance_of_score_and_latent() -> None:
    score = LatentScore.of(np.array([0.1, 0.2, 0.3, 0.4]), 1.0)
    z = np.random.default_rng(0).standard_normal(200_000) + 0.3
    read = score.scores[np.searchsorted(score.thresholds, z)]
    assert score.slope(0.3) == pytest.approx(np.mean((z - 0.3) * read), abs=4 / np.sqrt(200_000))
    assert score.moments(0.3)[0] == pytest.approx(read.mean(), abs=4 / np.sqrt(200_000))


def test_a_shift_is_found_from_the_mean_of_its_score() -> None:
    score = LatentScore.of(np.array([0.1, 0.2, 0.3, 0.4]), 1.0)
    for shift in (-1.5, 0.0, 0.7):
        assert solve_shift(score, score.moments(shift)[0]) == pytest.approx(shift, abs=1e-3)
    assert solve_shift(score, 99.0) == 2.0


def test_all_mass_in_one_cell_says_nothing() -> None:
    score = LatentScore.of(np.array([1.0, 0.0, 0.0, 0.0]), 1.0)
    assert score.is_flat
    assert np.isfinite(score.scores).all()


def test_the_cap_is_low_under_noise_and_high_without() -> None:
    caps = [choose_cap(mu, n, 55) for mu, n in ((0.05, 1000), (0.2, 72_000), (1.0, 72_000), (20.0, 72_000))]
    assert caps == sorted(caps)
    assert caps[0] == 0.2
    assert caps[-1] > 1.0


def test_no_cells_make_a_record_longer_than_the_plan_says() -> None:
    """Over all combinations of cells, not only those that occur: the bound is attained, and never exceeded."""
    made = make({"a": "ob", "b": "mb"}, draw(factor_correlation(4), 3000), {"b": np.arange(3000) < 1500})
    plan = open_all(made, 1.0).plan.sums
    longest = 0
    for weights in plan.weights.tolist():
        for cells in itertools.product(*(range(len(table)) for table in plan.features)):
            record = [
                weights[owner] * int(x)
                for owner, table, cell in zip(plan.owners.tolist(), plan.features, cells, strict=True)
                for x in table[cell]
            ]
            longest = max(longest, sum(x * x for x in record))
    assert longest == plan.bound


def test_what_a_party_shares_is_a_function_of_its_own_row() -> None:
    made = make({"a": "cob", "b": "cnb"}, draw(factor_correlation(6), 3000), {"b": np.arange(3000) < 1500})
    plan = open_all(made, 1.0).plan.sums
    shared = pool_cells(plan, "b", made.tables["b"])
    values = np.column_stack([made.tables["b"].columns[c.name].values for c in made.federation.party("b").columns])
    assert shared.shape == values[:1500].shape
    assert len(own_columns(plan, "b")) == 3
    for column in range(3):
        order = np.argsort(values[:1500, column], kind="stable")
        assert (np.diff(shared[order, column]) >= 0).all()
    with pytest.raises(ProtocolError, match="does not know"):
        pool_cells(replace(plan, pattern_of=plan.pattern_of[::-1].copy()), "b", made.tables["b"])


def test_the_first_opening_is_the_sum_of_the_plans_tables_with_noise_of_the_promised_size() -> None:
    made = make({"a": "co", "b": "bn"}, draw(factor_correlation(4), 2000), {})
    opened = open_all(made, 1.0)
    plan, gram = opened.openings.plan, opened.openings.chosen.population.gram
    cells = np.hstack([pool_cells(opened.plan.sums, name, made.tables[name]) for name in ("a", "b")])
    records = np.hstack([plan.weights[0, plan.owners[j]] * f.table[cells[:, j]] for j, f in enumerate(plan.features)])
    miss = (gram.matrix - records.T @ records)[np.triu_indices(records.shape[1], 1)] / gram.deviation
    assert np.abs(miss).max() <= 5.0
    assert 0.4 < miss.std() < 1.8  # of some dozens
