"""Who may connect to the coordinator, and how both ends introduce themselves before the first message.

An introduction travels in the header of a connection, inside mutual TLS. So an end is told at once, with both versions,
why it cannot take part, whatever messages it speaks. The coordinator also signs the other end's random number with the
key of its certificate: whoever connects sees which certificate it is, and whether that was revoked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from importlib.metadata import version

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from verticopula.errors import VerticopulaError
from verticopula.network.kit.certificate_issuing import current_time, fingerprint_of
from verticopula.network.kit.key_signing import KitFiles
from verticopula.network.kit.peer_certificates import PEERS_FILE, read_peer_certificates, write_peer_certificates
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.kit.trust_store import TrustStore
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.schema.defaults import COORDINATOR
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import describe_federation, federation_fingerprint

logger = logging.getLogger(__name__)

_CONTEXT = b"verticopula coordinator 1\0"
_LONGEST = 64


@dataclass(frozen=True)
class Introduction:
    """What an end says about itself.

    Attributes
    ----------
    process : one connection's end, as long as it lives; a copy of a kit that runs elsewhere has another
    started : when it began, in seconds since 1970
    nonce : random, to be signed by the coordinator
    notice : number of the authority's notice that it has
    federation, federation_version : fingerprint and version of its federation file
    part_bytes : of the longest part of a message that it takes; 0 where it takes no message in parts
    """

    process: str
    started: float
    software: str
    messages: int
    federation: str
    federation_version: int
    nonce: str = ""
    notice: int = 0
    part_bytes: int = 0

    @classmethod
    def new(cls, part_bytes: int = 0) -> Introduction:
        """Of an end that begins now; about its files it says nothing yet."""
        process, started = secrets.token_hex(16), time.time()
        return cls(process, started, version("verticopula"), MESSAGE_VERSION, "", 0, part_bytes=part_bytes)

    def with_files(self, federation: Federation | None, notice: int) -> Introduction:
        """With a fresh random number, and what its files say now."""
        said = ("", 0) if federation is None else (federation_fingerprint(federation), federation.version)
        return replace(self, nonce=secrets.token_hex(16), notice=notice, federation=said[0], federation_version=said[1])

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode("ascii")

    @classmethod
    def from_bytes(cls, raw: bytes) -> Introduction | None:
        """None where it makes no sense."""
        try:
            said = json.loads(raw)
            made = cls(
                str(said["process"])[:_LONGEST],
                float(said["started"]),
                str(said["software"])[:_LONGEST],
                int(said["messages"]),
                str(said["federation"])[:_LONGEST],
                int(said["federation_version"]),
                str(said["nonce"])[:_LONGEST],
                int(said["notice"]),
                int(said.get("part_bytes", 0)),
            )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None
        is_sensible = made.process and math.isfinite(made.started) and made.part_bytes >= 0
        return made if is_sensible else None

    @property
    def described_federation(self) -> str:
        return describe_federation(self.federation_version, self.federation)


# ---- the coordinator's proof ------------------------------------------------------------------------------------


def coordinator_proof(files: KitFiles, peer: str, nonce: str) -> bytes:
    """The coordinator's certificate, and its signature of who connects and of their random number."""
    signer = files.signer()
    signature = signer.key.sign(_proof_message(signer.certificate, peer, nonce), padding.PKCS1v15(), hashes.SHA256())
    shown = signer.certificate.public_bytes(serialization.Encoding.DER)
    coded = {name: base64.b64encode(data).decode("ascii") for name, data in (("c", shown), ("s", signature))}
    return json.dumps(coded).encode("ascii")


def proof_problem(raw: bytes, trust: TrustStore, peer: str, nonce: str) -> str:
    """Why the other end is not the coordinator; empty where it is."""
    try:
        coded = json.loads(raw)
        certificate = x509.load_der_x509_certificate(base64.b64decode(coded["c"]))
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise ValueError
        message = _proof_message(certificate, peer, nonce)
        key.verify(base64.b64decode(coded["s"]), message, padding.PKCS1v15(), hashes.SHA256())
    except (ValueError, KeyError, TypeError, InvalidSignature, RecursionError):
        return "the other end does not prove that it holds the coordinator's key"
    return trust.problem_with(certificate, COORDINATOR, current_time())


def _proof_message(certificate: x509.Certificate, peer: str, nonce: str) -> bytes:
    said = json.dumps([peer, nonce, fingerprint_of(certificate)])
    return _CONTEXT + hashlib.sha256(said.encode()).digest()


# ---- admission ------------------------------------------------------------------------------------


