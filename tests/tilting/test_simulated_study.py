"""Whole studies with simulated openings: never worse than independent columns; nominal columns hurt nobody."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.coded_studies import CodedStudy, simulate_opening
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.simulate.strict_openings import simulate_gram, simulate_tables
from verticopula.stats.tilting.cell_features import make_features
from verticopula.stats.tilting.opening_plan import CodedColumn, OpeningPlan, plan_openings
from verticopula.stats.tilting.openings import OpenedGram
from verticopula.stats.tilting.pooling import pool_column
from verticopula.stats.tilting.population_fit import BudgetSplit, split_budget
from verticopula.stats.tilting.selection import selection_noise
from verticopula.stats.tilting.tilted_fit import draw_rows
from verticopula.stats.tilting.tilted_model import decode_rows

Codes = np.ndarray


def normal_codes(n: int, correlation: np.ndarray, cells: int, rng: np.random.Generator) -> Codes:
    latent = rng.standard_normal((n, len(correlation))) @ np.linalg.cholesky(correlation).T
    return np.minimum((ndtr(latent) * cells).astype(np.int64), cells - 1)


def factor_correlation(p: int, rng: np.random.Generator) -> np.ndarray:
    loadings = rng.uniform(-0.8, 0.8, (p, 2))
    matrix = loadings @ loadings.T
    np.fill_diagonal(matrix, 1.0)
    values, vectors = np.linalg.eigh(matrix)
    matrix = (vectors * np.maximum(values, 0.05)) @ vectors.T
    scale = 1.0 / np.sqrt(np.diag(matrix))
    return matrix * np.outer(scale, scale)


def mixed_study(seed: int, n: int = 4_000) -> tuple[Codes, list[CodedColumn]]:
    """Six ordered columns of which one is U-shaped in another, three nominal ones with unused categories."""
    rng = np.random.default_rng(seed)
    codes = normal_codes(n, factor_correlation(5, rng), 8, rng)
    bent = np.clip(np.abs(codes[:, 0] - 4) + rng.integers(0, 3, n), 0, 7)
    group = np.where(rng.random(n) < 0.7, codes[:, 1] // 2, rng.integers(0, 4, n))
    tied = np.where(rng.random(n) < 0.5, group, rng.integers(0, 6, n))
    free = rng.choice(12, n, p=np.r_[np.full(6, 0.16), np.full(6, 0.04 / 6)])
    table = np.column_stack([codes, bent, group, tied, free])
    coded = [CodedColumn(8, True, j % 2) for j in range(6)] + [CodedColumn(7, False, j % 2) for j in range(2)]
    return table, [*coded, CodedColumn(15, False, 0)]


def synthesize(codes: Codes, coded: list[CodedColumn], epsilon: float, seed: int) -> tuple[Codes, CodedStudy]:
    rng = np.random.default_rng(seed)
    opened = simulate_opening(codes, coded, mu_of(epsilon, 1e-5), rng=rng)
    fit = opened.fit(len(codes), rng=rng)
    return decode_rows(fit.model, fit.rows, rng)[0], opened


def pair_distance(real: Codes, other: Codes) -> float:
    """Mean total variation distance of all two-way tables; -1 is nobody's cell."""
    distances = []
    for b in range(real.shape[1]):
        for a in range(b):
            both = (real[:, a] >= 0) & (real[:, b] >= 0)
            shape = (
                int(max(real[:, a].max(), other[:, a].max())) + 1,
                int(max(real[:, b].max(), other[:, b].max())) + 1,
            )
            shares = []
            for x in (real[both], other):
                table = np.zeros(shape)
                np.add.at(table, (x[:, a], x[:, b]), 1.0 / len(x))
                shares.append(table)
            distances.append(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(np.mean(distances))


def independent(opened: CodedStudy, n: int, rng: np.random.Generator) -> Codes:
    """Columns with the same released margins, each by itself and without sampling error of its margin."""
    found = []
    for column in opened.settled.columns:
        ends = np.cumsum(column.probabilities)
        drawn = np.searchsorted(ends / ends[-1], (np.arange(n) + 0.5) / n)
        found.append(rng.permutation(np.minimum(drawn, column.probabilities.size - 1)))
    return np.column_stack(found)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0, 10.0, 100.0])
