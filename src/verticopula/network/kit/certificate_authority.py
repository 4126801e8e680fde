"""The authority's folder: the roots with their keys, the parties' id key, who has a kit, and what was revoked.

    cert.json     the root that signs, and those that it has replaced and that are still trusted
    issued.json   who has a kit
    trust.json    number of the last notice, revocations, organisations' own authorities, keys that were certified
    id.key        the parties' common key

It holds nobody's private key but its own. Every file is there whole or as it was before, so a crash costs nothing:
the command is run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from verticopula.errors import SettingsError
from verticopula.network.kit.certificate_issuing import (
    Root,
    certificates_pem,
    ends_within_a_year,
    extend_root,
    fingerprint_of,
    is_authority,
    is_current,
    is_issued_by,
    issue_certificate,
    key_fingerprint,
    key_pem,
    key_problem,
    name_of,
    new_root,
    serves_as,
)
from verticopula.network.kit.startup_kit import AUTHORITY_NOTICE_FILE, ID_KEY_FILE, new_id_key, write_private
from verticopula.network.kit.trust_store import Revocation, TrustedRoot, TrustStore, read_notice, sign_notice

_ROOTS_FILE = "cert.json"  # the name, and the first two entries, are those of NVIDIA FLARE, which made it before
_ISSUED_FILE = "issued.json"
_TRUST_FILE = "trust.json"
_SECOND = timedelta(seconds=1)


@dataclass
class Authority:
    """What signs certificates; `save` writes it back.

    Attributes
    ----------
    root : signs from now on
    replaced : earlier roots that are still trusted
    issued : who has a kit; for the coordinator, under which host
    enrolled : whose private key was made at home; a renewal needs a request of theirs
    organisations : name -> certificate of the organisation's own authority, which alone counts for that name
    keys : fingerprint of a public key -> the name that it was certified for
    fingerprints : name -> fingerprints of its certificates that were made or taken here
    notes : what was done besides what was asked for, to be shown
    """

    folder: Path
    root: Root
    replaced: list[Root] = field(default_factory=list)
    issued: dict[str, str] = field(default_factory=dict)
    enrolled: set[str] = field(default_factory=set)
    organisations: dict[str, x509.Certificate] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    fingerprints: dict[str, list[str]] = field(default_factory=dict)
    revocations: list[Revocation] = field(default_factory=list)
    number: int = 0
    notes: list[str] = field(default_factory=list)
    _retired: list[Root] = field(default_factory=list)  # they sign once more, for kits that know no other

    # ---- the folder ------------------------------------------------------------------------

    @classmethod
    def open(cls, folder: Path, now: datetime) -> Authority:
        """The authority of a folder, made if there is none; one that has ended, or soon will, is extended."""
        folder.mkdir(mode=0o700, exist_ok=True, parents=True)
        path = folder / ID_KEY_FILE
        if not path.exists():
            write_private(path, new_id_key())
        if not (folder / _ROOTS_FILE).is_file():
            return cls(folder, new_root(now))
        return cls.read(folder)._extended(now)

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """The authority of a folder as it is; SettingsError if there is none."""
        if not (folder / _ROOTS_FILE).is_file():
            raise SettingsError(f"{folder} holds no authority: `verticopula provision` makes one")
        try:
            roots = json.loads((folder / _ROOTS_FILE).read_text(encoding="utf-8"))
            first, *others = (_read_root(entry) for entry in (roots, *roots.get("replaced", ())))
            made = cls(folder, first, others, _read_json(folder / _ISSUED_FILE))
            said = _read_json(folder / _TRUST_FILE)
            made.number = int(said.get("number", 0))
            made.enrolled = set(said.get("enrolled", ()))
            made.organisations = {
                name: x509.load_pem_x509_certificate(text.encode("ascii"))
                for name, text in said.get("organisations", {}).items()
            }
            made.keys, made.fingerprints = dict(said.get("keys", {})), dict(said.get("fingerprints", {}))
            notice = folder / AUTHORITY_NOTICE_FILE
            if notice.is_file():
                kept = read_notice(notice.read_text(encoding="utf-8"), [root.certificate for root in made.roots])
                made.revocations, made.number = list(kept.revocations), max(made.number, kept.number)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, SettingsError):
                raise
            raise SettingsError(f"{folder} cannot be read as an authority's folder") from None
        return made

    def save(self, now: datetime) -> TrustStore:
        """Write everything, and a new notice where something changed that it says; returns whom kits trust now."""
        first, *others = (
            {"root_cert": certificates_pem([root.certificate]), "root_pri_key": key_pem(root.key)}
            for root in self.roots
        )
        write_private(self.folder / _ROOTS_FILE, json.dumps({**first, **({"replaced": others} if others else {})}))
        store = self._notice(now)
        said = {
            "number": self.number,
            "enrolled": sorted(self.enrolled),
            "organisations": {name: certificates_pem([one]) for name, one in self.organisations.items()},
            "keys": self.keys,
            "fingerprints": self.fingerprints,
        }
        write_private(self.folder / _TRUST_FILE, json.dumps(said, indent=1))
        write_private(self.folder / _ISSUED_FILE, json.dumps(self.issued, indent=1))
        return store

    def _notice(self, now: datetime) -> TrustStore:
        roots = [TrustedRoot(root.certificate) for root in self.roots]
        roots += [TrustedRoot(root, (name,)) for name, root in self.organisations.items()]
        wanted = TrustStore(tuple(roots), tuple(self.revocations))
        path = self.folder / AUTHORITY_NOTICE_FILE
        if path.is_file():
            known = read_notice(path.read_text(encoding="utf-8"), [root.certificate for root in self.roots])
            if replace(known, number=0, text="") == wanted:
                return known
        self.number += 1
        text = sign_notice(self.number, roots, self.revocations, [*self.roots, *self._retired], now)
        write_private(path, text)
        return replace(wanted, number=self.number, text=text)

    @property
    def roots(self) -> Iterator[Root]:
        """All roots that are trusted, the one that signs first."""
        yield self.root
        yield from self.replaced

    @property
    def id_key(self) -> str:
        return (self.folder / ID_KEY_FILE).read_text(encoding="ascii")

    # ---- roots ------------------------------------------------------------------------

    def _extended(self, now: datetime) -> Authority:
        if ends_within_a_year(self.root.certificate, now):
            ended = self.root.certificate.not_valid_after_utc
            self.root = extend_root(self.root, now)
            self.notes.append(
                f"The root certificate would have ended on {ended:%Y-%m-%d}: its key is certified until "
                f"{self.root.certificate.not_valid_after_utc:%Y-%m-%d} now. Everybody needs the new authority.pem by "
                "then; processes get it from the coordinator when they connect. --rotate-root makes a new key."
            )
        return self

    def rotate_root(self, now: datetime) -> None:
        """A new root signs from now on; the present one stays trusted until it is retired."""
        self.replaced = [root for root in (self.root, *self.replaced) if is_current(root.certificate, now)]
        self.root = new_root(now)

    def retire_roots(self) -> None:
        """Trust no root but the one that signs."""
        if not self.replaced:
            raise SettingsError("there is no earlier root to retire; --rotate-root makes a new one first")
        self._retired, self.replaced = self.replaced, []

    # ---- certificates ------------------------------------------------------------------------

    def certify(self, name: str, key: rsa.RSAPublicKey, now: datetime, host: str | None) -> x509.Certificate:
        """A certificate for a name; SettingsError for a key that is somebody else's, or weak."""
        wrong = key_problem(key)
        if wrong:
            raise SettingsError(f"the request of {name!r} is refused: {wrong}")
        self._take_key(name, key)
        covered = [one.until for one in self.revocations if one.name == name and one.until is not None]
        made = max([now, *(until + _SECOND for until in covered)])  # or the revocation would cover it as well
        certificate = issue_certificate(self.root, name, key, made, host)
        self.organisations.pop(name, None)
        self._remember(name, certificate)
        return certificate

    def take_organisation(
        self, name: str, chain: list[x509.Certificate], issuer: x509.Certificate, now: datetime, host: str | None
    ) -> None:
        """Let an organisation's own authority certify its name, and nobody else do so.

        SettingsError unless its certificate is one that this federation's processes would take.
        """
        wrong = _organisation_problem(name, chain, issuer, now, host)
        others = [root.certificate for root in self.roots]
        others += [one for other, one in self.organisations.items() if other != name]
        key = issuer.public_key()
        if not wrong and any(one.public_key() == key for one in others):
            wrong = "its authority certifies somebody else here; every name has an authority of its own"
        if wrong:
            raise SettingsError(f"the certificate of {name!r} is refused: {wrong}")
        public = chain[0].public_key()
        assert isinstance(public, rsa.RSAPublicKey)  # `_organisation_problem`
        self._take_key(name, public)
        self.organisations[name] = issuer
        self.enrolled.add(name)
        self._remember(name, chain[0])

    def revoke(self, name: str, now: datetime, reason: str, certificate: x509.Certificate | None = None) -> Revocation:
        """Let no certificate of a name count that was made until now; or only the given one."""
        if certificate is not None:
            if name_of(certificate) != name:
                raise SettingsError(f"that certificate is not one of {name!r}")
            made = Revocation(name, None, (fingerprint_of(certificate),), reason)
        else:
            made = Revocation(name, now, tuple(self.fingerprints.get(name, ())), reason)
        self.revocations.append(made)
        return made

    def _take_key(self, name: str, key: rsa.RSAPublicKey) -> None:
        digest = key_fingerprint(key)
        owner = self.keys.get(digest, name)
        if owner != name:
            raise SettingsError(f"the request of {name!r} is refused: its key was certified for {owner!r} before")
        self.keys[digest] = name

    def _remember(self, name: str, certificate: x509.Certificate) -> None:
        self.fingerprints.setdefault(name, []).append(fingerprint_of(certificate))


