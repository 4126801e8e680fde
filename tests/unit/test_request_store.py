"""Requests outlive processes: many may ask, decide and read at once, and nobody decides twice or for somebody else."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from verticopula.cli.app import app
from verticopula.errors import LedgerError, SettingsError
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.storage.request_sentences import about_one_person, price_sentences, request_sections, what_leaves
from verticopula.storage.request_store import REQUESTS_FILE, RequestStore, standing_of
from verticopula.storage.steward_keys import Steward, is_signed
from verticopula.storage.steward_requests import LeavingEntry, RequestContent, UnitPrice, same_name

LEAVES = (LeavingEntry("income", "ranks", "noisy ranks", 500, "coins", "0.5 per comparison", 2),)
PRICES = (UnitPrice("client", 1.0, 0.5, 1.5, 4.0, 3.0, 2.5), UnitPrice("person", 2.0, 1.0, 3.0))
CONTENT = RequestContent(
    "bank",
    "study-1",
    "releases",
    lead="lead",
    requester="Dr. Berg",
    contact="berg@clinic.example",
    purpose="a forecast of loans",
    proposal="p1",
    leaves=LEAVES,
    prices=PRICES,
    table="t1",
    policy="rules1",
)


class Clock:
    """A clock that a test sets."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> RequestStore:
    return RequestStore.of_kit(tmp_path, clock)


def test_the_file_is_for_its_owner_only_whatever_the_umask(tmp_path: Path, store: RequestStore) -> None:
    before = os.umask(0)
    try:
        store.ask(CONTENT)
        files = list(tmp_path.glob(f"{REQUESTS_FILE}*"))
    finally:
        os.umask(before)
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_the_same_question_is_one_request_whatever_was_spent_meanwhile(store: RequestStore) -> None:
    first = store.ask(CONTENT)
    again = store.ask(replace(CONTENT, prices=(replace(PRICES[0], before=3.0),)))
    assert again == first
    assert [event.what for event in store.events()] == ["asked"]


def test_what_was_stored_is_read_as_it_was(store: RequestStore) -> None:
    endless = replace(CONTENT, prices=(UnitPrice("client", 1.0, float("inf"), float("inf"), 4.0, 3.0, 0.0),))
    asked = store.ask(endless)
    assert store.get(asked.id[:5]).content == endless
    assert store.all("pending", study="study-1") == [asked]
    assert store.all("approved") == []


def test_a_yes_a_no_and_a_withdrawal(store: RequestStore) -> None:
    anna = Steward("anna")
    one, other = store.ask(CONTENT), store.ask(replace(CONTENT, study="study-2"))
    assert store.decide(one.id, anna.decide(one, "yes")).state == "approved"
    assert store.ask(CONTENT).state == "approved"
    assert store.decide(one.id, anna.decide(one, "withdrawn", "a complaint")).state == "withdrawn"
    assert store.ask(CONTENT).state == "withdrawn"  # and nobody is asked again
    assert store.decide(other.id, anna.decide(other, "no", "not our purpose")).state == "denied"
    assert [event.what for event in store.events(one.id)] == ["asked", "yes", "approved", "withdrawn"]
    with pytest.raises(SettingsError, match="is withdrawn, not pending"):
        store.decide(one.id, anna.decide(one, "yes"))
    with pytest.raises(SettingsError, match="no yes to take back"):
        store.decide(other.id, anna.decide(other, "withdrawn"))


@pytest.mark.parametrize("change", ["table", "policy", "proposal", "leaves"])
def test_a_change_since_the_yes_asks_again(store: RequestStore, change: str) -> None:
    asked = store.ask(CONTENT)
    store.decide(asked.id, Steward("anna").decide(asked, "yes"))
    changed = {"leaves": ()} if change == "leaves" else {change: "another"}
    again = store.ask(replace(CONTENT, **changed))
    assert (again.state, again.id != asked.id) == ("pending", True)
    assert store.get(asked.id).state == "superseded"
    # Back to what it was: the old yes does not come back with it.
    assert store.ask(CONTENT).state == "pending"


