"""The audit trail: an auditor verifies it with one command, and everything that is changed in it is noticed."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reporting.made_up_kits import content, make_kits, release
from tests.console.open_consoles import OpenConsole, store_of
from verticopula.cli.app import app
from verticopula.errors import LedgerError, SettingsError
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.operations.audit_trail import export_audit_trail, verify_audit_trail
from verticopula.storage.ledger import Ledger
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.vault import Vault
from verticopula.storage.withdrawals import Withdrawals


@pytest.fixture
def decided(filled_bank: Kit, tmp_path: Path) -> Kit:
    """A party with releases, a yes by two stewards, a no, and a request that waits."""
    store = store_of(filled_bank)
    anna, bert = (Steward.create(name, tmp_path / f"{name}.pem") for name in ("anna", "bert"))
    keys = {one.name: one.public_key for one in (anna, bert)}
    first = store.ask(content("loans-autumn", approvals=2, stewards=keys))
    store.decide(first.id, anna.decide(first, "yes", "seen"))
    store.decide(first.id, bert.decide(store.get(first.id), "yes"))
    second = store.ask(content("loans-other"))
    store.decide(second.id, Steward("carl").decide(second, "no", "not our purpose"))
    store.ask(content("loans-waiting"))
    people = Withdrawals(filled_bank.folder / "vault")
    people.record("withdrawn", ["person-3", "person-9", "person-12"], "asked by letter", "anna")
    people.record("restored", ["person-9"], "a mistake", "anna")
    return filled_bank


@pytest.fixture
def trail(decided: Kit, tmp_path: Path) -> Path:
    return export_audit_trail(decided, decided.folder / "vault", tmp_path / "trail")


def test_a_trail_says_what_is_in_it(trail: Path, decided: Kit) -> None:
    found = verify_audit_trail(trail)
    with Vault.open(decided.folder / "vault") as vault:
        count, last = vault.head()
    assert (found.party, found.releases, found.last) == ("bank", count, last)
    assert (found.requests, found.decisions, found.signed) == (3, 3, 2)
    assert found.left_out == 2
    assert found.unasked == 2  # of three studies one has a stored yes
    assert len(found.authority.split(":")) == 32
    assert "verticopula ledger verify" in (trail / "README.txt").read_text()


def test_it_holds_no_secret(trail: Path, decided: Kit) -> None:
    there = b"".join(path.read_bytes() for path in trail.iterdir())
    secrets = [decided.private_key, decided.folder / "id.key", decided.folder / "vault" / "secret"]
    for path in secrets:
        assert path.read_bytes().strip() not in there
    assert b"PRIVATE KEY" not in there
    for one in Withdrawals(decided.folder / "vault").people():  # not even as keyed hashes
        assert one.encode() not in there


def test_the_commands_write_and_verify_it(decided: Kit, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere" / "trail"
    runner = CliRunner()
    written = runner.invoke(app, ["ledger", "export", str(decided.folder), "--out", str(out)])
    assert written.exit_code == 0, written.output
    assert f"verticopula ledger verify {out}" in written.output.replace("\n", "")
    verified = runner.invoke(app, ["ledger", "verify", str(out)])
    assert verified.exit_code == 0, verified.output
    assert "6 releases, chain intact and complete" in verified.output
    assert "3 decisions, of which 2 are signed" in verified.output
    again = runner.invoke(app, ["ledger", "export", str(decided.folder), "--out", str(out)])
    assert isinstance(again.exception, SettingsError)


def test_the_consoles_zip_is_the_same_folder(decided: Kit, inside: OpenConsole, tmp_path: Path) -> None:
    answer = inside.client.get(inside.at("/audit/trail.zip"))
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith('attachment; filename="audit-trail-bank-')
    assert "sandbox" in answer.headers["content-security-policy"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert all(name.startswith("audit-trail/") and ".." not in name for name in archive.namelist())
        archive.extractall(tmp_path / "unpacked")
    assert verify_audit_trail(tmp_path / "unpacked" / "audit-trail").requests == 3


def test_a_trail_says_what_was_removed(decided: Kit, tmp_path: Path) -> None:
    """The yes to a study whose request is gone still counts, and so does what was released."""
    folder = decided.folder / "vault"
    with Vault.open(folder) as vault:
        paid = [replace(entry, request="a" * 64) for entry in vault.ledger if entry.study == "loans-autumn"][:1]
        vault.ledger.append(paid)
        vault.remove_replies("bank", "loans-autumn", "join", 1.0)
    store = store_of(decided)
    later = replace_clock(store, 400 * 86_400.0)
    assert later.remove_old(later._clock() - 30 * 86_400.0, lambda study: True, "join") == 3
    trail = export_audit_trail(decided, folder, tmp_path / "after")
    found = verify_audit_trail(trail)
    assert (found.requests, found.removed, found.unasked) == (0, 1, 2)
    assert "a" * 64 in (trail / "removed.jsonl").read_text()
    change(trail, "removed.jsonl", "a" * 64, "b" * 64)
    with pytest.raises(LedgerError):
        verify_audit_trail(trail)


def replace_clock(store: RequestStore, seconds: float) -> RequestStore:
    return RequestStore(store.path, lambda: time.time() + seconds)


def test_a_trail_of_before_there_were_withdrawals_is_verified(trail: Path, decided: Kit) -> None:
    contents = json.loads((trail / "audit.json").read_text())
    for name in ("withdrawals.jsonl", "removed.jsonl"):
        (trail / name).unlink()
        del contents["files"][name]
    raw = json.dumps(contents).encode()
    (trail / "audit.json").write_bytes(raw)
    signature = certificate_authenticity(decided).sign(b"verticopula audit trail 1\0" + raw)
    (trail / "audit.sig").write_text(signature.hex())
    assert verify_audit_trail(trail).left_out == 0


def test_an_auditor_reads_it_after_the_certificate_has_ended(trail: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime(2099, 1, 1, tzinfo=UTC)

    monkeypatch.setattr("verticopula.network.kit.key_signing.datetime", Later)
    assert verify_audit_trail(trail).party == "bank"


def change(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text("utf-8")
    assert old in text, (name, old)
    path.write_text(text.replace(old, new, 1), "utf-8")


def drop_line(folder: Path, name: str, number: int) -> None:
    lines = (folder / name).read_text().splitlines(keepends=True)
    del lines[number]
    (folder / name).write_text("".join(lines))


ATTACKS: dict[str, Callable[[Path], object]] = {
    "a cheaper release": lambda trail: change(trail, "ledger.jsonl", '"epsilon": 0.5', '"epsilon": 0.1'),
    "the last release is gone": lambda trail: drop_line(trail, "ledger.jsonl", -1),
    "a release in the middle is gone": lambda trail: drop_line(trail, "ledger.jsonl", 2),
    "another purpose": lambda trail: change(trail, "requests.jsonl", "Which sectors", "Whose sectors"),
    "a no becomes a yes": lambda trail: change(trail, "requests.jsonl", '"verdict": "no"', '"verdict": "yes"'),
    "another reason": lambda trail: change(trail, "requests.jsonl", "not our purpose", "ok"),
    "a request is gone": lambda trail: drop_line(trail, "requests.jsonl", 1),
    "an event is gone": lambda trail: drop_line(trail, "events.jsonl", -1),
    "an event is another's": lambda trail: change(trail, "events.jsonl", '"actor": "carl"', '"actor": "anna"'),
    "nobody came back": lambda trail: drop_line(trail, "withdrawals.jsonl", -1),
    "fewer withdrew": lambda trail: change(trail, "withdrawals.jsonl", '"people": 3', '"people": 1'),
    "no history of withdrawals": lambda trail: (trail / "withdrawals.jsonl").unlink(),
    "no signature": lambda trail: (trail / "audit.sig").write_text(""),
    "half a signature": lambda trail: (trail / "audit.sig").write_bytes((trail / "audit.sig").read_bytes()[:400]),
    "another date": lambda trail: change(trail, "audit.json", '"made": "20', '"made": "19'),
    "another party": lambda trail: change(trail, "audit.json", '"party": "bank"', '"party": "agency"'),
    "a file is missing": lambda trail: (trail / "events.jsonl").unlink(),
    "a file is more": lambda trail: (trail / "more.txt").write_text("believe me"),
    "a link in place of a file": lambda trail: (
        shutil.move(trail / "head.json", trail.parent / "head.json"),
        (trail / "head.json").symlink_to(trail.parent / "head.json"),
    ),
    "contents that are no contents": lambda trail: (trail / "audit.json").write_text("[]"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_changed_is_noticed(trail: Path, attack: str) -> None:
    ATTACKS[attack](trail)
    with pytest.raises(LedgerError):
        verify_audit_trail(trail)


def resign(trail: Path, kit: Kit) -> None:
    """As the party itself would, after it changed files."""
    contents = json.loads((trail / "audit.json").read_text())
    contents["made"] = datetime.now(UTC).isoformat(timespec="seconds")
    contents["files"] = {name: hashlib.sha256((trail / name).read_bytes()).hexdigest() for name in contents["files"]}
    raw = (json.dumps(contents, indent=1, sort_keys=True) + "\n").encode()
    (trail / "audit.json").write_bytes(raw)
    signed = certificate_authenticity(kit).sign(b"verticopula audit trail 1\0" + raw)
    (trail / "audit.sig").write_text(signed.hex())


@pytest.mark.parametrize("attack", list(ATTACKS)[:9])
def test_not_even_the_party_itself_can_change_a_part(trail: Path, decided: Kit, attack: str) -> None:
    """It can sign again, but the chains and the stewards' signatures do not fit any more."""
    ATTACKS[attack](trail)
    resign(trail, decided)
    with pytest.raises(LedgerError):
        verify_audit_trail(trail)


