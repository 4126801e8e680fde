"""Consoles as people start them: a process of their own, whose terminal shows an address and a token."""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page

PATIENCE = 180_000.0  # milliseconds that a busy machine may need for anything


@dataclass(frozen=True)
class StartedConsole:
    """What the terminal said."""

    address: str
    token: str
    said: str


@contextlib.contextmanager
def started(kit: Path, *options: str) -> Iterator[StartedConsole]:
    """A console of the kit, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "verticopula", "console", str(kit), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        said = "".join(lines)
        address, token = re.search(r"http://\S+", said), re.search(r"one login: (\S+)", said)
        assert address is not None, said
        assert token is not None, said
        yield StartedConsole(address[0].rstrip("/"), token[1], said)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@dataclass
class Visitor:
    """A browser's window, and everything that its pages complained of or asked for."""

    browser: Browser
    console: StartedConsole
    width: int = 1100
    scheme: str = "light"
    scripts: bool = True
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __enter__(self) -> Visitor:
        self.context: BrowserContext = self.browser.new_context(
            viewport={"width": self.width, "height": 844},
            color_scheme="dark" if self.scheme == "dark" else "light",
            java_script_enabled=self.scripts,
            accept_downloads=True,
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def open(self, path: str) -> None:
        self.page.goto(self.console.address + path)

    def log_in(self) -> None:
        self.open("/login")
        self.page.fill("#token", self.console.token)
        self.page.click("button")
        self.await_page("nav")

    def await_page(self, selector: str) -> None:
        """Wait for a page that shows the element, with its scripts and drawn."""
        self.page.wait_for_selector(selector)
        self.page.wait_for_load_state()

    @property
    def elsewhere(self) -> list[str]:
        """Addresses that are not the console's."""
        return [url for url in self.requests if not url.startswith(self.console.address)]


@contextlib.contextmanager
def other_site(pages: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Another program on this machine that serves pages; its address, and the cookies that it was sent."""
    cookies: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            body = pages.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", cookies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
