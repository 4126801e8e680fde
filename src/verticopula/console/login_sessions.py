"""Who is logged in: a token that the terminal shows once becomes a session, which only this process knows."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from verticopula.errors import VerticopulaError

_SECRET_BYTES = 32
_LONGEST_OFFER = 200  # characters of a token that are looked at


@dataclass(frozen=True)
class SessionTuning:
    """How long a session lives and how often a token may be tried. All by hand: a working day, and a pause of an hour.

    Attributes
    ----------
    idle, life : seconds without a request, and in all, after which a session ends
    tries, seconds_per_try : how many wrong tokens at once, and how long until one more may be tried
    """

    idle: float = 3_600.0
    life: float = 43_200.0
    tries: float = 5.0
    seconds_per_try: float = 10.0


class TooManyTries(VerticopulaError):
    """Too many tokens were tried; wait."""


@dataclass
class Session:
    """One login.

    Attributes
    ----------
    csrf : what every form of this session carries
    notice : what the next page says once, after something was done
    """

    begun: float
    seen: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_SECRET_BYTES))
    notice: str = ""

    def take_notice(self) -> str:
        """What is to be said now, once."""
        said, self.notice = self.notice, ""
        return said


class LoginSessions:
    """The token and the sessions of one console.

    Parameters
    ----------
    clock : seconds that never go back
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, tuning: SessionTuning | None = None) -> None:
        self._clock, self._tuning = clock, tuning or SessionTuning()
        self._lock = threading.Lock()
        self._sessions: dict[bytes, Session] = {}  # digest of the cookie -> session
        self._tries, self._tried = self._tuning.tries, clock()
        self._token_digest: bytes | None = None

    def new_token(self) -> str:
        """A token for one login; an earlier one that was not used is void."""
        token = secrets.token_urlsafe(_SECRET_BYTES)
        with self._lock:
            self._token_digest = _digest(token)
        return token

    def log_in(self, offered: str) -> tuple[str, Session] | None:
        """A new cookie and its session for the right token, which is then void; None for a wrong one.

        Raises
        ------
        TooManyTries
            More tokens were tried than the limits allow, whether or not this one is right.
        """
        with self._lock:
            self._count_try()
            # Digests of equal length: the time says nothing about how much of a token is right.
            if self._token_digest is None or not hmac.compare_digest(_digest(offered), self._token_digest):
                return None
            self._token_digest = None
            self._tries = self._tuning.tries
            cookie, now = secrets.token_urlsafe(_SECRET_BYTES), self._clock()
            session = Session(begun=now, seen=now)
            self._sessions[_digest(cookie)] = session
            return cookie, session

    def find(self, cookie: str) -> Session | None:
        """The living session of a cookie; None where there is none."""
        with self._lock:
            key, now = _digest(cookie), self._clock()
            session = self._sessions.get(key)
            if session is None:
                return None
            if now - session.seen > self._tuning.idle or now - session.begun > self._tuning.life:
                del self._sessions[key]
                return None
            session.seen = now
            return session

    def log_out(self, cookie: str) -> None:
        """End the cookie's session; nothing happens where there is none."""
        with self._lock:
            self._sessions.pop(_digest(cookie), None)

    def _count_try(self) -> None:
        now = self._clock()
        regained = (now - self._tried) / self._tuning.seconds_per_try
        self._tries, self._tried = min(self._tuning.tries, self._tries + regained), now
        if self._tries < 1.0:
            raise TooManyTries(
                f"too many tokens were tried; wait {self._tuning.seconds_per_try:g} seconds and try again"
            )
        self._tries -= 1.0


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret[:_LONGEST_OFFER].encode("utf-8", "replace")).digest()
