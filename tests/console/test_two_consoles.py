"""The whole life of studies through two consoles in a real browser, between real processes with mutual TLS."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browsers import accessibility_faults
from tests.console.started_consoles import PATIENCE, Visitor, started
from tests.network.harness import LONG_DEADLINE, POLICY, Net, network, small_federation
from verticopula.network.operations.audit_trail import verify_audit_trail
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward

PHONE = 390


@dataclass
class Scene:
    """A lead with a wide screen, and a steward with a phone in the dark."""

    net: Net
    lead: Visitor
    steward: Visitor

    @property
    def store(self) -> RequestStore:
        return RequestStore.of_kit(self.net.kit("middle").folder)

    def submit(self, purpose: str) -> str:
        """The name of a study that the lead has submitted by the form."""
        page = self.lead.page
        self.lead.open("/new")
        page.fill("#requester", "Ada Lovelace, Agency")
        page.fill("#contact", "ada@agency.example")
        page.fill("#purpose", purpose)
        page.fill("#use", "a test")
        page.select_option("#method", "refined")
        page.fill("#epsilon", "8")
        page.click("text=Submit the study")
        page.wait_for_url(re.compile("/studies/"), timeout=PATIENCE)
        return page.url.rpartition("/")[2]

    def open_request(self, study: str, asks: str) -> None:
        """The steward's page of the study's next request, which appears by itself."""
        page = self.steward.page
        self.steward.open("/")
        page.locator(".requests > li", has_text=study).locator("a", has_text=asks).click(timeout=PATIENCE)
        page.wait_for_selector("#decide")
        page.wait_for_load_state("load")  # with its style sheet: without it a page may be wider than a phone

    def approve(self, study: str, asks: str) -> None:
        self.open_request(study, asks)
        page = self.steward.page
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
        assert accessibility_faults(page) == []
        page.check("#read")
        page.click("text=Approve >> visible=true >> nth=-1")
        expect(page.locator("[role=status]")).to_contain_text("Your yes is stored", timeout=PATIENCE)


@pytest.fixture(scope="module")
def scene(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three parties, one of which asks its steward, and two consoles that somebody is logged in to."""
    folder = tmp_path_factory.mktemp("studies")
    key = Steward.create("anna", folder / "anna.pem")
    policy = f'{POLICY}review = "everything"\n[stewards]\nanna = "{key.public_key}"\n'
    with ExitStack() as stack:
        net = stack.enter_context(
            network(folder, federation=small_federation(LONG_DEADLINE), policies={"middle": policy})
        )
        net.start_all()
        signing = ("--steward", "anna", "--key", str(folder / "anna.pem"))
        consoles = [
            stack.enter_context(started(net.folder / "kits" / "lead")),
            stack.enter_context(started(net.folder / "kits" / "middle", *signing)),
        ]
        lead = stack.enter_context(Visitor(browser, consoles[0]))
        steward = stack.enter_context(Visitor(browser, consoles[1], PHONE, "dark"))
        lead.log_in()
        expect(lead.page.locator(".tag", has_text=re.compile("^connected$"))).to_have_count(3, timeout=4 * PATIENCE)
        steward.log_in()
        yield Scene(net, lead, steward)
        assert lead.complaints == []
        assert steward.complaints == []
        assert lead.elsewhere == []
        assert steward.elsewhere == []


def test_a_study_is_submitted_approved_run_and_fetched(scene: Scene, tmp_path: Path) -> None:
    study = scene.submit("Which columns go together?")
    page = scene.lead.page
    expect(page.locator("[data-live]")).to_contain_text("the steward of middle since", timeout=PATIENCE)
    scene.approve(study, "to begin the study")
    scene.open_request(study, "to release")
    said = scene.steward.page.inner_text("main")
    for words in ("Ada Lovelace, Agency", "Which columns go together?", "ada@agency.example", "x2", "To whom"):
        assert words in said, words
    assert "lead" in scene.steward.page.inner_text("dl.facts:not(.theirs)")  # by certificate
    assert scene.net.ledger("middle") == []  # nothing before the yes
    scene.approve(study, "to release")
    expect(page.locator("h2 .tag")).to_have_text("done", timeout=4 * PATIENCE)  # without anybody's click
    assert accessibility_faults(page) == []
    page.click("text=Fetch report and tables")
    with page.expect_download(timeout=PATIENCE) as download:
        page.locator("a[download]", has_text=re.compile("^report.html$")).click(timeout=PATIENCE)
    saved = tmp_path / "report.html"
    download.value.save_as(saved)
    made = scene.net.result(study) / "report.html"
    assert saved.read_bytes() == made.read_bytes()
    assert page.locator("a[download]", has_text=re.compile("^synthetic/joined.csv$")).count() == 1

    steward = scene.steward.page
    scene.steward.open("/budget")
    assert "after 1 study" in steward.inner_text("main")
    scene.steward.open("/history")
    assert study in steward.inner_text("main")
    scene.steward.open("/audit")
    assert "damaged" not in steward.inner_text("main")
    with steward.expect_download() as trail:
        steward.click("a[href$='trail.zip']")
    trail.value.save_as(tmp_path / "trail.zip")
    with zipfile.ZipFile(tmp_path / "trail.zip") as archive:
        archive.extractall(tmp_path)
    verified = verify_audit_trail(tmp_path / "audit-trail")
    assert (verified.party, verified.releases) == ("middle", len(scene.net.ledger("middle")))
    assert (verified.decisions, verified.signed, verified.unasked) == (2, 2, 0)


def test_a_no_reaches_the_lead_with_its_reason_and_costs_nothing(scene: Scene) -> None:
    before = scene.net.ledger("middle")
    study = scene.submit("<script>alert('what for?')</script>")
    scene.open_request(study, "to begin the study")
    page = scene.steward.page
    assert "<script>alert('what for?')</script>" in page.inner_text("main")
    page.fill("#no-reason", "say what it is for")
    page.locator("button.danger").click()
    expect(page.locator("[role=status]")).to_contain_text("Your no is stored", timeout=PATIENCE)
    expect(scene.lead.page.locator("[data-live]")).to_contain_text("say what it is for", timeout=PATIENCE)
    assert scene.net.ledger("middle") == before


def test_a_study_that_the_lead_cancels_asks_nobody_any_more(scene: Scene) -> None:
    study = scene.submit("A question that nobody needs answered")
    scene.open_request(study, "to begin the study")
    page = scene.lead.page
    page.fill("#reason", "not needed")
    page.check("#sure")
    page.click("text=Cancel the study")
    expect(page.locator("[role=status]")).to_contain_text("is cancelled", timeout=PATIENCE)
    expect(page.locator("h2 .tag")).to_have_text("cancelled", timeout=PATIENCE)
    scene.steward.open("/")
    expect(scene.steward.page.locator("main")).to_contain_text("No request waits", timeout=PATIENCE)
    assert [request.state for request in scene.store.all(study=study)] == ["cancelled"]
