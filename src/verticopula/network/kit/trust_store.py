"""Whom a kit trusts: root certificates, for which names each of them counts, and which certificates were revoked.

It stands in the authority's notice, a file that every root signs which the federation trusts at the time. A notice
needs no secret way: a process takes one from disk or from the coordinator if a root that it trusts already has signed
it, and if it is newer than its own. Kits of earlier versions have none. They trust what `authority.pem` holds, for all
names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from verticopula.errors import SettingsError
from verticopula.network.kit.certificate_issuing import (
    Root,
    certificates_pem,
    fingerprint_of,
    is_authority,
    is_current,
    is_issued_by,
    key_fingerprint,
    key_problem,
    name_of,
    read_certificates,
)
from verticopula.network.kit.startup_kit import AUTHORITY_FILE, AUTHORITY_NOTICE_FILE, Kit, write_private
from verticopula.schema.defaults import COORDINATOR

_CONTEXT = b"verticopula notice 1\0"
_LARGEST = 1 << 20
_RENEW = "ask who provisions the federation for a renewed kit (`verticopula provision --renew {name}`)"


@dataclass(frozen=True)
class TrustedRoot:
    """A root certificate; `names`: for whom it counts, None for everybody who has no root of their own."""

    certificate: x509.Certificate
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Revocation:
    """Certificates of one name that count no more: those made until `until`, and those with these fingerprints."""

    name: str
    until: datetime | None
    fingerprints: tuple[str, ...] = ()
    reason: str = ""

    def covers(self, certificate: x509.Certificate) -> bool:
        if fingerprint_of(certificate) in self.fingerprints:
            return True
        made_before = self.until is not None and certificate.not_valid_before_utc <= self.until
        return made_before and name_of(certificate) == self.name


@dataclass(frozen=True)
class TrustStore:
    """Roots and revocations; `number` grows with every notice, 0 without one."""

    roots: tuple[TrustedRoot, ...]
    revocations: tuple[Revocation, ...] = ()
    number: int = 0
    text: str = field(default="", compare=False)  # the notice as it was signed; empty without one

    def roots_for(self, name: str) -> list[x509.Certificate]:
        """Who may certify this name: its organisation's own authority if it has one, otherwise the federation's."""
        own = [root.certificate for root in self.roots if root.names is not None and name in root.names]
        return own or self.federation_roots

    @property
    def federation_roots(self) -> list[x509.Certificate]:
        return [root.certificate for root in self.roots if root.names is None]

    def problem_with(
        self, certificate: x509.Certificate, name: str, now: datetime, grace: timedelta = timedelta(0)
    ) -> str:
        """Why a certificate does not count for a name, and what to do; empty where it counts.

        Parameters
        ----------
        grace : how long after its end it still counts
        """
        if name_of(certificate) != name:
            return f"the certificate is not one of {name!r}; use the kit that was made for that name"
        if is_authority(certificate):
            return "the certificate is an authority's; expected one of an organisation"
        wrong = key_problem(certificate.public_key())
        if wrong:
            return f"the certificate of {name!r} is refused: {wrong}"
        issuers = [root for root in self.roots_for(name) if is_issued_by(certificate, root)]
        if not issuers:
            return (
                f"the certificate of {name!r} was not signed by a root that is trusted here for that name; "
                "its kit, or this one's authority.pem, belongs to another federation or to a root that was retired: "
                "ask who provisions the federation for the present authority.pem and notice.json"
            )
        revoked = self.revocation_of(certificate)
        if revoked is not None:
            why = f" ({revoked.reason})" if revoked.reason else ""
            return f"the certificate of {name!r} was revoked{why}; {_RENEW.format(name=name)}"
        if not is_current(certificate, now, grace):
            return describe_dates(certificate, name, now)
        if not any(is_current(root, now, grace) for root in issuers):
            return (
                f"the root that signed the certificate of {name!r} ended on {issuers[0].not_valid_after_utc:%Y-%m-%d}; "
                f"{_RENEW.format(name=name)}, which brings a root that lasts"
            )
        return ""

    def revocation_of(self, certificate: x509.Certificate) -> Revocation | None:
        """The revocation that covers it."""
        return next((one for one in self.revocations if one.covers(certificate)), None)


def describe_dates(certificate: x509.Certificate, name: str, now: datetime) -> str:
    """That a certificate has expired or is not valid yet, and what to do; empty where it is valid."""
    if now < certificate.not_valid_before_utc:
        return (
            f"the certificate of {name!r} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M:%S} UTC "
            f"and the clock of this machine says {now:%Y-%m-%d %H:%M:%S} UTC; check the clock"
        )
    if now > certificate.not_valid_after_utc:
        ended = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        return f"the certificate of {name!r} expired on {ended}; {_RENEW.format(name=name)}"
    return ""


# ---- the notice ------------------------------------------------------------------------------------


def sign_notice(
    number: int, roots: Sequence[TrustedRoot], revocations: Sequence[Revocation], signers: Iterable[Root], now: datetime
) -> str:
    """The text of a notice, signed by these roots."""
    body = {
        "number": number,
        "issued": now.isoformat(),
        "roots": [
            {
                "certificate": certificates_pem([root.certificate]),
                "names": None if root.names is None else [*root.names],
            }
            for root in roots
        ],
        "revoked": [
            {
                "name": one.name,
                "until": None if one.until is None else one.until.isoformat(),
                "fingerprints": [*one.fingerprints],
                "reason": one.reason,
            }
            for one in revocations
        ],
    }
    return json.dumps({"notice": body, "signatures": sign_as_roots(_CONTEXT, body, signers)}, indent=1)


def read_notice(text: str, trusted: Iterable[x509.Certificate]) -> TrustStore:
    """What a notice says; SettingsError unless one of these roots has signed it."""
    if len(text) > _LARGEST:
        raise SettingsError("the authority's notice is too large to be one")
    try:
        raw = json.loads(text)
        body, signatures = raw["notice"], raw["signatures"]
        store = _store_of(body, text)
        is_signed = is_signed_by_root(_CONTEXT, body, signatures, trusted)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SettingsError("the authority's notice cannot be read; ask who provisions the federation for it") from None
    if not is_signed:
        raise SettingsError("the authority's notice is not signed by a root that this kit trusts; it was not taken")
    if not store.federation_roots:
        raise SettingsError("the authority's notice names no root of the federation; it was not taken")
    return store


def _store_of(body: Mapping[str, Any], text: str) -> TrustStore:
    roots = tuple(
        TrustedRoot(
            x509.load_pem_x509_certificate(str(one["certificate"]).encode("ascii")),
            None if one["names"] is None else tuple(str(name) for name in one["names"]),
        )
        for one in body["roots"]
    )
    revocations = tuple(
        Revocation(
            str(one["name"]),
            None if one["until"] is None else datetime.fromisoformat(one["until"]),
            tuple(str(digest) for digest in one["fingerprints"]),
            str(one["reason"]),
        )
        for one in body["revoked"]
    )
    if any(one.until is not None and one.until.tzinfo is None for one in revocations) or int(body["number"]) < 1:
        raise ValueError
    return TrustStore(roots, revocations, int(body["number"]), text)


def sign_as_roots(context: bytes, body: Mapping[str, Any], signers: Iterable[Root]) -> dict[str, str]:
    """Fingerprint of a root's key -> its signature of what a notice or another signed file says.

    Parameters
    ----------
    context : separates kinds of files, so that none passes for another
    body : what JSON can hold
    signers : the roots
    """
    signed = _signed_bytes(context, body)
    return {
        key_fingerprint(root.key.public_key()): root.key.sign(signed, padding.PKCS1v15(), hashes.SHA256()).hex()
        for root in signers
    }


def is_signed_by_root(
    context: bytes, body: Mapping[str, Any], signatures: Mapping[str, str], trusted: Iterable[x509.Certificate]
) -> bool:
    """Whether one of these roots has signed the body, as `sign_as_roots` does; ValueError and the like for nonsense."""
    signed = _signed_bytes(context, body)
    return any(_has_signed(root, signatures, signed) for root in trusted)


def _signed_bytes(context: bytes, body: Mapping[str, Any]) -> bytes:
    return context + json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _has_signed(root: x509.Certificate, signatures: Mapping[str, str], signed: bytes) -> bool:
    key = root.public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        return False
    signature = signatures.get(key_fingerprint(key))
    if signature is None:
        return False
    try:
        key.verify(bytes.fromhex(signature), signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


# ---- a kit's files ------------------------------------------------------------------------------------


def read_trust(kit: Kit, known: TrustStore | None = None) -> TrustStore:
    """Whom a kit trusts: its notice if it has one, and otherwise `authority.pem`.

    Parameters
    ----------
    known : whom the process trusts already; their roots may have signed the notice, too
    """
    roots = read_certificates(kit.authority) + ([] if known is None else known.federation_roots)
    path = kit.notice
    if not path.is_file():
        return TrustStore(tuple(TrustedRoot(root) for root in read_certificates(kit.authority)))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"{path} cannot be read; put the authority's notice back there") from None
    return read_notice(text, roots)


def write_trust(folder: Path, name: str, store: TrustStore) -> None:
    """Put a notice into a kit, and the roots that its TLS connections count on.

    Who connects counts on the roots of the coordinator alone: the authority of one organisation must not pass for the
    coordinator. The coordinator counts on all of them, and looks at names itself.
    """
    asked = store.roots_for(COORDINATOR) if name != COORDINATOR else [root.certificate for root in store.roots]
    roots = {fingerprint_of(root): root for root in (*asked, *store.federation_roots)}
    # The roots first: killed in between, a kit trusts a root more or less, and its notice is still signed by one.
    _write_changed(folder / AUTHORITY_FILE, certificates_pem(roots.values()))
    if store.text:
        _write_changed(folder / AUTHORITY_NOTICE_FILE, store.text)


def _write_changed(path: Path, text: str) -> None:
    if not path.is_file() or path.read_bytes() != text.encode():
        write_private(path, text)


def take_notice(kit: Kit, text: str, known: TrustStore) -> TrustStore | None:
    """The trust that a newer notice gives, written into the kit; None if it is not newer.

    SettingsError unless a root of the federation that is trusted already has signed it.
    """
    found = read_notice(text, known.federation_roots)
    if found.number <= known.number:
        return None
    write_trust(kit.folder, kit.name, found)
    return found
