"""Starts a console on this machine's own address, and shows its token once, on the terminal."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Callable, Iterator
from logging.handlers import RotatingFileHandler

import uvicorn

from verticopula.console.console_app import ConsoleApp
from verticopula.console.login_sessions import LoginSessions
from verticopula.console.page_interface import PageSet
from verticopula.errors import SettingsError
from verticopula.network.kit.startup_kit import Kit

LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")
CONSOLE_LOG = "console-log.txt"
_CONSOLE_LOCK = "console.lock"
_LOG_BYTES = 2**22
_MOST_CONNECTIONS = 64


def run_console(kit: Kit, pages: PageSet, *, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve a kit's pages until SIGINT or SIGTERM.

    Parameters
    ----------
    host : 127.0.0.1 or ::1; SettingsError for every other
    port : 0 for a free one
    say : shows a line on the terminal; the token goes there and nowhere else
    """
    with _only_console(kit), contextlib.closing(pages), contextlib.closing(listen_on_loopback(host, port)) as listener:
        _keep_console_log(kit)
        sessions = LoginSessions()
        own = listener.getsockname()[1]
        named = f"[{host}]" if ":" in host else host
        app = ConsoleApp(pages, sessions, hosts=(f"{named}:{own}", f"localhost:{own}"))
        say(f"{pages.title}: http://{named}:{own}{app.base}/")
        say(f"Token for one login: {sessions.new_token()}")
        say("Nobody else can reach this address from another machine. Ctrl-C ends the console, and all of its logins.")
        config = uvicorn.Config(
            app.build(),
            log_config=None,  # uvicorn's own access log would name every address
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
            ws="none",
        )
        uvicorn.Server(config).run(sockets=[listener])


def listen_on_loopback(host: str, port: int) -> socket.socket:
    """A socket that listens on this machine's own address; SettingsError for any other address.

    Parameters
    ----------
    host : 127.0.0.1 or ::1
    port : 0 for a free one
    """
    if host not in LOOPBACK_ADDRESSES:
        known = " or ".join(LOOPBACK_ADDRESSES)
        raise SettingsError(
            f"--host {host}: a console listens on {known} only. To use it from elsewhere, forward the port with ssh"
        )
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) else "there is no such port"
        raise SettingsError(f"cannot listen on port {port}: {why}; choose another with --port") from None
    return listener


@contextlib.contextmanager
def _only_console(kit: Kit) -> Iterator[None]:
    """Hold the lead's console for this process; SettingsError if it is open already.

    A coordinator knows one lead. Stewards may have a console each: what they decide goes into one store.
    """
    if kit.role != "lead":
        yield
        return
    with (kit.folder / _CONSOLE_LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SettingsError(f"a console of {kit.folder} is open already") from None
        yield


def _keep_console_log(kit: Kit) -> None:
    """What was done with the console, without names of people, studies and tokens."""
    path = kit.folder / CONSOLE_LOG
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    file = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    file.addFilter(lambda entry: entry.name.startswith("verticopula.console"))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(file)
