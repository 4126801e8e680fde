"""A party's process: it connects to the coordinator, and answers its requests one after the other.

Where stewards have to decide first, it says so and remembers nothing but whose request it was: the question is on disk,
and the coordinator sends the request again once it is told that they have decided.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verticopula import errors
from verticopula.errors import ConsentPending, ProtocolError, VerticopulaError
from verticopula.network.connection.control_messages import CHANGE_NAME, ChangeRequest, InProgress, Refusal, Topic
from verticopula.network.connection.log_context import in_study
from verticopula.network.connection.message_parts import GIB, PartsRules
from verticopula.network.connection.part_messages import PartsNotice
from verticopula.network.connection.sanitizing import frames_of
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.party.party_federations import FederationVersions
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.message_files import Body
from verticopula.protocol.message_sizes import most_message_bytes
from verticopula.protocol.messages import REQUEST_KINDS, fingerprint
from verticopula.protocol.study_messages import BeginRequest, CloseRequest
from verticopula.protocol.wire import decode, encode
from verticopula.schema.defaults import COORDINATOR
from verticopula.transport.delivery import RequestHandler

logger = logging.getLogger(__name__)

Waiting = tuple[str, Body]  # key and body of a request

_STOP: Waiting = ("", b"")
_QUESTIONS = (BeginRequest, ConsentRequest, ChangeRequest)  # what a steward may be asked about
_MOST_OPEN = 16  # requests at a time; a coordinator has one, or a few after its studies failed
_MOST_QUESTIONS = 8  # of them: pricing a study takes a while, and leaves room for everything else
_MOST_PARTS = 2  # as long as so many parts of a long one all requests that wait may be together, in memory
_MOST_UNDECIDED = 1000
_LOOK_FOR_DECISIONS = 0.5  # seconds


@dataclass
class PartyProcess:
    """A party on its machine: answers the coordinator with its `Member`, one for each version of the federation file.

    Attributes
    ----------
    decided_studies : of the studies that wait for stewards, those about which they have decided by now
    subjects_of : how many people a study has, as far as this party knows: from it follows how long a request may be. 0
        where it cannot tell, None for a study that has not begun here
    messages : the folder for what comes and goes in parts; None for one in the kit
    """

    kit: Kit
    member: RequestHandler
    decided_studies: Callable[[Collection[str]], Collection[str]] = lambda waiting: ()
    subjects_of: Callable[[str], int | None] = lambda study: 0
    messages: Path | None = None

    def __post_init__(self) -> None:
        self._requests: queue.Queue[Waiting] = queue.Queue()
        self._questions: queue.Queue[Waiting] = queue.Queue()
        self._open: dict[str, int] = {}  # key -> bytes of the request in memory
        self._asked: set[str] = set()  # keys of those in `_questions`
        self._undecided: dict[str, str] = {}  # key -> study whose stewards have to decide
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.refusals: Counter[str] = Counter()  # by the kind of error, for metrics
        rules = PartsRules(self._admit, on_broken=self._on_broken)
        folder = self.messages or self.kit.folder / "messages"
        self._sessions = PeerSessions(self.kit, self._on_message, parts=rules, folder=folder)
        if isinstance(self.member, FederationVersions):
            self.member.federations.on_change = self._sessions.use

    def reload(self) -> None:
        """Read the table again now; the policy is read at every request anyway."""
        if isinstance(self.member, FederationVersions):
            self.member.refresh()

    @property
    def sessions(self) -> PeerSessions:
        """Its connection, for metrics."""
        return self._sessions

    @property
    def questions(self) -> int:
        """How many requests wait for a steward, or for the computation before it."""
        with self._lock:
            return len(self._asked)

    def run(self) -> None:
        """Answer until `stop` is called."""
        self._sessions.start()
        threading.Thread(target=self._answer, args=(self._questions,), name="questions", daemon=True).start()
        threading.Thread(target=self._watch_decisions, name="decisions", daemon=True).start()
        self._answer(self._requests)
        self._sessions.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._requests.put(_STOP)
        self._questions.put(_STOP)

    def _answer(self, requests: queue.Queue[Waiting]) -> None:
        """Answer these requests one after the other."""
        while (request := requests.get()) != _STOP:
            key, body = request
            topic, reply, study = self._reply_to(key, body)
            with self._lock:
                del self._open[key]
                self._asked.discard(key)
            # Without a connection the reply is not lost: the same request gets the same reply again.
            self._send(topic, key, reply, study)
            if topic == "working":  # after it was said: who is told of a decision first would wait for it for ever
                self._remember_undecided(key, _study_of(body))
            # A long request is needed until then: a process that is started again reads it from its file.
            self._sessions.parts.give_back(body)

    def _send(self, topic: Topic, key: str, reply: Body, study: str) -> None:
        """Send a reply; a refusal in its place where the coordinator cannot take it."""
        is_sent = False
        try:
            is_sent = self._sessions.send(COORDINATOR, topic, key, reply, study)
        except VerticopulaError as error:
            logger.warning("not sent: %s", error)
            refusal = Refusal(type(error).__name__, f"party {self.kit.name!r}: {error}")
            self._sessions.send(COORDINATOR, "refusal", key, encode(refusal))
        finally:
            if not is_sent:
                self._sessions.parts.throw_away(reply)

    def _remember_undecided(self, key: str, study: str) -> None:
        with self._lock:
            self._undecided[key] = study
            while len(self._undecided) > _MOST_UNDECIDED:  # the coordinator asks again by itself in the end
                del self._undecided[next(iter(self._undecided))]

    def _watch_decisions(self) -> None:
        """Tell the coordinator which requests it should send again, because stewards have decided."""
        wrong = ""
        while not self._stopped.wait(_LOOK_FOR_DECISIONS):
            with self._lock:
                undecided = dict(self._undecided)
            try:
                decided, wrong = self.decided_studies(set(undecided.values())), ""
            except (OSError, VerticopulaError) as error:
                if str(error) != wrong:  # once, not twice a second
                    logger.error("what stewards or people have decided cannot be read: %s", error)
                wrong = str(error)
                continue
            for key, study in undecided.items():
                if study in decided:
                    with self._lock:  # before it is sent: the request that comes back may have to wait once more
                        self._undecided.pop(key, None)
                    if not self._sessions.send(COORDINATOR, "working", key, encode(InProgress("computation"))):
                        self._remember_undecided(key, study)

    def _admit(self, peer: str, key: str, notice: PartsNotice) -> int | None:
        """How long a request may be that comes in parts; None for one that is being answered already."""
        if notice.topic != "ask":
            raise ProtocolError("a party gets requests, not replies")
        with self._lock:
            known = key in self._open
        if known:
            self._sessions.send(peer, "working", key, encode(InProgress("computation")))
            return None
        federation, subjects = self.kit.federation, self.subjects_of(notice.study)
        if subjects is None:
            raise ProtocolError(f"party {self.kit.name!r}: a long request about a study that has not begun here")
        most = federation.network.message_gib * GIB - self._sessions.parts.incoming.handed_over
        return min(most, most_message_bytes(federation, subjects)) if subjects else most

    def _on_broken(self, peer: str, topic: Topic, key: str, reason: str) -> None:
        self._count_refusal("a long request")
        refusal = Refusal("ProtocolError", f"party {self.kit.name!r}: the request was not taken: {reason}")
        self._sessions.send(peer, "refusal", key, encode(refusal))

    def _on_message(self, peer: str, topic: Topic, key: str, body: Body) -> None:
        if topic != "ask":
            raise ProtocolError("a party gets requests, not replies")
        is_question = _is_question(body)
        with self._lock:
            known = key in self._open
            is_full = not known and is_question and len(self._asked) >= _MOST_QUESTIONS
            if not known and not is_full:
                self._take(key, len(body) if isinstance(body, bytes) else 0, is_question)
        if known or is_full:
            self._sessions.parts.give_back(body, keep=True)
        if known:
            self._sessions.send(peer, "working", key, encode(InProgress("computation")))
        elif is_full:
            logger.warning("refused: %d studies are being looked at already", _MOST_QUESTIONS)
            reason = f"party {self.kit.name!r}: it looks at too many studies at once; resume the study later"
            self._sessions.send(peer, "refusal", key, encode(Refusal("ProtocolError", reason)))
        else:
            (self._questions if is_question else self._requests).put((key, body))

    def _take(self, key: str, n_bytes: int, is_question: bool) -> None:
        """Count a request that will be answered; ProtocolError, and it is dropped, where too much waits already."""
        if len(self._open) >= _MOST_OPEN:
            raise ProtocolError(f"more than {_MOST_OPEN} requests at a time")
        if sum(self._open.values()) + n_bytes > _MOST_PARTS * self._sessions.parts.part_bytes:
            raise ProtocolError("the requests that wait would not fit into memory")
        self._open[key] = n_bytes
        if is_question:
            self._asked.add(key)

    def _reply_to(self, key: str, body: Body) -> tuple[Topic, Body, str]:
        """What is said to a request, and the study that it is about."""
        study = ""

        def name_study(name: str) -> None:
            nonlocal study
            study = name
            name_in_log(name)

        with in_study() as name_in_log:
            topic, reply = self._handle(key, body, name_study)
        return topic, reply, study

    def _handle(self, key: str, body: Body, name_study: Callable[[str], None]) -> tuple[Topic, Body]:
        try:
            request = decode(body, (*REQUEST_KINDS, ChangeRequest))
            name_study(_study_named_by(request))
            if fingerprint(request) != key:
                raise ProtocolError("the request's key is not its fingerprint")
            if isinstance(request, CloseRequest):
                self._sessions.parts.forget(request.study)
            return "answer", self._sessions.parts.pack(self.member.handle(request))
        except ConsentPending as error:
            logger.info("%s", error)
            return "working", encode(InProgress("steward", since=error.since))
        except VerticopulaError as error:
            logger.warning("refused: %s", error)
            kind = type(error).__name__
            self._count_refusal(kind)
            return "refusal", encode(Refusal(kind if hasattr(errors, kind) else "ProtocolError", str(error)[:2_000]))
        except OSError as error:  # a full disk, for example; the name of the file stays here
            why = os.strerror(error.errno) if error.errno else type(error).__name__
            logger.error("disk: %s: %s", why, frames_of(error))
            self._count_refusal("disk")
            reason = f"party {self.kit.name!r} cannot use its disk ({why}); once it can, the study can be resumed"
            return "refusal", encode(Refusal("ProtocolError", reason))
        except Exception as error:  # its text may quote data: only its kind leaves
            logger.error("internal error %s: %s", type(error).__name__, frames_of(error))
            self._count_refusal("internal error")
            reason = f"party {self.kit.name!r}: internal error ({type(error).__name__})"
            return "refusal", encode(Refusal("ProtocolError", reason))

    def _count_refusal(self, kind: str) -> None:
        with self._lock:
            self.refusals[kind] += 1


def _study_of(body: Body) -> str:
    """Which study a question is about."""
    return _study_named_by(decode(body, _QUESTIONS)) or CHANGE_NAME


def _study_named_by(request: Any) -> str:
    """The name of a request's study; empty where it is about the federation file."""
    if isinstance(request, ChangeRequest):
        return ""
    return str(request.proposal.study if isinstance(request, ConsentRequest) else request.study)


def _is_question(body: Body) -> bool:
    try:
        decode(body, _QUESTIONS)
    except VerticopulaError:
        return False
    return True
