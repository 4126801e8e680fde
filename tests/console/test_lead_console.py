"""The study lead's console: forms, what a coordinator says, and files that it sent. The coordinator may lie."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.console.open_consoles import OpenConsole, active_parts, csrf_of
from tests.console.test_steward_console import HOSTILE
from verticopula.cli.lead_commands import submit
from verticopula.console.lead_pages import LeadPages
from verticopula.console.study_form import FORM_FIELDS
from verticopula.errors import PartyUnavailable, SettingsError
from verticopula.network.connection.control_messages import (
    PartyState,
    ResultFile,
    ResultReply,
    ResultRequest,
    StatusReply,
    StatusRequest,
    StudyState,
    SubmitReply,
    SubmitRequest,
)
from verticopula.network.kit.startup_kit import Kit

NOT_IN_A_FORM = {"federation", "out", "kit", "resume", "overwrite", "quiet", "wait"}
CALLED_OTHERWISE = {"condition": "conditions", "as_printed": "variant"}


@dataclass
class Coordinator:
    """Replies as a coordinator would, honest or not; whole studies have a real one."""

    studies: tuple[StudyState, ...] = ()
    files: tuple[ResultFile, ...] = ()
    refuse: Exception | None = None
    asked: list[Any] = field(default_factory=list)

    def ask(self, request: Any, seconds: float = 0.0, again: float = 0.0) -> Any:
        self.asked.append(request)
        if self.refuse is not None:
            raise self.refuse
        if isinstance(request, StatusRequest):
            return StatusReply((PartyState("bank", True), PartyState("agency", False)), self.studies)
        return ResultReply(self.files) if isinstance(request, ResultRequest) else SubmitReply("loans-0123abcd")

    def close(self) -> None:
        pass


@pytest.fixture
def lead(made_kits: Path, tmp_path: Path) -> Kit:
    shutil.copytree(made_kits / "lead", tmp_path / "lead")
    return Kit.read(tmp_path / "lead", "lead")


@pytest.fixture
def opened(lead: Kit, tmp_path: Path) -> Callable[..., tuple[OpenConsole, Coordinator]]:
    def build(**said: Any) -> tuple[OpenConsole, Coordinator]:
        pages, coordinator = LeadPages(lead, tmp_path / "studies"), Coordinator(**said)
        pages.link = coordinator  # type: ignore[assignment]
        console = OpenConsole(pages)
        console.log_in()
        return console, coordinator

    return build


def state(name: str = "loans-1", state: str = "done", **more: Any) -> StudyState:
    return StudyState(name, more.pop("method", "refined"), state, 4, more.pop("waiting", ()), more.pop("note", ""))  # type: ignore[arg-type]


# ---- the form ----------------------------------------------------------------------------------


def test_the_form_has_every_setting_of_submit() -> None:
    given = set(inspect.signature(submit).parameters) - NOT_IN_A_FORM
    assert {CALLED_OTHERWISE.get(name, name) for name in given} == {one.name for one in FORM_FIELDS}


def filled(console: OpenConsole, **more: str) -> dict[str, str]:
    page = console.client.get(console.at("/new")).text
    token = re.search('name="token" value="([0-9a-f]{32})"', page)
    assert token is not None
    return {"csrf": csrf_of(page), "token": token[1], "requester": "Ada", "purpose": "why not", **more}


def test_a_form_becomes_the_study_that_submit_would_ask_for(opened: Any) -> None:
    console, coordinator = opened()
    form = filled(console, method="strict", epsilon="2", delta="1e-6", unit="person", rows="500", alignment="psi")
    answer = console.client.post(console.at("/new"), data=form)
    assert answer.status_code == 303
    assert answer.headers["location"].endswith("/studies/loans-0123abcd")
    (request,) = [one for one in coordinator.asked if isinstance(one, SubmitRequest)]
    assert json.loads(request.settings) == {"method": "strict", "epsilon": 2.0, "delta": 1e-6, "unit": "person"}
    assert (request.rows, request.alignment, request.requester, request.purpose) == (500, "psi", "Ada", "why not")


def test_a_form_that_is_sent_twice_asks_for_one_study(opened: Any) -> None:
    console, coordinator = opened()
    form = filled(console)
    for _ in range(2):
        assert console.client.post(console.at("/new"), data=form).status_code == 303
    tokens = [one.token for one in coordinator.asked if isinstance(one, SubmitRequest)]
    assert tokens == [form["token"]] * 2
    assert filled(console)["token"] != form["token"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"epsilon": "much"}, "Epsilon expects a number"),
        ({"epsilon": "nan"}, "Epsilon expects a number"),
        ({"rows": "1.5"}, "Synthetic rows expects a whole number"),
        ({"rows": "9" * 5_000}, "Synthetic rows has more than"),
        ({"method": "magic"}, "Method is none of the choices"),
        ({"requester": " "}, "Who asks is needed"),
        ({"epsilon": "1", "epsilon_ranks": "1"}, "give either epsilon"),
        ({"token": "../../etc"}, "not one of this console"),
    ],
)
def test_what_is_wrong_with_a_form_is_said_in_it_and_nothing_is_lost(
    opened: Any, fields: dict[str, str], said: str
) -> None:
    console, coordinator = opened()
    answer = console.client.post(console.at("/new"), data={**filled(console, purpose="a long purpose"), **fields})
    assert answer.status_code == 409
    assert said in answer.text
    assert 'value="a long purpose"' in answer.text
    assert not any(isinstance(one, SubmitRequest) for one in coordinator.asked)


def test_what_the_coordinator_refuses_is_said_in_the_form(opened: Any) -> None:
    console, _ = opened(refuse=SettingsError("unit person needs a delta <b>now</b>"))
    answer = console.client.post(console.at("/new"), data=filled(console))
    assert answer.status_code == 409
    assert "needs a delta &lt;b&gt;now&lt;/b&gt;" in answer.text


@pytest.mark.parametrize("words", HOSTILE)
def test_what_was_typed_comes_back_as_words(opened: Any, words: str) -> None:
    console, _ = opened()
    form = filled(console, epsilon=words, purpose=words, requester=words, select=words)
    page = console.client.post(console.at("/new"), data=form).text
    assert active_parts(page) == []


# ---- what the coordinator says -----------------------------------------------------------------


def test_a_coordinator_that_does_not_answer_is_said(opened: Any) -> None:
    console, _ = opened(refuse=PartyUnavailable("the coordinator at localhost:8102 does not answer"))
    answer = console.client.get(console.at("/"))
    assert answer.status_code == 200
    assert "does not answer" in answer.text


def test_progress_says_the_round_and_who_is_waited_for(opened: Any) -> None:
    console, _ = opened(studies=(state("loans-1", "running", waiting=("bank",)),))
    for path in ("/", "/studies/loans-1"):
        page = console.client.get(console.at(path)).text
        assert "running" in page
        assert "bank" in page
        assert "data-live" in page
    assert "connected" in console.client.get(console.at("/")).text
    assert console.client.get(console.at("/studies/loans-2")).status_code == 404


@pytest.mark.parametrize("words", HOSTILE)
def test_names_and_notes_of_a_lying_coordinator_are_words(opened: Any, words: str) -> None:
    console, _ = opened(studies=(state(words, "failed", note=words, method=words, waiting=(words,)),))
    page = console.client.get(console.at("/")).text
    assert active_parts(page) == []
    if not re.fullmatch("A+", words):
        assert "/studies/" not in page  # no link to a name that no coordinator gives
    assert len(page) < 30_000


# ---- files -------------------------------------------------------------------------------------


def fill(folder: Path) -> Path:
    study = folder / "studies" / "loans-1"
    (study / "synthetic").mkdir(parents=True)
    (study / "report.html").write_text("<script>alert(1)</script>")
    (study / "synthetic" / "bank.csv").write_text("turnover\n1\n")
    (study / "notes.txt").write_text("the lead's own")
    return study


def test_files_are_saved_and_never_shown(opened: Any, tmp_path: Path) -> None:
    fill(tmp_path)
    console, _ = opened(studies=(state(),))
    page = console.client.get(console.at("/studies/loans-1")).text
    assert "report.html" in page
    assert "synthetic/bank.csv" in page
    assert "notes.txt" not in page
    for name in ("report.html", "synthetic/bank.csv"):
        answer = console.client.get(console.at(f"/studies/loans-1/files/{name}"))
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment; ")
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox; frame-ancestors 'none'"
        assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize(
    "name",
    [
        *("notes.txt", "../../lead/private-key.pem", "..%2F..%2Flead%2Fprivate-key.pem", "synthetic", "synthetic/"),
        *("/etc/passwd", "synthetic/../report.html", "./report.html", "report.html/", "report.html%00", "REPORT.HTML"),
    ],
)
def test_no_other_file_can_be_had(opened: Any, tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    console, _ = opened(studies=(state(),))
    answer = console.client.get(console.at(f"/studies/loans-1/files/{name}"))
    if answer.status_code == 200:  # the client itself has tidied up the address
        assert answer.content == b"<script>alert(1)</script>"
    else:
        assert answer.status_code == 404


@pytest.mark.parametrize("study", ["..", "../lead", "%2e%2e", ".", "loans-1%2f..", "x" * 300, "-rf"])
def test_no_other_folder_can_be_had(opened: Any, tmp_path: Path, study: str) -> None:
    fill(tmp_path)
    (tmp_path / "report.html").write_text("outside")
    console, _ = opened(studies=(state(),))
    for path in (f"/studies/{study}/files/report.html", f"/studies/{study}"):
        answer = console.client.get(console.at(path))
        assert answer.status_code == 404
        assert "outside" not in answer.text


def test_links_and_pipes_are_no_files(opened: Any, tmp_path: Path) -> None:
    study = fill(tmp_path)
    (study / "summary.txt").symlink_to(tmp_path / "lead" / "private-key.pem")
    os.mkfifo(study / "ledger.jsonl")
    (study / "diagnostics").symlink_to(tmp_path / "lead")
    shutil.copy(tmp_path / "lead" / "private-key.pem", tmp_path / "lead" / "margins.csv")
    (tmp_path / "studies" / "linked").symlink_to(study)
    console, _ = opened(studies=(state(), state("linked")))
    for name in ("summary.txt", "ledger.jsonl", "diagnostics/margins.csv"):
        answer = console.client.get(console.at(f"/studies/loans-1/files/{name}"))
        assert answer.status_code == 404
    assert console.client.get(console.at("/studies/linked/files/report.html")).status_code == 404
    assert "summary.txt" not in console.client.get(console.at("/studies/loans-1")).text


def test_fetching_takes_only_names_that_a_study_makes(opened: Any, tmp_path: Path) -> None:
    content = np.frombuffer(b"mine", dtype=np.uint8)
    console, _ = opened(studies=(state(),), files=(ResultFile("../lead/kit.toml", content),))
    before = (tmp_path / "lead" / "kit.toml").read_bytes()
    page = console.client.get(console.at("/studies/loans-1")).text
    assert "Fetch report and tables" in page
    answer = console.client.post(console.at("/studies/loans-1/fetch"), data={"csrf": csrf_of(page)})
    assert answer.status_code == 303
    while "being fetched" in (page := console.client.get(console.at("/studies/loans-1")).text):
        pass
    assert "a file whose name is none of this study&#39;s" in page
    assert (tmp_path / "lead" / "kit.toml").read_bytes() == before
    assert not (tmp_path / "studies").exists()
