"""What is tried against caps, roles and refusals: renamed tables, forgotten caps, cells that are none.

Processes and kits where the attack needs them; otherwise members with vaults, whose log is the victim's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, make_federation
from tests.members import MemoryVault, make_member
from tests.network.attackers import EvilCoordinator, LogTail
from tests.network.harness import POLICY, Net, small_federation, small_tables
from tests.network.intruder_scenes import Scene, against_parties, against_party, attack
from tests.network.lying import LyingTransport, Refused, opening, proposed_alone, run_study, signs_as
from tests.secure.cells_world import ForgedProver, forge_dealing
from verticopula import Federation, Policy, Synthesizer
from verticopula.data.input_files import write_inputs
from verticopula.errors import BudgetExceeded, PolicyRefused, VerticopulaError
from verticopula.mpc import proof_rounds
from verticopula.mpc.verified_cells import CellsDealing, CellsStatement, encode_cells
from verticopula.network.connection.control_messages import Refusal
from verticopula.privacy.policy import Caps
from verticopula.protocol.consent_messages import ConsentReply, ConsentRequest
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.member import Member
from verticopula.protocol.study_messages import BeginRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.storage.vault import Vault
from verticopula.transport.in_process_transport import InProcessTransport

_OWN = "this party alone"


@contextlib.contextmanager
def _heard() -> Iterator[list[str]]:
    """What members of this process write to their logs."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("verticopula")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def _line(lines: list[str], expected: str) -> str:
    found = [line for line in lines if re.search(expected, line)]
    assert found, lines
    return found[-1]


# ---- a party that shares what is no cell -----------------------------------------------------------------


@dataclass
class _WithOneOfUs(LyingTransport):
    """The middle party is the intruder's own; the others are processes."""

    own: Member | None = None

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        assert self.own is not None
        others = {name: request for name, request in requests.items() if name != "middle"}
        replies = super().deliver(others) if others else {}
        if "middle" in requests:
            replies["middle"] = self.own.handle(requests["middle"])
        return {name: replies[name] for name in requests}


