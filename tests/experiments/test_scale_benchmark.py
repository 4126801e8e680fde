"""The studies that scale is measured by: as many patterns as asked for, and one in a process of its own."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scale import PARTS, list_cases
from benchmarks.scale_cases import PATTERN_PARTIES, ScaleCase, draw_patterns, make_study, measure_apart
from benchmarks.scale_limits import count_operations
from verticopula.data.missingness import unique_masks
from verticopula.stats.em import PatternMoments


@pytest.mark.parametrize("amount", [1, 16, 300])
def test_patterns_are_as_many_as_asked_for_and_alike_in_size(amount: int) -> None:
    observed = draw_patterns(amount, 1_000, np.random.default_rng(0))
    found, _, counts = unique_masks(observed)
    assert found.shape == (amount, PATTERN_PARTIES)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("part", [part for part in PARTS if part != "limits"])
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


def test_only_incomplete_patterns_cost_a_step_of_em_anything() -> None:
    everything = PatternMoments(np.arange(3), np.arange(0), 5.0, np.zeros(3), np.eye(3))
    assert count_operations(everything) == 0.0
    two_of_three = PatternMoments(np.arange(2), np.arange(2, 3), 5.0, np.zeros(2), np.eye(2))
    assert count_operations(two_of_three) == pytest.approx(8 / 3 + 16 + 4)
