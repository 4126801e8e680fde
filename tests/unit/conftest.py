"""What tests of the command line share."""

from __future__ import annotations

import sys

import pytest

from tests.builders import Call, Said
from verticopula.cli import app as cli


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command as a user would, on a wide terminal."""

    def run(*args: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["verticopula", *map(str, args)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        said = capsys.readouterr()
        return Said(int(stopped.value.code or 0), " ".join(said.out.split()), " ".join(said.err.split()))

    return run
