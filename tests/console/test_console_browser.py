"""The steward's console in a real browser: by keyboard, on a phone, in the dark, without scripts, and under attack."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from reporting.made_up_kits import content, fill_vault, release
from tests.browsers import accessibility_faults
from tests.console.open_consoles import CAPS, some_studies, store_of
from tests.console.started_consoles import PATIENCE, StartedConsole, Visitor, other_site, started
from tests.console.test_steward_console import HOSTILE
from verticopula.network.kit.startup_kit import Kit
from verticopula.storage.steward_requests import LeavingEntry

PHONE = 390
PAGES = ("/", "/budget", "/history", "/audit")
LONG = "Donaudampfschifffahrtsgesellschaftskapitänswitwe" * 20


@pytest.fixture(scope="module")
def shared_kit(made_kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """A party's kit with releases, and with requests that are full of hostile words."""
    folder = tmp_path_factory.mktemp("shared") / "bank"
    shutil.copytree(made_kits / "bank", folder)
    kit = Kit.read(folder, "party")
    hostile = [
        release(words[:100].replace("\x1b", "").replace("\x07", ""), "turnover", 0.01, 171.0) for words in HOSTILE
    ]
    fill_vault(folder / "vault", [*some_studies(), *hostile], CAPS)
    return kit


@pytest.fixture
def shown(shared_kit: Kit) -> Iterator[StartedConsole]:
    """A console of that kit; every test has a token of its own."""
    with started(shared_kit.folder, "--steward", "anna") as console:
        yield console


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (PHONE, "dark"), (PHONE, "light"), (1100, "dark")])
def test_pages_fit_the_screen_and_can_be_read_by_everybody(
    browser: Browser, shown: StartedConsole, shared_kit: Kit, width: int, scheme: str
) -> None:
    """No serious fault by axe-core, which measures contrast, too; nothing wider than the screen."""
    store = store_of(shared_kit)
    plain = store.ask(content(f"fits-{width}-{scheme}"))
    words = HOSTILE[0]
    entry = LeavingEntry(LONG, "ranks", "noisy ranks", 10**9, LONG, "0.5 per comparison")
    hostile = store.ask(content(f"{LONG}-{width}-{scheme}", purpose=LONG, requester=words, leaves=(entry,)))
    with Visitor(browser, shown, width, scheme) as visitor:
        visitor.open("/login")
        assert accessibility_faults(visitor.page) == []
        visitor.log_in()
        for path in (*PAGES, f"/requests/{plain.id}", f"/requests/{hostile.id}"):
            visitor.open(path)
            visitor.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
            assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert accessibility_faults(visitor.page) == [], path
        assert visitor.complaints == []
        assert visitor.elsewhere == []
        ink = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ink == ("rgb(17, 20, 24)" if scheme == "dark" else "rgb(246, 247, 249)")


def test_hostile_words_run_nothing(browser: Browser, shown: StartedConsole, shared_kit: Kit) -> None:
    store = store_of(shared_kit)
    with Visitor(browser, shown, PHONE) as visitor:
        visitor.log_in()
        for words in HOSTILE:
            entry = LeavingEntry(words, "ranks", words, 5, words, words)
            said = content(words, requester=words, contact=words, purpose=words, use=words, lead=words, leaves=(entry,))
            request = store.ask(said)
            visitor.open(f"/requests/{request.id}")
            assert visitor.page.evaluate("document.documentElement.scrollWidth") <= PHONE
            assert visitor.page.locator("img, iframe, object, embed, main script").count() == 0
        for path in PAGES:
            visitor.open(path)
            assert visitor.page.evaluate("document.documentElement.scrollWidth") <= PHONE, path
            assert visitor.page.locator("img, iframe, object, embed, main script").count() == 0
        assert visitor.complaints == []
        assert visitor.elsewhere == []


def test_a_steward_decides_with_the_keyboard_alone(browser: Browser, shown: StartedConsole, shared_kit: Kit) -> None:
    store = store_of(shared_kit)
    request = store.ask(content("by-keyboard"))
    with Visitor(browser, shown) as visitor:
        page = visitor.page
        visitor.open("/login")
        wait_for_focus(visitor, "#token")  # by the page itself: the browser does it when it first draws
        page.keyboard.type(shown.token)
        page.keyboard.press("Enter")
        visitor.await_page("nav")
        page.keyboard.press("Tab")
        wait_for_focus(visitor, ".skip")
        page.keyboard.press("Enter")
        wait_for_focus(visitor, "#main")  # the browser moves the focus a moment later
        tab_to(visitor, f"a[href$='/requests/{request.id}']")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"  # it is seen
        page.keyboard.press("Enter")
        visitor.await_page("#read")
        tab_to(visitor, "#read")
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        page.keyboard.type("by keyboard")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Approve"
        page.keyboard.press("Enter")
        visitor.await_page("[role=status]")
        assert "Your yes is stored" in page.inner_text("[role=status]")
        assert visitor.complaints == []
    assert store.get(request.id).decisions[0].reason == "by keyboard"
    assert store.get(request.id).state == "approved"