def test_never_worse_than_independent_columns_with_the_same_margins(epsilon: float) -> None:
    differences = []
    for seed in range(4):
        codes, coded = mixed_study(seed)
        rows, opened = synthesize(codes, coded, epsilon, seed)
        rival = independent(opened, len(codes), np.random.default_rng(seed))
        differences.append(pair_distance(codes, rows) - pair_distance(codes, rival))
    error = np.std(differences, ddof=1) / math.sqrt(len(differences))
    assert np.mean(differences) <= 2.0 * error
    if epsilon >= 10.0:  # and it has learnt something
        assert np.mean(differences) < -0.02


def test_nothing_is_learnt_from_independent_columns() -> None:
    rng = np.random.default_rng(7)
    codes = np.column_stack([rng.integers(0, 6, 5_000) for _ in range(8)])
    coded = [CodedColumn(6, j % 2 == 0, j % 2) for j in range(8)]
    _, opened = synthesize(codes, coded, 1.0, 7)
    assert np.abs(opened.chosen.population.copula.correlation - np.eye(4)).max() < 0.05
    assert len(opened.tables) <= 2


def test_where_all_is_noise_the_copula_is_the_identity() -> None:
    codes, coded = mixed_study(0, 300)
    _, opened = synthesize(codes, coded, 0.01, 0)
    off = opened.chosen.population.copula.correlation - np.eye(len(opened.chosen.population.copula.correlation))
    assert np.abs(off).max() < 0.15
    assert not opened.tables


def _nominal_shares(cells: int, rng: np.random.Generator) -> np.ndarray:
    """Three categories are common; of more, some are rare."""
    drawn = rng.dirichlet(np.full(cells, 0.5))
    return 0.5 * drawn + 0.5 / cells if cells == 3 else drawn


@pytest.mark.parametrize("categories", [3, 12, 200])
def test_nominal_columns_hurt_correlations_no_more_than_ordered_ones_of_equal_length(categories: int) -> None:
    """Errors of six ordered columns' correlations with three random nominal columns beside, or three ordered ones."""
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(12):
        rng = np.random.default_rng([seed, categories])
        truth = factor_correlation(6, rng)
        codes = normal_codes(6_000, truth, 8, rng)
        lengths = {}
        for ordered in (True, False):
            cells = 8 if ordered else categories
            shares = np.full(cells, 1.0 / cells) if ordered else _nominal_shares(cells, rng)
            more = rng.choice(cells, (6_000, 3), p=shares)
            coded = [CodedColumn(8, True, j % 2) for j in range(6)] + [
                CodedColumn(cells, ordered, j % 2) for j in range(3)
            ]
            opened = simulate_opening(
                np.column_stack([codes, more]), coded, mu_of(1.0, 1e-5), rng=np.random.default_rng([seed, 1])
            )
            lengths[ordered] = opened.plan.features[-1].largest
            found = opened.chosen.population.copula.correlation[:6, :6]
            errors[ordered].append(float(np.sqrt(np.mean((found - truth)[~np.eye(6, dtype=bool)] ** 2))))
        assert lengths[False] <= lengths[True]
    difference = np.array(errors[False]) - np.array(errors[True])
    assert difference.mean() <= 2.0 * difference.std(ddof=1) / math.sqrt(difference.size)


def test_an_unused_category_changes_no_correlation() -> None:
    """With eight normal columns and a nominal one beside."""
    rng = np.random.default_rng(3)
    truth = factor_correlation(8, rng)
    codes = np.column_stack([normal_codes(6_000, truth, 10, rng), rng.integers(0, 3, 6_000)])
    errors = []
    for listed in (3, 4, 50):
        coded = [CodedColumn(10, True, j % 2) for j in range(8)] + [CodedColumn(listed, False, 0)]
        opened = simulate_opening(codes, coded, mu_of(100.0, 1e-5), rng=np.random.default_rng(4))
        errors.append(float(np.abs(opened.chosen.population.copula.correlation - truth).max()))
    assert max(errors) < 0.06


def plan_everybody(coded: list[CodedColumn], n: int, mu: float) -> OpeningPlan:
    """A plan with this mu for the first opening; everybody is known to everybody, margins are uniform."""
    margins = [np.full(c.n_cells, 1.0 / c.n_cells) for c in coded]
    known = np.ones((n, 1 + max(c.party for c in coded)), dtype=bool)
    return plan_openings(coded, known, BudgetSplit(1.0, mu, 1.0, 0.0), margins, np.zeros(len(coded)))


