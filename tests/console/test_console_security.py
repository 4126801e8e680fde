"""A console is attacked by other web pages, other programs and users of the machine, and by names in what it shows."""

from __future__ import annotations

import asyncio
import logging
import re
import socket

import pytest
from starlette.testclient import TestClient

from reporting.made_up_kits import content
from tests.console.open_consoles import HOST, OpenConsole, active_parts, csrf_of, store_of
from verticopula.console.console_app import COOKIE
from verticopula.console.console_server import listen_on_loopback
from verticopula.console.login_sessions import LoginSessions, SessionTuning, TooManyTries
from verticopula.console.request_guard import GUARD_HEADERS, MOST_FORM_BYTES
from verticopula.errors import SettingsError
from verticopula.network.kit.startup_kit import Kit

PAGES = ("/", "/budget", "/history", "/audit", "/audit/trail.zip", "/requests/r0")


# ---- login and sessions -----------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_without_a_session(console: OpenConsole, path: str) -> None:
    answer = console.client.get(console.at(path))
    assert answer.status_code == 401
    assert "turnover" not in answer.text
    assert "loans" not in answer.text


def test_nothing_lies_outside_the_drawn_folder(inside: OpenConsole) -> None:
    for path in ("/", "/login", "/budget", "/report.css", "/favicon.ico"):
        assert inside.client.get(path).status_code == 404
    assert len(inside.app.folder) >= 16
    assert OpenConsole(inside.pages).app.folder != inside.app.folder


def test_a_token_is_good_for_one_login(console: OpenConsole) -> None:
    token = console.sessions.new_token()
    csrf = csrf_of(console.client.get(console.at("/login")).text)
    form = {"csrf": csrf, "token": token}
    assert console.client.post(console.at("/login"), data=form).status_code == 303
    other = console.new_client()
    assert other.post(console.at("/login"), data=form).status_code == 403
    assert other.get(console.at("/")).status_code == 401
    assert console.client.get(console.at("/")).status_code == 200


def test_the_cookie_is_for_this_console_alone_and_out_of_scripts_reach(console: OpenConsole) -> None:
    form = {"csrf": csrf_of(console.client.get(console.at("/login")).text), "token": console.sessions.new_token()}
    answer = console.client.post(console.at("/login"), data=form)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    wanted = ("HttpOnly", "SameSite=Strict", f"Path={console.app.base}")
    assert all(part in cookie for part in wanted)
    assert "Domain" not in cookie
    value = cookie.split("=", 1)[1].split(";")[0]
    assert len(value) >= 43  # 256 bits


def test_a_session_that_somebody_else_chose_is_not_taken_over(console: OpenConsole) -> None:
    """Session fixation: the attacker plants a cookie and waits for the steward to log in with it."""
    planted = "A" * 43
    console.client.cookies.set(COOKIE, planted, domain=HOST.partition(":")[0], path=console.app.base)
    form = {"csrf": csrf_of(console.client.get(console.at("/login")).text), "token": console.sessions.new_token()}
    answer = console.client.post(console.at("/login"), data=form)
    assert answer.status_code == 303
    assert planted not in answer.headers["set-cookie"]
    attacker = console.new_client()
    attacker.cookies.set(COOKIE, planted)
    assert attacker.get(console.at("/")).status_code == 401


def test_logging_in_again_ends_the_session_before(inside: OpenConsole) -> None:
    old = inside.client.cookies[COOKIE]
    page = inside.new_client()
    csrf = csrf_of(page.get(inside.at("/login")).text)
    inside.client.post(inside.at("/login"), data={"csrf": csrf, "token": inside.sessions.new_token()})
    thief = inside.new_client()
    thief.cookies.set(COOKIE, old)
    assert thief.get(inside.at("/")).status_code == 401


def test_logging_out_ends_the_session_on_the_server(inside: OpenConsole) -> None:
    cookie = inside.client.cookies[COOKIE]
    assert "logged out" in inside.send("/logout").text  # type: ignore[attr-defined]
    inside.client.cookies.set(COOKIE, cookie)
    assert inside.client.get(inside.at("/")).status_code == 401


