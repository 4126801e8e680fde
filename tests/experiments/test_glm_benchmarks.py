"""The regression's benchmarks: who wins a cell, and that each compares what it says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.glm_agreement import compare
from benchmarks.glm_common import (
    differences,
    fit_central,
    fit_federated,
    make_correlated,
    make_section_5_1,
    polish,
)
from benchmarks.glm_jacobi import iterate_as_printed, make_problem
from benchmarks.glm_moments import measure
from benchmarks.glm_original import judge, refit_all
from benchmarks.glm_rounds_page import MOST_BYTES, MOST_ROUNDS
from benchmarks.glm_skglm import Contest
from verticopula.glm.penalties import Penalty
from verticopula.protocol.regression_path import SentColumns


def test_federated_and_central_agree_on_correlated_blocks() -> None:
    problem = make_correlated("binomial", (3, 2), 0.9, 200, np.random.default_rng(0))
    found = compare(problem, "scad", 0.9, 3)
    assert found.agrees
    assert found.converged
    assert found.parties == 2
    assert 0 < found.selected < 1


def test_second_moments_take_few_rounds_to_the_same_objectives() -> None:
    moments, columns = measure("lasso", 0, 400)
    assert (moments.way, columns.way) == ("second moments", "columns")
    assert moments.worst < 1e-6
    assert moments.rounds == 3 < columns.rounds
    assert 8 * 400 * 100 < moments.bytes < columns.bytes


@pytest.mark.parametrize("penalty", ["scad", "mcp"])
def test_a_logistic_path_keeps_to_its_rounds_and_bytes_and_reaches_the_central_objectives(penalty: str) -> None:
    """Bytes grow with the rows in proportion, so that 600 of them have their share of what 5,000 may take."""
    problem, _ = make_section_5_1("logistic", 600, 3)
    strengths, sent = problem.strengths(), SentColumns()
    found = fit_federated(problem, penalty, strengths, refit=problem.bic(), sent=sent)
    central = fit_central(problem, penalty, strengths, refit=problem.bic())
    assert np.abs(differences(found.points, central)).max() < 1e-6
    assert found.traffic.rounds <= MOST_ROUNDS
    assert 8 * problem.y.size * len(sent) < found.traffic.bytes <= MOST_BYTES * problem.y.size / 5000


def test_printed_iteration_diverges_where_ours_converges() -> None:
    problem, strength = make_problem(0.9)
    least = fit_central(problem, "lasso", np.array([strength]), 1e-9)[0].objective
    assert iterate_as_printed(problem, strength, least, 1.0, 100)[1] == "diverged"
    ours = fit_federated(problem, "lasso", np.array([strength]), 1e-6)
    assert ours.points[0].objective == pytest.approx(least, rel=1e-6)


def test_printed_iteration_is_right_where_it_converges() -> None:
    problem, strength = make_problem(0.0)
    least = fit_central(problem, "lasso", np.array([strength]), 1e-9)[0].objective
    assert iterate_as_printed(problem, strength, least, 1.0, 100)[1] == "converged"


def test_polishing_stays_at_a_minimum() -> None:
    problem = make_correlated("binomial", (3, 2), 0.3, 300, np.random.default_rng(1))
    penalty, strengths = Penalty.build("scad"), np.array([0.2 * problem.largest_strength()])
    point = fit_central(problem, "scad", strengths, 1e-8)[0]
    end = polish(problem, penalty, point)
    assert end.objective == pytest.approx(point.objective, rel=1e-9)
    assert end.violation < 1e-6


def test_skglm_and_ours_solve_the_same_problem() -> None:
    contest = Contest("linear", 400)
    contest.strengths = contest.strengths[:8]
    ours = contest.judge(contest.ours_on_scale())
    theirs = contest.judge(contest.with_intercept(contest.run_gram()))
    assert max(ours.violations.max(), theirs.violations.max()) <= 1e-4
    assert ours.objectives == pytest.approx(theirs.objectives, rel=1e-6)


def test_refits_of_a_whole_path_fit_better_than_what_was_penalised() -> None:
    problem, _ = make_section_5_1("linear", 400, 0, fit_intercept=False)
    points = fit_central(problem, "scad", problem.strengths()[:12], refit=problem.bic())
    again = {tuple(np.flatnonzero(refit.coef)): refit.loss for refit in refit_all(problem, points)}
    for point in points:
        assert again[tuple(np.flatnonzero(point.coef))] <= point.loss + 1e-9
        if point.refit is not None:
            assert again[tuple(np.flatnonzero(point.coef))] == pytest.approx(point.refit.loss, rel=1e-4)


@pytest.mark.parametrize(
    ("metric", "ours", "oracle", "paper", "reached"),
    [
        ("rmse", 0.10, 0.12, 0.08, True),
        ("rmse", 0.10, 0.05, 0.08, False),
        ("gmeans", 0.95, 1.0, 0.94, True),
        ("gmeans", 0.95, 1.0, 0.96, False),
        ("fdr", 0.01, 0.0, 0.02, True),
    ],
)
def test_a_cell_is_judged_by_the_worse_of_paper_and_oracle(
    metric: str, ours: float, oracle: float, paper: float, reached: bool
) -> None:
    averages = {"central": {metric: (ours, 0.001)}, "oracle": {metric: (oracle, 0.001)}}
    assert judge("linear", 1000, metric, "Original-C", averages, paper).reached is reached
