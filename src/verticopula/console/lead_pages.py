"""The study lead's pages: submit a study, see how far it is and who is waited for, fetch and save what it made."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verticopula.console.lead_link import LeadLink
from verticopula.console.page_interface import Download, Page, PageAnswer, PageRequest, PageRoute, Redirect
from verticopula.console.study_form import FORM_FIELDS, read_study_form
from verticopula.errors import PartyUnavailable, SchemaError, SettingsError, VerticopulaError
from verticopula.formatting import format_time
from verticopula.network.connection.control_messages import (
    CancelRequest,
    ResultRequest,
    ResumeRequest,
    StatusReply,
    StatusRequest,
    StudyState,
)
from verticopula.network.coordinator.study_records import OPEN_STATES
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.lead.result_files import list_result, open_result, write_result
from verticopula.study.study_folder import LEDGER_FILE, file_names

_FRESH = 1.0  # seconds for which what the coordinator said is not asked for again
_FETCH_SECONDS, _FETCH_AGAIN = 3_600.0, 120.0
_CHUNK_BYTES = 2**18
_STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")  # as the coordinator names them
_TOKEN = re.compile("[0-9a-f]{32}")


@dataclass
class LeadPages:
    """The console of the study lead's kit.

    Attributes
    ----------
    out : where fetched studies are kept, one folder each
    """

    kit: Kit
    out: Path
    link: LeadLink = field(init=False)

    def __post_init__(self) -> None:
        self.title = f"Study lead's console of {self.kit.federation.name}"
        self.menu = {"/": "Studies", "/new": "New study"}
        self.link = LeadLink(self.kit)
        self._names = file_names(self.kit.federation)
        self._lock = threading.Lock()
        self._last: tuple[float, StatusReply] | None = None
        self._fetching: dict[str, str] = {}  # study -> "" while it is fetched, or why it could not be

    def routes(self) -> list[PageRoute]:
        """Every address with what answers it."""
        return [
            PageRoute("GET", "/", self.show_studies),
            PageRoute("GET", "/new", lambda asked: self._form({}, [])),
            PageRoute("POST", "/new", self.submit_study),
            PageRoute("GET", "/studies/{study}", self.show_study),
            PageRoute("POST", "/studies/{study}/resume", self.resume_study),
            PageRoute("POST", "/studies/{study}/cancel", self.cancel_study),
            PageRoute("POST", "/studies/{study}/fetch", self.fetch_study),
            PageRoute("GET", "/studies/{study}/files/{name:path}", self.download_file),
        ]

    def close(self) -> None:
        """Close the connection to the coordinator."""
        self.link.close()

    # ---- studies --------------------------------------------------------------------------

    def show_studies(self, asked: PageRequest) -> PageAnswer:
        """Who is connected, and how far every study is."""
        reply, trouble = self._status()
        known = [] if reply is None else list(reversed(reply.studies))
        here = [name for name in self._kept() if name not in {study.study for study in known}]
        values = {
            "trouble": trouble,
            "parties": [] if reply is None else reply.parties,
            "studies": [self._listed(study) for study in known],
            "kept": here,
        }
        return Page("studies.html.j2", "Studies", values, live=True)

    def show_study(self, asked: PageRequest) -> PageAnswer:
        """One study: its state, its round, who is waited for, and its files."""
        name = asked.named["study"]
        reply, trouble = self._status()
        found = next((study for study in (() if reply is None else reply.studies) if study.study == name), None)
        files = self._files(name)
        if found is None and not files and reply is not None:
            raise LookupError
        values = {
            "name": name,
            "trouble": trouble,
            "study": None if found is None else self._listed(found),
            "files": files,
            "folder": self.out / name,
            "fetching": self._fetching.get(name) == "",
            "fetch_trouble": self._fetching.get(name) or "",
        }
        return Page("study.html.j2", f"Study {name}", values, live=True)

    def submit_study(self, asked: PageRequest) -> PageAnswer:
        """Send the study to the coordinator; what is wrong with the form is shown in it."""
        if not _TOKEN.fullmatch(asked.form.get("token", "")):
            return self._form(asked.form, ["The form is not one of this console's. Try again."])
        try:
            request = read_study_form(asked.form).to_request(self.kit)
            name = self.link.ask(request, seconds=30.0).study
        except SchemaError as error:
            return self._form(asked.form, [f"{problem.where} {problem.what}." for problem in error.problems])
        except VerticopulaError as error:
            return self._form(asked.form, [str(error)])
        self._last = None
        asked.session.notice = "The study is submitted. It goes on whether or not this page is open."
        return Redirect(f"/studies/{_study_name(name)}")

    def resume_study(self, asked: PageRequest) -> PageAnswer:
        """Go on with a study that has failed."""
        name = self._known(asked)
        self.link.ask(ResumeRequest(name, float(self.kit.federation.network.deadline)), seconds=30.0)
        self._last = None
        asked.session.notice = "The study goes on."
        return Redirect(f"/studies/{name}")

    def cancel_study(self, asked: PageRequest) -> PageAnswer:
        """End a study that is not done."""
        name = self._known(asked)
        if asked.form.get("sure") != "yes":
            raise SettingsError("Tick that the study shall end. Nothing was done.")
        reason = " ".join(asked.form.get("reason", "").split())
        self.link.ask(CancelRequest(name, reason), seconds=30.0)
        self._last = None
        asked.session.notice = "The study is cancelled. What was released by then stays released, and charged."
        return Redirect(f"/studies/{name}")

    def fetch_study(self, asked: PageRequest) -> PageAnswer:
        """Begin to fetch what a study has made; it goes on without the page."""
        name = self._known(asked)
        with self._lock:
            if self._fetching.get(name) != "":
                self._fetching[name] = ""
                threading.Thread(target=self._fetch, args=(name,), name="fetch", daemon=True).start()
        return Redirect(f"/studies/{name}")

    def _fetch(self, name: str) -> None:
        try:
            result = self.link.ask(ResultRequest(name), _FETCH_SECONDS, _FETCH_AGAIN)
            write_result(result, self.out / name, self._names, keep=(LEDGER_FILE,))
        except VerticopulaError as error:
            self._fetching[name] = str(error)
        except Exception as error:
            self._fetching[name] = f"the files could not be written ({type(error).__name__})"
        else:
            self._fetching.pop(name, None)

    def download_file(self, asked: PageRequest) -> PageAnswer:
        """One file that a study made; LookupError for every other name."""
        name, wanted = asked.named["study"], asked.named["name"]
        if not _STUDY.fullmatch(name) or wanted not in self._names:
            raise LookupError
        file = open_result(self.out / name, wanted)
        size = os.fstat(file.fileno()).st_size

        def chunks() -> Iterator[bytes]:
            with file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk

        return Download(f"{name}-{wanted.replace('/', '-')}", chunks(), size)

    # ---- parts of pages -------------------------------------------------------------------

    def _form(self, typed: Any, problems: list[str]) -> Page:
        token = typed.get("token", "")
        values = {
            "fields": FORM_FIELDS,
            "typed": {one.name: typed.get(one.name, "") for one in FORM_FIELDS},
            "problems": problems,
            # The same token again is the same study: a form that is sent twice starts one.
            "token": token if _TOKEN.fullmatch(token) else secrets.token_hex(16),
            "rare_open": any(typed.get(one.name) for one in FORM_FIELDS if one.rare and one.kind != "choice"),
        }
        return Page("new_study.html.j2", "New study", values, 409 if problems else 200)

    def _listed(self, study: StudyState) -> dict[str, Any]:
        since = {wait.party: format_time(wait.since) for wait in study.stewards}
        return {
            "name": study.study,
            "method": study.method,
            "state": study.state,
            "round": study.rounds,
            "waiting": [{"name": name, "since": since.get(name, "")} for name in study.waiting_for],
            "is_open": study.state in OPEN_STATES,
            "note": study.note,
            "is_link": _STUDY.fullmatch(study.study) is not None,
            "is_here": bool(self._files(study.study)),
        }

    def _files(self, study: str) -> list[dict[str, Any]]:
        """The study's files on this machine."""
        if not _STUDY.fullmatch(study):
            return []
        return [{"name": name, "size": _size(size)} for name, size in list_result(self.out / study, self._names)]

    def _kept(self) -> list[str]:
        """Studies that are on this machine."""
        if not self.out.is_dir():
            return []
        return sorted(path.name for path in self.out.iterdir() if self._files(path.name))

    def _known(self, asked: PageRequest) -> str:
        return _study_name(asked.named["study"])

    def _status(self) -> tuple[StatusReply | None, str]:
        """What the coordinator says, or why it says nothing."""
        with self._lock:
            if self._last is not None and time.monotonic() - self._last[0] < _FRESH:
                return self._last[1], ""
        try:
            reply: StatusReply = self.link.ask(StatusRequest())
        except PartyUnavailable as error:
            return None, str(error)
        with self._lock:
            self._last = (time.monotonic(), reply)
        return reply, ""


def _study_name(name: str) -> str:
    """The name, if it is one that a coordinator gives; LookupError otherwise."""
    if not _STUDY.fullmatch(name):
        raise LookupError
    return name


def _size(n_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"