@dataclass
class PeerAdmission:
    """Decides about every connection to the coordinator, and remembers what it told whom.

    Attributes
    ----------
    own : what the coordinator says about itself
    peers : who is in its federation file
    leads : which of them are study leads, of whom several programs may be connected
    coming : why somebody who is not in its file, but in one that is proposed, cannot connect yet; empty for others
    """

    kit: Kit
    files: KitFiles
    own: Introduction = field(default_factory=Introduction.new)
    peers: Collection[str] = ()
    leads: Collection[str] = ()
    coming: Callable[[str], str] = lambda name: ""
    _refused: dict[str, str] = field(default_factory=dict)
    _introduced: dict[str, Introduction] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._newest = read_peer_certificates(self.kit)

    def use(self, federation: Federation | None, peers: Collection[str]) -> None:
        """From now on these may connect, under this federation file."""
        with self._lock:
            self.own, self.peers = self.own.with_files(federation, self.files.trust().number), peers
            self.leads = () if federation is None else federation.network.leads

    def refusal(
        self,
        name: str,
        certificate: x509.Certificate,
        said: Introduction | None,
        live: Iterable[Introduction | None] = (),
    ) -> str:
        """Why a connection is refused, in words for whoever wants it; empty where it is admitted.

        Parameters
        ----------
        name : the common name of its certificate
        said : its introduction; None where an earlier release makes none
        live : introductions of that name's connections that are open
        """
        unknown = self.unknown_peer(name, said)  # without the lock: whoever says who is coming may look here
        with self._lock:
            reason = unknown or self._reason(name, certificate, said, live)
            if name in self.peers:
                if reason:
                    self._refused[name] = reason
                else:
                    self._refused.pop(name, None)
                    self._remember(name, certificate)
                    if said is not None:
                        self._introduced[name] = said
        return reason

    def ended(self, name: str, reason: str) -> None:
        """Remember why a connection was ended."""
        with self._lock:
            self._refused[name] = reason

    def has_federation(self, name: str, federation: str, number: int) -> None:
        """Remember that somebody who is connected has another federation file by now: its fingerprint and version."""
        with self._lock:
            said = self._introduced.get(name)
            if said is not None:
                self._introduced[name] = replace(said, federation=federation[:_LONGEST], federation_version=number)

    def unknown_peer(self, name: str, said: Introduction | None = None) -> str:
        """Why somebody may not connect whom the federation file does not name; empty for those it names."""
        if name in self.peers:
            return ""
        yours = "" if said is None or not said.federation else f", yours is {said.described_federation}"
        return self.coming(name) or (
            f"{name!r} is not in the coordinator's federation file, {self.own.described_federation}{yours}; "
            "ask who runs the coordinator for the file that names you"
        )

    def note(self, name: str) -> str:
        """What keeps somebody out who is in the federation; empty if nothing is known."""
        with self._lock:
            if name in self._refused:
                return self._refused[name]
            seen = self._newest.get(name)
        if seen is not None and name in self.peers:
            return self.files.trust().problem_with(seen, name, current_time())
        return ""

    def introduced(self, name: str) -> Introduction | None:
        """What somebody said about themselves when they last connected."""
        with self._lock:
            return self._introduced.get(name)

    def _reason(
        self, name: str, certificate: x509.Certificate, said: Introduction | None, live: Iterable[Introduction | None]
    ) -> str:
        now, trust = current_time(), self.files.trust()
        wrong = trust.problem_with(certificate, name, now)
        if wrong:
            return wrong
        newest = self._newest.get(name)
        if (
            newest is not None
            and newest.not_valid_before_utc > certificate.not_valid_before_utc
            and trust.problem_with(newest, name, now) == ""
        ):
            return (
                f"a newer certificate of {name!r} is in use, made on {_minute(newest.not_valid_before_utc)}; this one "
                f"was made on {_minute(certificate.not_valid_before_utc)}: use the renewed kit, and stop the old one"
            )
        if said is not None and said.messages != self.own.messages:
            return (
                f"{name!r} speaks message version {said.messages} (verticopula {said.software}), the coordinator "
                f"{self.own.messages} (verticopula {self.own.software}); install the same release at both"
            )
        if name in self.leads:  # may look at several studies at once
            return ""
        mine = (0.0, "") if said is None else (said.started, said.process)
        others = [(one.started, one.process) for one in live if one is not None]
        if any(other > mine and other[1] != mine[1] for other in others):
            return (
                f"another process that was started later is connected with the kit of {name!r}; stop one of them. If "
                f"the other is not yours, have the certificate revoked (`verticopula revoke {name}`)"
            )
        return ""

    def _remember(self, name: str, certificate: x509.Certificate) -> None:
        known = self._newest.get(name)
        if known is not None and fingerprint_of(known) == fingerprint_of(certificate):
            return
        self._newest[name] = certificate
        try:
            write_peer_certificates(self.kit, self._newest)
        except OSError as error:  # a full disk keeps nobody out
            logger.error("cannot write %s: %s", PEERS_FILE, error.strerror)


def read_federation(kit: Kit) -> Federation | None:
    """The kit's federation file; None while it cannot be read."""
    try:
        return kit.federation
    except VerticopulaError:
        return None


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
