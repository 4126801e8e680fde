"""What every request passes before any page sees it, and what every answer carries.

A console listens on this machine only. That keeps other machines out, and neither web pages that the same browser shows
nor other users of the machine. So a request must name one of the console's own addresses (a page that resolves its own
name to loopback does not), must not come from another site, and must be small. Answers may not be framed, cached,
interpreted as something else, or run a script that is not the console's own file.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from verticopula.errors import VerticopulaError

MOST_FORM_BYTES = 60_000
_LONGEST_PATH = 2_000
_METHODS = ("GET", "HEAD", "POST")
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
GUARD_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}


class RequestGuard:
    """An ASGI application in front of another.

    Parameters
    ----------
    hosts : what the Host header may say, with the port
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app, self._hosts = app, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in GUARD_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refuse(scope)
        if refused is not None:
            await refused(scope, receive, send_guarded)
            return
        await self._app(scope, _Limited(receive), send_guarded)

    def _refuse(self, scope: Scope) -> PlainTextResponse | None:
        """Why a request is not looked at, as an answer; None where it is."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return PlainTextResponse("open the console by the address that it printed", 421)
        if scope["method"] not in _METHODS:
            return PlainTextResponse("the console knows GET and POST", 405, headers={"Allow": ", ".join(_METHODS)})
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > _LONGEST_PATH:
            return PlainTextResponse("the address is too long", 414)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if scope["method"] == "POST":
            # Every browser says at least one of them with a form. A page that asks for no referrer, as all of the
            # console's do, says "null" as its origin; then the other one counts.
            own = origin is not None and origin.removeprefix("http://") == hosts[0]
            if not own and not (origin in (None, "null") and site == "same-origin"):
                return PlainTextResponse("this form does not come from the console", 403)
            if site not in (None, "same-origin"):
                return PlainTextResponse("this form does not come from the console", 403)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MOST_FORM_BYTES:
            return PlainTextResponse("the form is too large", 413)
        return None


class BodyTooLarge(VerticopulaError):
    """More bytes came than a form has."""


class _Limited:
    """Receives a request's body up to its largest size, whatever its header says."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._left = receive, MOST_FORM_BYTES

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise BodyTooLarge
        return message
