"""Equal epsilon for a whole person: nobody spends more, and the page says from where on a method finds anything."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.draws import Cell, draw
from experiments.person.person_methods import METHODS, NEEDS_TORCH
from experiments.person.person_page import ZERO, Line, describe_small, find_threshold
from experiments.runner import Settings
from experiments.study import Study
from verticopula.privacy.accounting import Coins, composed_epsilon
from verticopula.privacy.budget import StudyBudget, plan_budget

CELL = Cell("linear", "MAR-simple", 200)
DELTA = 1e-6


@pytest.fixture(scope="module")
def study() -> Study:
    return draw(CELL, 0, Settings(design={"kind_counts": (2, 2, 1, 0)}).make_design(CELL)).study(1.0, 0, 1)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in NEEDS_TORCH])
def test_no_method_spends_more_than_it_is_given(study: Study, method: str) -> None:
    epsilon = 30.0
    answer = METHODS[method](study, epsilon, DELTA)
    assert 0.3 * epsilon < answer.outcome.spent.person <= epsilon * (1.0 + 1e-3)  # the accountant's grid rounds upwards
    if method != "Strict":  # which compares nobody
        assert answer.per_comparison > 0.0
        assert answer.per_value > 0.0


def test_what_is_left_for_a_comparison_is_what_the_accountant_allows(study: Study) -> None:
    cell = Cell("linear", "complete", 120)
    whole = draw(cell, 0, Settings(design={"kind_counts": (2, 2, 1, 0)}).make_design(cell)).study(1.0, 0, 1)
    answer = METHODS["VCDS"](whole, 3.0, DELTA)
    columns = len(whole.federation.keys)
    spent = composed_epsilon([Coins(answer.per_comparison, columns * 119)], DELTA)
    assert spent == pytest.approx(1.5, rel=1e-3)
    assert answer.per_value == pytest.approx(1.5 / columns)


@pytest.mark.parametrize("method", ["vcds", "ievcds"])
def test_budgets_are_those_of_the_librarys_own_unit(study: Study, method: str) -> None:
    request = StudyBudget.build(
        study.federation, unit="person", epsilon=30.0, delta=DELTA, rounds=10 if method == "ievcds" else 1
    )
    seen = {key: study.tables[key.party].height for key in study.federation.keys}
    plan = plan_budget(study.federation, request, seen, 200)
    answer = METHODS[method.upper()](study, 30.0, DELTA)
    assert answer.per_comparison == pytest.approx(min(b.epsilon_ranks for b in plan.values()), rel=1e-4)
    assert answer.per_value == pytest.approx(min(b.epsilon_marginal for b in plan.values()))


def test_imputing_means_costs_more_than_leaving_blocks_missing(study: Study) -> None:
    plain, filled = (METHODS[name](study, 30.0, DELTA) for name in ("VCDS", "Impute-VCDS"))
    assert filled.per_comparison < 0.5 * plain.per_comparison
    assert filled.per_value < plain.per_value


def make_line(method: str, epsilon: float | None, rmse: float, error: float) -> Line:
    scores = {"rmse": (rmse, error), "gmeans": (0.0, 0.0), "fdr": (0.0, 0.0)}
    return Line(CELL, method, epsilon, 0.0, 0.0, 0.0, scores, 5, 0)


def test_thresholds_by_hand() -> None:
    zero = make_line(ZERO, None, 0.25, 0.0)
    rising = [
        make_line("VCDS", e, r, 0.01) for e, r in ((1.0, 0.4), (10.0, 0.2), (100.0, 0.24), (1e3, 0.2), (1e4, 0.1))
    ]
    assert find_threshold([zero, *rising]) == 1e3  # lucky at 10, but not from there on
    assert find_threshold([zero, *rising[:1]]) is None


def test_what_small_epsilons_leave_by_hand() -> None:
    zero = make_line(ZERO, None, 0.25, 0.0)
    weak = [make_line("VCDS", 1.0, 0.3, 0.01), make_line("VCDS", 10.0, 0.24, 0.01), make_line("VCDS", 100.0, 0.1, 0.01)]
    assert "none of the 2 cells" in describe_small([zero, *weak])
    assert "1 of 3 cells beat the zero vector (Refined)" in describe_small(
        [zero, *weak, make_line("Refined", 10.0, 0.2, 0.01)]
    )


def test_the_command_keeps_what_it_has_and_adds_to_it(tmp_path: Path) -> None:
    options = ["--quick", "--sizes", "80", "--mechanisms", "complete", "--replications", "1"]
    options += ["--out", str(tmp_path)]
    assert main(["person", *options, "--epsilons", "1", "--methods", "VCDS"]) == 0
    kept = next(tmp_path.glob("person/replications/*/0000.json")).read_text()
    assert main(["person", *options, "--epsilons", "1", "100000", "--methods", "VCDS"]) == 0
    with (tmp_path / "person.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["person_epsilon"]) for row in rows][3:] == [("VCDS", "1"), ("VCDS", "100000")]
    assert float(rows[0]["gmeans"]) == 0.0
    assert '"VCDS@1"' in kept
    page = (tmp_path / "person.html").read_text()
    assert "VFL-ADMM-DP" in page
    assert "<svg" in page


@pytest.mark.gan
def test_vertigan_stays_within_a_persons_epsilon(study: Study) -> None:
    answer = METHODS["Vertigan"](study, 300.0, DELTA)
    assert 150.0 < answer.outcome.spent.person <= 300.0 * (1.0 + 1e-3)
