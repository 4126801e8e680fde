"""A federation whose clock is moved by years: processes and commands are real, and so is TLS."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.network.attackers import LogTail
from tests.network.harness import PATIENCE, Net, network, small_federation, small_tables
from verticopula.schema.federation import Federation

_SOURCE = Path(__file__).with_name("shifted_clock.c")
_DAY = 86_400
_COPIED = ("certificate.pem", "private-key.pem")


@dataclass
class Years:
    """Kits are provisioned in one folder and run in another, as between organisations.

    Attributes
    ----------
    provisioned : where `provision` writes; what is handed over is copied from there by `hand_over`
    """

    net: Net
    clock: Path
    library: Path
    provisioned: Path

    def set_day(self, days: float) -> None:
        """So many days after the beginning, for all processes at once."""
        with self.clock.open("r+b") as file:
            file.write(struct.pack("<q", int(days * _DAY)))

    @property
    def environment(self) -> dict[str, str]:
        """For processes that live by this clock."""
        return {"LD_PRELOAD": str(self.library), "SHIFTED_CLOCK": str(self.clock)}

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`verticopula` with these arguments, now by this clock."""
        return subprocess.run(
            [sys.executable, "-m", "verticopula", *arguments],
            cwd=self.net.folder,
            env={**os.environ, **self.environment, "COLUMNS": "300", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def provision(self, *options: str) -> str:
        done = self.command("provision", "federation.toml", "--out", str(self.provisioned), *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def hand_over(self, *names: str, files: tuple[str, ...] = _COPIED) -> None:
        """Copy files of these kits to where their processes run; one after the other, as people do."""
        for name in names:
            for file in files:
                shutil.copy(self.provisioned / name / file, self.net.folder / "kits" / name / file)

    def study(self, number: int) -> subprocess.CompletedProcess[str]:
        """The lead submits a study and waits for it."""
        out = self.net.folder / f"study-{number}"
        asked = ("--method", "vcds", "--epsilon", "4", "--deadline", "3000", "--quiet", "--out", str(out))
        return self.command("submit", "federation.toml", "--kit", "kits/lead", *asked)

    def log(self, name: str) -> LogTail:
        return LogTail(self.net.folder / "kits" / name / "log.txt").mark()

    def wait_until_connected(self, *names: str) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            said = self.command("status", "--kit", "kits/lead", "--json").stdout
            if all(f'"{name}": true' in said for name in names):
                return
            assert time.monotonic() < end, said
            time.sleep(0.5)


@contextmanager
def years(folder: Path, federation: Federation | None = None) -> Iterator[Years]:
    """A federation that has been provisioned and handed over; nobody has started yet."""
    library, clock = folder / "shifted_clock.so", folder / "clock"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    clock.write_bytes(struct.pack("<q", 0))
    with network(folder, federation=federation or small_federation(), tables=small_tables(60)) as net:
        shutil.copytree(folder / "kits", folder / "provisioned")
        shutil.rmtree(folder / "kits" / "authority")
        yield Years(net, clock, library, folder / "provisioned")