def test_a_session_ends_when_it_is_idle_and_when_it_is_old(inside: OpenConsole) -> None:
    tuning = SessionTuning()
    inside.clock[0] = tuning.idle - 1.0
    assert inside.client.get(inside.at("/")).status_code == 200
    inside.clock[0] += tuning.idle + 1.0
    assert inside.client.get(inside.at("/")).status_code == 401
    inside.log_in()
    begun = inside.clock[0]
    while inside.clock[0] < begun + tuning.life - tuning.idle:
        inside.clock[0] += tuning.idle / 2
        assert inside.client.get(inside.at("/")).status_code == 200
    inside.clock[0] = begun + tuning.life + 1.0
    assert inside.client.get(inside.at("/")).status_code == 401


def test_tokens_cannot_be_tried_without_end(console: OpenConsole) -> None:
    csrf = csrf_of(console.client.get(console.at("/login")).text)
    token = console.sessions.new_token()
    tried = [
        console.client.post(console.at("/login"), data={"csrf": csrf, "token": f"{k:043d}"}).status_code
        for k in range(10)
    ]
    assert tried == [403] * 5 + [429] * 5
    right = {"csrf": csrf, "token": token}
    assert console.client.post(console.at("/login"), data=right).status_code == 429  # or trying would be free
    console.clock[0] += SessionTuning().seconds_per_try + 1.0
    assert console.client.post(console.at("/login"), data=right).status_code == 303


def test_limits_of_tries_refill_slowly() -> None:
    now = [0.0]
    sessions = LoginSessions(lambda: now[0])
    for _ in range(5):
        assert sessions.log_in("wrong") is None
    with pytest.raises(TooManyTries):
        sessions.log_in("wrong")
    now[0] = 1e9
    for _ in range(5):
        assert sessions.log_in("wrong") is None
    with pytest.raises(TooManyTries):
        sessions.log_in("wrong")


@pytest.mark.parametrize("offered", ["", "\udc80", "x" * 100_000, "é" * 300, "\0"])
def test_odd_tokens_and_cookies_are_wrong_and_nothing_else(offered: str) -> None:
    sessions = LoginSessions()
    assert sessions.log_in(offered) is None  # no token was made: none is right
    sessions.new_token()
    assert sessions.log_in(offered) is None
    assert sessions.find(offered) is None


def test_the_token_is_in_no_log(console: OpenConsole, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token = console.sessions.new_token()
        csrf = csrf_of(console.client.get(console.at("/login")).text)
        console.client.post(console.at("/login"), data={"csrf": csrf, "token": "wrong-but-secret"})
        console.client.post(console.at("/login"), data={"csrf": csrf, "token": token})
        console.client.get(console.at("/history"))
    own = [entry for entry in caplog.records if entry.name.startswith("verticopula")]
    said = " ".join(entry.getMessage() for entry in own)
    assert "logged in" in said
    for secret in (token, "wrong-but-secret", csrf, console.client.cookies[COOKIE], console.app.folder):
        assert secret not in said


def test_the_log_names_routes_and_nobody(
    inside: OpenConsole, filled_bank: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    request = store_of(filled_bank).ask(content("a-study-with-a-name"))
    with caplog.at_level(logging.INFO):
        inside.client.get(inside.at(f"/requests/{request.id}"))
    said = " ".join(entry.getMessage() for entry in caplog.records if entry.name.startswith("verticopula"))
    assert "GET /requests/{request} 200" in said
    assert request.id not in said
    assert "Ada" not in said


# ---- other sites -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8123",
        "127.0.0.1",
        "127.0.0.1:8124",
        "127.0.0.1:8123.evil.example",
        "",
        "0.0.0.0:8123",
    ],
)
def test_a_name_that_resolves_to_this_machine_gets_nothing(inside: OpenConsole, host: str) -> None:
    """DNS rebinding: the browser believes that the attacker's own site answers."""
    answer = inside.client.get(inside.at("/"), headers={"Host": host})
    assert answer.status_code == 421
    assert "loans" not in answer.text


