"""Stewards as a party's process asks them: what they decide counts, whoever was restarted, and nothing else does."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_consent_prompt import RANKS, question
from tests.unit.test_request_store import Clock
from verticopula.errors import ConsentPending, LedgerError, PolicyRefused, ProtocolError, SchemaError, SettingsError
from verticopula.network.party.stored_consent import StoredConsent
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.storage.record_store import MemoryRecords
from verticopula.storage.request_store import REQUESTS_FILE, RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import Verdict

ASKED = replace(question("vcds", [RANKS], []), table="t1", proposal="p1")
BEGINS = replace(question("vcds", [], []), table="t1")
REVIEW = Policy(review="everything")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Callable[..., StoredConsent]:
    """A party's process that was just started, on the same disk."""

    def start(policy: Policy | PolicyFile = REVIEW, **own: Any) -> StoredConsent:
        return StoredConsent("bank", RequestStore.of_kit(tmp_path, clock), policy, "f1", clock=clock, **own)

    return start


def decide(consent: StoredConsent, verdict: Verdict, by: Steward | None = None, reason: str = "") -> None:
    (request,) = consent.store.all("approved" if verdict == "withdrawn" else "pending")
    who = by or Steward("anna")
    consent.store.decide(request.id, who.decide(request, verdict, reason, consent.clock))


def is_pending(consent: StoredConsent, asked: ConsentQuestion = ASKED) -> bool:
    with pytest.raises(ConsentPending, match="its stewards were asked"):
        consent.request(asked)
    return True


@pytest.mark.parametrize(
    ("policy", "always", "begins", "releases"),
    [
        (Policy(), False, False, False),
        (Policy(review="releases"), False, False, True),
        (REVIEW, False, True, True),
        (Policy(), True, True, True),
    ],
)
def test_the_policy_says_what_is_asked(
    make: Callable[..., StoredConsent], policy: Policy, always: bool, begins: bool, releases: bool
) -> None:
    consent = make(policy, always=always)
    for asked, is_asked in ((BEGINS, begins), (ASKED, releases)):
        if is_asked:
            assert is_pending(consent, asked)
        else:
            consent.request(asked)
    assert len(consent.store.all()) == begins + releases


def test_a_yes_counts_after_a_restart_and_only_for_what_was_asked(make: Callable[..., StoredConsent]) -> None:
    assert is_pending(make())
    decide(make(), "yes")
    make().request(ASKED)
    assert is_pending(make(), replace(ASKED, proposed=(replace(RANKS, epsilon=9.0),)))


@pytest.mark.parametrize("change", [{"table": "t2"}, {"proposal": "p2"}, {"lead": "eve"}, {"use": "another"}])
def test_a_change_asks_again(make: Callable[..., StoredConsent], change: dict[str, str]) -> None:
    assert is_pending(make())
    decide(make(), "yes")
    make().request(ASKED)
    assert is_pending(make(), replace(ASKED, **change))


