"""Every baseline on a case whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from experiments.baselines import admm_dp, complete_case, copula, imputed, original_c, original_vfl, single_party
from experiments.draws import Cell, draw
from experiments.judge import JUDGE_NAMES, find_errors, judge, score
from experiments.metrics import g_means, rmse
from experiments.runner import SMALL_DESIGN, Settings
from experiments.study import MethodFailure, Study, keep_common, stack_numbers
from experiments.theory import theorems89
from experiments.theory.gaussian import make_federation, make_tables
from verticopula import Federation, VerticalGLM
from verticopula.glm.families import find_family
from verticopula.privacy.accounting import Coins, composed_epsilon

SMALL = Settings(design=SMALL_DESIGN)


@pytest.fixture(scope="module")
def strong() -> tuple[Study, np.ndarray]:
    """Few columns, many subjects: whoever sees the data finds the truth."""
    cell = Cell("linear", "complete", 2_000)
    drawn = draw(cell, 0, SMALL.make_design(cell))
    return drawn.study(1.0, 0, 1), drawn.data.coef


@pytest.fixture
def gappy() -> Study:
    """Two parties, six subjects, one of them unknown to the first party and one with an empty cell."""
    federation = Federation.from_dict(
        {
            "name": "toy",
            "response": "b.y",
            "id": "id",
            "party": [
                {
                    "name": "a",
                    "column": [
                        {"name": "size", "kind": "continuous", "bounds": (0, 10)},
                        {"name": "count", "kind": "count", "bounds": (0, 9)},
                        {"name": "grade", "kind": "ordinal", "categories": ("low", "mid", "high")},
                        {"name": "colour", "kind": "nominal", "categories": ("red", "blue", "green")},
                    ],
                },
                {"name": "b", "column": [{"name": "y", "kind": "binary"}, {"name": "x", "kind": "binary"}]},
            ],
        }
    )
    a = pl.DataFrame(
        {
            "id": ["s5", "s1", "s2", "s3", "s4"],
            "size": [1.0, 2.0, None, 4.0, 5.0],
            "count": [1, 2, 2, 2, 3],
            "grade": ["high", "low", "high", "high", "mid"],
            "colour": ["green", "green", "red", "blue", "green"],
        }
    )
    b = pl.DataFrame({"id": [f"s{i}" for i in range(1, 7)], "y": [0, 1, 0, 1, 0, 1], "x": [1, 1, 0, 0, 1, 0]})
    return Study(federation, {"a": a, "b": b}, "binomial")


def test_common_subjects_are_those_with_every_cell_in_the_response_tables_order(gappy: Study) -> None:
    common = keep_common(gappy.federation, gappy.tables)
    assert common["a"]["id"].to_list() == common["b"]["id"].to_list() == ["s1", "s3", "s4", "s5"]
    assert common["a"]["size"].to_list() == [2.0, 4.0, 5.0, 1.0]


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_what_refined_tables_know_of_their_errors_is_used_by_bayes_alone(model) -> None:
    cell = Cell(model, "MAR-simple", 400)
    study = draw(cell, 1, SMALL.make_design(cell)).study(3.0, 0, 2)
    outcome = copula.refined(study)
    heard = judge(outcome, study)
    assert find_errors(outcome, study) is not None
    assert find_errors(copula.vcds(study), study) is None
    outcome.tables.posterior_draws = None
    deaf = judge(outcome, study)
    assert not np.array_equal(heard["bayes"], deaf["bayes"])
    for name in ("paper", "library"):
        np.testing.assert_array_equal(heard[name], deaf[name])


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_judges_are_what_users_of_the_library_get(family: str) -> None:
    """On synthetic tables of numbers, which say themselves how many subjects they stand for."""
    cell = Cell("linear" if family == "gaussian" else "logistic", "complete", 400)
    study = draw(cell, 1, Settings({"kind_counts": (10, 0, 5, 0)}).make_design(cell)).study(5.0, 0, 2)
    outcome = copula.refined(study)
    found = judge(outcome, study)
    response = f"{study.federation.response.party}.{study.federation.response.column}"
    for name, settings in {"paper": {"refit": False}, "library": {}, "bayes": {"select": "bayes"}}.items():
        model = VerticalGLM(family, fit_intercept=False, **settings).fit(outcome.tables, response)
        coef = np.concatenate(list(model.coef_.values()))
        assert np.array_equal(coef != 0.0, found[name] != 0.0)
        np.testing.assert_allclose(coef, found[name], atol=5e-3)


def test_as_printed_has_as_many_rows_as_subjects_and_ours_as_many_as_asked_for(strong) -> None:
    study = replace(strong[0], rows_per_subject=3)
    rows = {
        fit: next(iter(fit(study).tables.values())).height
        for fit in (copula.vcds, copula.vcds_printed, copula.evcds_printed)
    }
    n = study.tables[study.federation.response.party].height
    assert list(rows.values()) == [3 * n, n, n]


def test_original_c_finds_the_truth_and_protects_nothing(strong) -> None:
    study, truth = strong
    outcome = original_c.fit(study)
    x, y = stack_numbers(study.federation, outcome.tables)
    coef = judge(outcome, study)["library"]
    support = truth != 0
    expected = np.linalg.lstsq(x[:, support], y)[0]
    assert g_means(coef, truth) == 1.0
    np.testing.assert_allclose(coef[support], expected, atol=1e-3)
    assert outcome.spent.person == math.inf


def test_original_vfl_agrees_with_original_c(strong) -> None:
    study, truth = strong
    apart, together = judge(original_vfl.fit(study), study), judge(original_c.fit(study), study)
    for name in JUDGE_NAMES:
        assert g_means(apart[name], truth) == 1.0
        np.testing.assert_allclose(apart[name], together[name], atol=0.01)


def test_original_vfl_as_printed_has_one_answer_for_all_judges(strong) -> None:
    study, truth = strong
    found = judge(original_vfl.fit_printed(study), study)
    support = truth != 0
    assert np.array_equal(np.sign(found["paper"][support]), np.sign(truth[support]))
    assert all(np.array_equal(coef, found["paper"]) for coef in found.values())


def test_admm_without_noise_solves_the_regression(strong) -> None:
    study, _ = strong
    x, y = stack_numbers(study.federation, study.tables)
    x = x / x.std(axis=0)
    blocks = [np.arange(3 * k, 3 * k + 3) for k in range(5)]
    rng, family = np.random.default_rng(0), find_family("gaussian")
    coef = admm_dp.run_rounds(x, y, blocks, family, 1e-6, math.inf, 1e-6, rng, rounds=300)
    np.testing.assert_allclose(coef, np.linalg.lstsq(x, y)[0], atol=2e-3)


def test_admm_noise_falls_with_epsilon_and_its_worth_is_infinite(strong) -> None:
    study, truth = strong
    errors = []
    for epsilon in (0.1, 1e6):
        outcome = admm_dp.fit(replace(study, epsilon=epsilon))
        assert outcome.coef is not None
        errors.append(rmse(outcome.coef, truth))
    assert errors[1] < 0.05 < errors[0]
    assert (outcome.spent.client, outcome.spent.block, outcome.spent.person) == (math.inf,) * 3
    assert "240 rounds" in outcome.spent.note


def test_admm_noise_has_the_stated_covariance() -> None:
    rng = np.random.default_rng(1)
    party = admm_dp.NoisyParty(rng.standard_normal((50, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]]), 1.0)
    draws = np.array([party.noise(2.0, rng) for _ in range(20_000)])
    expected = 4.0 * np.linalg.inv(party.columns.T @ party.columns)
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.05 * expected.max())


def test_admm_noise_lies_in_the_column_space_so_a_replaced_row_is_seen() -> None:
    """Why its epsilon is infinite: the message for one table is impossible for its neighbour."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((30, 3))
    other = x.copy()
    other[0] += 1.0
    party = admm_dp.NoisyParty(x, 1.0)
    message = party.columns @ (np.array([0.1, 0.0, -0.2]) + party.noise(5.0, rng))

    def distance(columns: np.ndarray) -> float:
        return float(np.linalg.norm(message - columns @ np.linalg.lstsq(columns, message)[0]))

    assert distance(x) < 1e-9
    assert distance(other) > 1e-3


