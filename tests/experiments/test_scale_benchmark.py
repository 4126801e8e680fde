"""The studies that scale is measured by: as many patterns as asked for, and one in a process of its own."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scale import PARTS, list_cases
from benchmarks.scale_cases import PATTERN_PARTIES, ScaleCase, draw_patterns, make_study, measure_apart
from benchmarks.scale_files import KINDS, measure_files_apart
from benchmarks.scale_limits import count_operations
from benchmarks.scale_strict import STAGES, count_work, measure_strict_apart, tabulate_strict
from benchmarks.sums_plans import make_plan
from verticopula.data.missingness import unique_masks
from verticopula.stats.em import PatternMoments


@pytest.mark.parametrize("amount", [1, 16, 300])
def test_patterns_are_as_many_as_asked_for_and_alike_in_size(amount: int) -> None:
    observed = draw_patterns(amount, 1_000, np.random.default_rng(0))
    found, _, counts = unique_masks(observed)
    assert found.shape == (amount, PATTERN_PARTIES)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("part", [part for part in PARTS if part not in ("files", "limits", "strict")])
def test_studies_have_the_parties_that_their_case_says(part: str) -> None:
    for case in list_cases(part, quick=True):
        federation, tables = make_study(case, 300)
        assert set(tables) == {party.name for party in federation.parties}
        if part == "parties":
            assert len(tables) == case.amount + 1  # the server holds the response


def test_a_study_is_measured_in_a_process_of_its_own() -> None:
    found = measure_apart(ScaleCase("vcds", "sme", 300), 1)
    assert found["method"] == "vcds"
    assert min(found["fit"], found["sample"]) > 0.0
    assert found["peak_mb"] >= found["data_mb"] > 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_on_files_is_measured_in_a_process_of_its_own(kind: str) -> None:
    found = measure_files_apart(300, kind)
    assert found["n_subjects"] == 300
    assert min(found["fit"], found["sample"]) > 0.0
    assert found["peak_mb"] >= found["data_mb"] > 0.0


def test_the_work_of_secure_sums_is_counted_person_by_person() -> None:
    known = np.ones((10, 3), dtype=bool)
    known[:4, 1] = False
    plan = make_plan({"a": 2, "b": 1, "c": 1}, known, 1.0, ("a", "b", "c"), features=1)
    work = count_work(plan, np.array([[0, 1], [1, 2]], dtype=np.int64))
    numbers = 10 * 4 + 6 * 2 + 10 * 2  # two for every column of somebody who is known
    assert work["deal"].drawn == 3 * numbers
    assert work["gram"].drawn == work["tables"].drawn == 3 * 2 * numbers
    planes = 5  # products of numbers for one of elements, at three compute parties
    assert work["gram"].multiplied == 3 * planes * (6 * 4**2 + 4 * 3**2) / 2
    assert work["tables"].multiplied == 3 * planes * (10 * 3 * 3 + 6 * 3 * 3)


def test_a_strict_study_is_measured_step_by_step() -> None:
    found = measure_strict_apart(ScaleCase("strict", "sme", 300))
    assert all(found["seconds"][stage] > 0.0 for stage in (*STAGES, "proofs"))
    assert 0.0 < found["busiest"] < found["whole"]
    assert found["corrections_mb"] > 0.0
    tables = tabulate_strict([found, {**found, "n_subjects": 600}], 0.05, 0.09)
    assert [table.title for table in tables] == ["Strict", "Steps of strict", "A very large strict study"]


def test_only_incomplete_patterns_cost_a_step_of_em_anything() -> None:
    everything = PatternMoments(np.arange(3), np.arange(0), 5.0, np.zeros(3), np.eye(3))
    assert count_operations(everything) == 0.0
    two_of_three = PatternMoments(np.arange(2), np.arange(2, 3), 5.0, np.zeros(2), np.eye(2))
    assert count_operations(two_of_three) == pytest.approx(8 / 3 + 16 + 4)