def _longer(statement: CellsStatement, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One person's record a million times as long as its bound."""
    spoilt = encode_cells(statement, codes)
    spoilt[7, 0] = 1_000_016
    return spoilt


@against_parties(
    "strict: a party that shares a record longer than its bound",
    "the proof of cells",
    "refused: the cells of 'middle' are not proven to be one-hot",
    party="left",
    honest="the two other compute parties",
)
def longer_record(scene: Scene) -> None:
    def deal(statement: CellsStatement, codes: Any, secret: bytes) -> CellsDealing:
        return forge_dealing(statement, _longer(statement, codes))

    def prove(statement: CellsStatement, codes: Any, *rest: Any) -> bytes:
        return ForgedProver(_longer(statement, codes), True)(statement, codes, *rest)

    own = Member(
        scene.net.federation,
        "middle",
        small_tables()["middle"],
        key=scene.kit("middle").id_key(),
        vault=MemoryVault(),
        authenticity=signs_as(scene, "middle"),
    )
    transport = _WithOneOfUs(scene, lambda name, request: request, "left", own=own)
    with (
        mock.patch.object(proof_rounds, "deal_cells", deal),
        mock.patch.object(proof_rounds, "prove_codes", prove),
        pytest.raises(Refused),
    ):
        run_study(scene, f"longer-{time.monotonic_ns()}", "strict", transport, epsilon=60.0)
    assert not any(type(reply).__name__ == "SumsReply" for _, _, reply in transport.seen)


@attack(
    "strict: one of two parties runs the coordinator, and would hold two compute roles",
    "lead",
    "right",
    "roles in the federation file",
    "",
    honest=_OWN,
)
def two_roles(scene: Scene) -> str:
    expected = "refused: party 'right': method 'strict': 'left' runs the coordinator and is one of two parties"
    said = small_federation().to_dict()
    said["party"] = [party for party in said["party"] if party["name"] != "middle"]
    said["network"] |= {"operator": "left"}
    folder = scene.own_folder()
    folder.mkdir()
    net = Net.prepare(folder, Federation.from_dict(said))
    try:
        net.start("right")
        with EvilCoordinator(net.kit("server")) as evil:
            evil.wait_for("right")
            there = Scene(net, folder / "scratch", evil)
            assert isinstance(evil.ask("right", opening(there, "two-roles", method="strict")), Refusal)
        return LogTail(folder / "kits" / "right" / "log.txt").wait(expected)
    finally:
        net.close()


# ---- caps that are to be forgotten -----------------------------------------------------------------------


def _block(n: int, *columns: str) -> pl.DataFrame:
    drawn = np.random.default_rng(6).normal(size=(n, len(columns))).clip(-7, 7)
    ids = pl.Series("subject_id", [f"s{i}" for i in range(n)])
    return pl.DataFrame([ids, *(pl.Series(name, drawn[:, k]) for k, name in enumerate(columns))])


@attack("run: a folder of its own for every run under one cap", "lead", "lead", "caps live in a vault", "", honest=_OWN)
def runs_with_folders_of_their_own(scene: Scene) -> str:
    folder = scene.own_folder()
    (folder / "policies").mkdir(parents=True)
    made = make_federation({"hub": {"y": CONTINUOUS}, "bank": {"x": CONTINUOUS}})
    write_inputs(made, {"hub": _block(60, "y"), "bank": _block(60, "x")}, folder)
    (folder / "policies" / "bank.toml").write_text("[caps]\nclient = 4.0\n")
    said = []
    for out in ("one", "two", "three"):
        given = ["--data", "data", "--out", out, "--policies", "policies", "--method", "vcds", "--epsilon", "4"]
        command = [sys.executable, "-m", "verticopula", "run", "federation.toml", *given, "--quiet"]
        environment = {**os.environ, "XDG_DATA_HOME": str(folder / "home"), "COLUMNS": "300"}
        said.append(subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False))
    assert [done.returncode for done in said] == [0, 1, 1], said
    assert not (folder / "two").exists()
    return _line(said[-1].stderr.splitlines(), "epsilon per client would become 8, above its cap of 4")


def _study_of(vault: Vault, party: str, frame: pl.DataFrame, caps: Caps, method: str = "vcds", **settings: Any) -> None:
    """A study of three members, one of them on this vault under these names."""
    columns = [name for name in frame.columns if name != "subject_id"]
    named = {party: dict.fromkeys(columns, CONTINUOUS), "v": {"vv": CONTINUOUS}, "w": {"ww": CONTINUOUS}}
    made = make_federation(named)
    rest = {
        name: pl.DataFrame({"subject_id": frame["subject_id"], 2 * name: _block(frame.height, "c")["c"]})
        for name in "vw"
    }
    members = {name: make_member(made, name, table, vault=MemoryVault()) for name, table in rest.items()}
    members = {party: make_member(made, party, frame, vault=vault, policy=Policy(caps=caps)), **members}
    asked = {"epsilon": 1.0, "unit": "client", **settings}
    Synthesizer(made, method, **asked).fit_transport(InProcessTransport(members), study=f"study-{time.monotonic_ns()}")


def _refused_by_cap(folder: Path, unit: str, caps: Caps, *studies: tuple[str, pl.DataFrame, dict[str, Any]]) -> str:
    """The first study passes; every later one is refused, and nothing is charged."""
    with Vault.open(folder) as vault, _heard() as lines:
        for number, (party, frame, settings) in enumerate(studies):
            entries = len(vault.ledger)
            with contextlib.nullcontext() if number == 0 else pytest.raises(BudgetExceeded):
                _study_of(vault, party, frame, caps, **settings)
            assert (len(vault.ledger) == entries) == (number > 0)
        return _line(lines, f"refused: party .*: epsilon per {unit} would become")