def test_an_answer_cannot_be_framed_cached_sniffed_or_run(inside: OpenConsole) -> None:
    for path in ("/", "/budget", "/login", "/console.css", "/nowhere"):
        answer = inside.client.get(inside.at(path))
        assert {name: answer.headers[name] for name in GUARD_HEADERS} == GUARD_HEADERS, path
        assert answer.headers.get("server") is None
    policy = GUARD_HEADERS["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert GUARD_HEADERS["Cache-Control"] == "no-store"


def test_no_page_has_a_script_or_a_style_of_its_own(inside: OpenConsole, filled_bank: Kit) -> None:
    request = store_of(filled_bank).ask(content())
    for path in ("/", "/budget", "/history", "/audit", f"/requests/{request.id}"):
        page = inside.client.get(inside.at(path)).text
        assert active_parts(page) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"},  # another port is the same site
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "cross-site"},
        {"Origin": f"https://{HOST}", "Sec-Fetch-Site": "same-site"},
        {"Origin": "null", "Sec-Fetch-Site": ""},
        {"Origin": "", "Sec-Fetch-Site": ""},
    ],
)
def test_a_form_of_another_site_is_refused_even_with_its_token(inside: OpenConsole, headers: dict[str, str]) -> None:
    csrf = csrf_of(inside.client.get(inside.at("/")).text)
    bare = TestClient(inside.built, base_url=f"http://{HOST}", follow_redirects=False, cookies=inside.client.cookies)
    answer = bare.post(inside.at("/logout"), data={"csrf": csrf}, headers=headers)
    assert answer.status_code == 403
    assert inside.client.get(inside.at("/")).status_code == 200


def test_a_form_of_the_consoles_own_page_without_a_referrer_is_taken(inside: OpenConsole) -> None:
    """All pages ask for no referrer, and browsers then say that a form's origin is null."""
    csrf = csrf_of(inside.client.get(inside.at("/")).text)
    headers = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}
    assert inside.client.post(inside.at("/logout"), data={"csrf": csrf}, headers=headers).status_code == 200


@pytest.mark.parametrize("token", ["", "x", None])
def test_every_form_needs_the_sessions_own_token(inside: OpenConsole, filled_bank: Kit, token: str | None) -> None:
    store = store_of(filled_bank)
    request = store.ask(content())
    fields = {"digest": request.digest, "read": "yes", "reason": "because"}
    data = fields if token is None else {**fields, "csrf": token}
    for verb in ("approve", "deny", "withdraw"):
        answer = inside.client.post(inside.at(f"/requests/{request.id}/{verb}"), data=data)
        assert answer.status_code == 403
    assert inside.client.post(inside.at("/logout"), data=data).status_code == 403
    assert store.get(request.id).decisions == ()


def test_the_token_of_another_session_is_none(inside: OpenConsole, filled_bank: Kit) -> None:
    request = store_of(filled_bank).ask(content())
    stolen = csrf_of(inside.client.get(inside.at("/")).text)
    other = inside.new_client()
    inside.log_in(other)
    form = {"csrf": stolen, "digest": request.digest, "read": "yes"}
    assert other.post(inside.at(f"/requests/{request.id}/approve"), data=form).status_code == 403


def test_looking_changes_nothing(inside: OpenConsole, filled_bank: Kit) -> None:
    """A link or an image of another site can make the browser GET; no GET decides."""
    store = store_of(filled_bank)
    request = store.ask(content())
    before = store.head()
    for verb in ("approve", "deny", "withdraw"):
        assert inside.client.get(inside.at(f"/requests/{request.id}/{verb}?read=yes")).status_code in (404, 405)
    assert store.head() == before


# ---- addresses, sizes, methods -----------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/../../../etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/kit.toml",
        "/requests/..%2f..%2fprivate-key.pem",
        "/requests/%00",
        "/requests/%2e%2e%5c%2e%2e",
        "/requests/r",
        "/audit/../private-key.pem",
        "/report.css/../../console_app.py",
        "//etc/passwd",
        "/requests/%F0%28%8C%28",
    ],
)
def test_no_address_leads_out_of_the_console(inside: OpenConsole, path: str) -> None:
    answer = raw_get(inside, path)
    assert answer[0] in (400, 404), answer
    assert b"PRIVATE KEY" not in answer[1]
    assert b"root:" not in answer[1]


