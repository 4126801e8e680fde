"""People who withdrew: later studies are those of tables without them, and nobody else is told who they are."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.members import SEEDED
from tests.privacy.durable import OTHERS, withdraw_people
from tests.privacy.kept_parties import FEDERATION, TABLES, Parties
from verticopula import NotPrivateWarning, Policy, Synthesizer, VerticalGLM
from verticopula.errors import ConsentPending, LedgerError, ProtocolError, SettingsError
from verticopula.network.party.stored_consent import StoredConsent
from verticopula.protocol.consent_messages import PresenceReply
from verticopula.protocol.study_lifecycle import begin_study
from verticopula.protocol.study_messages import BeginReply, BeginRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.protocol.wire import encode
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.schema.methods import METHODS
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import inspect_vault
from verticopula.storage.withdrawals import WITHDRAWALS_FILE, Withdrawals, count_left_out
from verticopula.transport.delivery import drive

GONE = ("person-00004", "person-00031", "person-00077")
SPELLED = (" PERSON-00004", "Person 31", "person-77.0")  # as a steward may type them
RAW = Policy(allow_seeded=True, methods=(*METHODS, "raw-glm"))


def without(tables: dict[str, pl.DataFrame], *parties: str) -> dict[str, pl.DataFrame]:
    gone = pl.col("subject_id").is_in(GONE)
    return {name: table.filter(~gone) if name in parties else table for name, table in tables.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Vault.open(tmp_path / "vault").close()
    return tmp_path / "vault"


# ---- the history ---------------------------------------------------------------------------------------


def test_the_history_has_counts_and_no_id(folder: Path) -> None:
    known = Withdrawals(folder, lambda: 12.0)
    assert known.record("withdrawn", [*GONE, SPELLED[0]], "asked by letter", "anna") == 3
    assert known.record("withdrawn", [SPELLED[1]], "again", "anna") == 0
    assert known.record("restored", [GONE[2], "somebody else"], "by letter", "ben") == 1
    events = [(event.what, event.people, event.reason, event.by) for event in known.events()]
    assert events == [("withdrawn", 3, "asked by letter", "anna"), ("restored", 1, "by letter", "ben")]
    assert count_left_out(known.events()) == len(known.people()) == 2
    raw = (folder / WITHDRAWALS_FILE).read_text()
    assert "person-" not in raw.casefold()
    assert (folder / WITHDRAWALS_FILE).stat().st_mode & 0o077 == 0


def test_hashes_say_nothing_without_the_vault_s_secret(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        Vault.open(tmp_path / name).close()
        known = Withdrawals(tmp_path / name)
        known.record("withdrawn", GONE, "", "anna")
        found.append(known.people())
    assert found[0].isdisjoint(found[1])


@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=30, unique_by=lambda row: row[0]),
    steps=st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 45), min_size=1)), max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_a_table_is_left_without_exactly_those_who_have_withdrawn(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, bool]], steps: list[tuple[bool, set[int]]]
) -> None:
    folder = tmp_path_factory.mktemp("vault")
    (folder / "secret").write_bytes(bytes(32))
    known, gone = Withdrawals(folder), set[int]()
    table = pl.DataFrame({"id": [f"P-{n:06d}" if wide else f"p{n}" for n, wide in rows], "n": [n for n, _ in rows]})
    for withdraws, people in steps:
        known.record("withdrawn" if withdraws else "restored", [f" p {n} " for n in people], "", "anna")
        gone = gone | people if withdraws else gone - people
    assert known.leave_out(table, "id").equals(table.filter(~pl.col("n").is_in(list(gone))))
    assert len(known.people()) == len(gone) == count_left_out(known.events())


@pytest.mark.parametrize("spelling", ["17", "17.0", "17,00", " 17,0 ", "017", "-17", "1 7"])
def test_whole_numbers_are_the_person_that_a_table_has(folder: Path, spelling: str) -> None:
    """A table's `17,0` is 17, so a steward's `17,0` is, too, and not 170."""
    known, table = Withdrawals(folder), pl.DataFrame({"id": ["17,0", "170", "1700"]})
    known.record("withdrawn", [spelling], "", "anna")
    assert known.leave_out(table, "id")["id"].to_list() == ["170", "1700"]


def test_several_processes_may_record_at_once(folder: Path) -> None:
    others = [OTHERS.Process(target=withdraw_people, args=(folder, first, 8)) for first in (0, 4, 8)]
    for other in others:
        other.start()
    for other in others:
        other.join()
        assert other.exitcode == 0
    known = Withdrawals(folder)
    assert len(known.people()) == count_left_out(known.events()) == 16


def test_a_line_that_a_crash_cut_off_is_no_line_and_any_other_change_is_found(folder: Path) -> None:
    known, file = Withdrawals(folder), folder / WITHDRAWALS_FILE
    for one in GONE[:2]:
        known.record("withdrawn", [one], "", "anna")
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"time": 1')
    assert len(known.people()) == 2
    known.record("withdrawn", [GONE[2]], "", "anna")
    assert file.read_bytes().startswith(whole)
    assert len(known.people()) == 3
    lines = file.read_text().splitlines(keepends=True)
    changed = json.loads(lines[0])
    changed["held"] = ["0" * 32]
    for forged in (
        [*lines[1:]],
        [lines[1], lines[0], lines[2]],
        [lines[0].replace('"people": 1', '"people": 2'), *lines[1:]],
        [json.dumps(changed, sort_keys=True) + "\n", *lines[1:]],
        ["no line\n", *lines],
    ):
        file.write_text("".join(forged))
        with pytest.raises(LedgerError, match=WITHDRAWALS_FILE):
            known.people()


@pytest.mark.parametrize("how", ["lost", "old", "other"])
def test_a_vault_notices_a_history_that_lacks_a_withdrawal(folder: Path, how: str) -> None:
    known, file = Withdrawals(folder), folder / WITHDRAWALS_FILE
    known.record("withdrawn", [GONE[0]], "", "anna")
    old = file.read_bytes()
    known.record("withdrawn", [GONE[1]], "", "anna")
    Vault.open(folder).close()
    if how == "lost":
        file.unlink()
    else:
        file.write_bytes(old)
    if how == "other":
        known.record("withdrawn", ["somebody"], "", "anna")
    with pytest.raises(LedgerError, match="put back from an old copy"):
        Vault.open(folder)
    with pytest.raises(LedgerError, match="put back from an old copy"):
        inspect_vault(folder)


def test_a_long_reason_is_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match="at most 500"):
        Withdrawals(folder).record("withdrawn", GONE, "x" * 501, "anna")


# ---- in one process ------------------------------------------------------------------------------------


def fitted(tables: dict[str, pl.DataFrame], method: str, **more: Any) -> Synthesizer:
    unit = {"unit": "person", "delta": 1e-6} if method == "strict" else {"unit": "variable"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return Synthesizer(FEDERATION, method, epsilon=8.0, random_state=5, **unit).fit(tables, **more)


def assert_same_study(one: Synthesizer, two: Synthesizer) -> None:
    assert one.n_subjects_ == two.n_subjects_
    np.testing.assert_array_equal(one.correlation_, two.correlation_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = one.sample(50), two.sample(50)
    assert all(first[name].equals(second[name]) for name in first)
    prices = [[(e.party, e.column, e.n_subjects, e.epsilon, e.mu) for e in fit.ledger_] for fit in (one, two)]
    assert prices[0] == prices[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_that_of_tables_without_them(folder: Path, tmp_path: Path, method: str) -> None:
    Withdrawals(folder).record("withdrawn", SPELLED, "", "anna")
    left_out = fitted(TABLES, method, vault=folder)
    assert_same_study(left_out, fitted(without(TABLES, *TABLES), method, vault=tmp_path / "other"))
    assert left_out.n_subjects_ == 77


# ---- between organisations -----------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Any]:
    found: list[Parties] = []

    def make(name: str, tables: dict[str, pl.DataFrame] = TABLES, **more: Any) -> Parties:
        found.append(Parties(tmp_path / name, tables, **more))
        return found[-1]

    yield make
    for parties in found:
        parties.close()


def told(parties: Parties) -> list[bytes]:
    """All that left before anything was paid for, byte for byte."""
    early = (BeginReply, PresenceReply)
    plain = [
        replace(reply, salt=b"", signature=b"") if isinstance(reply, PresenceReply) else reply
        for _, _, reply in parties.replies
    ]
    return [encode(reply) for reply in plain if isinstance(reply, early)]


@pytest.mark.parametrize("method", METHODS)
def test_a_study_is_that_of_a_table_without_them(made: Any, method: str) -> None:
    """Recorded while the party runs: hashes, masks, counts, prices and results are those of the other table."""
    one, two = made("one"), made("two", without(TABLES, "right"))
    one.withdraw("right", *SPELLED)
    assert_same_study(one.fit(method), two.fit(method))
    assert told(one) == told(two)
    assert len(one.replies) == len(two.replies) > 0


def test_a_regression_on_raw_columns_is_that_of_a_table_without_them(made: Any) -> None:
    found = []
    for parties in (made("one", policy=RAW), made("two", without(TABLES, "right"), policy=RAW)):
        if not found:
            parties.withdraw("right", *GONE)
        begun = drive(begin_study(FEDERATION, "raw", "raw-glm"), parties)
        fit = VerticalGLM("binomial", penalty="lasso", n_strengths=3).fit_transport(
            parties, FEDERATION, study="raw", begun=begun
        )
        coefficients = {name: own.tolist() for name, own in fit.coef_.items()}
        found.append((coefficients, fit.intercept_, [e.n_subjects for e in parties.vaults["right"].ledger]))
    assert found[0] == found[1]


def test_the_study_that_has_begun_keeps_its_people_also_over_a_restart(made: Any) -> None:
    parties = made("one")
    drive(begin_study(FEDERATION, "early", "vcds", seed=5), parties)
    parties.withdraw("right", *GONE)
    parties.start()
    late = parties.fit("vcds", "late")
    assert late.ledger_ is not None
    early = parties.fit("vcds", "early")
    counts = {e.study: e.n_subjects for e in parties.vaults["right"].ledger}
    assert counts == {"late": 77, "early": 80}
    assert_same_study(early, made("two").fit("vcds", "early"))
    assert_same_study(late, made("three", without(TABLES, "right")).fit("vcds", "late"))


def test_a_study_begun_long_ago_is_not_run_with_people_who_withdrew_since(made: Any) -> None:
    """Its consent would be over. The reason says nothing of withdrawals, and another study can be begun."""
    now = [1_000_000.0]
    parties = made("one", **{name: {"clock": lambda: now[0]} for name in TABLES})
    for study in ("early", "late"):
        drive(begin_study(FEDERATION, study, "vcds", seed=5), parties)
    now[0] += 29 * SECONDS_PER_DAY
    parties.withdraw("right", *GONE)
    parties.fit("vcds", "early")
    now[0] += 2 * SECONDS_PER_DAY
    for restart in (False, True):
        if restart:
            parties.start()
        with pytest.raises(ProtocolError, match="has changed since this study was opened"):
            parties.fit("vcds", "late")
    parties.fit("vcds", "new")
    assert {e.study: e.n_subjects for e in parties.vaults["right"].ledger} == {"early": 80, "new": 77}


def test_who_is_taken_in_again_is_in_later_studies(made: Any) -> None:
    parties = made("one")
    parties.withdraw("right", *GONE)
    parties.fit("vcds", "without")
    Withdrawals(parties.folders["right"]).record("restored", GONE, "", "anna")
    parties.fit("vcds", "with")
    assert {e.study: e.n_subjects for e in parties.vaults["right"].ledger} == {"without": 77, "with": 80}


def test_a_lost_history_refuses_studies_and_tells_nobody_that_there_was_one(made: Any) -> None:
    parties = made("one")
    parties.withdraw("right", *GONE)
    parties.fit("vcds", "first")
    (parties.folders["right"] / WITHDRAWALS_FILE).unlink()
    with pytest.raises(ProtocolError, match="cannot read its table at the moment") as caught:
        parties.fit("vcds", "second")
    assert "withdr" not in str(caught.value)


@pytest.mark.parametrize("alignment", ["hash", "psi"])
def test_a_coordinator_cannot_compare_the_hashes_of_two_studies_to_see_who_is_gone(made: Any, alignment: Any) -> None:
    parties, lists = made("one"), []
    for study in ("before", "after"):
        opening = BeginRequest(study, "vcds", federation_fingerprint(FEDERATION), alignment, None, 0, "")
        reply = parties.members["right"].handle(opening)
        assert isinstance(reply, BeginReply)
        lists.append({row.tobytes() for row in reply.hashes})
        parties.withdraw("right", *GONE)
    assert [len(found) for found in lists] == [80, 77]
    assert lists[0].isdisjoint(lists[1])


def test_the_budget_stays_charged_to_the_people_of_the_table(made: Any) -> None:
    """Without some of its people it is the same table, and who withdrew is not forgotten."""
    parties = made("one")
    parties.fit("vcds", "first")
    parties.withdraw("right", *GONE)
    parties.fit("vcds", "second")
    assert len({e.table for e in parties.vaults["right"].ledger}) == 1
    alone = parties.vaults["right"].account([GONE[0]], {})
    assert alone.table in {e.table for e in parties.vaults["right"].ledger}


# ---- stewards ------------------------------------------------------------------------------------------


def test_a_steward_is_asked_again_where_people_withdrew_before_the_study_began(made: Any, tmp_path: Path) -> None:
    """The yes was to another table. Once the study has begun, it keeps its table, and nobody is asked again."""
    store, asks = RequestStore(tmp_path / "requests.db"), Policy(allow_seeded=True, review="everything")
    consent = StoredConsent("right", store, asks, "f")
    parties = made("one", policy=SEEDED, right={"policy": asks, "steward": consent})
    opening = BeginRequest("s", "vcds", federation_fingerprint(FEDERATION), "hash", None, 0, "")
    with pytest.raises(ConsentPending):
        parties.members["right"].handle(opening)
    (first,) = store.all("pending")
    store.decide(first.id, Steward("anna").decide(first, "yes"))
    parties.withdraw("right", *GONE)
    with pytest.raises(ConsentPending):
        parties.members["right"].handle(opening)
    assert store.get(first.id).state == "superseded"
    assert store.events(first.id)[-1].detail == "the table has changed"
    (second,) = store.all("pending")
    store.decide(second.id, Steward("anna").decide(second, "yes"))
    begun = parties.members["right"].handle(opening)
    assert isinstance(begun, BeginReply)
    assert begun.hashes.shape[0] == 77
    parties.withdraw("right", "person-00005")
    again = parties.members["right"].handle(opening)
    assert isinstance(again, BeginReply)
    assert again.hashes.shape[0] == 77
    assert len(store.all()) == 2


def test_a_withdrawal_of_somebody_who_is_not_in_the_table_changes_nothing(made: Any) -> None:
    parties = made("one")
    parties.fit("vcds", "first")
    before = parties.members["right"].current.snapshot
    parties.withdraw("right", "nobody here")
    parties.fit("vcds", "second")
    assert parties.members["right"].current.snapshot == before
    assert not parties.members["right"].current.has_new_withdrawals


def test_a_vault_of_before_has_no_history_and_loads(folder: Path, tmp_path: Path) -> None:
    assert not (folder / WITHDRAWALS_FILE).exists()
    shutil.copytree(folder, tmp_path / "copy")
    with Vault.open(tmp_path / "copy") as vault:
        assert vault.count_withdrawals() == 0
        assert vault.without_withdrawn(TABLES["right"], "subject_id") == (TABLES["right"], 0)
