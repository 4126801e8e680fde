"""`breaking.py`, in a process whose wall clock a file sets while it runs: `python clocked.py join ...`.

`NAME.clock` below the current folder says how many seconds the clock is ahead. Everything in Python that asks for
`time.time`, and every now of a datetime in this package, gets it. Clocks that are never set (`time.monotonic`), and
those of C libraries, stay as they are. libfaketime would set those, too, but Debian's (0.9.10) makes `time.sleep` fail
where monotonic clocks are left alone.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, tzinfo
from pathlib import Path

_TIME = time.time


class SetDatetime(datetime):
    """A datetime whose now is that of the clock which is set."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> SetDatetime:
        return cls.fromtimestamp(time.time(), tz)


def follow(file: Path) -> None:
    """From now on the time of day is what this file says."""

    def now() -> float:
        try:
            return _TIME() + float(file.read_text("ascii"))
        except (OSError, ValueError):
            return _TIME()

    time.time = now  # before anything takes the function by name
    import verticopula.cli.app
    import verticopula.network.coordinator.coordinator_process
    import verticopula.network.party.party_process
    import verticopula.storage.vault  # noqa: F401

    for name, module in list(sys.modules.items()):
        if name.startswith("verticopula.") and getattr(module, "datetime", None) is datetime:
            module.datetime = SetDatetime  # type: ignore[attr-defined]


if __name__ == "__main__":
    follow(Path(f"{Path(sys.argv[2]).name}.clock"))
    from breaking import run

    run(sys.argv[1:])