def test_a_steward_cannot_be_made_to_have_said_yes(decided: Kit, tmp_path: Path) -> None:
    """Somebody who can write the store, but has no steward's key."""
    store = store_of(decided)
    keys = {"anna": Steward.load("anna", tmp_path / "anna.pem").public_key}
    request = store.ask(content("loans-forged", stewards=keys))
    forged = Steward.create("anna", tmp_path / "forged.pem").decide(request, "yes")
    with store._transaction() as base:
        said = json.dumps([asdict(forged)])
        base.execute("UPDATE requests SET decisions = ?, state = 'approved' WHERE id = ?", (said, request.id))
        store._append(base, request.id, "anna", "yes", "")
    with pytest.raises(LedgerError, match="not signed by its steward's key"):
        export_audit_trail(decided, decided.folder / "vault", tmp_path / "trail")
    assert not (tmp_path / "trail").exists()


def test_a_trail_of_another_authority_is_told_by_its_fingerprint(trail: Path, made_kits: Path, tmp_path: Path) -> None:
    """A trail can be made up as a whole. The fingerprint is what an auditor compares."""
    other = make_kits(tmp_path / "others")
    shutil.copy(other / "bank" / "authority.pem", trail / "authority.pem")
    with pytest.raises(LedgerError):
        verify_audit_trail(trail)
    resign(trail, Kit.read(other / "bank"))
    assert verify_audit_trail(trail).authority != verify_audit_trail(made_up(made_kits, tmp_path)).authority


