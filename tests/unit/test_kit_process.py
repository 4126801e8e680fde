"""One process a kit, and a log that no peer can forge or fill."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from verticopula.errors import SettingsError
from verticopula.network.connection.sanitizing import frames_of
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.operations import kit_process as process_module
from verticopula.network.operations.kit_process import keep_log, only_process, running_pid, stop_process


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, "party", "left", "localhost", 1)


@pytest.fixture
def log(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(process_module, "_listen_to_grpc", lambda: None)
    monkeypatch.setattr(process_module, "_LOG_BYTES", 10_000)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    keep_log(kit, quiet=True)
    yield kit.folder / "log.txt"
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def test_one_process_a_kit(kit: Kit) -> None:
    assert running_pid(kit.folder) is None
    with only_process(kit):
        assert running_pid(kit.folder) == os.getpid()
        with pytest.raises(SettingsError, match=rf"is already running \(process {os.getpid()}\)"), only_process(kit):
            pass
    assert running_pid(kit.folder) is None
    assert not stop_process(kit.folder)


def test_what_a_dead_process_left_does_not_matter(kit: Kit) -> None:
    (kit.folder / "process.pid").write_text("1\n")  # nobody holds it
    assert running_pid(kit.folder) is None
    assert not stop_process(kit.folder)
    with only_process(kit):
        assert running_pid(kit.folder) == os.getpid()


def test_last_words_reach_the_terminal(kit: Kit) -> None:
    script = (
        "import os, sys; from pathlib import Path; from verticopula.network.kit.startup_kit import Kit;"
        "from verticopula.network.operations.kit_process import keep_log;"
        "keep_log(Kit(Path(sys.argv[1]), 'party', 'left', 'localhost', 1), quiet=True);"
        "os.write(2, b'E0 ssl.cc:1] Handshake failed with error SSL_ERROR_SSL: no certificate\\n');"
        "print('why it ends', file=sys.stderr); sys.exit(1)"
    )
    command = [sys.executable, "-c", script, str(kit.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 1
    assert done.stderr == "why it ends\n"
    assert "refused a connection: no certificate" in (kit.folder / "log.txt").read_text("utf-8")


def test_nobody_writes_a_line_of_their_own(log: Path) -> None:
    logging.getLogger("nvflare").error("Invalid endpoint name '%s'", "x\n2026-01-01 INFO all is well\x1b[2J\u202e")
    lines = log.read_text("utf-8").splitlines()
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    assert "\u202e" not in lines[0]
    assert "all is well" in lines[0]


def test_the_log_does_not_fill_the_disk(log: Path) -> None:
    for _ in range(2_000):
        logging.getLogger("verticopula").warning("refused %s", "x" * 100_000)
    assert sum(path.stat().st_size for path in log.parent.glob("log.txt*")) < 60_000


def test_where_an_error_came_from_says_nothing_of_the_data() -> None:
    def inner(secret: str) -> None:
        int(secret)

    with pytest.raises(ValueError, match="patient") as caught:
        inner("patient 4711")
    said = frames_of(caught.value)
    assert "test_kit_process.py" in said
    assert "inner" in said
    assert "4711" not in said
    assert "/" not in said


def test_a_signal_to_reload_ends_nothing() -> None:
    program = """
import logging, sys, threading
from verticopula.network.operations.kit_process import run_until_stopped
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
class Service:
    ended = threading.Event()
    def run(self): self.ended.wait()
    def stop(self): self.ended.set()
    def reload(self): print("reloaded", flush=True)
run_until_stopped(Service())
"""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert "started" in process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert "asked to reload" in process.stdout.readline()
        assert "reloaded" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert "stopped" in process.stdout.readline()
        assert process.wait() == 0
