"""A process of one kit: alone on it, stopped by a signal, with its log in the kit's folder."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Protocol

from rich.logging import RichHandler

from verticopula.errors import SettingsError
from verticopula.network.connection.sanitizing import sanitize
from verticopula.network.kit.startup_kit import PID_FILE, Kit
from verticopula.network.operations.json_log import LogFormat, write_json_log

LOG_FILE = "log.txt"

_STOP_PATIENCE = 3.0
_RELOADED = "asked to reload: certificates are read every second, the policy at every request, data before each study"
_LOG_BYTES = 32 * 2**20
_OLD_LOGS = 4
_HANDSHAKE = re.compile(r"Handshake failed[^:]*:(.*)")
_GRPC_PLACE = re.compile(r"[EF]\d{4} .*? ([\w.]+\.cc:\d+)\]")
_SAME_PLACE_AGAIN = 600.0  # seconds until a library's line from the same place is logged again

logger = logging.getLogger(__name__)


class Service(Protocol):
    """What runs until it is stopped: a `Coordinator` or a `PartyProcess`."""

    def run(self) -> None: ...

    def stop(self) -> None: ...

    def reload(self) -> None: ...


def run_until_stopped(service: Service) -> None:
    """Run in this thread until SIGTERM or SIGINT; SIGHUP, which asks services to reload, ends nothing."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stop(service))
    signal.signal(signal.SIGHUP, lambda *_: _reload(service))
    logger.info("started, release %s", version("verticopula"))
    service.run()
    logger.info("stopped")


def _reload(service: Service) -> None:
    """Files are looked at whenever they count; a signal has it done now."""
    logger.info("%s", _RELOADED)
    threading.Thread(target=service.reload, name="reload", daemon=True).start()


def _stop(service: Service) -> None:
    # A study's own threads may be in the middle of something; the disk is right at every moment, so nothing is lost.
    timer = threading.Timer(_STOP_PATIENCE, lambda: os._exit(0))
    timer.daemon = True
    timer.start()
    service.stop()


@contextlib.contextmanager
def only_process(kit: Kit) -> Iterator[None]:
    """Hold the kit for this process; SettingsError if another one runs on it."""
    path = kit.folder / PID_FILE
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SettingsError(f"{kit.folder} is already running (process {_read_pid(path)})") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
        file.truncate(0)


def running_pid(folder: Path) -> int | None:
    """The process that runs on a kit; None if there is none."""
    path = folder / PID_FILE
    if not path.is_file():
        return None
    with path.open("r", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _read_pid(path)
    return None


def stop_process(folder: Path, seconds: float = 15.0) -> bool:
    """Stop the kit's process and wait for its end; False if none runs."""
    pid = running_pid(folder)
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + seconds
    while running_pid(folder) == pid:
        if time.monotonic() > end:
            raise SettingsError(f"process {pid} of {folder} does not stop")
        time.sleep(0.05)
    return True


def _read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except ValueError:
        return None


def keep_log(
    kit: Kit, *, quiet: bool, is_asking: Callable[[], bool] = lambda: False, log_format: LogFormat = "text"
) -> None:
    """Everything to the kit's log file; what a person should see to the terminal as well.

    `is_asking`: whether a question stands on the terminal. Then nothing else is written there: what a peer sends could
    push the question out of sight.
    `log_format`: with `json` all entries go to standard error, one object a line, and to no file: whoever collects
    them keeps and rotates them.
    """
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    if log_format == "json":
        write_json_log(kit)
        _listen_to_grpc(_LibraryLines().log)
        return
    # Bounded: whoever can reach the port can make this file grow, and the ledger needs the disk.
    file = RotatingFileHandler(kit.folder / LOG_FILE, maxBytes=_LOG_BYTES, backupCount=_OLD_LOGS, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    file.addFilter(_sanitize_entry)
    root.addHandler(file)
    _listen_to_grpc()
    if not quiet:
        screen = RichHandler(show_path=False, markup=False, log_time_format="%H:%M:%S")
        screen.addFilter(_sanitize_entry)
        screen.addFilter(lambda entry: not is_asking())
        screen.addFilter(lambda entry: entry.name.startswith("verticopula") or entry.levelno >= logging.ERROR)
        root.addHandler(screen)


class _LibraryLines:
    """What libraries write to standard error, in a log of JSON: from which place, and never their text."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def log(self, line: str) -> None:
        found = _GRPC_PLACE.match(line)
        place = found.group(1) if found else "a library"
        now = time.monotonic()
        if line.strip() and now >= self._logged.get(place, -math.inf) + _SAME_PLACE_AGAIN:
            self._logged[place] = now
            logger.error("%s wrote to standard error; its text is left out, since it may quote values", place)


def _sanitize_entry(entry: logging.LogRecord) -> bool:
    """Make every log entry one line of safe text: FLARE's entries quote the names that peers claim."""
    entry.msg, entry.args = sanitize(entry.getMessage()), None
    return True


def _listen_to_grpc(other: Callable[[str], None] | None = None) -> None:
    """gRPC's core writes refused handshakes to standard error only; they belong in the log as well.

    `other`: called with every other line; by default they go where standard error went.
    """
    read_end, write_end = os.pipe()
    terminal = os.fdopen(os.dup(2), "wb", buffering=0)
    os.dup2(write_end, 2)
    os.close(write_end)

    def listen() -> None:
        with os.fdopen(read_end, "rb") as lines:
            for line in lines:
                text = line.decode("utf-8", "replace")
                refused = _HANDSHAKE.search(text)
                if refused:
                    logger.warning("refused a connection: %s", refused.group(1).strip())
                elif other is not None:
                    other(text)
                else:
                    terminal.write(line)

    listener = threading.Thread(target=listen, name="grpc-log", daemon=True)
    listener.start()

    def finish() -> None:
        """Or the reason why a command ends would be lost on its way to the terminal."""
        sys.stderr.flush()
        os.dup2(terminal.fileno(), 2)
        listener.join(_STOP_PATIENCE)

    atexit.register(finish)
