"""A log of JSON: one line an entry, whatever anybody puts into it, and nothing of what libraries say."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from verticopula.network.connection.log_context import in_study
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.operations.json_log import EntryLimit, JsonFormatter, is_worth_a_line

KIT = Kit(Path("kit"), "party", "left", "localhost", 1)
OWN = "verticopula.network.coordinator.coordinator_process"
DRIVER = "verticopula.network.connection.flare_driver"
LIBRARY = "nvflare.fuel.f3.sfm.conn_manager"


def entry(name: str, level: int, message: str, *arguments: object, error: BaseException | None = None) -> Any:
    trace = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(name, level, "/some/where/conn_manager.py", 42, message, arguments, trace, "connect")


def test_an_entry_says_when_who_and_what_and_its_sentence_without_values() -> None:
    said = json.loads(JsonFormatter(KIT).format(entry(OWN, logging.WARNING, "study %s failed in round %d", "s-1", 3)))
    assert said.pop("time").endswith("+00:00")
    assert said == {
        "level": "warning",
        "event": "study %s failed in round %d",
        "message": "study s-1 failed in round 3",
        "logger": OWN,
        "role": "party",
        "who": "left",
    }


def test_entries_within_a_study_name_it_and_others_do_not() -> None:
    record, formatter = entry(OWN, logging.INFO, "one"), JsonFormatter(KIT)
    with in_study("first"):
        assert json.loads(formatter.format(record))["study"] == "first"
        with in_study() as name_study:
            assert "study" not in json.loads(formatter.format(record))
            name_study("second")
            assert json.loads(formatter.format(record))["study"] == "second"
        assert json.loads(formatter.format(record))["study"] == "first"
    assert "study" not in json.loads(formatter.format(record))


@pytest.mark.parametrize(
    "hostile", ['x"}\n{"level": "info", "message": "all is well"}', "\x1b[2J\r\u202e\u2028\x00", "é" * 9]
)
def test_nobody_writes_a_line_of_their_own(hostile: str) -> None:
    with in_study(hostile):
        line = JsonFormatter(KIT).format(entry(OWN, logging.WARNING, "refused %s", hostile))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    said = json.loads(line)
    assert said["level"] == "warning"
    assert said["event"] == "refused %s"
    assert not set("\n\r\x1b\x00\u202e\u2028") & set(said["message"] + said["study"])


def test_a_study_of_a_huge_name_does_not_make_huge_lines() -> None:
    with in_study("x" * 1_000_000):
        line = JsonFormatter(KIT).format(entry(OWN, logging.INFO, "refused %s", "y" * 1_000_000))
    assert len(line) < 5_000


def test_of_a_librarys_error_the_place_is_told_and_no_text() -> None:
    try:
        int("patient 4711")
    except ValueError as error:
        record = entry(LIBRARY, logging.ERROR, "cannot handle patient 4711", error=error)
    line = JsonFormatter(KIT).format(record)
    said = json.loads(line)
    assert said["event"] == "a library's error"
    assert said["message"].startswith("conn_manager.py:42 connect: ValueError: test_json_log.py:")
    assert "4711" not in line


@pytest.mark.parametrize(
    ("name", "level", "is_kept"),
    [
        (OWN, logging.INFO, True),
        (OWN, logging.DEBUG, False),
        (DRIVER, logging.INFO, False),  # "a connection of left has ended"
        (DRIVER, logging.WARNING, True),
        (LIBRARY, logging.INFO, False),
        (LIBRARY, logging.WARNING, False),
        (LIBRARY, logging.ERROR, True),
        ("verticopulate", logging.INFO, False),
    ],
)
def test_what_flare_says_of_every_connection_is_left_out(name: str, level: int, is_kept: bool) -> None:
    assert is_worth_a_line(entry(name, level, "Connection [CN00002 Not Connected] is closed")) is is_kept


def test_the_driver_is_a_module() -> None:
    """Its entries are known by its name alone, which moves with the file."""
    assert find_spec(DRIVER) is not None


def test_a_flood_of_one_event_is_cut_and_counted_and_others_go_on() -> None:
    now = [0.0]
    limit = EntryLimit(clock=lambda: now[0])
    taken = [limit.take(entry(OWN, logging.WARNING, "refused a connection: %s", number)) for number in range(1_000)]
    assert sum(taken) == 100
    assert limit.take(entry(OWN, logging.INFO, "study %s is done", "s"))
    now[0] = 1.0
    later = entry(OWN, logging.WARNING, "refused a connection: %s", "again")
    assert limit.take(later)
    assert json.loads(JsonFormatter(KIT).format(later))["left_out"] == 900


def test_sentences_with_values_in_them_do_not_fill_the_memory() -> None:
    limit = EntryLimit(clock=lambda: 0.0)
    taken = [limit.take(entry(OWN, logging.WARNING, f"refused {number}")) for number in range(3_000)]
    assert 1_000 <= sum(taken) <= 1_100


def run(script: str, folder: Path) -> list[dict[str, Any]]:
    """The entries of a process that keeps a log of JSON and runs this script; every line must be one."""
    start = (
        "import logging, os, sys, threading; from pathlib import Path\n"
        "from verticopula.network.kit.startup_kit import Kit\n"
        "from verticopula.network.operations.kit_process import keep_log\n"
        "keep_log(Kit(Path(sys.argv[1]), 'party', 'left', 'localhost', 1), quiet=False, log_format='json')\n"
    )
    command = [sys.executable, "-c", start + script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_whatever_a_process_writes_to_standard_error_every_line_is_json_and_quotes_nothing(tmp_path: Path) -> None:
    said = run(
        "os.write(2, b'E0000 00:00:1.2 12 ssl_transport_security.cc:1884] Handshake failed with error SSL_ERROR_SSL: "
        "no certificate\\n')\n"
        "os.write(2, b'E0000 00:00:1.2 12 chttp2_transport.cc:7] patient 4711\\n' * 50)\n"
        "print('patient 4711', file=sys.stderr, flush=True)\n"
        "def fail(): raise ValueError('patient 4711')\n"
        "thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
        "logging.getLogger('verticopula').info('%d %s', 'patient 4711', 'x')\n"  # an entry that cannot be written
        "fail()\n",
        tmp_path,
    )
    events = [entry["event"] for entry in said]
    assert "4711" not in json.dumps(said)
    assert "refused a connection: %s" in events
    assert [e["message"].split(" ")[0] for e in said if "standard error" in e["event"]] == [
        "chttp2_transport.cc:7",
        "a",
    ]
    assert events.count("a thread ended with %s: %s") == 2
    assert list(tmp_path.iterdir()) == []  # no file to rotate
