"""The study lead's connection to the coordinator, open only while somebody looks.

A coordinator knows one lead. A console that held its connection all day would get in the way of `verticopula submit`
and `status`, so it closes when nobody has asked anything for a while.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from verticopula.errors import PartyUnavailable
from verticopula.network.connection.control_messages import LeadRequest
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.lead.study_lead import Lead

_IDLE = 15.0  # seconds until the connection is closed
_UNREACHABLE = 5.0  # seconds for which a coordinator that did not answer is not asked again


class LeadLink:
    """Asks the coordinator for the lead; safe for threads."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._lock = threading.Lock()
        self._lead: Lead | None = None
        self._users, self._used = 0, 0.0
        self._silent_until = 0.0
        self._timer: threading.Timer | None = None

    def ask(self, request: LeadRequest, seconds: float = 10.0, again: float = 5.0) -> Any:
        """The coordinator's reply, as `Lead.ask` has it.

        Parameters
        ----------
        request : what is asked
        seconds, again : how long to wait, and after how long to ask once more
        """
        with self._lock:
            if time.monotonic() < self._silent_until:
                raise PartyUnavailable(f"the coordinator at {self._kit.host}:{self._kit.port} does not answer")
            if self._lead is None:
                self._lead = Lead(self._kit).__enter__()
            lead = self._lead
            self._users += 1
        try:
            return lead.ask(request, seconds, again)
        except PartyUnavailable:
            with self._lock:
                self._silent_until = time.monotonic() + _UNREACHABLE
            raise
        finally:
            with self._lock:
                self._users, self._used = self._users - 1, time.monotonic()
                self._close_later()

    def close(self) -> None:
        """Close the connection now."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._stop()

    def _close_later(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(_IDLE, self._close_if_idle)
            self._timer.daemon = True
            self._timer.start()

    def _close_if_idle(self) -> None:
        with self._lock:
            self._timer = None
            if self._users or time.monotonic() - self._used < _IDLE:
                self._close_later()
            else:
                self._stop()

    def _stop(self) -> None:
        if self._lead is not None:
            self._lead.__exit__()
            self._lead = None
