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
from verticopula.network.control_messages import (
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


def _submit(scene: Scene, state: StudyState, files: tuple[ResultFile, ...] = ()) -> tuple[str, Path]:
    """What `verticopula submit` says when this coordinator answers it, and where it writes."""
    out = scene.own_folder()
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


@attack("a result file that leads out of the folder", "lead", "lead", "names of files", "leads out of its folder")
def result_outside(scene: Scene) -> str:
    stolen = ResultFile("../../stolen.txt", np.zeros(3, dtype=np.uint8))
    said, out = _submit(scene, _DONE, (stolen,))
    assert not (out / "../../stolen.txt").exists()
    assert "leads out of its folder" in said
    return said


@attack("a failed study's note with terminal escapes", "lead", "lead", "sanitized text", "All is well")
def hostile_note(scene: Scene) -> str:
    said, _ = _submit(scene, StudyState("study", "vcds", "failed", 1, (), ESCAPES))
    assert "All is well" in said
    assert "\x1b" not in said
    assert "\u202e" not in said
    return said
