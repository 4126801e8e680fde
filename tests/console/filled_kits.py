"""Kits as a console finds them: a party with a vault, a history and requests, made without running a study."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from verticopula.console.console_app import ConsoleApp
from verticopula.console.console_pages import PageSet
from verticopula.console.login_sessions import LoginSessions
from verticopula.data.tables import EncodedColumn
from verticopula.network.provisioning import provision
from verticopula.network.startup_kit import Kit
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import remember_rules
from verticopula.privacy.release import Release
from verticopula.schema.federation import Federation
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_requests import LeavingEntry, RequestContent, UnitPrice
from verticopula.storage.vault import Vault

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
HOST = "127.0.0.1:8123"
FEDERATION = {
    "name": "loans",
    "response": "agency.default",
    "network": {"host": "localhost", "port": 8102},
    "party": [
        {
            "name": "bank",
            "column": [
                {"name": "turnover", "kind": "continuous", "bounds": [1, 1e9], "scale": "log"},
                {"name": "sector", "kind": "nominal", "categories": ["11", "21", "22"]},
            ],
        },
        {"name": "agency", "column": [{"name": "default", "kind": "binary"}]},
    ],
}


def make_kits(folder: Path) -> Path:
    """The kits of a bank and an agency."""
    provision(Federation.from_dict(FEDERATION), folder / "kits")
    return folder / "kits"


def release(study: str, column: str, epsilon: float, days: float, n_subjects: int = 1_200, **more: object) -> Release:
    """One release of ranks, so many days after the beginning."""
    time = (BEGIN + timedelta(days=days)).isoformat(timespec="seconds")
    entry = Release(
        time,
        study,
        "bank",
        column,
        "ranks",
        "noisy ranks",
        n_subjects,
        epsilon,
        epsilon,
        n_subjects - 1,
        "secure",
        "public",
    )
    return replace(entry, **more)  # type: ignore[arg-type]


def fill_vault(folder: Path, entries: list[Release], policy: Policy | None = None, people: str = "person") -> str:
    """A vault that knows one table, its policy and these releases; the table's name."""
    rng = np.random.default_rng(5)
    columns = {name: EncodedColumn(rng.standard_normal(60), np.ones(60, dtype=bool)) for name in ("turnover", "sector")}
    with Vault.open(folder) as vault:
        account = vault.account([f"{people}-{i}" for i in range(60)], columns)
        if policy is not None:
            remember_rules(vault.studies, account.table, policy.rules(), "bank.toml")
        vault.ledger.append(
            [replace(e, table=account.table, content=account.columns.get(e.column, "")) for e in entries]
        )
    return account.table


def some_studies() -> list[Release]:
    """Three studies over half a year."""
    return [
        release(f"loans-{name}", column, 0.5, days)
        for name, days in (("spring", 1.0), ("summer", 80.0), ("autumn", 170.0))
        for column in ("turnover", "sector")
    ]


CAPS = Policy.from_rules({"caps.client": 4.0, "caps.block": 5_000.0, "min_subjects": 100})


def content(study: str = "loans-winter", **more: object) -> RequestContent:
    """A request for releases as `join` makes one."""
    whole = RequestContent(
        "bank",
        study,
        "releases",
        lead="lead",
        requester="Dr. Ada Lovelace, Agency",
        contact="ada@agency.example",
        purpose="Which sectors default more often?",
        use="A working paper; tables stay at the agency.",
        method="refined",
        alignment="hash",
        proposal="p" * 64,
        leaves=(
            LeavingEntry("turnover", "ranks", "noisy ranks", 1_200, "flipped comparisons", "0.5 per comparison"),
            LeavingEntry("sector", "marginal", "noisy counts", 1_180, "Laplace noise", "0.5 per value"),
        ),
        prices=(
            UnitPrice("variable", 1.5, 0.5, 2.0),
            UnitPrice("client", 3.0, 0.75, 3.75, 4.0, 1.0, 0.25),
            UnitPrice("block", 410.0, 130.0, 540.0, 5_000.0, 4_500.0, 4_370.0),
            UnitPrice("person", 410.0, 130.0, 540.0),
        ),
        delta=1e-6,
        table="t" * 64,
        policy="q" * 64,
    )
    return replace(whole, **more)  # type: ignore[arg-type]


@dataclass
class OpenConsole:
    """A console in this process, and a client that speaks to it as a browser would."""

    pages: PageSet
    clock: list[float] = field(default_factory=lambda: [0.0])

    def __post_init__(self) -> None:
        self.sessions = LoginSessions(lambda: self.clock[0])
        self.app = ConsoleApp(self.pages, self.sessions, hosts=(HOST,))
        self.built = self.app.build()
        self.client = self.new_client()

    def new_client(self) -> TestClient:
        """A browser without cookies."""
        headers = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
        return TestClient(self.built, base_url=f"http://{HOST}", headers=headers, follow_redirects=False)

    def at(self, path: str) -> str:
        return f"{self.app.base}{path}"

    def log_in(self, client: TestClient | None = None) -> None:
        who = client or self.client
        form = {"csrf": csrf_of(who.get(self.at("/login")).text), "token": self.sessions.new_token()}
        assert who.post(self.at("/login"), data=form).status_code == 303

    def send(self, path: str, **fields: str) -> object:
        """A form of the session, as its page has it."""
        csrf = csrf_of(self.client.get(self.at("/")).text)
        return self.client.post(self.at(path), data={"csrf": csrf, **fields})


def csrf_of(page: str) -> str:
    found = re.search('name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


class _ActiveParts(HTMLParser):
    """Everything in a page that could run, load or send something, and is not the console's own."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        own = tag == "script" and (given.get("src") or "").endswith("/live.js")
        if tag in ("script", "img", "iframe", "object", "embed", "base", "style") and not own:
            self.found.append(tag)
        self.found += [f"{tag} {name}" for name in given if name.startswith("on") or name in ("style", "srcdoc")]
        self.found += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("href", "src", "action", "formaction") and not (value or "").startswith(("/", "#"))
        ]


def active_parts(page: str) -> list[str]:
    """What a browser would find in the page."""
    parser = _ActiveParts()
    parser.feed(page)
    return parser.found


def store_of(kit: Kit) -> RequestStore:
    return RequestStore.of_kit(kit.folder)