def test_time_ends_questions_and_a_yes_that_nobody_used(store: RequestStore, clock: Clock) -> None:
    asked = store.ask(CONTENT)
    clock.now += 29 * SECONDS_PER_DAY
    store.decide(asked.id, Steward("anna").decide(asked, "yes", clock=clock))
    clock.now += 29 * SECONDS_PER_DAY  # a yes lives from when it was given
    assert store.get(asked.id).state == "approved"
    clock.now += 2 * SECONDS_PER_DAY
    assert store.get(asked.id).state == "expired"
    assert standing_of(store.all()[0], {}, 1, clock.now) == "expired"
    again = store.ask(CONTENT)
    assert (again.state, again.id != asked.id) == ("pending", True)
    clock.now += 31 * SECONDS_PER_DAY
    with pytest.raises(SettingsError, match="is expired, not pending"):
        store.decide(again.id, Steward("anna").decide(again, "yes"))
    assert [one.id for one in store.expire()] == [again.id]
    assert store.expire() == []


def test_expire_ends_one_request_now(store: RequestStore) -> None:
    one = store.ask(CONTENT)
    assert store.expire(one.id)[0].state == "expired"
    with pytest.raises(SettingsError, match="already"):
        store.expire(one.id)


# ---- stewards -----------------------------------------------------------------------------------


@pytest.fixture
def stewards(tmp_path: Path) -> list[Steward]:
    return [Steward.create(name, tmp_path / "keys" / f"{name}.pem", b"secret") for name in ("anna", "ben", "carl")]


def test_two_stewards_with_keys_of_their_own(store: RequestStore, stewards: list[Steward], clock: Clock) -> None:
    anna, ben, carl = stewards
    roster = {one.name: one.public_key for one in (anna, ben)}
    asked = store.ask(replace(CONTENT, approvals=2, stewards=roster))
    once = store.decide(asked.id, anna.decide(asked, "yes", clock=clock))
    assert (once.state, once.missing) == ("pending", 1)
    with pytest.raises(SettingsError, match=r"decided about request .* already"):
        store.decide(asked.id, anna.decide(asked, "yes"))
    with pytest.raises(SettingsError, match="names no steward 'carl'"):
        store.decide(asked.id, carl.decide(asked, "yes"))
    with pytest.raises(SettingsError, match="not that of steward 'ben'"):
        store.decide(asked.id, Steward("ben", carl.key).decide(asked, "yes"))
    with pytest.raises(SettingsError, match="not that of steward 'ben'"):
        store.decide(asked.id, Steward("ben").decide(asked, "yes"))
    twice = store.decide(asked.id, ben.decide(asked, "yes", clock=clock))
    assert twice.state == "approved"
    assert standing_of(store.get(asked.id), roster, 2, clock.now) == "approved"


def test_one_no_is_enough(store: RequestStore, stewards: list[Steward]) -> None:
    anna, ben, _ = stewards
    asked = store.ask(replace(CONTENT, approvals=2, stewards={s.name: s.public_key for s in (anna, ben)}))
    store.decide(asked.id, anna.decide(asked, "yes"))
    assert store.decide(asked.id, ben.decide(asked, "no", "no")).state == "denied"


@pytest.mark.parametrize("name", ["lead", "LEAD", "dr-berg", "DrBerg", "berg"])
def test_nobody_approves_what_they_asked_for(store: RequestStore, name: str) -> None:
    asked = store.ask(CONTENT)
    with pytest.raises(SettingsError, match="somebody else has to approve"):
        store.decide(asked.id, Steward(name).decide(asked, "yes"))
    assert store.decide(asked.id, Steward(name).decide(asked, "no", "a mistake")).state == "denied"


def test_an_empty_name_is_nobodys() -> None:
    assert not same_name("", "", "lead")
    assert not same_name("anna", "")


