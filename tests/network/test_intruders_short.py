"""A few rows of the intruder table, for every run of the suite; the whole of it is in test_intruders.py."""

from __future__ import annotations

from pathlib import Path

from tests.network.intruders import in_scene, scene_of


def test_a_coordinator_refuses_intruders(tmp_path: Path) -> None:
    with scene_of("coordinator", tmp_path) as scene:
        for row in in_scene("coordinator", quick=True):
            assert row.carry_out(scene)


def test_a_party_refuses_a_coordinator_that_oversteps(tmp_path: Path) -> None:
    with scene_of("party", tmp_path, quick=True) as scene:
        for row in in_scene("party", quick=True):
            assert row.carry_out(scene)
