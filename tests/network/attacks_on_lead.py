"""What is tried against the study lead: by a coordinator that replies as it likes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from tests.network.attackers import (
    EvilCoordinator,
)
from tests.network.intruder_scenes import (
    ESCAPES,
    Scene,
    attack,
)
from verticopula.network.connection.control_messages import (
    ResultFile,
    ResultReply,
    StatusReply,
    StudyState,
    SubmitReply,
)
from verticopula.protocol.wire import encode

# ---- the lead's side -------------------------------------------------------------------------------


class _EvilForLead(EvilCoordinator):
    """Answers the lead whatever it is told to."""

    def __init__(self, kit: Any, state: StudyState, files: tuple[ResultFile, ...]) -> None:
        super().__init__(kit)
        self._state, self._files = state, files
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            peer, _, key, body = self.replies.get()
            reply: Any = StatusReply((), (self._state,))
            if b'"SubmitRequest"' in body:
                reply = SubmitReply(self._state.study)
            elif b'"ResultRequest"' in body:
                reply = ResultReply(self._files)
            self.sessions.send(peer, "answer", key, encode(reply))


def _submit(
    scene: Scene, state: StudyState, files: tuple[ResultFile, ...] = (), out: Path | None = None
) -> tuple[str, Path]:
    """What `verticopula submit` says when this coordinator answers it, and where it writes."""
    out = out or scene.own_folder()
    folder = scene.net.folder
    with _EvilForLead(scene.kit("server"), state, files):
        command = ["submit", folder / "federation.toml", "--kit", folder / "kits" / "lead", "--out", out]
        done = subprocess.run(
            [sys.executable, "-m", "verticopula", *map(str, command)],
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
            env={**os.environ, "COLUMNS": "300"},
        )
    assert done.returncode == 1, done
    return " ".join((done.stdout + done.stderr).split()), out


_DONE = StudyState("study", "vcds", "done", 1, (), "")


_NOT_A_STUDYS = "whose name is none of this study's"


def _file(name: str, content: bytes = b"gotcha") -> ResultFile:
    return ResultFile(name, np.frombuffer(content, dtype=np.uint8))


@attack("a result file that leads out of the folder", "lead", "lead", "an allow-list of names", _NOT_A_STUDYS)
def result_outside(scene: Scene) -> str:
    said, out = _submit(scene, _DONE, (_file("../../stolen.txt"),))
    assert not (out / "../../stolen.txt").exists()
    assert _NOT_A_STUDYS in said
    return said


@attack(
    "a result file with a name that no study makes", "lead", "lead", "an allow-list of names", _NOT_A_STUDYS, quick=True
)
def result_of_any_name(scene: Scene) -> str:
    said, out = _submit(scene, _DONE, (_file("summary.txt"), _file(".git/hooks/post-checkout"), _file("conftest.py")))
    assert _NOT_A_STUDYS in said
    assert list(out.rglob("*")) == []
    return said


@attack("a result through a link in the lead's folder", "lead", "lead", "no link is followed", "is a link", quick=True)
def result_through_links(scene: Scene) -> str:
    elsewhere, out = scene.own_folder(), scene.own_folder()
    for folder in (elsewhere, out):
        folder.mkdir()
    (elsewhere / "precious.txt").write_text("mine")
    (out / "summary.txt").symlink_to(elsewhere / "precious.txt")
    (out / "synthetic").symlink_to(elsewhere)
    said, _ = _submit(scene, _DONE, (_file("summary.txt"), _file("synthetic/left.csv")), out)
    assert "is a link" in said
    assert [path.name for path in elsewhere.iterdir()] == ["precious.txt"]
    assert (elsewhere / "precious.txt").read_text() == "mine"
    return said


@attack("a failed study's note with terminal escapes", "lead", "lead", "sanitized text", "All is well")
def hostile_note(scene: Scene) -> str:
    said, _ = _submit(scene, StudyState("study", "vcds", "failed", 1, (), ESCAPES))
    assert "All is well" in said
    assert "\x1b" not in said
    assert "\u202e" not in said
    return said
