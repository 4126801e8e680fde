"""The rules by which theorems are judged, and the quantities they are judged on, against values worked out by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.theory import corollaries12, theorem1, theorem2, theorem3, theorems89, theorems567, theory_command
from experiments.theory.gaussian import fit, make_federation, make_tables
from experiments.theory.theory_findings import (
    MeasuredPoint,
    Slope,
    average,
    fit_slope,
    judge_equal,
    judge_plateau,
    judge_rate,
    root_mean_square,
)
from experiments.theory.theory_page import points_to_csv, verdicts_to_csv
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT


def make_points(means, error: float = 0.01) -> list[MeasuredPoint]:
    return [MeasuredPoint("s", "N", 100.0 * 2**i, "error", m, error * m, 10) for i, m in enumerate(means)]


def test_averages_by_hand() -> None:
    assert average([1.0, 2.0, 3.0]) == (2.0, pytest.approx(1.0 / np.sqrt(3.0)))
    root, error = root_mean_square([3.0, 4.0])
    assert root == pytest.approx(np.sqrt(12.5))
    assert error == pytest.approx(3.5 / (2.0 * root))  # the squares, 9 and 16, have mean 12.5 and standard error 3.5


def test_a_power_law_has_its_exponent_and_the_error_of_its_points() -> None:
    slope = fit_slope(make_points([8.0, 4.0, 2.0, 1.0]))
    assert slope.value == pytest.approx(-1.0)
    spread = np.sum((np.arange(4) - 1.5) ** 2) * np.log(2.0) ** 2
    assert slope.error == pytest.approx(0.01 / np.sqrt(spread))


def test_points_off_their_line_widen_the_error() -> None:
    assert fit_slope(make_points([8.0, 3.0, 3.0, 1.0])).error > 5.0 * fit_slope(make_points([8.0, 4.0, 2.0, 1.0])).error


@pytest.mark.parametrize(
    ("slope", "agrees", "tight"),
    [
        (Slope(-0.50, 0.01), True, True),
        (Slope(-0.41, 0.01), True, True),
        (Slope(-0.39, 0.01), False, None),
        (Slope(-0.39, 0.06), True, True),
        (Slope(-1.00, 0.01), True, False),
        (Slope(-0.10, 0.30), None, None),
        (Slope(0.30, 0.30), False, None),
    ],
)
def test_rates_are_bounds(slope: Slope, agrees: bool | None, tight: bool | None) -> None:
    verdict = judge_rate("", slope, -0.5, what="")
    assert (verdict.agrees, verdict.tight) == (agrees, tight)


@pytest.mark.parametrize(("slope", "agrees"), [(0.05, True), (-0.8, True), (0.2, False)])
def test_a_rate_of_zero_forbids_growth_only(slope: float, agrees: bool) -> None:
    assert judge_rate("", Slope(slope, 0.01), 0.0, what="").agrees is agrees


def test_rounds_rest_where_the_last_two_points_are_equal() -> None:
    assert theorems567.judge_rest("", make_points([0.9, 0.5, 0.505])).agrees is True
    assert theorems567.judge_rest("", make_points([0.9, 0.5, 0.4])).agrees is False


def test_plateaus_and_numbers() -> None:
    assert judge_plateau("", make_points([0.9, 0.6, 0.5, 0.5]), what="").agrees is True
    assert judge_plateau("", make_points([0.8, 0.4, 0.2, 0.1]), what="").agrees is False
    assert judge_equal("", (1.0, 0.1), 1.15, what="").agrees is True
    assert judge_equal("", (1.0, 0.1), 1.25, what="").agrees is False


def test_variance_factor_is_the_papers_f_of_a() -> None:
    for a in (0.1, 1.0, 3.0):
        assert theorem1.variance_factor(a) == pytest.approx((np.exp(2 * a) + 1.0) / (np.exp(a) - 1.0) ** 2)


def test_comparisons_without_noise_are_kendalls_tau() -> None:
    values = np.array([[1.0, 1.0], [2.0, 3.0], [3.0, 2.0], [4.0, 4.0]])
    clean, noisy = theorem1.correlate_comparisons(values, 50.0, np.random.default_rng(0))[theorem1.DEBIASED_TAU]
    assert clean[0, 1] == pytest.approx(np.sin(np.pi / 2.0 * 4.0 / 6.0))  # 5 pairs agree, 1 does not
    assert noisy == pytest.approx(clean)


def test_the_running_maximum_is_that_of_equation_7() -> None:
    rng = np.random.default_rng(1)
    latents, ranks = np.sort(rng.standard_normal(40)), rng.integers(1, 20, 40)
    naive = [max(latents[i] for i in range(40) if ranks[i] <= ranks[k]) for k in range(40)]
    assert theorem2.highest_so_far(latents, ranks) == pytest.approx(naive)


def test_half_of_the_toys_subjects_are_missing_and_the_rest_is_lower() -> None:
    values, seen = theorem3.draw(20_000, 0)
    assert np.mean(seen) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(20_000))
    assert np.mean(values[seen, 1] <= 0.0) > 0.7
    assert np.corrcoef(values.T)[0, 1] == pytest.approx(0.7, abs=4 * 0.51 / np.sqrt(20_000))


def test_theorem_3_is_judged_for_both_variants() -> None:
    values, seen = theorem3.draw(80, 0)
    tables = make_tables(values, theorem3.SIZES, np.column_stack([np.ones(80, dtype=bool), seen]))
    federation = make_federation(theorem3.SIZES)
    variants = {name: fit(name, federation, tables, 1.0, 0, rounds=2).variant for name in theorem3.JUDGED}
    own, printed = OWN_VARIANT, PRINTED_VARIANT
    assert variants == {"evcds": own, "evcds as-printed": printed, "ievcds": own, "ievcds as-printed": printed}


def test_divergence_of_two_columns_by_hand() -> None:
    first, second = np.eye(2), np.array([[1.0, 0.6], [0.6, 1.0]])
    # tr = 2/(1 - 0.36), log det of the ratio = -log(1 - 0.36)
    assert theorems567.divergence(first, second) == pytest.approx(0.5 * (2.0 / 0.64 - 2.0 + np.log(0.64)))
    assert theorems567.divergence(second, second) == pytest.approx(0.0)


def test_missing_factors_by_hand() -> None:
    # parties of two columns, the second and third half missing: 4 + 2*8 within, 4*8 with the first, 2*16 between
    assert theorems567.missing_factors(0.5)[0] == pytest.approx(4 + 16 + 32 + 32)
    assert theorems567.missing_factors(0.0) == (pytest.approx(36.0), pytest.approx(36.0))


def test_blocks_are_missing_at_the_rate_and_where_the_first_column_is_high() -> None:
    rng = np.random.default_rng(2)
    values = theorems567.draw_columns(20_000, rng)
    observed = theorems567.hide_at_random(values, 0.3, rng)
    assert observed[:, 0].all()
    assert np.mean(~observed[:, 1]) == pytest.approx(0.3, abs=4 * 0.46 / np.sqrt(20_000))
    assert values[~observed[:, 2], 0].mean() > 0.8


def test_the_corollaries_numbers_of_cells_and_rates_by_hand() -> None:
    # epsilon 1, delta 0.05: (1000/3.0)^(1/3) = 6.9; never below 1
    assert corollaries12.degree(1_000, 2) == 7
    assert corollaries12.degree(1, 2) == 1
    assert corollaries12.printed_rate(2) == pytest.approx(-4.0 / 9.0)


def test_equation_9_keeps_a_straight_line_and_errs_as_its_noise_does() -> None:
    rng = np.random.default_rng(0)
    line = corollaries12.privatize(lambda x: x, 10_000, 2, 0.0, rng)
    assert line == pytest.approx(corollaries12.GRID)
    errors = []
    for sensitivity in (1e-4, 1e-2):
        rng = np.random.default_rng(0)
        private = corollaries12.privatize(lambda x: x, 10_000, 2, sensitivity, rng)
        errors.append(np.max(np.abs(private - corollaries12.GRID)))
    assert errors[1] == pytest.approx(100.0 * errors[0])


def test_a_step_function_counts_the_values_up_to_x() -> None:
    steps = corollaries12.step_function(np.array([0.2, 0.5]), np.array([0.0, 0.3, 1.0]))
    assert steps(np.array([0.1, 0.2, 0.4, 0.5, 0.9])).tolist() == [0.0, 0.3, 0.3, 1.0, 1.0]


def test_few_rows_have_the_variance_of_their_information() -> None:
    found = theorems89.judge_few(np.array([[1.0, -1.0], [0.9, -1.1], [1.1, 0.9]]), 1_600)
    assert found.agrees is True
    assert "100 rows of 1,600 subjects" in found.measured
    assert theorems89.judge_few(np.full((5, 2), 1.5), 1_600).agrees is False


def test_scad_at_the_theorems_strength_is_least_squares_on_the_support() -> None:
    x, y = theorems89.draw(6_000, 0)
    coef = theorems89.fit_scad(x, y, theorems89.penalty_strength(6_000))
    active = theorems89.ACTIVE
    assert ((coef != 0.0) == active).all()
    assert coef[active] == pytest.approx(np.linalg.lstsq(x[:, active], y)[0], abs=1e-3)


def test_the_command_writes_page_points_and_verdicts(tmp_path: Path) -> None:
    assert main(["theory", "2", "8", "--quick", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "theory.html").read_text()
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")
    with (tmp_path / "theory" / "verdicts.csv").open() as file:
        verdicts = list(csv.DictReader(file))
    assert {row["theorem"] for row in verdicts} == {"Theorem 2", "Theorem 8"}
    assert {row["verdict"] for row in verdicts} <= {"agrees", "disagrees", "undecided"}
    points = (tmp_path / "theory" / "points.csv").read_text().splitlines()
    assert points[0] == "theorem,series,variable,x,measure,mean,se,replications"
    assert len(points) == len(set(points)) > 25


def test_checks_survive_being_written(tmp_path: Path) -> None:
    check = theorem2.run(quick=True)
    theory_command.keep(tmp_path, "2", False, [check], 1.5)
    kept, seconds = theory_command.read_kept(tmp_path, False)
    assert (points_to_csv(kept), verdicts_to_csv(kept), seconds) == (
        points_to_csv([check]),
        verdicts_to_csv([check]),
        1.5,
    )
    assert theory_command.read_kept(tmp_path, True) == ([], 0.0)


def test_an_unknown_theorem_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["theory", "4"])
    assert "unknown theorem '4'" in capsys.readouterr().err