@attack(
    "the same people under other names of party and columns, other spellings of ids, and in part",
    "lead",
    "lead",
    "people are charged, not names",
    "",
    honest=_OWN,
)
def other_names(scene: Scene) -> str:
    frame = _block(120, "x", "z")
    spelled = frame.with_columns(subject_id="S-" + pl.col("subject_id").str.slice(1).str.zfill(7))
    part = pl.concat([frame.head(58), frame.tail(62).with_columns(subject_id="t" + pl.col("subject_id"))])
    for table in (frame.rename({"x": "one", "z": "two"}), spelled, part):
        said = _refused_by_cap(
            scene.own_folder(), "client", Caps(client=1.5), ("bank", frame, {}), ("insurer", table, {})
        )
    return said


@attack(
    "strict: joint releases under other party names, beyond a cap at person",
    "lead",
    "lead",
    "caps at person",
    "",
    honest=_OWN,
)
def joint_releases(scene: Scene) -> str:
    frame = _block(120, "x", "z")
    strict = {"method": "strict", "epsilon": 1.0, "unit": "person", "delta": 1e-6}
    caps = Caps(person=1.3)
    return _refused_by_cap(
        scene.own_folder(), "person", caps, ("bank", frame, strict), ("insurer", frame, strict), ("bank", frame, strict)
    )


@attack(
    "an epsilon at block that exact composition allows and an adaptive choice does not",
    "lead",
    "lead",
    "a privacy filter",
    "",
    honest=_OWN,
)
def adaptive_choice(scene: Scene) -> str:
    frame, caps = _block(120, "x", "z"), Caps(block=3.0)
    little = {"epsilon": 0.01, "unit": "block", "delta": 1e-6}
    much = {**little, "epsilon": 2.97}
    return _refused_by_cap(scene.own_folder(), "block", caps, ("bank", frame, little), ("bank", frame, much))


@attack(
    "a study beyond a cap that was written into the policy while the party was running",
    "lead",
    "left",
    "the policy is read for every request",
    "refused: party 'left': epsilon per client would go above its cap",
    honest=_OWN,
)
def tightened(scene: Scene) -> None:
    scene.net.close()
    own, vault = scene.net.folder / "left.toml", scene.own_folder()
    own.write_text(POLICY, "utf-8")
    scene.net.start("left", extra=("--vault", str(vault)))
    with EvilCoordinator(scene.kit("server")) as evil:
        evil.wait_for("left")
        scene.coordinator = evil
        proposal = proposed_alone(scene, "before", "vcds")
        assert isinstance(evil.ask("left", ConsentRequest(proposal)), ConsentReply)
        later = proposed_alone(scene, "after", "vcds")
        own.write_text(f"{POLICY}[caps]\nclient = 0.01\n", "utf-8")
        assert isinstance(evil.ask("left", ConsentRequest(later)), Refusal)
        scene.coordinator = None
    assert (vault / "ledger.jsonl").read_bytes() == b""


# ---- what refusals tell ------------------------------------------------------------------------------------


@attack(
    "neighbouring tables told apart by what a party refuses",
    "lead",
    "lead",
    "refusals say nothing about one person",
    "",
    honest=_OWN,
)
def neighbours(scene: Scene) -> str:
    """A constant column, one with one other value, one that leaves its bounds: with a vault, and caps that end them."""
    told, heard = set(), list[str]()
    for value in (0.0, 1.0, 1e300):
        frame = _block(60, "x", "z").with_columns(
            x=pl.when(pl.int_range(60) == 5).then(value).otherwise(0.0), z=pl.lit(0.0)
        )
        said = []
        with Vault.open(scene.own_folder()) as vault, _heard() as lines:
            for party, table in (("bank", frame), ("bank", frame), ("bank", frame.rename({"x": "y"}))):
                try:
                    _study_of(vault, party, table, Caps(variable=0.6))
                    said.append("answered")
                except VerticopulaError as error:
                    said.append(f"{type(error).__name__}: {error}")
        told.add(tuple(said))
        heard += lines
    assert len(told) == 1, told
    assert [part.partition(":")[0] for part in told.pop()] == ["answered", "BudgetExceeded", "BudgetExceeded"]
    return _line(heard, "refused: party 'bank': epsilon per variable")


# ---- from members to their own coordinator ------------------------------------------------------------------