def test_a_forged_file_approves_nothing(
    tmp_path: Path, store: RequestStore, stewards: list[Steward], clock: Clock
) -> None:
    """Whoever can write the file can write `approved`; the party counts signatures by its own policy."""
    anna, ben, carl = stewards
    roster = {one.name: one.public_key for one in (anna, ben)}
    asked = store.ask(replace(CONTENT, approvals=2, stewards=roster))
    store.decide(asked.id, anna.decide(asked, "yes", clock=clock))
    yes = store.get(asked.id).to_dict()["decisions"][0]
    other = store.ask(replace(CONTENT, study="study-2", stewards=roster))
    moved = ben.decide(other, "yes", clock=clock)
    forgeries = (
        [yes],
        [yes, yes],
        [yes, {**yes, "steward": "ben"}],
        [yes, {**vars(moved)}],  # a yes to another request
        [yes, vars(carl.decide(asked, "yes", clock=clock))],
        [yes, {**vars(ben.decide(asked, "no", clock=clock)), "verdict": "yes"}],
        [yes, vars(ben.decide(asked, "yes", clock=lambda: clock.now + 31 * SECONDS_PER_DAY))],
        [yes, vars(ben.decide(asked, "yes", clock=clock)), vars(anna.decide(asked, "withdrawn", clock=clock))],
    )
    for decisions in forgeries:
        _write(tmp_path, "UPDATE requests SET state = 'approved', decisions = ? WHERE id = ?", decisions, asked.id)
        assert standing_of(store.get(asked.id), roster, 2, clock.now) == "pending", decisions
    honest = [yes, vars(ben.decide(asked, "yes", clock=clock))]
    _write(tmp_path, "UPDATE requests SET state = 'approved', decisions = ? WHERE id = ?", honest, asked.id)
    assert standing_of(store.get(asked.id), roster, 2, clock.now) == "approved"
    later = clock.now + 40 * SECONDS_PER_DAY  # the two signed yeses have lived as long as they may
    forged = [*honest, {**yes, "steward": "carl", "when": later}, {**yes, "when": later}]
    _write(tmp_path, "UPDATE requests SET expires = 1e12, decisions = ? WHERE id = ?", forged, asked.id)
    assert standing_of(store.get(asked.id), roster, 2, later) == "expired"
    both = {"anna": anna.public_key, "ben": anna.public_key}  # one person with two names
    second = vars(Steward("ben", anna.key).decide(asked, "yes", clock=clock))
    _write(tmp_path, "UPDATE requests SET decisions = ? WHERE id = ?", [yes, second], asked.id)
    assert standing_of(store.get(asked.id), both, 2, clock.now) == "pending"


def _write(folder: Path, statement: str, decisions: list[dict[str, object]], name: str) -> None:
    with closing(sqlite3.connect(folder / REQUESTS_FILE)) as base, base:
        base.execute(statement, (json.dumps(decisions), name))


