"""A party's process: it connects to the coordinator, and answers its requests one after the other."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from verticopula import errors
from verticopula.errors import ProtocolError, VerticopulaError
from verticopula.network.control_messages import InProgress, Refusal, Topic
from verticopula.network.kit_process import frames_of
from verticopula.network.sessions import Sessions
from verticopula.network.startup_kit import Kit
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.wire import REQUEST_KINDS, decode, encode
from verticopula.schema.study_settings import COORDINATOR
from verticopula.transport.delivery import RequestHandler

logger = logging.getLogger(__name__)

_STOP = ("", b"")
_MOST_OPEN = 16  # requests at a time; a coordinator has one, or a few after its studies failed


@dataclass
class PartyProcess:
    """Connects one party's member to the coordinator.

    Attributes
    ----------
    awaits_consent : whether the current request waits for the steward's consent
    """

    kit: Kit
    member: RequestHandler
    awaits_consent: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self._requests: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._open: set[str] = set()
        self._lock = threading.Lock()
        self._sessions = Sessions(self.kit, self._on_message)

    @property
    def connected(self) -> bool:
        return self._sessions.connected(COORDINATOR)

    def run(self) -> None:
        """Answer until `stop` is called."""
        self._sessions.start()
        while (request := self._requests.get()) != _STOP:
            key, body = request
            topic, reply = self._reply_to(key, body)
            with self._lock:
                self._open.discard(key)
            # Without a connection the reply is not lost: the same request gets the same reply again.
            self._sessions.send(COORDINATOR, topic, key, reply)
        self._sessions.stop()

    def stop(self) -> None:
        self._requests.put(_STOP)

    def _on_message(self, peer: str, topic: Topic, key: str, body: bytes) -> None:
        if topic != "ask":
            raise ProtocolError("a party gets requests, not replies")
        with self._lock:
            known = key in self._open
            if not known and len(self._open) >= _MOST_OPEN:
                raise ProtocolError(f"more than {_MOST_OPEN} requests at a time")
            self._open.add(key)
        if known:
            waits_for: Literal["computation", "steward"] = "steward" if self.awaits_consent() else "computation"
            self._sessions.send(peer, "working", key, encode(InProgress(waits_for)))
        else:
            self._requests.put((key, body))

    def _reply_to(self, key: str, body: bytes) -> tuple[Topic, bytes]:
        try:
            request = decode(body, REQUEST_KINDS)
            if fingerprint(request) != key:
                raise ProtocolError("the request's key is not its fingerprint")
            return "answer", encode(self.member.handle(request))
        except VerticopulaError as error:
            logger.warning("refused: %s", error)
            kind = type(error).__name__
            return "refusal", encode(Refusal(kind if hasattr(errors, kind) else "ProtocolError", str(error)[:2_000]))
        except OSError as error:  # a full disk, for example; the name of the file stays here
            logger.error("disk: %s: %s", error, frames_of(error))
            why = os.strerror(error.errno) if error.errno else type(error).__name__
            reason = f"party {self.kit.name!r} cannot use its disk ({why}); once it can, the study can be resumed"
            return "refusal", encode(Refusal("ProtocolError", reason))
        except Exception as error:  # its text may quote data: only its kind leaves
            logger.error("internal error %s: %s", type(error).__name__, frames_of(error))
            reason = f"party {self.kit.name!r}: internal error ({type(error).__name__})"
            return "refusal", encode(Refusal("ProtocolError", reason))