def _organisation_problem(
    name: str, chain: list[x509.Certificate], issuer: x509.Certificate, now: datetime, host: str | None
) -> str:
    """What keeps a certificate of an organisation's own authority from being used; empty if nothing does."""
    certificate = chain[0]
    if name_of(certificate) != name:
        return f"its common name is {name_of(certificate) or 'missing, or there are several'!r}; expected {name!r}"
    if is_authority(certificate):
        return "it may sign other certificates; expected one that may not"
    wrong = key_problem(certificate.public_key()) or serves_as(certificate, host)
    if wrong:
        return wrong
    if not is_current(certificate, now):
        start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return f"it is valid from {start:%Y-%m-%d} to {end:%Y-%m-%d}"
    if not is_authority(issuer) or not is_current(issuer, now):
        return "the certificate given as its authority is none, or is not valid now"
    if key_problem(issuer.public_key()):
        return f"of its authority, {key_problem(issuer.public_key())}"
    if not is_issued_by(certificate, issuer):
        return "the authority given did not sign it; give the certificate of the one that did, also if that is no root"
    return ""


def _read_root(entry: dict[str, Any]) -> Root:
    key = serialization.load_pem_private_key(entry["root_pri_key"].encode("ascii"), None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise TypeError
    return Root(x509.load_pem_x509_certificate(entry["root_cert"].encode("ascii")), key)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (OSError, ValueError):
        raise SettingsError(f"{path} cannot be read") from None