def wait_for_focus(visitor: Visitor, selector: str) -> None:
    """Wait until the element has the focus: keys that are pressed before go nowhere."""
    visitor.page.wait_for_function("selector => document.activeElement?.matches(selector)", arg=selector)


def tab_to(visitor: Visitor, selector: str) -> None:
    """Press the tabulator until the element has the focus."""
    for _ in range(200):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached with the keyboard")


def test_everything_works_without_scripts(browser: Browser, shown: StartedConsole, shared_kit: Kit) -> None:
    store = store_of(shared_kit)
    request = store.ask(content("without-scripts"))
    with Visitor(browser, shown, scripts=False) as visitor:
        visitor.log_in()
        visitor.page.click(f"a[href$='/requests/{request.id}']")
        visitor.page.fill("#no-reason", "not this year")
        visitor.page.click("button.danger")
        visitor.page.wait_for_selector("[role=status]")
        with visitor.page.expect_download() as download:
            visitor.page.goto(shown.address + "/audit")
            visitor.page.click("a[href$='trail.zip']")
        assert download.value.suggested_filename.startswith("audit-trail-bank-")
        visitor.page.click("text=Log out")
        assert "logged out" in visitor.page.inner_text("[role=alert]")
        visitor.open("/")
        assert visitor.page.locator("#token").count() == 1
    assert store.get(request.id).state == "denied"


def test_a_new_request_appears_by_itself(browser: Browser, shown: StartedConsole, shared_kit: Kit) -> None:
    with Visitor(browser, shown) as visitor:
        visitor.log_in()
        visitor.page.evaluate("window.isTheSamePage = true")
        request = store_of(shared_kit).ask(content("by-itself"))
        visitor.page.wait_for_selector(f"a[href$='/requests/{request.id}']", timeout=PATIENCE)
        assert visitor.page.evaluate("window.isTheSamePage") is True
        assert visitor.complaints == []


def test_another_page_cannot_frame_it_send_its_forms_or_get_its_cookie(
    browser: Browser, shown: StartedConsole, shared_kit: Kit
) -> None:
    """The attacker serves pages from another port of this machine, which is the same site to a browser."""
    store = store_of(shared_kit)
    request = store.ask(content("attacked"))
    form = (
        f"<form id=f method=post action='{shown.address}/requests/{request.id}/approve'>"
        f"<input name=read value=yes><input name=digest value={request.digest}></form><script>f.submit()</script>"
    )
    fetching = (
        f"<script>fetch('{shown.address}/', {{credentials: 'include'}}).then(a => a.text())"
        ".then(t => { document.title = 'read ' + t.length; }, () => { document.title = 'refused'; })</script>"
    )
    pages = {"/frame": f"<iframe src='{shown.address}/'></iframe>", "/form": form, "/fetch": fetching}
    with other_site(pages) as (address, cookies), Visitor(browser, shown) as visitor:
        visitor.log_in()
        page = visitor.page
        page.goto(address + "/frame")
        inner = page.frames[1]
        assert inner.locator("nav").count() == 0
        assert inner.url != shown.address + "/" or inner.locator("body *").count() == 0
        page.goto(address + "/fetch")
        page.wait_for_function("document.title != ''")
        assert page.title() == "refused"
        page.goto(address + "/form")
        page.wait_for_url("**/approve")
        assert "does not come from the console" in page.inner_text("body")
        assert all("verticopula" not in cookie for cookie in cookies)
        visitor.open("/")  # the session is still there
        assert page.locator("nav").count() == 1
    assert store.get(request.id).decisions == ()


def test_the_terminal_shows_the_token_once_and_logs_never(browser: Browser, shared_kit: Kit) -> None:
    with started(shared_kit.folder) as console:
        with Visitor(browser, console) as visitor:
            visitor.log_in()
            visitor.open("/budget")
        assert console.said.count(console.token) == 1
        log = (shared_kit.folder / "console-log.txt").read_text()
        assert "logged in" in log
        assert "GET /budget 200" in log
        assert console.token not in log
        assert console.address.rpartition("/")[2] not in log
        assert (shared_kit.folder / "console-log.txt").stat().st_mode & 0o077 == 0
