"""The steward's pages: what is asked and decided, what was spent and is left, what happened, and the audit trail.

Everything is read beside a running `join`: the vault without its lock, requests from their store. A decision is the
only thing that these pages write. It goes into that store, signed with the steward's key where the policy names some.
"""

from __future__ import annotations

import hmac
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from verticopula.console.budget_chart import describe_budget, draw_budget
from verticopula.console.budget_history import TableBudget, read_budgets
from verticopula.console.page_interface import Download, Page, PageAnswer, PageRequest, PageRoute, Redirect
from verticopula.errors import LedgerError, SettingsError
from verticopula.formatting import format_small, format_time
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.operations.audit_trail import TRAIL_FOLDER, export_audit_trail, pack_audit_trail
from verticopula.network.operations.kit_process import running_pid
from verticopula.privacy.release import ALL_COLUMNS, Release
from verticopula.privacy.statement import format_epsilon, format_remaining, state_privacy
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.units import Unit
from verticopula.storage.request_sentences import (
    about_one_person,
    standing_sentence,
    to_whom,
    what_a_yes_means,
    what_changes,
    what_is_asked,
    what_leaves,
)
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward, is_signed
from verticopula.storage.steward_requests import (
    Decision,
    RequestContent,
    StewardRequest,
    UnitPrice,
    Verdict,
    check_may_decide,
)
from verticopula.storage.vault_files import is_vault, read_entries, read_withdrawals
from verticopula.storage.withdrawals import WithdrawalEvent, count_left_out

_MOST_LISTED = 200  # requests and studies on one page, the newest of them
_CHUNK = 2**16


