"""Public keys signed with the keys of certificates: how a party knows another's key although the coordinator relays it.

A signature carries the signer's certificate. It counts if the federation's authority issued that certificate to the
name that the key claims to belong to. Signing is deterministic: a party that was restarted sends the same bytes.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from verticopula.errors import SettingsError
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.network.kit.certificate_issuing import certificates_pem, read_certificates, read_private_key
from verticopula.network.kit.startup_kit import Kit, file_stamp
from verticopula.network.kit.trust_store import TrustedRoot, TrustStore, read_trust, write_trust

logger = logging.getLogger(__name__)

_LENGTH = struct.Struct("<I")
_CONTEXT = b"verticopula introduction 1\0"  # separates the domains: the same key is also used for TLS
# A study may last longer than what is left of a certificate that signed in it. Nobody connects with one that has ended.
_GRACE = timedelta(days=30)


def certificate_authenticity(kit: Kit) -> Authenticity:
    """Signs as this kit's organisation, and knows the others by the certificates that their authorities signed.

    Files that are replaced while the process runs, by a renewal or by a newer notice, hold from then on.
    """
    files = KitFiles(kit)

    def sign(message: bytes) -> bytes:
        signer = files.signer()
        front = signer.certificate.public_bytes(serialization.Encoding.DER)
        signature = signer.key.sign(_CONTEXT + message, padding.PKCS1v15(), hashes.SHA256())
        return _LENGTH.pack(len(front)) + front + signature

    def verify(party: str, message: bytes, signature: bytes) -> bool:
        return _is_signed(
            message,
            signature,
            lambda certificate: not files.trust().problem_with(certificate, party, datetime.now(UTC), _GRACE),
        )

    return Authenticity(sign, verify)


def was_signed(authority: bytes, party: str, message: bytes, signature: bytes, moment: datetime) -> bool:
    """Whether a party signed the message, with a certificate of this authority that was valid at that moment.

    Parameters
    ----------
    authority : its certificates, PEM
    party, message, signature : who signed what, as `certificate_authenticity` signs
    moment : when it is said to have been signed
    """
    try:
        roots = TrustStore(tuple(TrustedRoot(one) for one in x509.load_pem_x509_certificates(authority)))
    except ValueError:
        return False
    return _is_signed(message, signature, lambda certificate: not roots.problem_with(certificate, party, moment))


def _is_signed(message: bytes, signature: bytes, counts: Callable[[x509.Certificate], bool]) -> bool:
    """Whether a certificate that counts signed the message."""
    if len(signature) < _LENGTH.size:
        return False
    end = _LENGTH.size + _LENGTH.unpack_from(signature)[0]
    try:
        certificate = x509.load_der_x509_certificate(signature[_LENGTH.size : end])
        public = certificate.public_key()
        if not isinstance(public, rsa.RSAPublicKey) or not counts(certificate):
            return False
        public.verify(signature[end:], _CONTEXT + message, padding.PKCS1v15(), hashes.SHA256())
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


@dataclass(frozen=True)
class Signer:
    """An organisation's certificate, its private key, and `chain`: the certificates that it shows, as PEM."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey
    chain: str


class KitFiles:
    """A kit's certificate, key and trust, read again when a file has changed; half a renewal is no change yet."""

    def __init__(self, kit: Kit) -> None:
        self._kit, self._lock = kit, threading.Lock()
        self._own, self._others = (kit.certificate, kit.private_key), (kit.authority, kit.notice)
        self._signer, self._trust = read_signer(kit), read_trust(kit)
        self._signed, self._trusted = _stamps(self._own), _stamps(self._others)
        self._keep_roots()

    def signer(self) -> Signer:
        """The certificate, and the key that belongs to it."""
        with self._lock:
            stamps = _stamps(self._own)
            if stamps != self._signed:
                with contextlib.suppress(SettingsError):  # being replaced: the old pair signs until both are there
                    self._signer, self._signed = read_signer(self._kit), stamps
            return self._signer

    def trust(self) -> TrustStore:
        """Whom the kit trusts."""
        with self._lock:
            stamps = _stamps(self._others)
            if stamps != self._trusted:
                self._trusted = stamps
                try:
                    self._trust = read_trust(self._kit, self._trust)
                    self._keep_roots()
                except SettingsError as error:  # half written: the next look finds it whole
                    logger.warning("the trust of before holds: %s", error)
            return self._trust

    def _keep_roots(self) -> None:
        """Bring authority.pem up to the notice: the next notice may be signed by a root that only this one names."""
        if self._trust.text:
            with contextlib.suppress(OSError):  # a kit that cannot be written: the process itself remembers
                write_trust(self._kit.folder, self._kit.name, self._trust)
        self._trusted = _stamps(self._others)


def read_signer(kit: Kit) -> Signer:
    """A kit's certificate and private key; SettingsError unless they belong together."""
    chain, key = read_certificates(kit.certificate), read_private_key(kit.private_key)
    if chain[0].public_key() != key.public_key():
        raise SettingsError(f"{kit.folder}: its certificate belongs to another key than its private-key.pem")
    return Signer(chain[0], key, certificates_pem(chain))


def _stamps(paths: tuple[Path, Path]) -> tuple[tuple[int, int, int], ...]:
    return tuple(file_stamp(path) for path in paths)
