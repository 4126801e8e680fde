"""The coordinator's process: it listens for parties and the study lead, and runs one study after the other."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError, VerticopulaError
from verticopula.network.connection.connection_state import describe_mismatch
from verticopula.network.connection.control_messages import (
    CancelRequest,
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
from verticopula.network.connection.flare_link import lead_of
from verticopula.network.connection.log_context import in_study
from verticopula.network.connection.message_parts import GIB, PartsRules
from verticopula.network.connection.part_messages import PartsNotice
from verticopula.network.connection.sanitizing import frames_of
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.coordinator.federation_rollout import FederationRollout
from verticopula.network.coordinator.network_transport import (
    NetworkTransport,
    PendingRequests,
    StewardsAsked,
    StudyCancelled,
)
from verticopula.network.coordinator.study_queue import STOPPED, StudyQueue
from verticopula.network.coordinator.study_records import OPEN_STATES, StudyRecord, StudyStore
from verticopula.network.coordinator.study_runner import check_deadline, check_study, check_wanted_rows, run_study
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.network.kit.signed_federation import members_of
from verticopula.network.kit.startup_kit import Kit
from verticopula.protocol.message_fields import kinds_of
from verticopula.protocol.message_files import Body
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.study_messages import CloseRequest
from verticopula.protocol.study_proposal import check_requester_and_purpose
from verticopula.protocol.wire import decode, encode
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import describe_federation
from verticopula.storage.round_journal import Journal

logger = logging.getLogger(__name__)

_PUT_IN_FORCE = " "  # in the queue of studies: everybody has agreed to the proposed federation file
_MOST_STUDIES_SHOWN = 100
_DISK_AGAIN = 1.0  # seconds
MESSAGES_FOLDER = "messages"  # below the folder of studies: what comes and goes in parts
_RECONNECT = 15.0  # seconds that parties have after a start: F3 pauses for up to 10 before it connects again


@dataclass
class Coordinator:
    """Sees releases, never data; holds no key of the parties."""

    kit: Kit
    folder: Path
    _waiting: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    _submitting: threading.Lock = field(default_factory=threading.Lock)
    _untold: dict[tuple[str, str], str] = field(default_factory=dict)  # party and key -> study that was cancelled

    def __post_init__(self) -> None:
        self.records = StudyStore(self.folder)
        self.rounds = 0  # that were answered since the start; with `refusals` for metrics
        self.refusals: Counter[str] = Counter()
        self._queue = StudyQueue(self._waiting_for_people)
        rules = PartsRules(self._admit_parts, self._on_progress, self._on_broken)
        self._sessions = PeerSessions(
            self.kit, self._on_message, self._on_session, parts=rules, folder=self.folder / MESSAGES_FOLDER
        )
        self._pending = PendingRequests(self._sessions, self._queue.add, self._refused)
        self._rollout = FederationRollout(
            self.kit, self._sessions, lambda: self._queue.add(_PUT_IN_FORCE), self._on_answer
        )
        if self._sessions.admission is not None:
            self._sessions.admission.coming = self._rollout.coming
        self._running = ""  # fingerprint of the federation file of the study that runs
        for record in self.records.all():
            if not record.federation and record.state not in ("done", "cancelled"):
                self.records.change(record.study, federation=self._rollout.files.fingerprint)
        self._use_peers()

    @property
    def federation(self) -> Federation:
        """What studies begin with."""
        return self._rollout.files.in_force

    def reload(self) -> None:
        """Look at once whether a signed federation file was put into the kit."""
        self._rollout.look()

    def run(self) -> None:
        """Listen, go on with studies that a stop interrupted, and run what comes in, until `stop` is called."""
        self._sessions.start()
        # It was this process that was away: no study fails because parties are still coming back.
        self._pending.deadlines_from = time.monotonic() + _RECONNECT
        self._rollout.start()
        for record in self.records.all():
            if record.state in OPEN_STATES:
                with in_study(record.study):
                    logger.info("going on with study %s", record.study)
                self._queue.add(record.study)
            elif record.state == "cancelled":
                self._tell_end(record.study)
        while (study := self._queue.take()) != STOPPED:
            if study == _PUT_IN_FORCE:
                self._put_in_force()
                continue
            record = self.records.get(study)
            if record.state in OPEN_STATES:
                self._run(record)
                self._use_peers()
        self._rollout.stop()
        self._sessions.stop()

    @property
    def sessions(self) -> PeerSessions:
        """Its connections, for metrics."""
        return self._sessions

    def _waiting_for_people(self) -> list[str]:
        return [record.study for record in self.records.all() if record.state == "waiting"]

    def stop(self) -> None:
        self._pending.close()
        self._queue.stop()

    # ---- studies --------------------------------------------------------------------------

    def waiting(self) -> Counter[str]:
        """How many studies wait for which party."""
        return Counter(name for _, names in list(self._waiting.values()) for name in names)

    def _run(self, record: StudyRecord) -> None:
        with in_study(record.study):
            federation = self._rollout.files.find(record.federation)
            if federation is None:
                self._wait_for_agreement(record)
                return
            self._running = record.federation
            self._run_journaled(record, federation)

    def _wait_for_agreement(self, record: StudyRecord) -> None:
        """Leave a study until its federation file is in force, or say why that will not be."""
        proposed = self._rollout.proposed
        if proposed is None or proposed.fingerprint != record.federation:
            note = f"its federation file is not in force; that is {self._rollout.files.description}: submit it again"
            self._fail(record.study, 0, note)
        elif refusal := self._rollout.refusal():
            note = f"{proposed.description} of the federation file is not agreed to: {refusal}"
            self._fail(record.study, 0, f"{note}; {self._rollout.files.description} stays in force")
        else:
            self._wait_for_people(record.study, 0, self._rollout.waits_for())

    def _run_journaled(self, record: StudyRecord, federation: Federation) -> None:
        try:
            with self._submitting:  # it may be cancelled at this moment
                if self.records.get(record.study).state not in OPEN_STATES:
                    return
                self.records.change(record.study, state="running", note="", stewards={})
            with contextlib.closing(Journal(self.records.journal_path(record.study))) as journal:
                self._run_rounds(record, federation, journal)
        except OSError as error:
            self._fail(record.study, 0, f"the coordinator's disk: {os.strerror(error.errno or 0)}")
        finally:
            self._waiting.pop(record.study, None)

    def _run_rounds(self, record: StudyRecord, federation: Federation, journal: Journal) -> None:
        transport = NetworkTransport(
            self._pending,
            journal,
            record.deadline,
            study=record.study,
            asking=record.asking,
            federation=federation,
            most_bytes=self.federation.network.message_gib * GIB,
        )
        transport.on_waiting = lambda number, names: self._waiting.__setitem__(record.study, (number, names))
        transport.on_kept = self._count_round
        try:
            authenticity = certificate_authenticity(self.kit) if record.needs_keys else None
            run_study(record, federation, transport, self.records, authenticity)
            self._write_state(record.study, state="done", rounds=transport.number, note="")
            journal.remove()
            self._sessions.parts.incoming.forget(record.study)
            # The study is over: what was sealed for the coordinator must not be opened again.
            self.records.compute_records(record.study).remove()
            logger.info("study %s is done", record.study)
        except StudyCancelled:
            logger.info("study %s was cancelled in round %d", record.study, transport.number)
        except StewardsAsked as error:
            self._wait_for_people(record.study, transport.number, error.since)
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

    def _wait_for_people(self, study: str, rounds: int, since: Mapping[str, float]) -> None:
        """Leave the study until its stewards have decided; others go on meanwhile, and no deadline runs."""
        logger.info("study %s waits for the stewards of %s", study, ", ".join(since))
        self._write_state(study, state="waiting", rounds=rounds, stewards=dict(since))

    def _fail(self, study: str, rounds: int, note: str) -> None:
        logger.warning("study %s failed in round %d: %s", study, rounds, note)
        self._write_state(study, state="failed", rounds=rounds, note=note[:2_000])

    def _write_state(self, study: str, **changes: Any) -> None:
        while not self._pending.closed:
            try:
                with self._submitting:
                    if self.records.get(study).state != "cancelled":
                        self.records.change(study, **changes)
                return
            except OSError as error:  # a full disk: until there is room, the lead goes on waiting
                logger.error("cannot write the record of study %s: %s", study, os.strerror(error.errno or 0))
                time.sleep(_DISK_AGAIN)

    # ---- the federation file ----------------------------------------------------------------

    def _put_in_force(self) -> None:
        """Everybody has agreed: studies begin with the proposed file from now on."""
        try:
            if not self._rollout.put_in_force():
                return
        except OSError as error:  # a full disk: nothing has changed yet
            logger.error("cannot write the federation file: %s", os.strerror(error.errno or 0))
            timer = threading.Timer(_DISK_AGAIN, self._queue.add, (_PUT_IN_FORCE,))
            timer.daemon = True
            timer.start()
            return
        self._use_peers()
        self._rollout.tell()
        self._on_answer()

    def _on_answer(self) -> None:
        """Look again at studies that wait for a federation file."""
        for record in self.records.all():
            if record.state == "waiting" and record.rounds == 0:
                self._queue.add(record.study)

    def _use_peers(self) -> None:
        """Talk to everybody in the federation file, and to those who left as long as a study of before needs them."""
        needed: set[str] = set()
        for record in self.records.all():
            if record.state in OPEN_STATES and record.federation != self._rollout.files.fingerprint:
                found = self._rollout.files.find(record.federation)
                needed |= set() if found is None else set(members_of(found))
        self._sessions.use(self.federation, frozenset(needed))

    # ---- messages --------------------------------------------------------------------------

    def _on_session(self, peer: str) -> None:
        if not self._lead_of(peer):
            self._rollout.on_session(peer)
            self._pending.on_session(peer)
            for (party, _), study in list(self._untold.items()):
                if party == peer:
                    self._tell_end(study)

    def _admit_parts(self, peer: str, key: str, notice: PartsNotice) -> int | None:
        if self._lead_of(peer):
            raise ProtocolError("a request of a study lead is never so long that it comes in parts")
        return self._pending.admit(peer, key, notice)

    def _on_progress(self, peer: str, key: str) -> None:
        self._pending.on_progress(peer, key)

    def _on_broken(self, peer: str, topic: Topic, key: str, reason: str) -> None:
        self._pending.on_broken(peer, topic, key, reason)

    def _on_message(self, peer: str, topic: Topic, key: str, body: Body) -> None:
        if not (lead := self._lead_of(peer)):
            if self._rollout.take(peer, topic, key, body):
                return
            if self._untold.pop((peer, key), None) is None:
                self._pending.on_message(peer, topic, key, body)
            return
        if topic != "ask":
            raise ProtocolError("the study lead sends requests, not replies")
        try:
            request = decode(body, kinds_of(LeadRequest))
            study = request.study if isinstance(request, ResultRequest) else ""
            reply = self._sessions.parts.pack(self._reply_to(lead, request))
            if not self._sessions.send(peer, "answer", key, reply, study):
                self._sessions.parts.throw_away(reply)
        except VerticopulaError as error:
            logger.warning("refused the study lead %s: %s", peer, error)
            self.refusals[type(error).__name__] += 1
            self._sessions.send(peer, "refusal", key, encode(Refusal(type(error).__name__, str(error)[:2_000])))

    def _lead_of(self, peer: str) -> str:
        """The name of the study lead that a peer is; "" for everybody else."""
        return lead_of(peer, self.federation.network.leads)

    def _reply_to(self, lead: str, request: LeadRequest) -> LeadReply:
        if isinstance(request, SubmitRequest):
            return self._submit(lead, request)
        if isinstance(request, StatusRequest):
            return self._status(lead)
        if self.records.get(request.study).lead != lead:  # other leads' studies are none of theirs
            raise SettingsError("no study of that name; `verticopula status` lists them")
        if isinstance(request, ResumeRequest):
            return self._resume(request)
        if isinstance(request, CancelRequest):
            return self._cancel(request)
        return self._result(request)

    def _submit(self, lead: str, request: SubmitRequest) -> SubmitReply:
        with self._submitting:
            for record in self.records.all():
                if (record.token, record.lead) == (
                    request.token,
                    lead,
                ):  # the lead sent it again because our reply was lost
                    return SubmitReply(record.study)
            federation = self._federation_for(request.federation)
            try:
                settings = json.loads(request.settings)
            except (ValueError, RecursionError):
                raise SettingsError("the study's settings cannot be read") from None
            check_study(federation, request.kind, settings, request.deadline, request.rows)
            check_wanted_rows(federation, request)
            said = () if request.asking is None else (request.asking.contact, request.asking.use)
            check_requester_and_purpose(request.requester, request.purpose, *said)  # as every party will
            if request.asking is not None and (request.asking.lead, request.asking.token) != (lead, request.token):
                raise SettingsError("the study is signed by another lead, or for another study")
            record = StudyRecord.new(federation.name, request, settings, self.records.witnesses(), lead)
            self.records.save(record)
        self._queue.add(record.study)
        with in_study(record.study):
            logger.info("study %s: %s", record.study, record.method)
        return SubmitReply(record.study)

    def _federation_for(self, fingerprint_asked: str) -> Federation:
        """The file of a new study: in force, or proposed and then it waits; SettingsError, with both, for any other."""
        proposed, files = self._rollout.proposed, self._rollout.files
        if fingerprint_asked == files.fingerprint:
            return files.in_force
        if proposed is not None and fingerprint_asked == proposed.fingerprint:
            return proposed.federation
        earlier, theirs = files.find(fingerprint_asked), f"another one ({fingerprint_asked[:12]})"
        if earlier is not None:
            theirs = describe_federation(earlier.version, fingerprint_asked)
        raise SettingsError(
            "the federation file is not the one that the coordinator's kit was made from: the coordinator's is "
            f"{files.description}, that of this study is {theirs}"
        )

    def _resume(self, request: ResumeRequest) -> SubmitReply:
        check_deadline(request.deadline)
        with self._submitting:
            record = self.records.get(request.study)
            if record.state == "failed":
                self.records.change(record.study, state="queued", deadline=request.deadline, note="")
                self._use_peers()
                self._queue.add(record.study)
            elif record.state == "cancelled":
                raise SettingsError("that study was cancelled; submit another one")
        return SubmitReply(record.study)

    def _cancel(self, request: CancelRequest) -> SubmitReply:
        """End a study that is not done. Parties are told, so that nobody is asked in vain."""
        check_requester_and_purpose("", request.reason)
        with self._submitting:
            record = self.records.get(request.study)
            if record.state == "done":
                raise SettingsError("that study is done; its result can be fetched")
            if record.state != "cancelled":
                note = f"cancelled{f': {request.reason}' if request.reason else ''}"
                self.records.change(record.study, state="cancelled", note=note, stewards={})
        self._pending.cancel(record.study)
        self._sessions.parts.incoming.forget(record.study)
        self._tell_end(record.study)
        logger.info("study %s was cancelled by its lead", record.study)
        return SubmitReply(record.study)

    def _tell_end(self, study: str) -> None:
        """Tell every party that nothing more is asked in a study; those who are away are told when they come back."""
        request = CloseRequest(study)
        key, body = fingerprint(request), encode(request)
        federation = self._rollout.files.find(self.records.get(study).federation) or self.federation
        for party in federation.parties:
            self._untold[(party.name, key)] = study
            self._sessions.send(party.name, "ask", key, body)

    def _status(self, lead: str) -> StatusReply:
        parties = tuple(self._state_of(name) for name in members_of(self.federation))
        studies = [record for record in self.records.all() if record.lead == lead][-_MOST_STUDIES_SHOWN:]
        return StatusReply(
            parties,
            tuple(r.describe(*self._waiting.get(r.study, (0, ()))) for r in studies),
            federation_version=self.federation.version,
            change=self._rollout.describe(),
        )

    def _state_of(self, name: str) -> PartyState:
        admission = self._sessions.admission
        said = None if admission is None else admission.introduced(name)
        version = 0 if said is None else said.federation_version
        return PartyState(name, self._sessions.connected(name), self._note(name), version)

    def _refused(self, name: str) -> str:
        """What keeps a party from taking part in the study that runs; with an earlier file it may have that one."""
        is_earlier = self._running != self._rollout.files.fingerprint
        return "" if is_earlier and self._sessions.connected(name) else self._note(name)

    def _note(self, name: str) -> str:
        """What keeps a party from taking part; empty if nothing is known."""
        admission = self._sessions.admission
        if admission is None:
            return ""
        if not self._sessions.connected(name):
            return admission.note(name)
        said = admission.introduced(name)
        if said is None or self._rollout.is_telling(name):
            return ""
        return describe_mismatch(said, admission.own, name)

    def _result(self, request: ResultRequest) -> ResultReply:
        record = self.records.get(request.study)
        if record.state != "done":
            raise SettingsError(f"that study is {record.state}, not done")
        folder = self.records.result_folder(record.study)
        return ResultReply(
            tuple(
                ResultFile(path.relative_to(folder).as_posix(), _content(path))
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            )
        )


def _content(path: Path) -> NDArray[np.uint8]:
    """A file's bytes, which are read when they are needed."""
    return np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.zeros(0, dtype=np.uint8)