@dataclass
class StewardPages:
    """The console of a party's kit.

    Attributes
    ----------
    vault : the party's vault, which `join` may be using
    steward : who decides here; without a key where the policy names no stewards, or none was given
    clock : the time of now
    """

    kit: Kit
    vault: Path
    steward: Steward
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self.title = f"Steward's console of {self.kit.name}"
        self.menu = {"/": "Requests", "/budget": "Budget", "/history": "History", "/audit": "Audit trail"}
        self._store = RequestStore.of_kit(self.kit.folder)

    def routes(self) -> list[PageRoute]:
        """Every address with what answers it."""
        return [
            PageRoute("GET", "/", self.show_requests),
            PageRoute("GET", "/requests/{request}", self.show_request),
            PageRoute("POST", "/requests/{request}/approve", lambda asked: self._decide(asked, "yes")),
            PageRoute("POST", "/requests/{request}/deny", lambda asked: self._decide(asked, "no")),
            PageRoute("POST", "/requests/{request}/withdraw", lambda asked: self._decide(asked, "withdrawn")),
            PageRoute("GET", "/budget", self.show_budget),
            PageRoute("GET", "/history", self.show_history),
            PageRoute("GET", "/audit", self.show_audit),
            PageRoute("GET", "/audit/trail.zip", self.download_audit),
        ]

    def close(self) -> None:
        """Nothing is held between requests."""

    # ---- requests -------------------------------------------------------------------------

    def show_requests(self, asked: PageRequest) -> PageAnswer:
        """What waits for a decision, and what was decided last."""
        found = self._store.all()
        pending = [_listed(request) for request in found if request.state == "pending"]
        decided = [_listed(request) for request in reversed(found) if request.state != "pending"]
        values = {
            "pending": pending,
            "decided": decided[:5],
            "running": running_pid(self.kit.folder) is not None,
            "steward": self.steward.name,
        }
        return Page("requests.html.j2", "Requests", values, live=True)

    def show_request(self, asked: PageRequest) -> PageAnswer:
        """One request: what leaves, to whom, what it could tell about one person, its price; and the decision.

        Of a new federation file everything that changes.
        """
        request = self._request(asked)
        content = request.content
        values = {
            "request": _listed(request),
            "content": content,
            "digest": request.digest,
            "changes": what_changes(content),
            "meaning": what_a_yes_means(content),
            "leaves": what_leaves(content),
            "entries": [_entry(entry) for entry in content.leaves],
            "receivers": to_whom(content),
            "person": about_one_person(content),
            "prices": [_price(price) for price in content.prices],
            "delta": format_small(content.delta) if content.delta else "",
            "standing": standing_sentence(request),
            "decisions": [_said(request, one) for one in request.decisions],
            "events": [
                _event(event.actor, event.what, event.detail, event.time) for event in self._store.events(request.id)
            ],
            "steward": self.steward.name,
            "hindrance": self._hindrance(request, "yes"),
            "no_hindrance": self._hindrance(request, "no"),
            "can_withdraw": request.state == "approved" and not self._hindrance(request, "withdrawn"),
        }
        return Page("request.html.j2", f"Request {request.id}", values)

    def _decide(self, asked: PageRequest, verdict: Verdict) -> PageAnswer:
        request = self._request(asked)
        reason = " ".join(asked.form.get("reason", "").split())
        # What is decided about is what was on the page, to the last letter: it is what the steward signs.
        if not hmac.compare_digest(asked.form.get("digest", "").encode(), request.digest.encode()):
            raise SettingsError("The request has changed since the page was made. Nothing was decided; read it again.")
        if verdict == "yes" and asked.form.get("read") != "yes":
            raise SettingsError("Tick that you have read what it is about. Nothing was decided.")
        if verdict == "no" and not reason:
            raise SettingsError("A no needs a reason: who asks is told. Nothing was decided.")
        if hindrance := self._hindrance(request, verdict):
            raise SettingsError(hindrance)
        after = self._store.decide(request.id, self.steward.decide(request, verdict, reason))
        said = {"yes": "Your yes is stored", "no": "Your no is stored", "withdrawn": "Your yes is taken back"}[verdict]
        asked.session.notice = f"{said}. {standing_sentence(after)}"
        return Redirect(f"/requests/{request.id}")

    def _hindrance(self, request: StewardRequest, verdict: Verdict) -> str:
        """Why this steward cannot say this here; "" where they can."""
        try:
            check_may_decide(request, self.steward.name, verdict)
        except SettingsError as error:
            return str(error)
        if request.content.stewards and self.steward.public_key != request.content.stewards[self.steward.name]:
            return (
                f"The policy asks for a signature of {self.steward.name}. Start the console with that steward's key "
                "(--steward and --key)."
            )
        return ""

    def _request(self, asked: PageRequest) -> StewardRequest:
        """The request that the address names in full; LookupError where there is none."""
        name = asked.named["request"]
        found = next((request for request in self._store.all() if request.id == name), None)
        if found is None:
            raise LookupError
        return found

    # ---- budget and history ---------------------------------------------------------------

    def show_budget(self, asked: PageRequest) -> PageAnswer:
        """Spent and remaining at every unit, now and over time."""
        budgets = read_budgets(self.vault, self.kit.name) if is_vault(self.vault) else []
        values = {"tables": [_table(budget, number, self.clock()) for number, budget in enumerate(budgets)]}
        return Page("budget.html.j2", "Budget", values)

    def show_history(self, asked: PageRequest) -> PageAnswer:
        """Every study that something was released in, every request with what became of it, and who withdrew."""
        entries = read_entries(self.vault) if is_vault(self.vault) else []
        studies: dict[str, list[Release]] = {}
        for entry in entries:
            studies.setdefault(entry.study, []).append(entry)
        found = list(reversed(self._store.all()))
        withdrawn = read_withdrawals(self.vault).events()
        values = {
            "studies": [_study(name, own) for name, own in reversed(studies.items())][:_MOST_LISTED],
            "requests": [_listed(request) for request in found][:_MOST_LISTED],
            "withdrawals": [_withdrawal(event) for event in reversed(withdrawn)][:_MOST_LISTED],
            "left_out": count_left_out(withdrawn),
            "more": max(len(studies), len(found), len(withdrawn)) > _MOST_LISTED,
        }
        return Page("history.html.j2", "History", values)

    # ---- audit trail ----------------------------------------------------------------------

    def show_audit(self, asked: PageRequest) -> PageAnswer:
        """Whether ledger and history are whole, and where to get them."""
        checks = [_checked("Ledger", lambda: _ends(len(read_entries(self.vault)), "release"))]
        checks.append(
            _checked("Withdrawals", lambda: _ends(len(read_withdrawals(self.vault).events()), "withdrawal or return"))
        )
        checks.append(_checked("Requests and decisions", lambda: _ends(self._store.verify()[0], "event")))
        return Page("audit.html.j2", "Audit trail", {"checks": checks, "folder": TRAIL_FOLDER, "kit": self.kit.folder})

    def download_audit(self, asked: PageRequest) -> PageAnswer:
        """The audit trail as one file."""
        day = self.clock().strftime("%Y-%m-%d")
        name = f"{TRAIL_FOLDER}-{self.kit.name}-{day}.zip"
        with tempfile.TemporaryDirectory(prefix="verticopula-") as folder:
            out = Path(folder) / TRAIL_FOLDER
            export_audit_trail(self.kit, self.vault, out)
            packed = Path(folder) / "trail.zip"
            pack_audit_trail(out, packed)
            file = packed.open("rb")  # it can be read although its name is gone
        size = os.fstat(file.fileno()).st_size

        def chunks() -> Iterator[bytes]:
            with file:
                while chunk := file.read(_CHUNK):
                    yield chunk

        return Download(name, chunks(), size)


def _listed(request: StewardRequest) -> dict[str, Any]:
    """A request as it stands in a list."""
    content = request.content
    return {
        "id": request.id,
        "study": content.study,
        "lead": content.lead,
        "purpose": content.purpose,
        "asks": what_is_asked(content),
        "is_study": content.stage != "federation",
        "method": content.method,
        "state": request.state,
        "asked": format_time(request.asked),
        "expires": format_time(request.expires),
        "yeses": len(request.yeses),
        "approvals": content.approvals,
        "price": _largest_price(content),
    }