def test_the_gram_matrix_has_the_noise_of_the_longest_record_that_is_possible() -> None:
    coded = [CodedColumn(6, True, 0), CodedColumn(6, False, 1)]
    plan = plan_everybody(coded, 500, 0.5)
    bound = float(sum(np.max(np.sum(f.table**2, axis=1)) for f in plan.features)) * plan.weights[0, 0] ** 2
    assert bound == pytest.approx(1.0)
    pooled = np.zeros((500, 2), dtype=np.int64)  # nobody has a long record
    found: list[OpenedGram] = [simulate_gram(pooled, plan, np.random.default_rng(seed)) for seed in range(400)]
    assert found[0].deviation == pytest.approx(math.sqrt(1.5) * bound / 0.5)
    width = len(found[0].matrix)
    spread = np.std([gram.matrix for gram in found], axis=0)
    off = spread[~np.eye(width, dtype=bool)]
    assert np.mean(off) == pytest.approx(found[0].deviation, rel=0.05)
    assert np.mean(np.diag(spread)) == pytest.approx(math.sqrt(2.0) * found[0].deviation, rel=0.1)


def test_tables_share_their_price() -> None:
    columns = [pool_column(np.full(4, 0.25), ordered=False, least_share=0.01, most_cells=16) for _ in range(3)]
    pooled = np.random.default_rng(0).integers(0, 4, (1_000, 3))
    tables = simulate_tables(pooled, columns, [(0, 1), (0, 2)], 0.4, np.random.default_rng(1))
    assert [table.deviation for table in tables] == [pytest.approx(math.sqrt(1.5) * 2.0 / 0.4 / 1_000)] * 2


def test_the_parts_of_a_budget_compose_to_it() -> None:
    coded = [CodedColumn(5, False, 0), CodedColumn(2, True, 1)]
    for corrected in (True, False):
        split = split_budget(0.7, coded, corrected=corrected)
        parts = (split.margins, split.gram, split.tables, split.selection)
        assert math.sqrt(sum(part**2 for part in parts)) == pytest.approx(0.7)
        assert (split.selection > 0.0) == corrected
    assert split_budget(0.7, [CodedColumn(2, True, 0)] * 3, corrected=False).tables == 0.0


def test_replacing_a_person_moves_selected_sums_by_no_more_than_their_noise_allows() -> None:
    columns = [pool_column(np.array([0.9, 0.1]), ordered=True, least_share=0.01, most_cells=8) for _ in range(3)]
    features = [make_features(column, 1.0, centred=True) for column in columns]
    worst = math.sqrt(sum(float((f.table.max() - f.table.min()) ** 2) for f in features)) * math.sqrt(2.0)
    mu = 0.3
    deviation = selection_noise(features, np.ones(3, dtype=bool), 2, mu)  # two selecting parties know the person
    assert worst / deviation <= mu + 1e-12


def test_missing_blocks_are_corrected_by_what_everybody_has() -> None:
    """Party 1 knows those with a large first column; its own column rises with it."""
    rng = np.random.default_rng(5)
    n = 40_000
    latent = rng.standard_normal((n, 4)) @ np.linalg.cholesky(0.5 * np.eye(4) + 0.5).T
    codes = np.minimum((ndtr(latent) * 8).astype(np.int64), 7)
    known = rng.random(n) < 1.0 / (1.0 + np.exp(-1.5 * latent[:, 0]))
    held = codes.copy()
    held[~known, 2:] = -1
    coded = [CodedColumn(8, True, 0), CodedColumn(8, True, 0), CodedColumn(8, True, 1), CodedColumn(8, True, 1)]
    opened = simulate_opening(held, coded, mu_of(10.0, 1e-5), rng=rng)
    observed = np.bincount(codes[known, 2], minlength=8) / known.sum()
    before = np.abs(np.cumsum(observed) - np.arange(1, 9) / 8).max()
    after = np.abs(np.cumsum(opened.settled.columns[2].probabilities) - np.arange(1, 9) / 8).max()
    assert before > 0.1
    assert after < 0.25 * before
    assert np.abs(opened.chosen.population.copula.correlation - (0.5 * np.eye(4) + 0.5)).max() < 0.06