def test_a_policy_that_changed_asks_again(make: Callable[..., StoredConsent], tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('review = "releases"\n', "utf-8")
    consent = make(PolicyFile(path, "bank"))
    assert is_pending(consent)
    decide(consent, "yes")
    path.write_text('review = "releases"\n[caps]\nclient = 9.0\n', "utf-8")
    assert is_pending(consent)
    assert consent.store.events()[-2].detail == "the policy has changed"
    decide(consent, "yes")
    consent.request(ASKED)


def test_a_no_is_told_with_its_reason(make: Callable[..., StoredConsent]) -> None:
    assert is_pending(make())
    decide(make(), "no", reason="not\x1b[2J our purpose")
    with pytest.raises(PolicyRefused, match="its steward said no: not") as caught:
        make().request(ASKED)
    assert "\x1b" not in str(caught.value)


def test_a_steward_who_answers_after_a_week_and_one_who_never_does(
    make: Callable[..., StoredConsent], clock: Clock
) -> None:
    assert is_pending(make())
    clock.now += 7 * SECONDS_PER_DAY
    assert is_pending(make())
    assert len(make().store.all()) == 1
    decide(make(), "yes")
    make().request(ASKED)
    other = replace(ASKED, study="never")
    assert is_pending(make(), other)
    clock.now += 31 * SECONDS_PER_DAY
    assert is_pending(make(), other)  # asked anew: what nobody decided in time is over
    assert [one.state for one in make().store.all(study="never")] == ["expired", "pending"]
    assert is_pending(make())  # and so is a yes, for a party that has to consent once more


def test_a_clock_that_was_set_back_makes_no_old_yes_new(make: Callable[..., StoredConsent], clock: Clock) -> None:
    assert is_pending(make())
    decide(make(), "yes")
    clock.now += 31 * SECONDS_PER_DAY
    assert is_pending(make())
    clock.now -= 31 * SECONDS_PER_DAY
    assert is_pending(make())


def test_two_stewards_have_to_agree(make: Callable[..., StoredConsent], tmp_path: Path) -> None:
    anna, ben = (Steward.create(name, tmp_path / f"{name}.pem") for name in ("anna", "ben"))
    policy = Policy(review="releases", approvals=2, stewards={s.name: s.public_key for s in (anna, ben)})
    consent = make(policy)
    assert is_pending(consent)
    decide(consent, "yes", anna)
    assert is_pending(consent)
    with closing(sqlite3.connect(tmp_path / REQUESTS_FILE)) as base, base:  # whoever can write the file is no steward
        base.execute("UPDATE requests SET state = 'approved'")
    assert is_pending(consent)
    assert consent.decided_studies({ASKED.study}) == set()  # or it would be asked again and again
    with closing(sqlite3.connect(tmp_path / REQUESTS_FILE)) as base, base:
        base.execute("UPDATE requests SET state = 'pending'")
    decide(consent, "yes", ben)
    assert consent.decided_studies({ASKED.study}) == {ASKED.study}
    consent.request(ASKED)


@pytest.mark.parametrize("asker", [{"lead": "anna"}, {"requester": "Anna"}, {"contact": "anna@clinic.example"}])
def test_who_asked_cannot_put_their_own_yes_into_the_file(
    make: Callable[..., StoredConsent], tmp_path: Path, asker: dict[str, str]
) -> None:
    """With a key of their own, and by hand: the store would have refused it."""
    anna = Steward.create("anna", tmp_path / "anna.pem")
    consent = make(Policy(review="everything", stewards={"anna": anna.public_key}))
    asked = replace(ASKED, **asker)
    assert is_pending(consent, asked)
    (request,) = consent.store.all()
    with pytest.raises(SettingsError, match="asks for this study"):
        consent.store.decide(request.id, anna.decide(request, "yes", clock=consent.clock))
    said = json.dumps([asdict(anna.decide(request, "yes", clock=consent.clock))])
    with closing(sqlite3.connect(tmp_path / REQUESTS_FILE)) as base, base:
        base.execute("UPDATE requests SET state = 'approved', decisions = ?", (said,))
    assert is_pending(consent, asked)
    assert consent.store.get(request.id).used is None


def test_a_policy_needs_as_many_stewards_as_approvals() -> None:
    one = "ab" * 32
    for wrong in (
        {"approvals": 2},
        {"approvals": 2, "stewards": {"anna": one}},
        {"approvals": 2, "stewards": {"anna": one, "ben": one.upper()}},
        {"stewards": {"anna": "no key"}},
        {"approvals": 0},
        {"review": "sometimes"},
    ):
        with pytest.raises(SchemaError):
            Policy.model_validate(wrong)


def test_a_withdrawal_ends_the_study_here_also_where_the_store_is_lost(
    make: Callable[..., StoredConsent], tmp_path: Path
) -> None:
    records = MemoryRecords()
    consent = make(records=records)
    assert is_pending(consent)
    decide(consent, "yes")
    consent.request(ASKED)
    consent.check_standing(ASKED.study)
    decide(consent, "withdrawn")
    with pytest.raises(PolicyRefused, match="taken back their yes"):
        consent.request(ASKED)
    with pytest.raises(PolicyRefused, match="taken back their yes"):
        consent.check_standing(ASKED.study)
    consent.check_standing("another")
    assert consent.decided_studies({ASKED.study}) == {ASKED.study}
    assert consent.decided_studies(()) == set()
    for file in tmp_path.glob(f"{REQUESTS_FILE}*"):
        file.unlink()
    with pytest.raises(PolicyRefused, match="taken back their yes"):
        make(records=records).check_standing(ASKED.study)


def test_a_store_from_an_old_copy_is_noticed(make: Callable[..., StoredConsent], tmp_path: Path) -> None:
    records = MemoryRecords()
    consent = make(records=records)
    assert is_pending(consent)
    decide(consent, "yes")
    shutil.copy(tmp_path / REQUESTS_FILE, tmp_path / "copy")
    decide(consent, "withdrawn")
    consent.decided_studies(())
    shutil.copy(tmp_path / "copy", tmp_path / REQUESTS_FILE)
    with pytest.raises(LedgerError, match="put back from an old copy"):
        make(records=records)


def test_a_store_from_an_old_copy_is_noticed_by_a_process_that_runs(
    make: Callable[..., StoredConsent], tmp_path: Path
) -> None:
    records = MemoryRecords()
    consent = make(records=records)
    assert is_pending(consent)
    shutil.copy(tmp_path / REQUESTS_FILE, tmp_path / "copy")
    decide(consent, "no")
    consent.decided_studies(())
    shutil.copy(tmp_path / "copy", tmp_path / REQUESTS_FILE)
    for one in (consent, consent):  # the older history is not taken for the newest either
        with pytest.raises(LedgerError, match="put back from an old copy"):
            one.decided_studies(())


def test_a_study_that_is_closed_needs_no_decision(make: Callable[..., StoredConsent]) -> None:
    consent = make()
    assert is_pending(consent)
    consent.close("another")
    assert len(consent.store.all("pending")) == 1
    consent.close(ASKED.study)
    assert [one.state for one in consent.store.all()] == ["cancelled"]


def test_nobody_is_asked_without_end(make: Callable[..., StoredConsent]) -> None:
    consent = make(Policy(review="everything", open_studies=3))
    for number in range(3):
        assert is_pending(consent, replace(BEGINS, study=f"study-{number}"))
    with pytest.raises(ProtocolError, match="as its policy allows") as caught:
        consent.request(replace(BEGINS, study="one more"))
    assert not isinstance(caught.value, PolicyRefused)  # nobody's no
    assert is_pending(consent, replace(BEGINS, study="study-1"))
    for number in range(200):  # begun and closed, again and again: the file does not grow without end
        consent.close("study-0")
        try:
            consent.request(replace(BEGINS, study="study-0", table=f"t{number}"))
        except ConsentPending:
            continue
        except ProtocolError:
            break
    assert len(consent.store.all()) == 3 * 40


def test_prices_are_those_that_caps_count(make: Callable[..., StoredConsent]) -> None:
    consent = make(Policy(review="everything", caps=Caps(client=4.0, person=1.0)))
    spent = (replace(RANKS, study="earlier"),)
    assert is_pending(consent, replace(ASKED, spent=spent, people=spent))
    prices = {price.unit: price for price in consent.store.all()[0].content.prices}
    assert set(prices) == {"variable", "client", "block", "person"}
    client = prices["client"]
    assert (client.before, client.study, client.after) == (0.25, 0.25, 0.5)
    assert (client.cap, client.left_before, client.left_after) == (4.0, 3.75, 3.5)
    assert prices["variable"].cap is None
    assert prices["person"].left_after == 0.0
