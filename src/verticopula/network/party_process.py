"""A party's process: it connects, waits for questions, and answers them one after the other."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from verticopula import errors
from verticopula.errors import ProtocolError, VerticopulaError
from verticopula.network.control_messages import Refusal, Topic, Working
from verticopula.network.kit_process import frames_of
from verticopula.network.sessions import Post
from verticopula.network.startup_kit import COORDINATOR, Kit
from verticopula.protocol.messages import Reply, Request, fingerprint
from verticopula.protocol.wire import REQUEST_KINDS, decode, encode

logger = logging.getLogger(__name__)

_STOP = ("", b"")
_MOST_OPEN = 16  # questions at a time; a coordinator has one, or a few after its studies failed


class Answers(Protocol):
    """Whoever decides for the organisation: a `Member`."""

    def handle(self, request: Request) -> Reply: ...


@dataclass
class Station:
    """The party's end of the line.

    Attributes
    ----------
    is_with_steward : whether the current question waits for a person's yes
    """

    kit: Kit
    member: Answers
    is_with_steward: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self._questions: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._open: set[str] = set()
        self._lock = threading.Lock()
        self._post = Post(self.kit, self._on_letter)

    @property
    def connected(self) -> bool:
        return self._post.connected(COORDINATOR)

    def run(self) -> None:
        """Answer until `stop` is called."""
        self._post.start()
        while (question := self._questions.get()) != _STOP:
            key, body = question
            topic, answer = self._answer(key, body)
            with self._lock:
                self._open.discard(key)
            # If the line is down the answer is not lost: asked again, the party gives it again.
            self._post.send(COORDINATOR, topic, key, answer)
        self._post.stop()

    def stop(self) -> None:
        self._questions.put(_STOP)

    def _on_letter(self, peer: str, topic: Topic, key: str, body: bytes) -> None:
        if topic != "ask":
            raise ProtocolError("a party is asked; it expects no answers")
        with self._lock:
            known = key in self._open
            if not known and len(self._open) >= _MOST_OPEN:
                raise ProtocolError(f"more than {_MOST_OPEN} questions at a time")
            self._open.add(key)
        if known:
            waits_for: Literal["computation", "steward"] = "steward" if self.is_with_steward() else "computation"
            self._post.send(peer, "working", key, encode(Working(waits_for)))
        else:
            self._questions.put((key, body))

    def _answer(self, key: str, body: bytes) -> tuple[Topic, bytes]:
        try:
            request = decode(body, REQUEST_KINDS)
            if fingerprint(request) != key:
                raise ProtocolError("the question's key is not that of its content")
            return "answer", encode(self.member.handle(request))
        except VerticopulaError as error:
            logger.warning("refused: %s", error)
            kind = type(error).__name__
            return "refusal", encode(Refusal(kind if hasattr(errors, kind) else "ProtocolError", str(error)[:2_000]))
        except OSError as error:  # a full disk, for example; which file is nobody's business
            logger.error("disk: %s: %s", error, frames_of(error))
            why = os.strerror(error.errno) if error.errno else type(error).__name__
            reason = f"party {self.kit.name!r} cannot use its disk ({why}); once it can, the study can be resumed"
            return "refusal", encode(Refusal("ProtocolError", reason))
        except Exception as error:  # its text may quote data: only its kind leaves
            logger.error("internal error %s: %s", type(error).__name__, frames_of(error))
            reason = f"party {self.kit.name!r}: internal error ({type(error).__name__})"
            return "refusal", encode(Refusal("ProtocolError", reason))