def _largest_price(content: RequestContent) -> str:
    """The study's epsilon for a person, or at the largest unit that it has."""
    by_unit = {price.unit: price.study for price in content.prices}
    for unit in reversed(Unit):
        if unit.value in by_unit:
            return f"{format_epsilon(by_unit[unit.value])} per {unit.value}"
    return ""


def _entry(entry: Any) -> dict[str, Any]:
    column = "all your columns" if entry.column == ALL_COLUMNS else entry.column
    often = f", {entry.times} times" if entry.times > 1 else ""
    return {
        "column": column,
        "words": entry.words + often,
        "people": entry.people,
        "how": entry.how,
        "price": entry.price,
    }


def _price(price: UnitPrice) -> dict[str, Any]:
    """One unit's price, with what would be left of the cap; spent is rounded up, what is left down."""
    capped = price.cap is not None and price.left_before is not None and price.left_after is not None
    return {
        "unit": price.unit,
        "before": format_epsilon(price.before),
        "study": format_epsilon(price.study),
        "after": format_epsilon(price.after),
        "cap": f"{price.cap:,g}" if capped else "none",
        "left": format_remaining(price.left_after or 0.0) if capped else "–",
        "left_before": format_remaining(price.left_before or 0.0) if capped else "–",
    }


def _said(request: StewardRequest, decision: Decision) -> dict[str, str]:
    """One steward's decision; whoever can write the file could write that it is signed."""
    words = {"yes": "yes", "no": "no", "withdrawn": "took the yes back"}
    stewards, signed = request.content.stewards, "not signed"
    if stewards:
        is_good = is_signed(request, decision, stewards.get(decision.steward, ""))
        signed = "signed" if is_good else "NOT SIGNED by this steward's key: it counts for nothing"
    return {
        "steward": decision.steward,
        "verdict": words.get(decision.verdict, decision.verdict),
        "reason": decision.reason,
        "when": format_time(decision.when),
        "signed": signed,
    }


def _event(actor: str, what: str, detail: str, when: float) -> dict[str, str]:
    # What was asked has a digest as its detail, which says nothing to a reader.
    return {"actor": actor, "what": what, "detail": "" if what == "asked" else detail, "when": format_time(when)}


def _withdrawal(event: WithdrawalEvent) -> dict[str, Any]:
    what = {"withdrawn": "withdrew", "restored": "were taken in again"}[event.what]
    return {
        "when": format_time(event.time),
        "what": what,
        "people": event.people,
        "reason": event.reason,
        "by": event.by,
    }


def _study(name: str, entries: list[Release]) -> dict[str, Any]:
    """One study's releases in a line."""
    privacy = state_privacy(entries, DEFAULT_DELTA)
    columns = {entry.column for entry in entries if entry.column != ALL_COLUMNS}
    return {
        "name": name,
        "begun": entries[0].time,
        "ended": entries[-1].time,
        "releases": len(entries),
        "columns": len(columns),
        "people": max(entry.n_subjects for entry in entries),
        "units": [f"{format_epsilon(privacy.epsilon(unit))} per {unit.value}" for unit in Unit],
        "warnings": [warning.title for warning in privacy.study_warnings],
    }


def _table(budget: TableBudget, number: int, now: datetime) -> dict[str, Any]:
    """One table's budget as the page shows it."""
    units = []
    for unit, standing in budget.now.items():
        left = standing.left
        units.append(
            {
                "unit": unit.value,
                "meaning": unit.meaning,
                "spent": format_epsilon(standing.spent),
                "counted": format_epsilon(standing.counted),
                "cap": "none" if standing.cap is None else f"{standing.cap:,g}",
                "left": "–" if left is None else format_remaining(left),
                "is_low": standing.cap is not None and left is not None and left < 0.1 * standing.cap,
                "picture": draw_budget(budget.points, unit, f"p{number}-{unit.value}", now),
                "sentence": describe_budget(budget.points, unit),
            }
        )
    return {
        "names": "+".join(name[:6] for name in budget.names.split("+")),
        "columns": budget.columns,
        "has_policy": budget.policy is not None,
        "delta": format_small(budget.delta),
        "units": units,
        "points": [_point(point.time, point.study, point.units) for point in reversed(budget.points) if point.study],
    }


def _point(time: str, study: str, units: Mapping[Unit, Any]) -> dict[str, Any]:
    return {"time": time, "study": study, "counted": [format_epsilon(units[unit].counted) for unit in Unit]}


def _checked(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"name": name, "good": True, "said": check()}
    except LedgerError as error:
        return {"name": name, "good": False, "said": str(error)}


def _ends(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}, chain intact and complete"
