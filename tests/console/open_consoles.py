"""A console in this process over a made-up kit, and what a browser would find on its pages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from starlette.testclient import TestClient

from reporting.made_up_kits import COLUMNS, release
from verticopula.console.console_app import ConsoleApp
from verticopula.console.login_sessions import LoginSessions
from verticopula.console.page_interface import PageSet
from verticopula.network.kit.startup_kit import Kit
from verticopula.privacy.policy import Policy
from verticopula.privacy.release import Release
from verticopula.storage.request_store import RequestStore

HOST = "127.0.0.1:8123"
CAPS = Policy.from_rules({"caps.client": 4.0, "caps.block": 5_000.0, "min_subjects": 100})


def some_studies() -> list[Release]:
    """Three studies over half a year."""
    return [
        release(f"loans-{name}", column, 0.5, days)
        for name, days in (("spring", 1.0), ("summer", 80.0), ("autumn", 170.0))
        for column in COLUMNS
    ]


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
