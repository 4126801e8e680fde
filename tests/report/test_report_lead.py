"""The lead's report, as the coordinator writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.members import make_members
from tests.report.test_report_hostile import COUNT, IDENTITY, NUMBER, canary_federation, canary_tables
from verticopula import Policy
from verticopula.network.coordinator import study_runner as running
from verticopula.network.coordinator.study_records import StudyRecord, StudyStore
from verticopula.transport.in_process_transport import InProcessTransport


def submitted(folder: Path, keeping: tuple[str, ...] = (), **changes: Any) -> tuple[Path, Path]:
    """A study over members that share no process with the coordinator; its result's folder and the parties'."""
    record = StudyRecord(
        study="canary-1",
        kind="synthesis",
        settings={"method": "refined", "epsilon": 6.0},
        rows=None,
        aligned=False,
        deadline=60.0,
        token="t",
        server_seed=1,
        created="",
        witnesses={},
    )
    policy = Policy(**changes.pop("policy", {}))
    for name, value in changes.items():
        object.__setattr__(record, name, value)
    own = {name: {"policy": Policy(synthetic="keep")} for name in keeping}
    members = make_members(canary_federation(), canary_tables(), policy=policy, out=folder / "parties", **own)
    records = StudyStore(folder / "coordinator")
    running.run_study(record, canary_federation(), InProcessTransport(members), records)
    return records.result_folder(record.study), folder / "parties"


def test_the_lead_gets_a_report_without_any_cell(tmp_path: Path) -> None:
    result, _ = submitted(tmp_path)
    text = (result / "report.html").read_text("utf-8")
    assert 'data-code="in-house"' not in text
    assert "binomial" in text or "gaussian regression of left.y" in text
    for spelling in (f"{NUMBER:.4f}", f"{NUMBER:.6f}", str(COUNT), f"{COUNT:,}", IDENTITY):
        assert spelling not in text


def test_a_block_that_stays_cannot_be_drawn_again_by_the_lead(tmp_path: Path) -> None:
    names = [party.name for party in canary_federation().parties]
    kept = names[-1]
    result, parties = submitted(tmp_path, keeping=(kept,))
    found = {path.relative_to(result).as_posix() for path in result.rglob("*") if path.is_file()}
    withheld = {"study.json", "report.html", "diagnostics/margins.csv", "diagnostics/posterior.npz"}
    assert not found & {*withheld, f"synthetic/{kept}.csv"}
    assert f"{kept}." not in (result / "synthetic" / "joined.csv").read_text().splitlines()[0]
    assert f"synthetic/{names[0]}.csv" in found
    assert "kept synthetic blocks to themselves" in (result / "summary.txt").read_text()
    assert list(parties.rglob(f"{kept}.csv")), "the party has it"


def test_a_study_whose_parties_all_keep_their_blocks_is_not_lost(tmp_path: Path) -> None:
    names = tuple(party.name for party in canary_federation().parties)
    result, parties = submitted(tmp_path, keeping=names)
    assert not list((result / "synthetic").glob("*.csv"))
    assert (result / "ledger.jsonl").is_file()
    assert {path.name for path in parties.rglob("*.csv")} == {f"{name}.csv" for name in names}


def test_aligned_rows_are_told_of(tmp_path: Path) -> None:
    result, _ = submitted(tmp_path, aligned=True)
    assert 'data-code="aligned"' in (result / "report.html").read_text("utf-8")


def test_a_study_is_not_lost_for_want_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(running, "write_report", fail)
    result, _ = submitted(tmp_path)
    assert (result / "synthetic" / "joined.csv").is_file()
    assert not (result / "report.html").exists()
