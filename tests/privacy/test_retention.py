"""Retention: what was stored of ended studies goes; budgets, chains and the promise to draw once stay."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.privacy.durable import OTHERS, REMOVAL_POINTS, REQUEST, make, remove_and_die
from tests.privacy.kept_parties import FEDERATION, TABLES, Parties
from tests.privacy.test_durable_party import Untouchable
from tests.unit.test_request_store import CONTENT, Clock
from verticopula import Policy, VerticalGLM
from verticopula.errors import BudgetExceeded, LedgerError, ProtocolError, VerticopulaError
from verticopula.network.connection.control_messages import CHANGE_NAME
from verticopula.network.party.retention import Removed, Retention
from verticopula.privacy.policy import Caps
from verticopula.protocol.messages import Request
from verticopula.protocol.party.joined_study import JoinedStudy
from verticopula.protocol.study_lifecycle import begin_study, close_study
from verticopula.protocol.study_messages import BeginRequest
from verticopula.protocol.wire import encode
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.schema.methods import METHODS, RAW_REGRESSION
from verticopula.storage.removals import REMOVALS_FILE
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import RequestContent, Verdict
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import inspect_vault
from verticopula.transport.delivery import drive

KEPT = 90.0
CHANGE = RequestContent("bank", CHANGE_NAME, "federation")
ALLOWED = Policy(methods=(*METHODS, RAW_REGRESSION), retention_days=KEPT)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Parties]]:
    found: list[Parties] = []

    def make_parties(policy: Policy = ALLOWED) -> Parties:
        own = {name: {"clock": clock} for name in TABLES}
        found.append(Parties(tmp_path / f"parties{len(found)}", TABLES, policy, **own))
        return found[-1]

    yield make_parties
    for parties in found:
        parties.close()


def retention(parties: Parties, clock: Clock, policy: Policy = ALLOWED) -> Retention:
    store = RequestStore(parties.folders["right"].parent / "requests.db", clock)
    return Retention("right", parties.vaults["right"], policy, store, "anna", clock)


RAW = {RAW_REGRESSION: "binomial", f"{RAW_REGRESSION}, second moments": "gaussian"}


def run_study(parties: Parties, method: str, study: str = "study", *, closed: bool = True) -> None:
    if method in RAW:
        begun = drive(begin_study(FEDERATION, study, RAW_REGRESSION), parties)
        model = VerticalGLM(RAW[method], penalty="lasso", n_strengths=3)
        model.fit_transport(parties, FEDERATION, study=study, begun=begun)
    else:
        parties.fit(method, study, seed=None)
    if closed:
        drive(close_study(FEDERATION, study), parties)


def ask_again(parties: Parties) -> list[tuple[Request, bytes | None]]:
    """Everything that the right party was asked, again: its reply, None for a refusal."""
    found: list[tuple[Request, bytes | None]] = []
    for name, request, _ in parties.replies:
        if name == "right":
            try:
                found.append((request, encode(parties.members["right"].handle(request))))
            except VerticopulaError:
                found.append((request, None))
    return found


@pytest.mark.parametrize("method", [*METHODS, *RAW])
def test_what_was_stored_goes_and_nothing_of_it_is_made_again(
    made: Callable[..., Parties], clock: Clock, method: str
) -> None:
    parties = made()
    run_study(parties, method)
    vault, folder = parties.vaults["right"], parties.folders["right"]
    ledger, spent = (folder / "ledger.jsonl").read_bytes(), parties.members["right"].current.count_against_caps()
    stored = len(vault.replies.keys())
    assert stored > 0 or method in RAW  # the right party has no response
    clock.now += (KEPT - 1) * SECONDS_PER_DAY
    assert retention(parties, clock).apply() == Removed()
    clock.now += 2 * SECONDS_PER_DAY
    assert retention(parties, clock).ended() == ["study"]
    assert retention(parties, clock).apply() == Removed(("study",), stored, 0)
    assert retention(parties, clock).apply() == Removed()
    for restart in (False, True):
        if restart:
            parties.start()
        assert all(reply is None for _, reply in ask_again(parties))
        with pytest.raises(ProtocolError, match="ended long ago, and what was stored of it was removed"):
            parties.fit(method, seed=None) if method not in RAW else run_study(parties, method)
        assert (folder / "ledger.jsonl").read_bytes() == ledger
        assert parties.members["right"].current.count_against_caps() == spent
    assert list((folder / "replies").iterdir()) == list((folder / "fits").iterdir()) == []
    assert inspect_vault(folder) == (len(parties.vaults["right"].ledger), 0)
    (mark,) = [raw for raw in records_of(folder) if "removed" in raw]
    named = RAW_REGRESSION if method in RAW else method
    assert mark == JoinedStudy(named, "hash", None, "", federation=mark["federation"], removed=clock.now).to_dict()
    assert not any("proposal" in raw or "secret" in raw or "salt" in raw for raw in records_of(folder))
    other = "vcds" if method in RAW else method
    parties.fit(other, "another", seed=None)  # the party takes part as before


def records_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()[32:]) for path in (folder / "studies").glob("*.bin")]


def test_a_study_that_nobody_closed_ends_with_its_consent(made: Callable[..., Parties], clock: Clock) -> None:
    parties = made()
    run_study(parties, "vcds", closed=False)
    drive(begin_study(FEDERATION, "only-begun", "vcds"), parties)
    clock.now += (KEPT + 29) * SECONDS_PER_DAY
    assert retention(parties, clock).ended() == []
    clock.now += 2 * SECONDS_PER_DAY
    assert sorted(retention(parties, clock).apply().studies) == ["only-begun", "study"]


def test_without_a_rule_everything_is_kept(made: Callable[..., Parties], clock: Clock) -> None:
    parties = made()
    run_study(parties, "vcds")
    clock.now += 5_000 * SECONDS_PER_DAY
    assert retention(parties, clock, Policy()).apply() == Removed()
    assert all(reply is not None for request, reply in ask_again(parties) if isinstance(request, BeginRequest))


def test_caps_count_what_was_removed(made: Callable[..., Parties], clock: Clock) -> None:
    once = Policy(retention_days=KEPT, caps=Caps(client=20.0))
    parties = made(once)
    run_study(parties, "vcds")
    clock.now += 200 * SECONDS_PER_DAY
    assert retention(parties, clock).apply().studies == ("study",)
    parties.start()
    with pytest.raises(BudgetExceeded):
        run_study(parties, "vcds", "second")


def test_a_removed_reply_is_not_drawn_though_the_record_is_there(tmp_path: Path) -> None:
    """The vault itself refuses, whoever asks: entries without a reply would be drawn for nothing."""
    with Vault.open(tmp_path) as vault:
        make(vault).handle(REQUEST)
        assert vault.remove_replies("left", "s", "anna", 1.0) == 1
        for party in (make(vault, noise=Untouchable()), make(vault)):
            with pytest.raises(LedgerError, match="it is not made again"):
                party.handle(REQUEST)
    with Vault.open(tmp_path) as vault, pytest.raises(LedgerError, match="it is not made again"):
        make(vault).handle(REQUEST)


def test_what_was_paid_for_and_never_stored_is_not_drawn_after_its_study_was_removed(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        with pytest.raises(Exception):  # noqa: B017, PT011  # its noise is out of reach
            make(vault, noise=Untouchable()).handle(REQUEST)
        assert vault.remove_replies("left", "s", "anna", 1.0) == 0
        with pytest.raises(LedgerError, match="it is not made again"):
            make(vault).handle(REQUEST)
        make(vault).handle(replace(REQUEST, study="another"))


@pytest.mark.parametrize("how", ["lost", "old"])
def test_a_list_of_removals_that_is_lost_or_old_is_noticed(tmp_path: Path, how: str) -> None:
    with Vault.open(tmp_path) as vault:
        for study in ("s", "t"):
            make(vault).handle(replace(REQUEST, study=study))
        vault.remove_replies("left", "s", "anna", 1.0)
        old = (tmp_path / REMOVALS_FILE).read_bytes()
        vault.remove_replies("left", "t", "anna", 1.0)
    if how == "lost":
        (tmp_path / REMOVALS_FILE).unlink()
    else:
        (tmp_path / REMOVALS_FILE).write_bytes(old)
    for look in (Vault.open, inspect_vault):
        with pytest.raises(LedgerError, match="stored replies are missing; without them a release could be made twice"):
            look(tmp_path)


def test_a_removal_that_the_ledger_does_not_know_is_noticed(tmp_path: Path) -> None:
    """As where the ledger was put back from before the study."""
    for name in ("one", "two"):
        with Vault.open(tmp_path / name) as vault:
            make(vault).handle(replace(REQUEST, study=name))
            vault.remove_replies("left", name, "anna", 1.0)
    shutil.copy(tmp_path / "two" / REMOVALS_FILE, tmp_path / "one" / REMOVALS_FILE)
    with pytest.raises(LedgerError, match="that the ledger does not know"):
        Vault.open(tmp_path / "one")


# ---- crashes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", REMOVAL_POINTS)
def test_a_kill_in_the_middle_leaves_a_vault_that_opens_and_draws_nothing_anew(
    made: Callable[..., Parties], clock: Clock, point: str
) -> None:
    parties = made()
    run_study(parties, "ievcds")
    folder = parties.folders["right"]
    ledger = (folder / "ledger.jsonl").read_bytes()
    sent = {encode(request): encode(reply) for name, request, reply in parties.replies if name == "right"}
    assert len(parties.vaults["right"].replies.keys()) > 1
    parties.close()
    other = OTHERS.Process(target=remove_and_die, args=(folder, "right", "study", point))
    other.start()
    other.join()
    assert other.exitcode == -signal.SIGKILL
    inspect_vault(folder)
    parties.start()
    for request, reply in ask_again(parties):
        if not isinstance(request, BeginRequest):  # its reply says where the ledger ends
            assert reply in (None, sent[encode(request)])
    assert (folder / "ledger.jsonl").read_bytes() == ledger
    clock.now += 200 * SECONDS_PER_DAY
    retention(parties, clock).apply()
    assert retention(parties, clock).ended() == []
    assert list((folder / "replies").iterdir()) == []
    assert not any("proposal" in raw for raw in records_of(folder))
    assert all(reply is None for _, reply in ask_again(parties))
    assert (folder / "ledger.jsonl").read_bytes() == ledger
    parties.start()
    assert inspect_vault(folder)[1] == 0


# ---- requests --------------------------------------------------------------------------------------------


def test_requests_go_with_their_studies_and_their_history_stays(tmp_path: Path, clock: Clock) -> None:
    store, anna = RequestStore(tmp_path / "requests.db", clock), Steward("anna")

    def ask(study: str, verdict: Any = None) -> str:
        asked = store.ask(replace(CONTENT, study=study))
        if verdict is not None:
            store.decide(asked.id, anna.decide(asked, verdict, "why", clock))
        return asked.id

    ids = {name: ask(name, said) for name, said in (("gone", "yes"), ("open", "yes"), ("no", "no"), ("late", None))}
    for name in ("gone", "open"):
        store.mark_used(store.get(ids[name]))
    removed = {"gone"}
    day = SECONDS_PER_DAY

    def remove(days: float) -> int:
        return store.remove_old(clock.now - days * day, lambda study: study in removed, "join")

    clock.now += 20 * day
    ids["new"] = ask("new")
    assert remove(30) == 0
    assert remove(10) == 1  # a study that was removed; the no lives, and so does a yes that is used
    clock.now += 15 * day
    assert remove(30) == 2  # the no is over, and nobody answered the late one in time
    assert {one.content.study for one in store.all()} == {"open", "new"}
    whats = [event.what for event in store.events(ids["gone"])]
    assert whats == ["asked", "yes", "approved", "used", "removed"]
    store.verify()
    assert store.get(ids["open"]).state == "approved"
    assert store.ask(replace(CONTENT, study="no")).state == "pending"  # a no that was over is asked again


def test_who_agreed_to_a_federation_file_is_never_removed(tmp_path: Path, clock: Clock) -> None:
    """Neither a yes, nor a no: an earlier version must not come back because nobody remembers a later one."""
    store = RequestStore(tmp_path / "requests.db", clock)
    for version, verdict in ((2, "yes"), (3, "no"), (4, None)):
        asked = store.ask(replace(CHANGE, proposal=f"digest-{version}", versions=(1, version)))
        if verdict is not None:
            store.decide(asked.id, Steward("anna").decide(asked, cast(Verdict, verdict), "why", clock))
        if verdict == "yes":
            store.mark_used(store.get(asked.id))
    study = store.ask(replace(CONTENT, study=CHANGE.study))  # a study may be called anything
    clock.now += 1000 * SECONDS_PER_DAY
    assert store.remove_old(clock.now, lambda name: True, "join") == 1
    assert [one.content.versions[1] for one in store.all()] == [2, 3, 4]
    assert [event.what for event in store.events(study.id)] == ["asked", "removed"]


def test_a_no_that_lives_is_not_forgotten(tmp_path: Path, clock: Clock) -> None:
    store = RequestStore(tmp_path / "requests.db", clock)
    asked = store.ask(CONTENT)
    store.decide(asked.id, Steward("anna").decide(asked, "no", "why", clock))
    clock.now += 2 * SECONDS_PER_DAY
    assert store.remove_old(clock.now, lambda study: True, "join") == 0
    assert store.ask(CONTENT).id == asked.id
