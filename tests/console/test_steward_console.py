"""What a steward sees and does in the console, beside a process that holds the vault."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reporting.made_up_kits import content, fill_vault, release
from tests.console.open_consoles import CAPS, OpenConsole, active_parts, csrf_of, some_studies, store_of
from verticopula.console.budget_chart import draw_budget
from verticopula.console.budget_history import read_budgets
from verticopula.console.steward_pages import StewardPages
from verticopula.network.kit.certificate_expiry import days_left
from verticopula.network.kit.startup_kit import Kit
from verticopula.privacy.policy import Policy
from verticopula.privacy.release import spent_on
from verticopula.privacy.statement import format_epsilon, format_remaining, party_epsilons
from verticopula.schema.units import Unit
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import RequestContent, StewardRequest
from verticopula.storage.vault import Vault
from verticopula.storage.withdrawals import Withdrawals

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></textarea><svg onload=alert(1)>",
    "\u202egnp.exe\u2066",
    "\x1b[31mred\x1b[0m\x07",
    "{{ 7 * 7 }}{% raw %}",
    "A" * 10_000,
    "' onfocus='alert(1)",
)


def decide(console: OpenConsole, request: StewardRequest, verb: str, **fields: str) -> int:
    page = console.client.get(console.at(f"/requests/{request.id}")).text
    found = re.search('name="digest" value="([0-9a-f]+)"', page)
    digest = request.digest if found is None else found[1]
    form = {"csrf": csrf_of(page), "digest": digest, **fields}
    return int(console.client.post(console.at(f"/requests/{request.id}/{verb}"), data=form).status_code)


# ---- requests ----------------------------------------------------------------------------------


def test_a_new_federation_file_is_shown_with_all_that_changes_and_decided_about(
    inside: OpenConsole, filled_bank: Kit
) -> None:
    lines = ("Your column turnover, bounds: [0.0, 9.0]; it was [0.0, 5.0].", "Party <b>x</b> joins.")
    asked = RequestContent(
        "bank",
        "the federation file",
        "federation",
        proposal="ab" * 32,
        changes=lines,
        versions=(3, 4),
        authority="cd" * 32,
    )
    request = store_of(filled_bank).ask(asked)
    assert "to change the federation file from version 3 to 4" in inside.client.get(inside.at("/")).text
    page = inside.client.get(inside.at(f"/requests/{request.id}")).text
    for said in (
        lines[0],
        "from version 3 to version 4",
        "ab" * 32,
        "cd" * 32,
        "Studies that have begun end with the file",
    ):
        assert said in page, said
    assert "Party &lt;b&gt;x&lt;/b&gt; joins." in page
    assert "What leaves" not in page
    assert "I have read what changes in the federation file." in page
    assert decide(inside, request, "approve") == 409  # unread
    assert decide(inside, request, "approve", read="yes") == 303
    assert store_of(filled_bank).get(request.id).state == "approved"
    assert "until that file is in force" in inside.client.get(inside.at(f"/requests/{request.id}")).text
    assert "to change the federation file" in inside.client.get(inside.at("/history")).text


def test_a_decision_that_somebody_wrote_into_the_file_is_not_called_signed(
    inside: OpenConsole, filled_bank: Kit, tmp_path: Path
) -> None:
    anna, ben = (Steward.create(name, tmp_path / f"{name}.pem") for name in ("anna", "ben"))
    store, keys = store_of(filled_bank), {one.name: one.public_key for one in (anna, ben)}
    request = store.ask(replace(content(), approvals=2, stewards=keys))
    store.decide(request.id, anna.decide(request, "yes"))
    assert "signed</li>" in inside.client.get(inside.at(f"/requests/{request.id}")).text
    said = [*store.get(request.id).decisions, replace(anna.decide(request, "yes"), steward="ben")]
    with closing(sqlite3.connect(store.path)) as base, base:
        base.execute("UPDATE requests SET decisions = ?", (json.dumps([vars(one) for one in said]),))
    page = inside.client.get(inside.at(f"/requests/{request.id}")).text
    assert "NOT SIGNED by this steward&#39;s key: it counts for nothing" in page


def test_a_request_says_what_leaves_to_whom_and_what_it_tells_about_a_person(
    inside: OpenConsole, filled_bank: Kit
) -> None:
    request = store_of(filled_bank).ask(content())
    listed = inside.client.get(inside.at("/")).text
    assert request.id in listed
    assert "UTC. Its price is epsilon 130 per person." in " ".join(listed.split())
    page = inside.client.get(inside.at(f"/requests/{request.id}")).text
    for said in (
        *("Which sectors default more often?", "ada@agency.example", "A working paper", "Dr. Ada Lovelace"),
        *("turnover", "noisy ranks", "1,200", "sector", "1,180"),
        *("The coordinator gets it", "What it could tell about one person", "per person"),
        *("Left after", "0.25", "4,370", "which nobody has checked"),
    ):
        assert said in page, said


def test_a_yes_is_stored_and_said(inside: OpenConsole, filled_bank: Kit) -> None:
    store = store_of(filled_bank)
    request = store.ask(content())
    assert decide(inside, request, "approve", read="yes", reason="agreed in the  board") == 303
    after = store.get(request.id)
    assert after.state == "approved"
    assert [(one.steward, one.verdict, one.reason) for one in after.decisions] == [
        ("anna", "yes", "agreed in the board")
    ]
    page = inside.client.get(inside.at(f"/requests/{request.id}")).text
    assert "Your yes is stored" in page
    assert "Your yes is stored" not in inside.client.get(inside.at(f"/requests/{request.id}")).text  # once
    assert "Take the yes back" in page
    assert decide(inside, request, "withdraw", reason="a mistake") == 303
    assert store.get(request.id).state == "withdrawn"


def test_a_no_needs_a_reason_and_a_yes_that_it_was_read(inside: OpenConsole, filled_bank: Kit) -> None:
    store = store_of(filled_bank)
    request = store.ask(content())
    assert decide(inside, request, "deny") == 409
    assert decide(inside, request, "deny", reason="   ") == 409
    assert decide(inside, request, "approve") == 409
    assert store.get(request.id).decisions == ()
    assert decide(inside, request, "deny", reason="no purpose that we may serve") == 303
    assert store.get(request.id).state == "denied"
    assert decide(inside, request, "approve", read="yes") == 409  # one no is enough
    assert "no purpose that we may serve" in inside.client.get(inside.at(f"/requests/{request.id}")).text


def test_a_decision_is_about_what_was_on_the_page(inside: OpenConsole, filled_bank: Kit) -> None:
    store = store_of(filled_bank)
    shown, other = store.ask(content()), store.ask(content("another-study"))
    csrf = csrf_of(inside.client.get(inside.at("/")).text)
    form = {"csrf": csrf, "digest": shown.digest, "read": "yes"}
    answer = inside.client.post(inside.at(f"/requests/{other.id}/approve"), data=form)
    assert answer.status_code == 409
    assert "has changed since the page was made" in answer.text
    assert store.get(other.id).decisions == ()


def test_a_request_that_was_superseded_while_the_page_was_open_is_not_decided(
    inside: OpenConsole, filled_bank: Kit
) -> None:
    store = store_of(filled_bank)
    old = store.ask(content())
    new = store.ask(content(policy="another"))
    assert decide(inside, old, "approve", read="yes") == 409
    assert store.get(old.id).state == "superseded"
    assert store.get(new.id).state == "pending"


def test_two_stewards_approve_with_keys_of_their_own(filled_bank: Kit, tmp_path: Path) -> None:
    anna, bert = (Steward.create(name, tmp_path / f"{name}.pem") for name in ("anna", "bert"))
    keys = {one.name: one.public_key for one in (anna, bert)}
    store = store_of(filled_bank)
    request = store.ask(content(approvals=2, stewards=keys))
    consoles = {one.name: console_of(filled_bank, one) for one in (anna, bert)}
    assert decide(consoles["anna"], request, "approve", read="yes") == 303
    assert store.get(request.id).state == "pending"
    assert "1 yes of 2 given" in consoles["bert"].client.get(consoles["bert"].at(f"/requests/{request.id}")).text
    again = consoles["anna"].client.get(consoles["anna"].at(f"/requests/{request.id}")).text
    assert "has decided about request" in again  # and no second form
    assert decide(consoles["anna"], request, "approve", read="yes") == 409
    assert decide(consoles["bert"], request, "approve", read="yes") == 303
    after = store.get(request.id)
    assert after.state == "approved"
    assert all(one.signature for one in after.decisions)


def console_of(kit: Kit, steward: Steward) -> OpenConsole:
    found = OpenConsole(StewardPages(kit, kit.folder / "vault", steward))
    found.log_in()
    return found


@pytest.mark.parametrize("who", ["stranger", "anna"])
def test_without_the_right_key_nothing_is_decided(filled_bank: Kit, tmp_path: Path, who: str) -> None:
    named = Steward.create("anna", tmp_path / "anna.pem")
    wrong = Steward.create(who, tmp_path / "wrong.pem")
    request = store_of(filled_bank).ask(content(stewards={"anna": named.public_key}))
    for steward in (wrong, Steward(who)):
        console = console_of(filled_bank, steward)
        page = console.client.get(console.at(f"/requests/{request.id}")).text
        assert "I have read what leaves" not in page
        assert decide(console, request, "approve", read="yes") == 409
        assert decide(console, request, "deny", reason="no") == 409
    assert store_of(filled_bank).get(request.id).decisions == ()


def test_nobody_approves_what_they_asked_for(filled_bank: Kit) -> None:
    console = console_of(filled_bank, Steward("anna"))
    request = store_of(filled_bank).ask(content(requester="Anna"))
    assert decide(console, request, "approve", read="yes") == 409
    assert "somebody else has to approve it" in console.client.get(console.at(f"/requests/{request.id}")).text
    assert store_of(filled_bank).get(request.id).decisions == ()


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_are_shown_as_words(filled_bank: Kit, words: str) -> None:
    console = console_of(filled_bank, Steward("anna"))
    entry = replace(content().leaves[0], column=words)
    said = content(
        study=words, requester=words, contact=words, purpose=words, use=words, lead=words, method=words, leaves=(entry,)
    )
    request = store_of(filled_bank).ask(said)
    decide(console, request, "deny", reason=words[:500].replace("\x1b", "").replace("\x07", ""))
    for path in ("/", "/history", f"/requests/{request.id}"):
        answer = console.client.get(console.at(path))
        assert answer.status_code == 200
        page = answer.text
        assert active_parts(page) == []
        assert "49" not in re.sub(r"[0-9a-f]{8,}|\d\d:\d\d|\d{4}-\d\d-\d\d|[A-Za-z0-9_-]{16,}", "", page)
        assert not set(page) & set("\x1b\x07\u202e\u2066")
        assert len(page) < 60_000  # ten thousand letters are no name
    assert console.client.get(console.at("/budget")).status_code == 200


def test_a_damaged_store_is_said_and_nothing_is_decided(inside: OpenConsole, filled_bank: Kit) -> None:
    store = store_of(filled_bank)
    store.ask(content())
    store.path.write_bytes(b"no database, but long enough to look at" * 100)
    for name in ("-wal", "-shm"):
        store.path.with_name(store.path.name + name).unlink(missing_ok=True)
    answer = inside.client.get(inside.at("/"))
    assert answer.status_code == 409
    assert "damaged" in answer.text
    assert inside.client.get(inside.at("/budget")).status_code == 200  # the rest works


# ---- budget ------------------------------------------------------------------------------------


def test_pages_are_read_while_another_process_holds_the_vault(inside: OpenConsole, filled_bank: Kit) -> None:
    with Vault.open(filled_bank.folder / "vault") as vault:
        before = inside.client.get(inside.at("/history")).text
        assert "loans-autumn" in before
        vault.ledger.append([release("loans-winter", "turnover", 0.25, 200.0)])
        assert "loans-winter" in inside.client.get(inside.at("/history")).text
        assert inside.client.get(inside.at("/audit/trail.zip")).status_code == 200
    with Vault.open(filled_bank.folder / "vault"):  # looking has changed nothing
        pass


def test_spent_and_left_are_what_the_partys_policy_counts(filled_bank: Kit) -> None:
    (budget,) = read_budgets(filled_bank.folder / "vault", "bank")
    with Vault.open(filled_bank.folder / "vault") as vault:
        entries = list(vault.ledger)
    own = spent_on(entries, "bank", budget.names)
    counted = CAPS.count(own, own)
    for unit in Unit:
        standing = budget.now[unit]
        cap = getattr(CAPS.caps, unit.value)
        assert standing.cap == cap
        if cap is not None:
            assert standing.counted == getattr(counted, unit.value)
            assert standing.left == cap - standing.counted
    alone = party_epsilons(own, CAPS.delta)
    assert [budget.now[unit].spent for unit in (Unit.VARIABLE, Unit.CLIENT, Unit.BLOCK)] == [
        alone.variable,
        alone.client,
        alone.block,
    ]
    assert [point.study for point in budget.points] == ["", "loans-spring", "loans-summer", "loans-autumn"]
    assert [point.units[Unit.CLIENT].spent for point in budget.points] == [0.0, 1.0, 2.0, 3.0]


def test_what_the_policy_would_refuse_has_nothing_left(bank: Kit) -> None:
    """The same numbers on both sides: one release more than the page says is left is refused."""
    policy = Policy.from_rules({"caps.client": 2.0})
    fill_vault(bank.folder / "vault", [release("a", "turnover", 1.25, 1.0)], policy)
    (budget,) = read_budgets(bank.folder / "vault", "bank")
    left = budget.now[Unit.CLIENT].left
    assert left == 0.75
    with Vault.open(bank.folder / "vault") as vault:
        spent = list(vault.ledger)
    policy.check("bank", "refined", [release("b", "sector", left, 2.0)], spent)
    with pytest.raises(Exception, match="above its cap"):
        policy.check("bank", "refined", [release("b", "sector", left + 1e-6, 2.0)], spent)


def test_other_tables_with_the_same_people_count(bank: Kit) -> None:
    vault = bank.folder / "vault"
    first = fill_vault(vault, [release("a", "turnover", 1.0, 1.0)], CAPS)
    other = fill_vault(vault, [release("b", "turnover", 0.5, 2.0)], CAPS, people="somebody-else")
    assert first != other
    assert sorted(budget.now[Unit.CLIENT].spent for budget in read_budgets(vault, "bank")) == [0.5, 1.0]
    again = fill_vault(vault, [release("c", "turnover", 0.25, 3.0)], CAPS)
    spent = {budget.names: budget.now[Unit.CLIENT].spent for budget in read_budgets(vault, "bank")}
    assert spent == {again: 1.25, other: 0.5}


def test_releases_that_protect_nobody_are_infinite(bank: Kit) -> None:
    seeded = replace(release("a", "turnover", 0.5, 1.0), noise="seeded")
    fill_vault(bank.folder / "vault", [seeded], CAPS)
    (budget,) = read_budgets(bank.folder / "vault", "bank")
    assert {format_epsilon(standing.spent) for standing in budget.now.values()} == {"infinite"}
    assert budget.now[Unit.CLIENT].left == 0.0
    picture = draw_budget(budget.points, Unit.CLIENT, "p", datetime(2026, 6, 1, tzinfo=UTC))
    assert "nan" not in picture
    assert "inf " not in picture
    console = console_of(bank, Steward("anna"))
    assert "infinite" in console.client.get(console.at("/budget")).text


def test_rounding_never_understates_what_is_spent_or_overstates_what_is_left() -> None:
    for value in (1e-9, 0.0004567, 0.9996, 1.0, 3.14159, 99.99, 123.4, 9_999.9, 123_456.0):
        assert float(format_epsilon(value).replace(",", "")) >= value * (1 - 1e-12)
        assert float(format_remaining(value).replace(",", "")) <= value * (1 + 1e-9)
    assert format_remaining(0.0) == format_remaining(-1.0) == format_remaining(float("nan")) == "0"


def test_a_party_that_never_joined_has_pages_too(bank: Kit) -> None:
    console = console_of(bank, Steward("anna"))
    for path in ("/", "/budget", "/history"):
        assert console.client.get(console.at(path)).status_code == 200
    assert "nothing was ever released" in console.client.get(console.at("/budget")).text
    assert not (bank.folder / "vault").exists()


def test_an_altered_ledger_is_said_in_place_of_numbers(inside: OpenConsole, filled_bank: Kit) -> None:
    path = filled_bank.folder / "vault" / "ledger.jsonl"
    path.write_text(path.read_text().replace('"epsilon": 0.5', '"epsilon": 0.05', 1))
    for page in ("/budget", "/history"):
        answer = inside.client.get(inside.at(page))
        assert answer.status_code == 409
        assert "altered" in answer.text
    audit = inside.client.get(inside.at("/audit")).text
    assert "damaged" in audit
    assert inside.client.get(inside.at("/audit/trail.zip")).status_code == 409


def test_pictures_have_their_numbers_in_words_and_names_of_their_own(inside: OpenConsole) -> None:
    page = inside.client.get(inside.at("/budget")).text
    assert page.count('<svg class="budget"') == 4
    names = re.findall(r' id="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert "3 after 3 studies; the cap is 4, of which 1 is left." in page


def test_many_studies_make_a_picture_of_few_points_that_ends_with_now(bank: Kit) -> None:
    fill_vault(bank.folder / "vault", [release(f"s{k}", "turnover", 0.01, k) for k in range(120)], CAPS)
    (budget,) = read_budgets(bank.folder / "vault", "bank")
    assert len(budget.points) <= 41
    assert budget.points[-1].study == "s119"
    assert budget.now[Unit.CLIENT].spent == pytest.approx(1.2)


@pytest.mark.parametrize(("days", "said"), [(61.0, ""), (29.5, "ends in 29 days"), (-3.5, "ended 4 days ago")])
def test_a_certificate_that_ends_is_said_on_every_page(
    inside: OpenConsole, monkeypatch: pytest.MonkeyPatch, filled_bank: Kit, days: float, said: str
) -> None:
    now = datetime.now(UTC) + timedelta(days=days_left(filled_bank)["certificate"] - days)
    monkeypatch.setattr("verticopula.console.console_app.days_left", lambda kit: days_left(kit, now))
    page = inside.client.get(inside.at("/audit")).text
    assert (f"certificate {said}" in page) if said else ("Warning: " not in page)


def test_requests_come_in_by_themselves(inside: OpenConsole, filled_bank: Kit) -> None:
    assert "No request waits" in inside.client.get(inside.at("/")).text
    RequestStore.of_kit(filled_bank.folder).ask(content())
    page = inside.client.get(inside.at("/")).text
    assert "1 request." in page
    assert "data-live" in page
    assert some_studies()[0].study in inside.client.get(inside.at("/history")).text


def test_history_says_how_many_withdrew_and_not_who(filled_bank: Kit, inside: OpenConsole) -> None:
    page = inside.client.get(inside.at("/history")).text
    assert "leave out 0 people" in page
    known = Withdrawals(filled_bank.folder / "vault")
    known.record("withdrawn", ["person-3", "person-4"], "<b>by letter</b>", "anna")
    page = inside.client.get(inside.at("/history")).text
    assert "leave out 2 people" in page
    assert "&lt;b&gt;by letter" in page
    assert "person-3" not in page
    assert "1 withdrawal or return, chain intact" in inside.client.get(inside.at("/audit")).text
    (filled_bank.folder / "vault" / "withdrawals.jsonl").write_text("{}\n")
    assert "damaged" in inside.client.get(inside.at("/audit")).text
