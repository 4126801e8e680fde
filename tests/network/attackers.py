"""What an intruder has at hand: forged certificates, hand-written HTTP/2, connections under any name, and patience."""

from __future__ import annotations

import contextlib
import datetime
import json
import pickle
import queue
import re
import shutil
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from nvflare.fuel.f3.message import Message

from tests.network.harness import Net
from verticopula.network.connection.control_messages import Envelope, Greeting, Refusal, Topic
from verticopula.network.connection.flare_link import _APPLICATION, Link
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.kit.startup_kit import Kit
from verticopula.protocol.messages import REPLY_KINDS, fingerprint
from verticopula.protocol.wire import decode, encode
from verticopula.schema.study_settings import COORDINATOR

_UNTIL_CONNECTED = 120.0
_ASK_AGAIN = 15.0  # seconds without a reply


# ---- certificates ----------------------------------------------------------------------------------


def forged_kit(net: Net, of: str, folder: Path, *, how: str) -> Kit:
    """A copy of a kit whose certificate is `self-signed`, or `expired` though the right authority signed it."""
    kit = net.kit(of)
    shutil.copytree(kit.folder, folder)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.load_pem_x509_certificate(kit.certificate.read_bytes()).subject
    issuer, signer = subject, key
    now = datetime.datetime.now(datetime.UTC)
    start, end = now - datetime.timedelta(days=1), now + datetime.timedelta(days=30)
    if how == "expired":
        known = json.loads((net.folder / "kits" / "authority" / "cert.json").read_text("utf-8"))
        issuer = x509.load_pem_x509_certificate(known["root_cert"].encode()).subject
        loaded = serialization.load_pem_private_key(known["root_pri_key"].encode(), password=None)
        assert isinstance(loaded, rsa.RSAPrivateKey)
        signer = loaded
        start, end = now - datetime.timedelta(days=30), now - datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), start, end)
    signed = builder.sign(signer, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    forged = replace(kit, folder=folder)
    forged.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    forged.private_key.write_bytes(secret)
    return forged


def common_name(kit: Kit) -> str:
    subject = x509.load_pem_x509_certificate(kit.certificate.read_bytes()).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


# ---- without any of our code -----------------------------------------------------------------------


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")


class RawStream:
    """One gRPC stream over mutual TLS, written by hand, so that any length can be announced."""

    def __init__(self, kit: Kit) -> None:
        context = ssl.create_default_context(cafile=str(kit.authority))
        context.load_cert_chain(kit.certificate, kit.private_key)
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", kit.port))
        self._socket = context.wrap_socket(plain, server_hostname=kit.host)
        headers = {
            ":method": "POST",
            ":scheme": "https",
            ":path": "/streamer.Streamer/Stream",
            ":authority": kit.host,
            "te": "trailers",
            "content-type": "application/grpc",
        }
        packed = b"".join(b"\x10" + _text(name) + _text(value) for name, value in headers.items())
        self._socket.sendall(PREFACE + _frame(1, 4, 1, packed))
        self._buffer, self._windows, self.closed = b"", [65_535, 65_535], False

    def send(self, announced: int, seconds: float = 60.0) -> int:
        """Send a message of so many bytes, as fast as the other side takes it; returns how many it took."""
        head, sent, end = b"\x00" + struct.pack(">I", announced), 0, time.monotonic() + seconds
        while sent < announced and not self.closed and time.monotonic() < end:
            room = min(*self._windows, 16_000, announced - sent)
            if room <= 16:
                self._read(1.0)
                continue
            data = (head if sent == 0 else b"") + bytes(room - len(head))
            try:
                self._socket.sendall(_frame(0, 0, 1, data))
            except OSError:
                break
            self._windows = [window - len(data) for window in self._windows]
            sent += len(data)
            if sent % (1 << 20) < 16_000:
                self._read(0.001)
        return sent

    def close(self) -> None:
        self._socket.close()

    def _read(self, seconds: float) -> None:
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(65_536)
        except TimeoutError:
            return
        except OSError:
            data = b""
        self.closed = self.closed or not data
        self._buffer += data
        while len(self._buffer) >= 9 and len(self._buffer) >= 9 + int.from_bytes(self._buffer[:3], "big"):
            size, kind, flags = int.from_bytes(self._buffer[:3], "big"), self._buffer[3], self._buffer[4]
            stream, body = int.from_bytes(self._buffer[5:9], "big"), self._buffer[9 : 9 + size]
            self._buffer = self._buffer[9 + size :]
            self._take(kind, flags, stream, body)

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == 8:
            self._windows[1 if stream else 0] += int.from_bytes(body, "big")
        elif kind == 4 and not flags:
            for name, value in struct.iter_unpack(">HI", body):
                self._windows[1] += value - 65_535 if name == 4 else 0
            self._socket.sendall(_frame(4, 1, 0, b""))
        elif kind == 6 and not flags:
            self._socket.sendall(_frame(6, 1, 0, body))
        elif kind in (3, 7) or (kind == 1 and flags & 1):
            self.closed = True


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


class Canary:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")

    def pickled(self) -> bytes:
        return pickle.dumps(self)

    @property
    def sang(self) -> bool:
        return self.path.exists()


# ---- with F3, as somebody who has a kit ------------------------------------------------------------


@dataclass
class Caller:
    """A connection to the coordinator under any name, which sends any message."""

    kit: Kit
    name: str = ""
    session: str = field(default_factory=lambda: f"intruder-{time.monotonic_ns()}")
    received: queue.Queue[Envelope] = field(default_factory=queue.Queue)
    sent: list[bytes] = field(default_factory=list)
    other_session: str = ""
    serial: int = 0

    def __post_init__(self) -> None:
        kit = replace(self.kit, name=self.name or self.kit.name)
        self.link = Link(kit, frozenset({COORDINATOR}), self._on_bytes)
        self.link._driver._is_coordinator = lambda received, said: True  # whatever it proves, and to whom

    def __enter__(self) -> Caller:
        self.link.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.link.stop()

    def connect(self) -> Caller:
        """Wait for F3's own handshake."""
        end = time.monotonic() + _UNTIL_CONNECTED
        while self.link._communicator.find_endpoint(COORDINATOR) is None:
            if time.monotonic() > end:
                raise TimeoutError("no connection")
            time.sleep(0.02)
        return self

    def hello(self) -> Caller:
        """Greet until welcomed; from then on messages have the right session."""
        self.connect()
        end = time.monotonic() + _UNTIL_CONNECTED
        while not self.other_session:
            self.say_hello(self.session)
            with contextlib.suppress(queue.Empty):
                found = self.received.get(timeout=1.0)
                if found.topic == "welcome":
                    self.other_session = decode(found.body.tobytes(), (Greeting,)).session
            if time.monotonic() > end:
                raise TimeoutError("no welcome")
        return self

    def say_hello(self, session: str) -> None:
        self.raw(self.envelope("hello", "", encode(Greeting(session, "0")), session=""))

    def envelope(self, topic: Topic, key: str, body: bytes, session: str | None = None, **changes: Any) -> bytes:
        self.serial += 1
        own = self.other_session if session is None else session
        message = Envelope(topic, own, self.serial, key, np.frombuffer(body, dtype=np.uint8))
        return encode(replace(message, **changes))

    def message(self, topic: Topic, key: str, body: bytes, **changes: Any) -> None:
        self.raw(self.envelope(topic, key, body, **changes))

    def raw(self, payload: bytes, application: int = _APPLICATION, headers: dict[str, Any] | None = None) -> None:
        self.sent.append(payload)
        communicator = self.link._communicator
        communicator.send(communicator.find_endpoint(COORDINATOR), application, Message(headers, payload))

    def wait_for(self, topic: Topic, seconds: float = 120.0) -> Envelope:
        end = time.monotonic() + seconds
        while True:
            found = self.received.get(timeout=max(end - time.monotonic(), 0.01))
            if found.topic == topic:
                return found

    def _on_bytes(self, peer: str, payload: bytes) -> None:
        self.received.put(decode(payload, (Envelope,)))


class EvilCoordinator:
    """Holds the coordinator's own kit, and asks what it likes."""

    def __init__(self, kit: Kit) -> None:
        self.replies: queue.Queue[tuple[str, Topic, str, bytes]] = queue.Queue()
        self.sessions = PeerSessions(kit, lambda *message: self.replies.put(message))

    def __enter__(self) -> EvilCoordinator:
        self.sessions.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.sessions.stop()

    def wait_for(self, *names: str, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not all(self.sessions.connected(name) for name in names):
            if time.monotonic() > end:
                raise TimeoutError(f"{names} did not connect")
            time.sleep(0.05)

    def send(self, peer: str, topic: Topic, key: str, body: bytes) -> None:
        assert self.sessions.send(peer, topic, key, body)

    def ask(self, peer: str, request: Any, seconds: float = 120.0) -> Any:
        """A party's reply, or its Refusal; asked again where a new connection has lost the request."""
        key, body = fingerprint(request), encode(request)
        end = time.monotonic() + seconds
        while True:
            self.sessions.send(peer, "ask", key, body)
            with contextlib.suppress(queue.Empty):
                return self._reply_to(peer, key, min(_ASK_AGAIN, max(end - time.monotonic(), 0.01)))
            if time.monotonic() > end:
                raise TimeoutError(f"{peer} did not reply")

    def _reply_to(self, peer: str, key: str, seconds: float) -> Any:
        end = time.monotonic() + seconds
        while True:
            found = self.replies.get(timeout=max(end - time.monotonic(), 0.01))
            if found[0] == peer and found[2] == key and found[1] in ("answer", "refusal"):
                return decode(found[3], REPLY_KINDS if found[1] == "answer" else (Refusal,))

    def raw(self, peer: str, payload: bytes, application: int = _APPLICATION) -> None:
        communicator = self.sessions._link._communicator
        communicator.send(communicator.find_endpoint(peer), application, Message(None, payload))


# ---- what the victim wrote down --------------------------------------------------------------------


@dataclass
class LogTail:
    """A log file from a point in time on."""

    path: Path
    start: int = 0

    def mark(self) -> LogTail:
        self.start = self.path.stat().st_size if self.path.exists() else 0
        return self

    @property
    def text(self) -> str:
        if not self.path.exists():
            return ""
        return self.path.read_bytes()[self.start :].decode("utf-8", "replace")

    def wait(self, pattern: str, seconds: float = 120.0) -> str:
        """The first line that fits; AssertionError with the log if none comes."""
        end = time.monotonic() + seconds
        while True:
            found = next((line for line in self.text.splitlines() if re.search(pattern, line)), None)
            if found is not None:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"no line with {pattern!r} in the log:\n{self.text}")
            time.sleep(0.02)


def shorten(line: str) -> str:
    """A log line without its time, ports and paths."""
    line = re.sub(r"^[\d-]+ [\d:,]+ ", "", line)
    line = re.sub(r"\b(ipv4:)?127\.0\.0\.1:\d+|localhost:\d+", "HOST:PORT", line)
    line = re.sub(r"\bCN\d+", "CN", line)
    line = re.sub(r"\bsmall-[0-9a-f]{16}", "small-STUDY", line)
    line = re.sub(r"(?<![\w.])/(?:[\w.-]+/)+[\w.-]*", "PATH", line)
    return line if len(line) <= 230 else f"{line[:229]}…"


def resident(pid: int, field: str = "VmHWM") -> int:
    """Bytes of a process's memory, now (`VmRSS`) or at most so far."""
    text = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(re.search(rf"{field}:\s+(\d+)", text)[1]) * 1024  # type: ignore[index]


@contextlib.contextmanager
def rogue_server(net: Net, party: str, folder: Path) -> Iterator[Link]:
    """A party that listens where the coordinator should, with its own certificate."""
    shutil.copytree(net.kit(party).folder, folder)
    own = net.kit(party)
    link = Link(Kit(folder, "coordinator", COORDINATOR, own.host, own.port), frozenset({"right"}), lambda *_: None)
    link.start()
    try:
        yield link
    finally:
        link.stop()
