"""Victims at work, and the rows of the intruder table."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.network.attackers import (
    Canary,
    EvilCoordinator,
    LogTail,
    shorten,
)
from tests.network.harness import POLICY, Net, small_federation
from verticopula.schema.federation import Federation

FLARE_CELLS = 1  # the F3 application of FLARE's own cell network, which carries jobs and FOBS objects
ESCAPES = "\x1b[2J\x1b[31mAll is well\x07\r\n[bold]<script>\u202e"
POLICIES = {
    "left": 'methods = ["vcds", "ievcds", "strict"]\nmin_subjects = 50\nopen_studies = 100\nnew_studies = 9999\n'
    "[caps]\nclient = 2.0\n",
    "middle": 'methods = ["vcds"]\ncolumns = ["another"]\n',
    "right": 'methods = ["vcds"]\nmin_subjects = 5000\n',
}
MANY_STUDIES = dict.fromkeys(("left", "middle", "right"), POLICY + "open_studies = 1000\n")
MEGABYTE = 1 << 20


Where = Literal["coordinator", "party", "parties", "lead", "compute"]

THIRD = "notary"  # computes without data
HONEST: dict[Where, str] = {
    "coordinator": "the coordinator",
    "party": "this party alone",
    "parties": "this party alone",
    "lead": "the study lead",
    "compute": "the compute party alone",
}


@dataclass
class Scene:
    """Victims at work."""

    net: Net
    scratch: Path
    coordinator: EvilCoordinator | None = None
    expect: Callable[[], str] = lambda: ""  # waits for the line that the attack must leave in its victim's log

    def kit(self, name: str) -> Any:
        return self.net.kit(name)

    def log(self, name: str) -> LogTail:
        return LogTail(self.net.folder / "kits" / name / "log.txt")

    def pid(self, name: str) -> int:
        return self.net.processes[name].pid

    @property
    def evil(self) -> EvilCoordinator:
        assert self.coordinator is not None
        return self.coordinator

    def own_folder(self) -> Path:
        return self.scratch / f"{time.monotonic_ns()}"

    def canary(self) -> Canary:
        return Canary(self.scratch / f"canary-{time.monotonic_ns()}")


@dataclass(frozen=True)
class Attack:
    """One row.

    Attributes
    ----------
    against : the kit whose log must hold a line that fits `expected`; for the lead, its terminal
    run : does it; AssertionError if it succeeds
    honest : who has to be honest for it to be refused; everybody else may work together
    """

    name: str
    where: Where
    against: str
    refused_by: str
    expected: str
    quick: bool
    run: Callable[[Scene], str | None]
    honest: str

    def carry_out(self, scene: Scene) -> str:
        """The victim's line."""
        tail = scene.log(self.against).mark()
        scene.expect = lambda: tail.wait(self.expected)
        said = self.run(scene)
        if said is not None:
            return shorten(said)
        line = tail.wait(self.expected)
        process = scene.net.processes.get(self.against)
        assert process is not None
        assert process.poll() is None, "the victim died"
        return shorten(line)


ATTACKS: list[Attack] = []


def attack(
    name: str, where: Where, against: str, refused_by: str, expected: str, *, quick: bool = False, honest: str = ""
) -> Callable[[Callable[[Scene], str | None]], Callable[[Scene], str | None]]:
    def register(run: Callable[[Scene], str | None]) -> Callable[[Scene], str | None]:
        ATTACKS.append(Attack(name, where, against, refused_by, expected, quick, run, honest or HONEST[where]))
        return run

    return register


def against_coordinator(name: str, by: str, expected: str, *, quick: bool = False) -> Any:
    return attack(name, "coordinator", "server", by, expected, quick=quick)


def against_party(name: str, by: str, expected: str, *, party: str = "left", quick: bool = False) -> Any:
    return attack(name, "party", party, by, expected, quick=quick)


def against_parties(name: str, by: str, expected: str, *, party: str, honest: str = "") -> Any:
    return attack(name, "parties", party, by, expected, honest=honest)


# ---- scenes ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def coordinator_alone(folder: Path) -> Iterator[Scene]:
    """A coordinator; its parties' kits are in the intruder's hands."""
    net = Net.prepare(folder)
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        net.start("server")
        LogTail(folder / "kits" / "server" / "log.txt").wait("added secure port")
        yield Scene(net, scratch)
    finally:
        net.close()


@contextlib.contextmanager
def parties_alone(folder: Path, *names: str, policies: Mapping[str, str] = POLICIES) -> Iterator[Scene]:
    """Parties, with strict policies by default; all other kits are in the intruder's hands."""
    net = Net.prepare(folder, policies=policies)
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        net.start(*names)
        with EvilCoordinator(net.kit("server")) as coordinator:
            coordinator.wait_for(*names)
            yield Scene(net, scratch, coordinator)
    finally:
        net.close()


@contextlib.contextmanager
def compute_alone(folder: Path) -> Iterator[Scene]:
    """An organisation that computes for two parties; the coordinator's kit is in the intruder's hands."""
    said = small_federation().to_dict()
    said["party"] = [party for party in said["party"] if party["name"] != "middle"]
    said["network"] |= {"operator": "left", "compute": THIRD}
    net = Net.prepare(folder, Federation.from_dict(said))
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        net.start(THIRD)
        with EvilCoordinator(net.kit("server")) as coordinator:
            coordinator.wait_for(THIRD)
            yield Scene(net, scratch, coordinator)
    finally:
        net.close()


@contextlib.contextmanager
def nobody_yet(folder: Path) -> Iterator[Scene]:
    """Kits only: the attack starts its victim itself."""
    net = Net.prepare(folder)
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        yield Scene(net, scratch)
    finally:
        net.close()


def altered(federation: Federation) -> Federation:
    said = federation.to_dict()
    said["party"][0]["column"][1]["bounds"] = [-1, 1]
    return Federation.from_dict(said)