def test_keys_are_kept_private_and_under_a_passphrase(tmp_path: Path) -> None:
    path = tmp_path / "new" / "anna.pem"
    made = Steward.create("anna", path, b"secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Steward.load("anna", path, b"secret").public_key == made.public_key
    for wrong in (None, b"guess"):
        with pytest.raises(SettingsError, match="passphrase"):
            Steward.load("anna", path, wrong)
    with pytest.raises(SettingsError, match="there already"):
        Steward.create("anna", path)
    with pytest.raises(SettingsError, match="no such key"):
        Steward.load("anna", tmp_path / "none.pem")


def test_a_signature_is_of_one_request_and_one_verdict(store: RequestStore, stewards: list[Steward]) -> None:
    anna = stewards[0]
    asked = store.ask(CONTENT)
    said = anna.decide(asked, "yes")
    assert is_signed(asked, said, anna.public_key)
    assert not is_signed(asked, replace(said, verdict="no"), anna.public_key)
    assert not is_signed(replace(asked, content=replace(CONTENT, purpose="another")), said, anna.public_key)
    assert not is_signed(asked, said, "no key")


# ---- the file -----------------------------------------------------------------------------------


def test_the_history_is_a_chain(tmp_path: Path, store: RequestStore) -> None:
    asked = store.ask(CONTENT)
    store.decide(asked.id, Steward("anna").decide(asked, "no", "no"))
    assert store.verify() == store.head() == (3, store.events()[-1].hash)
    with closing(sqlite3.connect(tmp_path / REQUESTS_FILE)) as base, base:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            base.execute("DELETE FROM events")
        base.execute("DROP TRIGGER no_change")
        base.execute("UPDATE events SET what = 'yes' WHERE what = 'no'")
    with pytest.raises(LedgerError, match="event 2 was altered"):
        store.verify()


def test_a_damaged_file_says_what_to_do_and_a_full_disk_is_one(tmp_path: Path, store: RequestStore) -> None:
    (tmp_path / REQUESTS_FILE).write_bytes(b"no database, but long enough to look at " * 50)
    with pytest.raises(LedgerError, match="put it back from a copy"):
        store.all()
    (tmp_path / REQUESTS_FILE).unlink()
    store.ask(CONTENT)
    with closing(sqlite3.connect(tmp_path / REQUESTS_FILE)) as base, base:
        pages = base.execute("PRAGMA page_count").fetchone()[0]
    full = _Full(tmp_path / REQUESTS_FILE, pages)
    with pytest.raises(OSError, match="No space left") as failed:
        full.ask(replace(CONTENT, study="study-2", purpose="x" * 20_000))
    assert failed.value.errno == errno.ENOSPC
    assert [request.content.study for request in store.all()] == ["study-1"]
    assert store.verify()[0] == 1


class _Full(RequestStore):
    """On a disk that has no page left."""

    def __init__(self, path: Path, pages: int) -> None:
        super().__init__(path)
        self._pages = pages

    def _connect(self):  # type: ignore[no-untyped-def]
        context = super()._connect()
        pages = self._pages

        class Limited:
            def __enter__(self) -> sqlite3.Connection:
                base = context.__enter__()
                base.execute(f"PRAGMA max_page_count = {pages}")
                return base

            def __exit__(self, *raised: object) -> bool | None:
                return context.__exit__(*raised)  # type: ignore[arg-type]

        return Limited()


def _ask_and_decide(folder: Path, start: int) -> None:
    store = RequestStore.of_kit(folder)
    for number in range(start, start + 10):
        asked = store.ask(replace(CONTENT, study=f"study-{number % 15}"))
        if asked.state == "pending":
            try:
                store.decide(asked.id, Steward(f"steward-{start}").decide(asked, "yes"))
            except SettingsError:  # another process was faster
                assert store.get(asked.id).state == "approved"


@pytest.mark.processes
def test_processes_at_once_lose_nothing_and_decide_once(tmp_path: Path, store: RequestStore) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_ask_and_decide, args=(tmp_path, start)) for start in (0, 5, 10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    found = store.all()
    assert sorted(request.content.study for request in found) == sorted(f"study-{n}" for n in range(15))
    assert {len(request.decisions) for request in found} == {1}
    assert store.verify()[0] == 15 * 3


_ASKER = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.unit.test_request_store import CONTENT
from verticopula.storage.request_store import RequestStore
store = RequestStore.of_kit(Path(sys.argv[1]))
for number in range(100000):
    store.ask(replace(CONTENT, study=f"study-{number}"))
    print(number, flush=True)
"""


@pytest.mark.processes
def test_a_process_that_is_killed_leaves_whole_requests(tmp_path: Path, store: RequestStore) -> None:
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", _ASKER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(4)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        told = max(int(line) for line in said if line.endswith("\n"))
        assert {f"study-{n}" for n in range(told + 1)} <= {request.content.study for request in store.all()}
        store.verify()


def test_a_copy_of_the_file_alone_is_whole(tmp_path: Path, store: RequestStore) -> None:
    """When nobody has it open, everything is in one file."""
    store.ask(CONTENT)
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / REQUESTS_FILE, tmp_path / "copy")
    assert len(RequestStore.of_kit(tmp_path / "copy").all()) == 1


# ---- words and commands -------------------------------------------------------------------------


def test_sentences_say_what_leaves_and_what_is_left() -> None:
    assert what_leaves(CONTENT) == ["Column income: noisy ranks, 2 times, of 500 subjects (0.5 per comparison)."]
    priced = price_sentences(CONTENT)
    assert "cap 4, of which 3 left before, 2.5 after" in priced[0]
    assert priced[1].endswith("; no cap.")
    assert "at most 1.65 times (epsilon 0.5 per client)" in about_one_person(CONTENT)[0]
    raw = replace(CONTENT, prices=(UnitPrice("client", 0.0, float("inf"), float("inf")),))
    assert about_one_person(raw)[0].startswith("No bound")
    assert about_one_person(replace(CONTENT, seeded=True))[0].startswith("NOT PRIVATE")


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kit.toml").write_text('role = "party"\nname = "bank"\n', encoding="utf-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VERTICOPULA_STEWARD_PASSPHRASE", "secret")
    return tmp_path


def run(*arguments: object, fails: bool = False) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if fails:
        assert isinstance(result.exception, SettingsError), result.output
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_steward_lists_shows_and_decides(kit: Path) -> None:
    store = RequestStore.of_kit(kit)
    assert "No request waits" in run("requests", kit)
    hostile = replace(CONTENT, purpose="\x1b[2J[bold]red[/]\u202egood", requester="anna")
    asked = store.ask(hostile)
    listed = json.loads(run("requests", kit, "--json"))
    assert [(one["id"], one["state"], one["missing"]) for one in listed] == [(asked.id, "pending", 1)]
    shown = run("requests", kit, asked.id)
    for title, lines in request_sections(asked):
        assert title in shown
        assert all(line in shown for line in lines if "because" not in line)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[bold]red[/]" in shown
    assert "asks for this study" in run("approve", kit, asked.id, "--yes", "--steward", "anna", fails=True)
    said = run("deny", kit, asked.id, "--reason", "no purpose", "--steward", "ben")
    assert f"{asked.id} is denied" in said
    assert json.loads(run("requests", kit, asked.id, "--json"))["history"][-1]["what"] == "denied"
    assert asked.id in run("requests", kit, "--all")


def test_a_reason_does_not_look_like_the_history(kit: Path) -> None:
    asked = RequestStore.of_kit(kit).ask(replace(CONTENT, approvals=1))
    run("deny", kit, asked.id, "--steward", "ben", "--reason", "later\n  2026-01-01 00:00 UTC  anna: yes")
    shown = run("requests", kit, asked.id).splitlines()
    assert any("later   2026-01-01 00:00 UTC  anna: yes" in line for line in shown)
    assert not any(line.startswith("  2026-01-01 00:00 UTC") for line in shown)


def test_a_yes_is_to_what_was_shown(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who can write the file has two requests change places while the steward reads one of them."""
    line = run("steward", kit, "anna").splitlines()[-1]
    roster, store = {"anna": line.split('"')[1]}, RequestStore.of_kit(kit)
    harmless = store.ask(replace(CONTENT, stewards=roster))
    other = store.ask(replace(CONTENT, stewards=roster, study="study-2"))

    def change_places(*_: object, **__: object) -> None:
        with closing(sqlite3.connect(kit / REQUESTS_FILE)) as base, base:
            base.execute("DELETE FROM requests WHERE id = ?", (other.id,))
            swapped = (other.content.to_json(), other.content.question, "study-2", harmless.id)
            base.execute("UPDATE requests SET content = ?, question = ?, study = ? WHERE id = ?", swapped)

    monkeypatch.setattr("typer.confirm", change_places)
    assert "changed since it was shown" in run("approve", kit, harmless.id, "--steward", "anna", fails=True)
    assert store.ask(other.content).state == "pending"


def test_two_stewards_by_command(kit: Path) -> None:
    roster = {}
    for name in ("anna", "ben"):
        line = run("steward", kit, name).splitlines()[-1]
        roster[name] = line.split('"')[1]
    store = RequestStore.of_kit(kit)
    asked = store.ask(replace(CONTENT, approvals=2, stewards=roster))
    assert "1 more needed" in run("approve", kit, asked.id, "--yes", "--steward", "anna")
    assert "decided about" in run("approve", kit, asked.id, "--yes", "--steward", "anna", fails=True)
    stolen = kit / "home/verticopula/stewards/bank-anna.pem"
    answer = run("approve", kit, asked.id, "--yes", "--steward", "ben", "--key", stolen, fails=True)
    assert "not that of steward 'ben'" in answer
    assert "names no steward" in run("approve", kit, asked.id, "--yes", "--steward", "eve", fails=True)
    assert "is approved" in run("approve", kit, asked.id, "--yes", "--steward", "ben")
    assert standing_of(store.get(asked.id), roster, 2, time.time()) == "approved"
    assert "is withdrawn" in run("withdraw", kit, asked.id, "--steward", "ben")
    assert "No request is older" in run("expire", kit)


def test_a_name_that_is_no_request_and_a_folder_that_is_no_kit(kit: Path) -> None:
    assert "no request of that name" in run("requests", kit, "r0", fails=True)
    assert "holds no start-up kit" in run("requests", kit / "home", fails=True)
    assert "letters, digits" in run("steward", kit, "an na", fails=True)
