"""The coordinator's process: it listens for parties and the study lead, and runs one study after the other."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from verticopula.errors import ProtocolError, SettingsError, VerticopulaError
from verticopula.network.control_messages import (
    LeadReply,
    LeadRequest,
    PartyState,
    Refusal,
    ResultFile,
    ResultReply,
    ResultRequest,
    ResumeRequest,
    StatusReply,
    StatusRequest,
    SubmitReply,
    SubmitRequest,
    Topic,
)
from verticopula.network.json_log import in_study
from verticopula.network.key_signing import certificate_authenticity
from verticopula.network.network_transport import NetworkTransport, PendingRequests
from verticopula.network.sanitizing import frames_of
from verticopula.network.sessions import Sessions
from verticopula.network.startup_kit import LEAD, Kit
from verticopula.network.study_records import StudyRecord, StudyStore
from verticopula.network.study_runner import check_deadline, check_study, check_wanted_rows, run_study
from verticopula.protocol.study_proposal import check_requester_and_purpose, federation_fingerprint
from verticopula.protocol.wire import decode, encode, kinds_of
from verticopula.storage.round_journal import Journal

logger = logging.getLogger(__name__)

_STOP = ""
_MOST_STUDIES_SHOWN = 100
_DISK_AGAIN = 1.0  # seconds


@dataclass
class Coordinator:
    """Sees releases, never data; holds no key of the parties."""

    kit: Kit
    folder: Path
    _queue: queue.Queue[str] = field(default_factory=queue.Queue)
    _waiting: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    _submitting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.federation = self.kit.federation
        self.records = StudyStore(self.folder)
        self.rounds = 0  # that were answered since the start; with `refusals` for metrics
        self.refusals: Counter[str] = Counter()
        self._sessions = Sessions(self.kit, self._on_message, self._on_session)
        self._pending = PendingRequests(self._sessions)

    def run(self) -> None:
        """Listen, go on with studies that a stop interrupted, and run what comes in, until `stop` is called."""
        self._sessions.start()
        for record in self.records.all():
            if record.state in ("queued", "running"):
                with in_study(record.study):
                    logger.info("going on with study %s", record.study)
                self._queue.put(record.study)
        while (study := self._queue.get()) != _STOP:
            self._run(self.records.get(study))
        self._sessions.stop()

    @property
    def sessions(self) -> Sessions:
        """Its connections, for metrics."""
        return self._sessions

    def stop(self) -> None:
        self._pending.close()
        self._queue.put(_STOP)

    # ---- studies --------------------------------------------------------------------------

    def waiting(self) -> Counter[str]:
        """How many studies wait for which party."""
        return Counter(name for _, names in list(self._waiting.values()) for name in names)

    def _run(self, record: StudyRecord) -> None:
        with in_study(record.study):
            self._run_journaled(record)

    def _run_journaled(self, record: StudyRecord) -> None:
        try:
            self.records.change(record.study, state="running", note="")
            with contextlib.closing(Journal(self.records.journal_path(record.study))) as journal:
                self._run_rounds(record, journal)
        except OSError as error:
            self._fail(record.study, 0, f"the coordinator's disk: {os.strerror(error.errno or 0)}")
        finally:
            self._waiting.pop(record.study, None)

    def _run_rounds(self, record: StudyRecord, journal: Journal) -> None:
        transport = NetworkTransport(self._pending, journal, record.deadline)
        transport.on_waiting = lambda number, names: self._waiting.__setitem__(record.study, (number, names))
        transport.on_kept = self._count_round
        try:
            authenticity = certificate_authenticity(self.kit) if record.needs_keys else None
            run_study(record, self.federation, transport, self.records, authenticity)
            self.records.change(record.study, state="done", rounds=transport.number, note="")
            journal.remove()
            # The study is over: what was sealed for the coordinator must not be opened again.
            self.records.compute_records(record.study).remove()
            logger.info("study %s is done", record.study)
        except VerticopulaError as error:
            if self._pending.closed:
                return  # still "running" on disk: the next start goes on with it
            self._fail(record.study, transport.number, str(error))
        except OSError:
            raise
        except Exception as error:
            logger.error("study %s: %s: %s", record.study, type(error).__name__, frames_of(error))
            note = f"internal error ({type(error).__name__}); see the coordinator's log"
            self._fail(record.study, transport.number, note)

    def _count_round(self) -> None:
        self.rounds += 1

    def _fail(self, study: str, rounds: int, note: str) -> None:
        logger.warning("study %s failed in round %d: %s", study, rounds, note)
        while not self._pending.closed:
            try:
                self.records.change(study, state="failed", rounds=rounds, note=note[:2_000])
                return
            except OSError as error:  # a full disk: until there is room, the lead goes on waiting
                logger.error("cannot write the record of study %s: %s", study, os.strerror(error.errno or 0))
                time.sleep(_DISK_AGAIN)

    # ---- messages --------------------------------------------------------------------------

    def _on_session(self, peer: str) -> None:
        if peer != LEAD:
            self._pending.on_session(peer)

    def _on_message(self, peer: str, topic: Topic, key: str, body: bytes) -> None:
        if peer != LEAD:
            self._pending.on_message(peer, topic, key, body)
            return
        if topic != "ask":
            raise ProtocolError("the study lead sends requests, not replies")
        try:
            reply = encode(self._reply_to(decode(body, kinds_of(LeadRequest))))
            self._sessions.send(LEAD, "answer", key, reply)
        except VerticopulaError as error:
            logger.warning("refused the study lead: %s", error)
            self.refusals[type(error).__name__] += 1
            self._sessions.send(LEAD, "refusal", key, encode(Refusal(type(error).__name__, str(error)[:2_000])))

    def _reply_to(self, request: LeadRequest) -> LeadReply:
        if isinstance(request, SubmitRequest):
            return self._submit(request)
        if isinstance(request, ResumeRequest):
            return self._resume(request)
        if isinstance(request, StatusRequest):
            return self._status()
        return self._result(request)

    def _submit(self, request: SubmitRequest) -> SubmitReply:
        if request.federation != federation_fingerprint(self.federation):
            raise SettingsError("the federation file is not the one that the coordinator's kit was made from")
        with self._submitting:
            for record in self.records.all():
                if record.token == request.token:  # the lead sent it again because our reply was lost
                    return SubmitReply(record.study)
            try:
                settings = json.loads(request.settings)
            except (ValueError, RecursionError):
                raise SettingsError("the study's settings cannot be read") from None
            check_study(self.federation, request.kind, settings, request.deadline, request.rows)
            check_wanted_rows(self.federation, request)
            check_requester_and_purpose(request.requester, request.purpose)  # as every party will
            record = StudyRecord.new(self.federation.name, request, settings, self.records.witnesses())
            self.records.save(record)
        self._queue.put(record.study)
        with in_study(record.study):
            logger.info("study %s: %s", record.study, record.method)
        return SubmitReply(record.study)

    def _resume(self, request: ResumeRequest) -> SubmitReply:
        check_deadline(request.deadline)
        with self._submitting:
            record = self.records.get(request.study)
            if record.state == "failed":
                self.records.change(record.study, state="queued", deadline=request.deadline, note="")
                self._queue.put(record.study)
        return SubmitReply(record.study)

    def _status(self) -> StatusReply:
        third = self.federation.network.compute
        names = [*(party.name for party in self.federation.parties), *([] if third is None else [third])]
        parties = tuple(PartyState(name, self._sessions.connected(name)) for name in names)
        studies = self.records.all()[-_MOST_STUDIES_SHOWN:]
        return StatusReply(parties, tuple(r.describe(*self._waiting.get(r.study, (0, ()))) for r in studies))

    def _result(self, request: ResultRequest) -> ResultReply:
        record = self.records.get(request.study)
        if record.state != "done":
            raise SettingsError(f"that study is {record.state}, not done")
        folder = self.records.result_folder(record.study)
        return ResultReply(
            tuple(
                ResultFile(path.relative_to(folder).as_posix(), np.frombuffer(path.read_bytes(), dtype=np.uint8))
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            )
        )
