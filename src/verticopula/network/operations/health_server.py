"""A small page server beside a process: /healthz, /readyz and /metrics, and nothing else.

It reads the first line and the headers of a request, and no body. Whoever can reach it learns what is on these three
pages; so it listens on this machine only unless an operator says otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from verticopula.engine.engine_address import is_loopback
from verticopula.errors import SettingsError
from verticopula.network.connection.sanitizing import frames_of, sanitize

logger = logging.getLogger(__name__)

_MOST_CLIENTS = 16
_SECONDS = 5.0  # that a client may be silent
_WHOLE_SECONDS = 30.0  # that a connection lives
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_PACKAGE = Path(__file__).parents[1]


class HealthServer(ThreadingHTTPServer):
    """Answers from threads of its own until the process ends.

    Parameters
    ----------
    host, port : where it listens; port 0 takes a free one
    expose : the metrics' text
    why_not_ready : in a few words; empty where the process is ready
    """

    daemon_threads = True
    request_queue_size = 4 * _MOST_CLIENTS  # beyond it a client's kernel tries again after seconds

    def __init__(self, host: str, port: int, expose: Callable[[], bytes], why_not_ready: Callable[[], str]) -> None:
        self.expose, self.why_not_ready = expose, why_not_ready
        self.is_local = is_loopback(host)
        self.dead_threads = 0
        self._slots = threading.BoundedSemaphore(_MOST_CLIENTS)
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _HealthHandler)
        except (OSError, OverflowError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "no such address"
            raise SettingsError(f"cannot listen for metrics on {host}, port {port}: {why}") from None

    def start(self) -> None:
        """Answer from now on; threads of this package that end with an error count from now on, too."""
        self._watch_threads()
        threading.Thread(target=self.serve_forever, name="health", daemon=True).start()
        logger.info("health and metrics on port %d of %s", self.server_address[1], self.server_address[0])

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for this connection, unless there are too many already: then it is closed."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(_WHOLE_SECONDS, _cut, (request,))  # of a client that sends a byte now and then
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event; of anything else the place is logged, and no values."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            logger.error("a page for monitoring failed: %s: %s", type(error).__name__, frames_of(error))

    def _watch_threads(self) -> None:
        before = threading.excepthook

        def hook(caught: threading.ExceptHookArgs) -> None:
            # Those of FLARE may end because of what a peer sends; a process is not to be restarted for that.
            trace = caught.exc_traceback
            while trace is not None:
                if Path(trace.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
                    self.dead_threads += 1
                    break
                trace = trace.tb_next
            before(caught)

        threading.excepthook = hook


class _HealthHandler(BaseHTTPRequestHandler):
    server: HealthServer
    server_version, sys_version = "verticopula", ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        """One of the three pages."""
        if self.server.is_local and not _names_this_machine(self.headers.get("Host", "localhost")):
            self._send(403, "this page is for this machine; ask for it by the name localhost\n")  # DNS rebinding
            return
        path = self.path.partition("?")[0]
        if path == "/healthz":
            is_well = self.server.dead_threads == 0
            self._send(200 if is_well else 503, "ok\n" if is_well else "a thread has ended with an error\n")
        elif path == "/readyz":
            why = self.server.why_not_ready()
            self._send(503 if why else 200, f"{sanitize(why)}\n" if why else "ok\n")
        elif path == "/metrics":
            self._send(200, self.server.expose(), _METRICS)
        else:
            self._send(404, "there are /healthz, /readyz and /metrics\n")

    do_HEAD = do_GET

    def _send(self, status: int, body: str | bytes, kind: str = _PLAIN) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: probes come every few seconds."""


def _cut(request: Any) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _names_this_machine(host: str) -> bool:
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name.lower() in _LOOPBACK_NAMES
