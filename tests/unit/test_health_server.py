"""The pages for a monitoring system: three, for this machine, whatever clients do."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from verticopula.errors import SettingsError
from verticopula.network.operations import health_server
from verticopula.network.operations.health_server import HealthServer


@pytest.fixture
def why() -> list[str]:
    return [""]


@pytest.fixture
def server(why: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[HealthServer]:
    monkeypatch.setattr(threading, "excepthook", lambda caught: None)
    found = HealthServer("127.0.0.1", 0, lambda: b"verticopula_ready 1.0\n", lambda: why[0])
    found.start()
    yield found
    found.shutdown()
    found.server_close()


def ask(server: HealthServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=600)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def test_three_pages_and_no_other(server: HealthServer, why: list[str]) -> None:
    assert ask(server, "/healthz") == (200, "ok\n")
    assert ask(server, "/readyz") == (200, "ok\n")
    assert ask(server, "/metrics?name=x") == (200, "verticopula_ready 1.0\n")
    why[0] = "no session with the coordinator"
    assert ask(server, "/readyz") == (503, "no session with the coordinator\n")
    assert ask(server, "/healthz")[0] == 200
    for path in ("/", "/metrics/", "/../healthz", "/debug/pprof", "/kit.toml", "/%2e%2e/id.key"):
        assert ask(server, path)[0] == 404, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_only_reading(server: HealthServer, method: str) -> None:
    status, said = ask(server, "/metrics", method)
    assert status == 501
    assert "verticopula_ready" not in said


def test_head_has_no_body(server: HealthServer) -> None:
    assert ask(server, "/metrics", "HEAD") == (200, "")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_page_of_another_name_that_points_here_gets_nothing(server: HealthServer, host: str) -> None:
    status, said = ask(server, "/metrics", Host=host)
    assert status == 403
    assert "verticopula_ready" not in said


def test_names_of_this_machine_are_answered(server: HealthServer) -> None:
    for host in ("localhost", "LOCALHOST:9100", "127.0.0.1:9100", "[::1]:9100", "[::1]"):
        assert ask(server, "/healthz", Host=host)[0] == 200, host


def test_elsewhere_any_name_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_server, "is_loopback", lambda host: False)
    monkeypatch.setattr(threading, "excepthook", lambda caught: None)
    found = HealthServer("127.0.0.1", 0, lambda: b"", lambda: "")
    found.start()
    assert ask(found, "/healthz", Host="10.0.0.7:9100")[0] == 200
    found.shutdown()
    found.server_close()


@pytest.mark.parametrize(
    "sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"A" * 100_000]
)
def test_what_is_no_request_gets_no_metrics_and_the_next_one_is_answered(server: HealthServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=600) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        said = b""
        try:
            while more := client.recv(65_536):
                said += more
        except ConnectionResetError:
            pass
    assert b"verticopula_ready" not in said
    assert ask(server, "/healthz")[0] == 200


def test_clients_that_say_nothing_take_no_more_than_their_places_and_are_cut(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "_WHOLE_SECONDS", 1.0)
    threads = threading.active_count()
    where = ("127.0.0.1", server.server_address[1])
    silent = [socket.create_connection(where, timeout=600) for _ in range(100)]
    for client in silent:
        assert client.recv(1) == b""  # closed: at once, or when its time is over
        client.close()
    assert threading.active_count() <= threads + 2 * 16
    assert ask(server, "/healthz")[0] == 200


def test_a_thread_of_this_package_that_dies_is_told_and_a_librarys_is_not(server: HealthServer) -> None:
    def library() -> None:
        raise RuntimeError

    thread = threading.Thread(target=library)
    thread.start()
    thread.join()
    assert ask(server, "/healthz")[0] == 200
    thread = threading.Thread(target=HealthServer, args=("127.0.0.1", -1, None, None))
    thread.start()
    thread.join()
    assert ask(server, "/healthz") == (503, "a thread has ended with an error\n")


def test_a_port_in_use_is_an_error_that_says_so(server: HealthServer) -> None:
    port = server.server_address[1]
    with pytest.raises(SettingsError, match=f"cannot listen for metrics on 127.0.0.1, port {port}: Address already"):
        HealthServer("127.0.0.1", port, lambda: b"", lambda: "")