@pytest.mark.parametrize(("mu", "epsilon"), [(1 / 4.2247, 1.0)])
def test_composed_gaussian_against_the_known_calibration(mu: float, epsilon: float) -> None:
    assert admm_dp.compose_gaussian(mu, 1e-6) == pytest.approx(epsilon, rel=1e-3)


def test_complete_cases_have_their_own_number_of_subjects() -> None:
    cell = Cell("linear", "MCAR", 300)
    drawn = draw(cell, 0, SMALL.make_design(cell))
    outcome = complete_case.fit(drawn.study(4.0, 0, 2))
    n = int(drawn.observed.all(axis=1).sum())
    assert outcome.n_subjects == n < 300
    assert outcome.tables["client1"].height == 2 * n


def test_too_few_complete_cases_are_a_failure(gappy: Study) -> None:
    with pytest.raises(MethodFailure, match="4 complete cases"):
        complete_case.fit(gappy)


def test_imputed_values_by_hand(gappy: Study) -> None:
    filled, imputed_cells = imputed.fill(gappy.federation, gappy.tables)
    a = filled["a"].sort("id")
    assert a["size"].to_list() == [2.0, 3.0, 4.0, 5.0, 1.0, 3.0]  # s2's cell and s6's block get the mean
    assert a["count"][5] == 2
    assert a["grade"][5] == "mid"  # mean place 7 / 5 = 1.4
    assert a["colour"][5] == "green"
    assert imputed_cells == {
        ("a", "size"): 2,
        ("a", "count"): 1,
        ("a", "grade"): 1,
        ("a", "colour"): 1,
        ("b", "y"): 0,
        ("b", "x"): 0,
    }