def test_an_empty_value_is_a_cell_that_rows_reproduce() -> None:
    rng = np.random.default_rng(6)
    codes = normal_codes(8_000, np.array([[1.0, 0.6], [0.6, 1.0]]), 6, rng)
    empty = (codes[:, 1] <= 1) & (rng.random(8_000) < 0.6)
    codes[empty, 0] = 6
    coded = [CodedColumn(6, True, 0, may_be_empty=True), CodedColumn(6, True, 1)]
    rows, _ = synthesize(codes, coded, 20.0, 6)
    share, found = empty.mean(), (rows[:, 0] == 6).mean()
    assert abs(found - share) < 0.02
    among = (rows[rows[:, 0] == 6, 1] <= 1).mean()
    assert among > 0.8
    filled, real = rows[rows[:, 0] < 6], codes[codes[:, 0] < 6]
    assert abs(np.corrcoef(filled.T)[0, 1] - np.corrcoef(real.T)[0, 1]) < 0.05


def _odd_studies() -> dict[str, tuple[Codes, list[CodedColumn]]]:
    rng = np.random.default_rng(8)
    four = rng.integers(0, 4, 400)
    apart = rng.integers(0, 4, (400, 4))
    apart[:200, :2] = apart[200:, 2:] = -1
    unknown = np.column_stack([np.full(400, -1), four])
    scattered = rng.integers(0, 3, (3_000, 40))
    scattered[np.repeat(rng.random((3_000, 20)) < 0.3, 2, axis=1)] = -1
    alternating = [CodedColumn(4, j % 2 == 0, j // 2) for j in range(4)]
    return {
        "one row": (np.zeros((1, 2), dtype=np.int64), [CodedColumn(3, True, 0), CodedColumn(4, False, 1)]),
        "every value its own category": (
            np.column_stack([np.arange(400), four]),
            [CodedColumn(400, False, 0), CodedColumn(4, True, 1)],
        ),
        "nobody in common": (apart, alternating),
        "a party that knows nobody": (unknown, [CodedColumn(4, True, 0), CodedColumn(4, True, 1)]),
        "a column of one category": (
            np.column_stack([np.zeros(400, dtype=np.int64), four]),
            [CodedColumn(1, False, 0), CodedColumn(4, True, 1)],
        ),
        "a constant column": (
            np.column_stack([np.zeros(400, dtype=np.int64), four]),
            [CodedColumn(5, True, 0), CodedColumn(4, True, 1)],
        ),
        "equal columns": (
            np.column_stack([four, four]),
            [CodedColumn(4, False, 0), CodedColumn(4, False, 1)],
        ),
        "thousands of patterns": (scattered, [CodedColumn(3, j % 2 == 0, j // 2) for j in range(40)]),
    }


@pytest.mark.parametrize("name", list(_odd_studies()))
def test_odd_studies_end_with_rows_of_public_cells(name: str) -> None:
    codes, coded = _odd_studies()[name]
    rng = np.random.default_rng(9)
    opened = simulate_opening(codes, coded, 1.0, rng=rng)
    fit = opened.fit(500, rng=rng)
    rows, inside = decode_rows(fit.model, fit.rows, rng)
    assert (rows >= 0).all()
    assert (rows < [c.n_cells + c.may_be_empty for c in coded]).all()
    assert np.isfinite(inside).all()


def test_rows_have_all_of_the_copulas_correlations() -> None:
    """Calibration takes chance out of the rows' tables, and must not take dependence with it."""
    slopes = []
    for seed in (1, 2, 3):
        rng = np.random.default_rng(seed)
        codes = normal_codes(20_000, factor_correlation(10, rng), 32, rng)
        opened = simulate_opening(codes, [CodedColumn(33, True, j % 3) for j in range(10)], mu_of(3.0, 1e-6), rng=rng)
        fit = opened.fit(20_000, rng=rng)
        pairs, latents = np.triu_indices(10, 1), np.ix_(fit.model.latent_of, fit.model.latent_of)
        wanted = fit.model.correlation[latents][pairs]
        for rows in (fit.rows, *(draw_rows(fit.model, fit.targets, 20_000, rng=rng) for _ in range(3))):
            found = np.corrcoef(rows.z.T.astype(np.float64))[latents][pairs]
            slopes.append(found @ wanted / (wanted @ wanted))
    assert np.mean(slopes) == pytest.approx(1.0, abs=0.006)
