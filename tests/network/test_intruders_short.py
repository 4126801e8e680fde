"""A few rows of the intruder table, for every run of the suite; the whole of it is in test_intruders.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.network.intruders import describe, in_scene, scene_of

pytestmark = pytest.mark.processes


def test_a_coordinator_refuses_intruders(tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    with scene_of("coordinator", tmp_path) as scene:
        for row in in_scene("coordinator", quick=True):
            line = row.carry_out(scene)
            record_property("result", describe(row, line))
            assert line


def test_a_party_refuses_a_coordinator_that_oversteps(
    tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    with scene_of("party", tmp_path, quick=True) as scene:
        for row in in_scene("party", quick=True):
            line = row.carry_out(scene)
            record_property("result", describe(row, line))
            assert line


def test_a_lead_refuses_files_that_no_study_makes(tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    with scene_of("lead", tmp_path) as scene:
        for row in in_scene("lead", quick=True):
            line = row.carry_out(scene)
            record_property("result", describe(row, line))
            assert line


def test_who_computes_refuses_a_coordinator_that_oversteps(
    tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    with scene_of("compute", tmp_path) as scene:
        for row in in_scene("compute", quick=True):
            line = row.carry_out(scene)
            record_property("result", describe(row, line))
            assert line