def test_imputation_is_charged_for_subjects_that_move_with_the_mean() -> None:
    cell = Cell("linear", "MCAR", 200)
    drawn = draw(cell, 0, SMALL.make_design(cell))
    study = drawn.study(1.0, 0, 1)
    _, synthesizer = copula.synthesize(
        replace(study, tables=imputed.fill(study.federation, study.tables)[0]), "vcds", aligned=False
    )
    ranks, margin = synthesizer.ledger_[:2]
    assert (ranks.what, margin.what) == ("ranks", "marginal")
    assert imputed.charge(ranks, 0).coins == ranks.coins == Coins(0.5, 199)
    assert imputed.charge(ranks, 10).coins == Coins(0.5, 199 + 10 * 190)
    assert imputed.charge(margin, 10).coins == Coins(0.5, 11)
    worth = imputed.fit(study).spent.block
    assert worth > copula.fit(study).spent.block
    assert worth > composed_epsilon([Coins(0.5, 3 * 199)], 1e-6)


def test_single_party_sees_its_own_columns_only(gappy: Study) -> None:
    n = 60
    table = pl.DataFrame({"id": [f"s{i}" for i in range(n)], "y": [0, 1] * (n // 2), "x": [0, 0, 1] * (n // 3)})
    outcome = single_party.fit(replace(gappy, tables={**gappy.tables, "b": table}, epsilon=4.0))
    assert list(outcome.tables) == ["b"]
    assert outcome.n_subjects == n


@pytest.mark.parametrize("fit", [copula.vcds, copula.evcds, copula.ievcds, copula.refined])
def test_without_noise_the_copula_methods_repeat_least_squares_on_normal_data(fit) -> None:
    x, y = theorems89.draw(1_000, 0)
    tables = make_tables(np.column_stack([y, x]), theorems89.SIZES)
    study = Study(make_federation(theorems89.SIZES), tables, "gaussian", 100.0, 0, rows_per_subject=5)
    synthetic, response = stack_numbers(study.federation, fit(study).tables)
    found, expected = (np.linalg.lstsq(a, b)[0] for a, b in ((synthetic, response), (x, y)))
    # Rows add the error of 5 n draws, ranks in place of values about as much again; columns are correlated by a half.
    assert np.max(np.abs(found - expected)) < 5.0 * np.sqrt(2.0 * 1.67 / 5_000)


def test_ievcds_spends_the_ranks_budget_in_every_round() -> None:
    cell = Cell("linear", "MCAR", 120)
    drawn = draw(cell, 0, SMALL.make_design(cell))
    study = drawn.study(1.0, 0, 1)
    completed = copula.ievcds(study).spent.client - 3 * (10 * 0.5 + 0.5)
    missing = completed / (9 * 0.5 * 2)  # in nine rounds on completed columns, at a half each, twice
    assert missing > 0.0
    assert missing == pytest.approx(round(missing))
    assert copula.evcds(study).spent.client == pytest.approx(3 * 1.0)


def test_rows_do_not_depend_on_who_drew_from_the_same_fit_before() -> None:
    cell = Cell("linear", "MAR-simple", 120)
    drawn = draw(cell, 0, SMALL.make_design(cell))
    alone, shared = drawn.study(1.0, 3, 1), drawn.study(1.0, 3, 1)
    copula.evcds_free(shared)
    first, second = copula.evcds(alone), copula.evcds(shared)
    assert all(first.tables[party].equals(second.tables[party]) for party in first.tables)
    assert list(shared.fitted) == ["evcds"]
    assert replace(shared, epsilon=2.0).fitted == {}  # another study has no fit yet


def test_methods_that_share_aligned_tables_find_what_each_finds_alone() -> None:
    cell = Cell("linear", "MCAR", 120)
    drawn = draw(cell, 0, SMALL.make_design(cell))
    shared = drawn.study(1.0, 0, 1)
    for method in ("vcds", "ievcds", "refined"):
        alone = copula.fit(drawn.study(1.0, 0, 1), method).tables
        for party, table in copula.fit(shared, method).tables.items():
            assert table.equals(alone[party])
    assert shared.aligned
    assert replace(shared, epsilon=2.0).aligned == {}  # another study may have other tables


def test_judges_are_asked_one_by_one_or_together(strong: tuple[Study, np.ndarray]) -> None:
    study, truth = strong
    outcome = original_c.fit(study)
    every = judge(outcome, study)
    assert set(judge(outcome, study, ["bayes"])) == {"bayes"}
    some = judge(outcome, study, ["library"])
    assert set(some) == {"paper", "library"}
    assert all(np.array_equal(coef, every[name]) for name, coef in some.items())
    scores = score(every, truth)
    assert len(scores) == 9
    assert scores["library rmse"] == rmse(every["library"], truth)
