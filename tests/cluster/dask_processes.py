"""A real Dask cluster on this machine: a scheduler and workers, each a process of its own, with their logs in files."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
# What is sent must be readable for the tests that look for planted values in it.
PLAIN = {"DASK_DISTRIBUTED__COMM__COMPRESSION": "null"}
_LONGEST_START = 120.0


class DaskProcesses:
    """A scheduler and workers.

    Parameters
    ----------
    folder : for logs and workers' files
    settings : of Dask, as environment variables
    scheme : `tcp` or `tls`
    port : where the scheduler listens; 0 for any
    host : for whom it listens; 0.0.0.0 for other machines, too
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        scheme: str = "tcp",
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._file, self._scheme = folder, folder / "scheduler.json", scheme
        self._settings = {**PLAIN, **(settings or {})}
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("scheduler", "--host", f"{scheme}://{host}:{port}")
        self.listens_at, self.port = self._listening()

    @property
    def engine(self) -> str:
        return f"{'tls' if self._scheme == 'tls' else 'dask'}://127.0.0.1:{self.port}"

    def add_worker(self, settings: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """One more worker, which is known to the scheduler when this returns."""
        name = f"worker-{len(self.workers)}"
        options = ["--nthreads", "1", "--no-nanny", "--name", name, "--local-directory", str(self.folder / name)]
        worker = self._start("worker", f"{self._scheme}://127.0.0.1:{self.port}", *options, settings=settings, log=name)
        self.workers.append(worker)
        self._wait_for(f"Register worker addr: {self._scheme}", len(self.workers))
        return worker

    def logs(self) -> str:
        return "\n".join(path.read_text("utf-8", "replace") for path in self.folder.glob("*.log"))

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def _start(
        self, what: str, *options: str, settings: Mapping[str, str] | None = None, log: str = "scheduler"
    ) -> subprocess.Popen[bytes]:
        own = ["--scheduler-file", str(self._file)] if what == "scheduler" else []
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *own, *options]
        paths = os.pathsep.join([*(settings or {}).get("PYTHONPATH", "").split(os.pathsep), *sys.path])
        env = {**os.environ, **self._settings, **(settings or {}), "PYTHONPATH": paths.strip(os.pathsep)}
        with (self.folder / f"{log}.log").open("wb") as out:
            return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=self.folder)

    def _listening(self) -> tuple[str, int]:
        """The host and the port that the scheduler says to be reached at."""
        for _ in _tries():
            if self._file.exists() and (text := self._file.read_text("utf-8")).endswith("}"):
                address = urlsplit(str(json.loads(text)["address"]))
                return str(address.hostname), int(address.port or 0)
            assert self.scheduler.poll() is None, self.logs()
        raise AssertionError(self.logs())

    def _wait_for(self, text: str, times: int) -> None:
        for _ in _tries():
            if (self.folder / "scheduler.log").read_text("utf-8", "replace").count(text) >= times:
                return
            assert self.workers[-1].poll() is None, self.logs()
        raise AssertionError(self.logs())


def _tries() -> Iterator[None]:
    end = time.monotonic() + _LONGEST_START
    while time.monotonic() < end:
        yield
        time.sleep(0.1)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process as a power cut would."""
    process.send_signal(signal.SIGKILL)
    process.wait()


class RecordedWire:
    """What a scheduler sends to the one process that is connected here: all bytes, as they pass.

    Attributes
    ----------
    port : to connect to, in place of the scheduler's
    received : what came from the scheduler
    """

    def __init__(self, port: int) -> None:
        self._target, self.received, self._lock = port, bytearray(), threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._pass_on, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(far, near, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_kept: bool) -> None:
        try:
            while data := source.recv(1 << 20):
                if is_kept:
                    with self._lock:
                        self.received += data
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()


@contextmanager
def recorded(port: int) -> Iterator[RecordedWire]:
    wire = RecordedWire(port)
    try:
        yield wire
    finally:
        wire.close()
