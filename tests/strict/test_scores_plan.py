"""Public scores, the patterns that are opened, and how long a record may be."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.strict_central import add_up, draw, factor_correlation, make, open_all
from verticopula.errors import ProtocolError
from verticopula.mpc.sums_plan import check_plan, own_columns, own_tables, score_cells
from verticopula.schema.federation import Column
from verticopula.stats.marginals import Marginal, to_cells
from verticopula.stats.strict.latent_scores import (
    LatentScore,
    choose_cap,
    pool_categories,
    pool_neighbours,
    share_column,
)
from verticopula.stats.strict.noisy_moments import read_sums
from verticopula.stats.strict.opened_patterns import choose_patterns
from verticopula.stats.strict.pattern_weights import choose_weights
from verticopula.stats.strict.score_plan import share_cells

ORDINAL = Column(name="x", kind="ordinal", categories=(1, 2, 3, 4))
NOMINAL = Column(name="x", kind="nominal", categories=("u", "v", "w"))


def test_scores_have_mean_zero_and_variance_one_among_the_observed():
    for p in ([0.1, 0.2, 0.3, 0.4], [0.9, 0.05, 0.03, 0.02], [0.5, 0.0, 0.0, 0.5]):
        shared = share_column(Marginal(ORDINAL, np.array(p), 0.0), 2.0)
        table = shared.table[shared.groups]
        assert p @ table[:, 0] == pytest.approx(0.0, abs=1e-12)
        assert p @ table[:, 0] ** 2 == pytest.approx(1.0)
        assert np.all(np.diff(table[:, 0]) >= 0.0)


def test_a_nominal_column_has_one_standardised_indicator_per_category():
    p = np.array([0.2, 0.3, 0.5])
    shared = share_column(Marginal(NOMINAL, p, 0.0), 1.0)
    table = shared.table[shared.groups]
    expected = (np.eye(3) - p) / np.sqrt(p * (1.0 - p))
    assert table == pytest.approx(expected)


def test_slope_is_the_covariance_of_score_and_latent():
    score = LatentScore.of(np.array([0.1, 0.2, 0.3, 0.4]), 1.0)
    z = np.random.default_rng(0).standard_normal(200_000) + 0.3
    read = score.read(z)
    assert score.slope(0.3) == pytest.approx(np.mean((z - 0.3) * read), abs=4 / np.sqrt(200_000))
    assert score.moments(0.3)[0] == pytest.approx(read.mean(), abs=4 / np.sqrt(200_000))


def test_all_mass_in_one_cell_says_nothing():
    score = LatentScore.of(np.array([1.0, 0.0, 0.0, 0.0]), 1.0)
    assert score.is_flat
    assert np.isfinite(score.scores).all()


@pytest.mark.parametrize("cap", [0.2, 1.0, 2.0])
def test_pooled_cells_are_few_keep_their_order_and_have_mass(cap: float) -> None:
    rng = np.random.default_rng(0)
    for size in (2, 5, 12, 13, 64, 256):
        p = rng.dirichlet(np.full(size, 0.3))
        p[rng.random(size) < 0.3] = 0.0
        p[rng.integers(size)] += 0.1
        p /= p.sum()
        groups = pool_neighbours(p, cap)
        assert groups[0] == 0
        assert set(np.diff(groups)) <= {0, 1}
        assert 2 <= groups[-1] + 1 <= 12
        if (p > 0).sum() > 1:
            assert np.bincount(groups, weights=p).min() > 0.0


def test_a_spike_is_a_cell_of_its_own() -> None:
    p = np.full(100, 0.5 / 99)
    p[40] = 0.5
    groups = pool_neighbours(p, 1.0)
    assert (groups == groups[40]).sum() <= 3


def test_rare_categories_are_pooled_and_nothing_is_learnt_of_them() -> None:
    p = np.array([0.004, 0.5, 0.003, 0.493])
    assert pool_categories(p).tolist() == [2, 0, 2, 1]
    column = Column(name="x", kind="nominal", categories=("a", "b", "c", "d"))
    shared = share_column(Marginal(column, p, 0.0), 1.0)
    assert [score.is_flat for score in shared.scores] == [True, False, True, False]
    assert not shared.shared[:, [0, 2]].any()
    assert pool_categories(np.full(50, 0.02)).max() == 11
    assert np.bincount(pool_categories(np.full(200, 0.005))).tolist() == [1, 199]


def test_a_categorys_record_has_one_entry_whatever_it_is() -> None:
    shared = share_column(Marginal(NOMINAL, np.array([0.2, 0.3, 0.5]), 0.0), 1.0).shared
    assert shared == pytest.approx(np.where(shared > 1e-9, shared.max(), 0.0))
    assert (shared > 1e-9).sum(axis=1).tolist() == [1, 1, 1]


def test_what_is_shared_lies_evenly_around_zero() -> None:
    shared = share_column(Marginal(ORDINAL, np.array([0.7, 0.2, 0.05, 0.05]), 0.0), 1.0).shared
    assert shared.max() == pytest.approx(-shared.min())


def test_the_cap_is_low_under_noise_and_high_without() -> None:
    caps = [choose_cap(mu, n, 55) for mu, n in ((0.05, 1000), (0.2, 72_000), (1.0, 72_000), (20.0, 72_000))]
    assert caps == sorted(caps)
    assert caps[0] == 0.2
    assert caps[-1] > 1.0


def test_no_cells_make_a_record_longer_than_the_plan_says() -> None:
    """Over all combinations of cells, not only those that occur: the bound is attained, and never exceeded."""
    made = make({"a": "cob", "b": "mnb"}, draw(factor_correlation(6), 3000), {"b": np.arange(3000) < 1500})
    plan = open_all(made, 1.0).plan
    for party in plan.parties:
        tables = own_tables(plan, party)
        for pattern, bound in enumerate(plan.bounds[:, plan.parties.index(party)].tolist()):
            lengths = [
                sum(sum(int(x) ** 2 for x in table[pattern][cell]) for table, cell in zip(tables, cells, strict=True))
                for cells in itertools.product(*(range(table.shape[1]) for table in tables))
            ]
            assert max(lengths) == bound


def test_what_a_party_shares_is_a_function_of_its_own_row() -> None:
    made = make({"a": "cob", "b": "cnb"}, draw(factor_correlation(6), 3000), {"b": np.arange(3000) < 1500})
    opened = open_all(made, 1.0)
    own = {c.name: opened.marginals["b", c.name] for c in made.federation.party("b").columns}
    shared = share_cells(opened.plan, "b", made.tables["b"], own)
    values = np.column_stack([made.values["b", c.name] for c in made.federation.party("b").columns])[:1500]
    assert shared.shape == values.shape
    for column in range(3):
        order = np.argsort(values[:, column], kind="stable")
        assert (np.diff(shared[order, column]) >= 0).all()
    with pytest.raises(ProtocolError, match="values that it does not have"):
        share_cells(replace(opened.plan, pattern_of=opened.plan.pattern_of[::-1].copy()), "b", made.tables["b"], own)


def test_sums_without_noise_are_those_of_the_plans_tables() -> None:
    made = make({"a": "co", "b": "bn"}, draw(factor_correlation(4), 2000), {})
    opened = open_all(made, 1.0)
    exact = add_up(made, opened.plan, opened.marginals, 5)
    # Noise of the promised size, and nothing else: 14 numbers within 5 standard deviations.
    shared = []
    for p in made.federation.parties:
        own = {c.name: opened.marginals[p.name, c.name] for c in p.columns}
        shared.append(score_cells(opened.plan, p.name, share_cells(opened.plan, p.name, made.tables[p.name], own)))
    records = np.hstack(shared) / 2.0**opened.plan.bits
    miss = exact[0].products - records.T @ records
    assert np.all(np.abs(miss) <= 5.0 * exact[0].deviation_on)
    assert own_columns(opened.plan, "b") == slice(2, 4)


def test_read_sums_are_the_moments_of_unit_scores() -> None:
    """Weights, offsets and fractional bits are undone; noise is spread as far as the offsets spread it."""
    made = make({"a": "cob", "b": "mn"}, draw(factor_correlation(5), 4000), {"b": np.arange(4000) < 2500})
    opened = open_all(made, 1.0)
    shared = [share_column(opened.marginals[key], opened.plan.cap) for key in made.layout.keys]
    unit = np.hstack(
        [
            column.table[column.groups[to_cells(made.values[key], made.federation.column(key), column.groups.size)]]
            for key, column in zip(made.layout.keys, shared, strict=True)
        ]
    )
    rows = np.column_stack([unit, np.ones(len(unit))])
    misses = []
    for seed in range(40):
        sums = add_up(made, opened.plan, opened.marginals, seed)
        for pattern, found in enumerate(read_sums(sums, opened.plan, shared)):
            part = rows[opened.plan.pattern_of == pattern][:, found.seen]
            inside = np.triu(found.noise > 0.0)
            misses.append((found.products - part.T @ part / len(part))[inside] / found.noise[inside])
    spread = np.sqrt(np.mean(np.concatenate(misses) ** 2))
    assert spread == pytest.approx(1.0, abs=0.15)  # entries of one study share noise: about 100 independent groups


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
    weights = choose_weights(counts, widths, 5.0)
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

    assert errors(choose_weights(counts, widths, noise)) < 0.95 * errors((widths > 0).astype(float))


def test_a_plan_with_scattered_gaps_is_a_valid_plan():
    rng = np.random.default_rng(0)
    seen = {f"a{i}": rng.random(2000) < 0.9 for i in range(5)}
    made = make({"a": "cobnc", "b": "cb"}, draw(factor_correlation(7), 2000), seen)
    opened = open_all(made, 3.0)
    check_plan(opened.plan)
    assert 1 <= opened.plan.columns.shape[0] <= 64