def made_up(made_kits: Path, tmp_path: Path) -> Path:
    kit = Kit.read(made_kits / "bank")
    with Vault.open(tmp_path / "vault"):
        pass
    return export_audit_trail(kit, tmp_path / "vault", tmp_path / "made-up")


def test_a_trail_is_made_while_the_ledger_grows(decided: Kit, tmp_path: Path) -> None:
    with Vault.open(decided.folder / "vault") as vault:
        for number in range(3):
            vault.ledger.append([release(f"more-{number}", "turnover", 0.1, 200.0 + number)])
            out = export_audit_trail(decided, decided.folder / "vault", tmp_path / f"trail-{number}")
            assert verify_audit_trail(out).releases == 7 + number


def test_a_line_that_a_crash_cut_short_is_left_out(decided: Kit, tmp_path: Path) -> None:
    with (decided.folder / "vault" / "ledger.jsonl").open("ab") as file:
        file.write(b'{"bounds": "pub')
    with pytest.raises(LedgerError):  # until `join` has looked at it, which takes it back
        export_audit_trail(decided, decided.folder / "vault", tmp_path / "trail")
    Ledger(decided.folder / "vault" / "ledger.jsonl")
    assert verify_audit_trail(export_audit_trail(decided, decided.folder / "vault", tmp_path / "trail")).releases == 6


def test_a_party_without_a_vault_has_no_trail(bank: Kit, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is no vault"):
        export_audit_trail(bank, bank.folder / "vault", tmp_path / "trail")
    assert not (tmp_path / "trail").exists()
