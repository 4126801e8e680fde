"""The whole intruder table, row by row: refused, written down, and nobody died of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.network.intruders import ATTACKS, Attack, Scene, describe, scene_of

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_of("coordinator", tmp_path_factory.mktemp("coordinator")) as scene:
        yield scene


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_of("party", tmp_path_factory.mktemp("party")) as scene:
        yield scene


@pytest.fixture(scope="module")
def compute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_of("compute", tmp_path_factory.mktemp("compute")) as scene:
        yield scene


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_of("parties", tmp_path_factory.mktemp("parties")) as scene:
        yield scene


@pytest.fixture(scope="module")
def lead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_of("lead", tmp_path_factory.mktemp("lead")) as scene:
        yield scene


@pytest.mark.parametrize("row", ATTACKS, ids=lambda row: row.name)
def test_refused_and_logged(
    row: Attack, request: pytest.FixtureRequest, record_property: Callable[[str, str], None]
) -> None:
    scene: Scene = request.getfixturevalue(row.where)
    line = row.carry_out(scene)
    record_property("result", describe(row, line))
    assert line


def test_a_second_process_on_the_same_kit_is_told(coordinator: Scene) -> None:
    command = [sys.executable, "-m", "verticopula", "serve", str(coordinator.kit("server").folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 1
    assert f"is already running (process {coordinator.pid('server')})" in " ".join(done.stderr.split())
    assert coordinator.net.processes["server"].poll() is None


def test_a_copy_of_the_kit_on_the_same_port_is_told(coordinator: Scene) -> None:
    copy = coordinator.own_folder()
    shutil.copytree(coordinator.kit("server").folder, copy)
    command = [sys.executable, "-m", "verticopula", "serve", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 1
    assert "cannot listen on port" in " ".join(done.stderr.split())


def test_secrets_are_not_in_the_logs(coordinator: Scene, party: Scene) -> None:
    for scene in (coordinator, party):
        kits = scene.net.folder / "kits"
        secrets = [path.read_text("ascii") for path in kits.rglob("private-key.pem")]
        lines = {line for text in secrets for line in text.splitlines() if len(line) > 40 and "KEY" not in line}
        lines |= {path.read_text("ascii").strip() for path in kits.rglob("id.key")}
        for path in (*kits.rglob("log.txt"), *kits.rglob("output.txt")):
            text = path.read_text("utf-8", "replace")
            assert not [line for line in lines if line in text], path.parent.name
