"""The console's web application: its addresses, login and logout, and what becomes of errors.

All addresses lie below a folder whose name is drawn at every start. Cookies know no ports: without it, whatever else
listens on this machine would be sent the session's cookie by the browser.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from verticopula.console.login_sessions import LoginSessions, Session, TooManyTries
from verticopula.console.page_interface import (
    Download,
    Page,
    PageAnswer,
    PageRequest,
    PageRoute,
    PageSet,
    Redirect,
    read_console_asset,
    render_page,
)
from verticopula.console.request_guard import BodyTooLarge, RequestGuard
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.connection.sanitizing import frames_of
from verticopula.network.kit.certificate_expiry import days_left, expiry_warning
from verticopula.report.page_template import read_asset

logger = logging.getLogger(__name__)

COOKIE = "verticopula-session"
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 60
_DOWNLOAD_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'"
_ASSETS: dict[str, tuple[str, Callable[[], str]]] = {
    "report.css": ("text/css", lambda: read_asset("report.css")),
    "console.css": ("text/css", lambda: read_console_asset("console.css")),
    "live.js": ("text/javascript", lambda: read_console_asset("live.js")),
    "icon.svg": ("image/svg+xml", lambda: read_console_asset("icon.svg")),
}
_NO_PAGE = "There is no such page"
_LOGGED_OUT = "Your session has ended. Nothing is lost: start the console again for a new token, and log in."


@dataclass
class ConsoleApp:
    """One kit's console.

    Attributes
    ----------
    pages : what there is to see
    hosts : the addresses under which it is reached, with the port
    folder : the part of every address that other pages and programs do not know
    """

    pages: PageSet
    sessions: LoginSessions
    hosts: Collection[str]
    folder: str = field(default_factory=lambda: secrets.token_urlsafe(12))

    def __post_init__(self) -> None:
        self._login_csrf = secrets.token_urlsafe(32)

    @property
    def base(self) -> str:
        """What every address of the console begins with."""
        return f"/{self.folder}"

    def build(self) -> ASGIApp:
        """The application, with its guard in front."""
        routes = [
            Route(f"{self.base}/login", self._show_login, methods=["GET"]),
            Route(f"{self.base}/login", self._log_in, methods=["POST"]),
            Route(f"{self.base}/logout", self._log_out, methods=["POST"]),
            *(Route(f"{self.base}/{name}", self._asset(name), methods=["GET"]) for name in _ASSETS),
            *(Route(f"{self.base}{one.path}", self._page(one), methods=[one.method]) for one in self.pages.routes()),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: self._no_page})
        app.router.redirect_slashes = False
        return RequestGuard(app, self.hosts)

    # ---- login ----------------------------------------------------------------------------

    async def _show_login(self, request: Request) -> Response:
        if self._session(request) is not None:
            return RedirectResponse(f"{self.base}/", 303)
        return self._login_page("", 200)

    async def _log_in(self, request: Request) -> Response:
        try:
            form = await _read_form(request)
        except SettingsError as error:
            return self._login_page(str(error), 400)
        if not hmac.compare_digest(form.get("csrf", "").encode(), self._login_csrf.encode()):
            return self._login_page("That form was of an earlier start of the console. Try again.", 403)
        try:
            found = self.sessions.log_in(form.get("token", "").strip())
        except TooManyTries as error:
            logger.warning("login refused: too many tries")
            return self._login_page(str(error), 429)
        if found is None:
            logger.warning("login refused: a wrong token")
            return self._login_page("That is not the token, or it was used before. The terminal shows it once.", 403)
        # Whatever cookie the browser came with is not taken over: its session, if any, has ended.
        self.sessions.log_out(request.cookies.get(COOKIE, ""))
        cookie, _ = found
        logger.info("logged in")
        answer = RedirectResponse(f"{self.base}/", 303)
        answer.headers["Set-Cookie"] = self._cookie(cookie)
        return answer

    async def _log_out(self, request: Request) -> Response:
        session = self._session(request)
        if session is None:
            return RedirectResponse(f"{self.base}/login", 303)
        try:
            await self._checked_form(request, session)
        except SettingsError as error:
            return self._error_page(session, str(error), 403)
        self.sessions.log_out(request.cookies.get(COOKIE, ""))
        logger.info("logged out")
        answer = self._login_page("You are logged out. For another login, start the console again.", 200)
        answer.headers["Set-Cookie"] = self._cookie("", "Max-Age=0")
        return answer

    def _login_page(self, message: str, status: int) -> Response:
        values = {"base": self.base, "who": self.pages.title, "message": message, "csrf": self._login_csrf}
        return HTMLResponse(render_page("login.html.j2", values), status)

    def _cookie(self, value: str, *more: str) -> str:
        """For this console's addresses only, out of reach of scripts and of forms of other sites."""
        return "; ".join([f"{COOKIE}={value}", f"Path={self.base}", "HttpOnly", "SameSite=Strict", *more])

    def _session(self, request: Request) -> Session | None:
        return self.sessions.find(request.cookies.get(COOKIE, ""))

    # ---- pages ----------------------------------------------------------------------------

    def _page(self, route: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            session = self._session(request)
            if session is None:
                return self._login_page("" if route.method == "GET" else _LOGGED_OUT, 401)
            response = await self._answer(route, request, session)
            # The route and not the address: that may name a study.
            logger.info("%s %s %d", route.method, route.path, response.status_code)
            return response

        return answer

    async def _answer(self, route: PageRoute, request: Request, session: Session) -> Response:
        try:
            form = await self._checked_form(request, session) if route.method == "POST" else {}
        except SettingsError as error:
            return self._error_page(session, str(error), 403)
        asked = PageRequest(session, request.path_params, form)
        try:
            found = await run_in_threadpool(route.handler, asked)
            return self._response(found, session)
        except LookupError:
            return self._error_page(session, _NO_PAGE, 404)
        except VerticopulaError as error:
            return self._error_page(session, str(error), 409)
        except OSError as error:
            logger.error("disk: %s", frames_of(error))
            return self._error_page(session, f"A file cannot be read or written ({type(error).__name__}).", 500)
        except Exception as error:  # its text may quote data
            logger.error("internal error %s: %s", type(error).__name__, frames_of(error))
            said = f"Internal error ({type(error).__name__}). This is a defect; please report it, without your data."
            return self._error_page(session, said, 500)

    async def _checked_form(self, request: Request, session: Session) -> dict[str, str]:
        """The form's fields; SettingsError where it is not one of this session's forms."""
        form = await _read_form(request)
        if not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
            raise SettingsError(
                "This form is not of your session. Nothing was done. Go back, renew the page, try again."
            )
        return form

    def _response(self, answer: PageAnswer, session: Session) -> Response:
        if isinstance(answer, Redirect):
            return RedirectResponse(f"{self.base}{answer.to}", 303)
        if isinstance(answer, Download):
            return _download(answer)
        return HTMLResponse(self._render(answer, session), answer.status)

    def _render(self, page: Page, session: Session) -> str:
        common: dict[str, Any] = {
            "base": self.base,
            "who": self.pages.title,
            "menu": self.pages.menu,
            "title": page.title,
            "live": page.live,
            "csrf": session.csrf,
            "notice": session.take_notice(),
            "alerts": [said for one in days_left(self.pages.kit).items() if (said := expiry_warning(*one))],
        }
        return render_page(page.template, {**page.values, **common})

    def _error_page(self, session: Session, message: str, status: int) -> Response:
        page = Page("message.html.j2", "This did not work", {"message": message}, status)
        return HTMLResponse(self._render(page, session), status)

    async def _no_page(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return HTMLResponse(f"<!doctype html><title>{status}</title><p>{_NO_PAGE}.", status)

    def _asset(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        kind, read = _ASSETS[name]

        async def send(request: Request) -> Response:
            return Response(read(), media_type=kind)

        return send


def _download(answer: Download) -> Response:
    """A file that the browser saves: it has no origin, so nothing in it can act for whoever is logged in."""
    name = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in answer.name
    )
    headers = {
        "Content-Disposition": f'attachment; filename="{name[-100:]}"',
        "Content-Security-Policy": _DOWNLOAD_POLICY,
    }
    if answer.size is not None:
        headers["Content-Length"] = str(answer.size)
    if isinstance(answer.content, bytes):
        return Response(answer.content, media_type="application/octet-stream", headers=headers)
    return StreamingResponse(iter(answer.content), media_type="application/octet-stream", headers=headers)


async def _read_form(request: Request) -> dict[str, str]:
    """The fields of a plain form; SettingsError for anything else."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise SettingsError("The console takes plain forms only.")
    try:
        body = (await request.body()).decode("ascii")
        found = parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except BodyTooLarge:
        raise SettingsError("The form is too large.") from None
    except ValueError:
        raise SettingsError("The form cannot be read.") from None
    if len({name for name, _ in found}) != len(found):
        raise SettingsError("The form has a field twice.")
    return dict(found)