@attack(
    "two columns of a table told apart, person by person, by a cap at variable",
    "lead",
    "lead",
    "columns of one table are never compared",
    "",
    honest=_OWN,
)
def copied_column(scene: Scene) -> str:
    told, heard = set(), list[str]()
    for cell in (0.0, 1.0):
        x = (np.arange(60) % 9 == 0).astype(float)
        frame = _block(60, "x", "z").with_columns(
            pl.Series("x", x), pl.Series("z", np.where(np.arange(60) == 9, cell, x))
        )
        said = []
        with Vault.open(scene.own_folder()) as vault, _heard() as lines:
            for _ in range(2):
                try:
                    _study_of(vault, "bank", frame, Caps(variable=0.6))
                    said.append("answered")
                except BudgetExceeded as error:
                    said.append(str(error))
        told.add(tuple(said))
        heard += lines
    assert len(told) == 1, told
    return _line(heard, "refused: party 'bank': epsilon per variable")


@attack(
    "strict at next to no epsilon, to make room under a cap at client that is spent",
    "lead",
    "lead",
    "the larger of sum and filter counts",
    "",
    honest=_OWN,
)
def room_by_strict(scene: Scene) -> str:
    frame, caps = _block(60, *(f"c{j}" for j in range(40))), Caps(client=4.0)
    with Vault.open(scene.own_folder()) as vault, _heard() as lines:
        _study_of(vault, "bank", frame, caps, epsilon=3.9)
        _study_of(vault, "bank", frame, caps, "strict", epsilon=0.01, unit="person", delta=1e-6)
        entries = len(vault.ledger)
        with pytest.raises(BudgetExceeded):
            _study_of(vault, "bank", frame, caps)
        assert len(vault.ledger) == entries
    return _line(lines, "refused: party 'bank': epsilon per client would become")


_ONE_LINE = "refused: who asks and why is one line each, without control characters"


@against_party("a purpose that draws a prompt of its own", "one line, printable", _ONE_LINE, quick=True)
def drawn_purpose(scene: Scene) -> None:
    for words in ("audit\n  epsilon per client: 0 so far", "audit\x1b[2J", "audit\u200b"):
        asked = replace(opening(scene, f"study-{time.monotonic_ns()}"), purpose=words)
        assert isinstance(scene.evil.ask("left", asked), Refusal)


@attack(
    "a seeded study of a party that has caps",
    "lead",
    "left",
    "its policy",
    "refused: party 'left' does not take part in seeded studies: epsilon is infinite",
    honest=_OWN,
)
def seeded_under_a_cap(scene: Scene) -> None:
    scene.net.close()
    own = scene.net.folder / "left.toml"
    own.write_text(f"{POLICY}[caps]\nclient = 1000\n", "utf-8")
    scene.net.start("left", extra=("--vault", str(scene.own_folder())))
    with EvilCoordinator(scene.kit("server")) as evil:
        evil.wait_for("left")
        scene.coordinator = evil
        assert isinstance(evil.ask("left", opening(scene, "seeded", seed=5)), Refusal)
        scene.coordinator = None
    own.write_text(POLICY, "utf-8")


@attack(
    "the question that a steward said no to, with an invisible letter more",
    "lead",
    "lead",
    "words are compared as they look",
    "",
    honest=_OWN,
)
def asked_again(scene: Scene) -> str:
    asked: list[str] = []

    def steward(question: ConsentQuestion) -> None:
        asked.append(question.study)
        raise PolicyRefused("party 'bank': its steward said no")

    made = make_federation({"bank": {"x": CONTINUOUS}, "other": {"w": CONTINUOUS}})
    said = ""
    with Vault.open(scene.own_folder()) as vault:
        one = make_member(made, "bank", _block(60, "x"), vault=vault, ask_steward=steward)
        for number, words in enumerate(("an audit", "an audit ", "An\u00a0Audit", "an au\u200ddit")):
            request = BeginRequest(f"study-{number}", "vcds", federation_fingerprint(made), "hash", None, 0, "")
            with pytest.raises(PolicyRefused, match="its steward said no") as caught:
                one.handle(replace(request, purpose=words))
            said = str(caught.value)
    assert asked == ["study-0"]
    return f"refused: {said}"