def raw_get(console: OpenConsole, path: str) -> tuple[int, bytes]:
    """A GET whose path no client has tidied up."""
    raw = console.at(path).encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), raw).decode("utf-8", "replace"),
        "raw_path": raw,
        "query_string": b"",
        "headers": [(b"host", HOST.encode()), (b"cookie", f"{COOKIE}={console.client.cookies[COOKIE]}".encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8123),
    }
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    asyncio.run(console.built(scope, receive, send))  # type: ignore[arg-type]
    status = sent[0]["status"]
    assert isinstance(status, int)
    return status, b"".join(bytes(message.get("body", b"")) for message in sent[1:])  # type: ignore[call-overload]


def test_large_forms_are_refused_before_they_are_read(inside: OpenConsole) -> None:
    csrf = csrf_of(inside.client.get(inside.at("/")).text)
    form = {"csrf": csrf, "reason": "x" * MOST_FORM_BYTES}
    assert inside.client.post(inside.at("/logout"), data=form).status_code == 413


def test_a_form_that_hides_its_size_is_refused_too(inside: OpenConsole) -> None:
    read = 0

    def endless() -> object:
        nonlocal read
        while True:
            read += 4096
            yield b"x" * 4096

    def bounded() -> object:
        for number, chunk in enumerate(endless()):  # type: ignore[call-overload,arg-type]
            if number > 4 * MOST_FORM_BYTES // 4096:
                return
            yield chunk

    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = inside.client.post(inside.at("/logout"), content=bounded(), headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 403
    assert "too large" in answer.text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=x", "--x--"),
        ("application/json", "{}"),
        ("text/plain", "csrf=x"),
        ("application/x-www-form-urlencoded", "csrf=%FF"),
        ("application/x-www-form-urlencoded", "&".join(f"a{k}=1" for k in range(500))),
        ("application/x-www-form-urlencoded", "csrf=a&csrf=b"),
        ("application/x-www-form-urlencoded", "caf\u00e9=1"),
    ],
)
def test_only_plain_forms_are_read(inside: OpenConsole, kind: str, body: str) -> None:
    answer = inside.client.post(inside.at("/logout"), content=body.encode(), headers={"Content-Type": kind})
    assert answer.status_code == 403
    assert inside.client.get(inside.at("/")).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_unknown(inside: OpenConsole, method: str) -> None:
    assert inside.client.request(method, inside.at("/")).status_code == 405


def test_long_addresses_are_refused(inside: OpenConsole) -> None:
    assert inside.client.get(inside.at("/" + "a" * 5_000)).status_code == 414


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", "localhost.evil.example", ""])
def test_a_console_listens_on_this_machine_only(host: str) -> None:
    with pytest.raises(SettingsError, match=r"listens on 127\.0\.0\.1 or ::1 only"):
        listen_on_loopback(host, 0)


def test_a_taken_port_and_one_that_does_not_exist_are_said() -> None:
    with listen_on_loopback("127.0.0.1", 0) as first:
        assert first.getsockname()[0] == "127.0.0.1"
        assert first.family is socket.AF_INET
        with pytest.raises(SettingsError, match="choose another with --port"):
            listen_on_loopback("127.0.0.1", first.getsockname()[1])
    with pytest.raises(SettingsError, match="no such port"):
        listen_on_loopback("127.0.0.1", 70_000)


def test_what_is_wrong_inside_is_told_without_its_text(inside: OpenConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("the cell says 42,000 euros")

    monkeypatch.setattr("verticopula.console.steward_pages.read_entries", fail)
    answer = inside.client.get(inside.at("/history"))
    assert answer.status_code == 500
    assert "RuntimeError" in answer.text
    assert "42,000" not in answer.text
