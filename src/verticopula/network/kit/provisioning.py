"""Start-up kits from a federation file: certificates for mutual TLS, and what an organisation needs besides.

Run again on the same folder, it signs for organisations that are new; everybody else keeps the key they have. Renewal,
new roots, requests for keys that were made at home and organisations' own authorities are orders to the same function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from verticopula.errors import SchemaError, SettingsError
from verticopula.network.kit.certificate_authority import Authority
from verticopula.network.kit.certificate_issuing import (
    certificates_pem,
    current_time,
    key_pem,
    new_key,
    read_certificates,
)
from verticopula.network.kit.enrolment import EnrolmentRequest, read_request, write_answer
from verticopula.network.kit.signed_federation import (
    SIGNED_FEDERATION_FILE,
    check_names,
    members_of,
    read_kept,
    roles_of,
    sign_federation,
)
from verticopula.network.kit.startup_kit import (
    CERTIFICATE_FILE,
    FEDERATION_FILE,
    ID_KEY_FILE,
    KIT_FILE,
    PID_FILE,
    PRIVATE_KEY_FILE,
    Kit,
    Role,
    new_id_key,
    write_private,
)
from verticopula.network.kit.trust_store import Revocation, TrustStore, write_trust
from verticopula.schema.defaults import COORDINATOR
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import federation_file_digest, federation_fingerprint

AUTHORITY_FOLDER = "authority"
SERVER_FOLDER = "server"


@dataclass(frozen=True)
class ProvisionOrder:
    """What is to be done besides kits for those who have none.

    Attributes
    ----------
    renew : who gets a new key and certificate
    renew_all : everybody whose key was made here does
    rotate_root : a new root signs from now on; the present one stays trusted
    retire_root : no root is trusted but the one that signs
    rotate_id_key : the parties get a new id key
    requests : files of those who made their key at home
    organisations : name -> files of its certificate and of its own authority's
    """

    renew: Collection[str] = ()
    renew_all: bool = False
    rotate_root: bool = False
    retire_root: bool = False
    rotate_id_key: bool = False
    requests: Sequence[Path] = ()
    organisations: Mapping[str, tuple[Path, Path]] = field(default_factory=dict)


@dataclass(frozen=True)
class Provisioned:
    """The kits that are in the folder now, and what the person who provisions should be told."""

    kits: list[Kit]
    notes: list[str]
    requests: list[EnrolmentRequest]


def provision(federation: Federation, out: Path, renew: Collection[str] = ()) -> list[Kit]:
    """One kit for the coordinator (`server`), one for the study lead, and one for each party and compute party.

    Whoever has a kit already keeps its key; if the kit is still in this folder, its federation file is brought up to
    date. `renew` names those who get a new key instead, because the old one was lost or runs out.
    """
    return carry_out(federation, out, ProvisionOrder(renew)).kits


def carry_out(federation: Federation, out: Path, order: ProvisionOrder, now: datetime | None = None) -> Provisioned:
    """Provision as ordered; SettingsError, and nobody's kit is changed, for an order that makes no sense.

    The authority signs the federation file. A kit that a process has run on keeps its own until its stewards have
    agreed to the new one; the coordinator's gets the signed file, and shows it to them.
    """
    check_names(federation)
    folder = out / AUTHORITY_FOLDER
    _check_version(federation, out)
    if out.exists() and any(out.iterdir()) and not folder.is_dir():
        raise SettingsError(f"{out} is not empty and holds no earlier kits; choose another --out")
    names = [COORDINATOR, *federation.network.leads, *members_of(federation)]
    requests = {request.name: request for request in map(read_request, order.requests)}
    for name in (*order.renew, *requests, *order.organisations):
        if name not in names:
            raise SettingsError(f"nobody here is called {name}; known: {', '.join(names)}")
    moment = now or current_time()
    authority = Authority.open(folder, moment)
    if order.rotate_root:
        authority.rotate_root(moment)
    if order.retire_root:
        authority.retire_roots()
    if authority.issued.get(COORDINATOR) != federation.network.host:  # its certificate names the host to be reached
        authority.issued.pop(COORDINATOR, None)
    made = _Maker(federation, out, authority, moment)
    for name, (certificate, issuer) in order.organisations.items():
        made.take_organisation(name, certificate, issuer)
    for request in requests.values():
        made.answer(request, order.renew)
    done = {*requests, *order.organisations}
    again = {*order.renew, *(set(names) - authority.enrolled if order.renew_all else ())}
    fresh = [n for n in names if n not in done and (n not in authority.issued or n in again)]
    at_home = [name for name in fresh if name in authority.enrolled]
    if at_home:
        raise SettingsError(
            f"the key of {', '.join(at_home)} was made at home, and stays there: run `verticopula enrol` there and "
            "give its request to --csr; an organisation with an authority of its own renews its certificate itself"
        )
    if order.rotate_id_key:
        write_private(folder / ID_KEY_FILE, new_id_key())
    for name in fresh:
        made.make(name)
    store = authority.save(moment)
    made.sign_federation()
    kits = made.write(names, store, order)
    notes = [*authority.notes, *made.notes]
    return Provisioned(kits, notes, list(requests.values()))


def revoke_certificates(out: Path, name: str, *, reason: str = "", certificate: Path | None = None) -> Revocation:
    """Revoke all certificates of a name that were made until now, or one; kits in this folder get the notice.

    Parameters
    ----------
    out : where `provision` wrote its kits
    name : of a party, or `coordinator`, or `lead`
    reason : shown to whoever holds the certificate
    certificate : of the only one to revoke
    """
    now = current_time()
    authority = Authority.read(out / AUTHORITY_FOLDER)
    if name not in authority.issued:
        raise SettingsError(f"nobody here is called {name}; known: {', '.join(sorted(authority.issued))}")
    if len(reason) > 200 or not reason.isprintable():
        raise SettingsError("--reason is one line of at most 200 characters")
    only = None if certificate is None else read_certificates(certificate)[0]
    made = authority.revoke(name, now, reason, only)
    store = authority.save(now)
    for path in sorted(out.glob(f"*/{KIT_FILE}")):
        write_trust(path.parent, Kit.read_identity(path.parent).name, store)
    return made


class _Maker:
    """Makes keys and certificates, and writes the kits once the authority has remembered them."""

    def __init__(self, federation: Federation, out: Path, authority: Authority, now: datetime) -> None:
        self._federation, self._out, self._authority, self._now = federation, out, authority, now
        self._secrets: dict[str, tuple[str, str]] = {}  # name -> certificate and key
        self._answers: dict[str, tuple[EnrolmentRequest, str]] = {}
        self._taken: dict[str, str] = {}
        self.notes: list[str] = []

    def _host(self, name: str) -> str | None:
        return self._federation.network.host if name == COORDINATOR else None

    def make(self, name: str) -> None:
        key = new_key()
        certificate = self._authority.certify(name, key.public_key(), self._now, self._host(name))
        self._secrets[name] = certificates_pem([certificate]), key_pem(key)
        self._issued(name)

    def answer(self, request: EnrolmentRequest, renew: Collection[str]) -> None:
        name = request.name
        if name in self._authority.issued and name not in renew:
            raise SettingsError(f"{name} has a kit already; if this request replaces it, add --renew {name}")
        certificate = self._authority.certify(name, request.key, self._now, self._host(name))
        self._answers[name] = request, certificates_pem([certificate])
        self._authority.enrolled.add(name)
        self._issued(name)

    def take_organisation(self, name: str, certificate: Path, issuer: Path) -> None:
        chain, anchor = read_certificates(certificate), read_certificates(issuer)
        if len(anchor) != 1:
            raise SettingsError(f"{issuer} holds {len(anchor)} certificates; expected the one that signed {name}'s")
        self._authority.take_organisation(name, chain, anchor[0], self._now, self._host(name))
        self._taken[name] = certificates_pem(chain)
        self._issued(name)

    def sign_federation(self) -> None:
        """Sign the federation file with every root, unless all of them have signed it before."""
        roots, digest = list(self._authority.roots), federation_file_digest(self._federation)
        for root in roots:
            with contextlib.suppress(SettingsError):  # a new root has not signed yet
                kept = read_kept(self._authority.folder, [root.certificate])
                if kept is not None and kept.digest == digest:
                    continue
            text = sign_federation(self._federation, roots, self._now)
            write_private(self._authority.folder / SIGNED_FEDERATION_FILE, text)
            return

    def _issued(self, name: str) -> None:
        self._authority.issued[name] = self._host(name) or ""

    def write(self, names: Sequence[str], store: TrustStore, order: ProvisionOrder) -> list[Kit]:
        id_key = self._authority.id_key
        for name, (certificate, key) in self._secrets.items():
            folder = self._folder(name)
            folder.mkdir(mode=0o700, exist_ok=True)
            # A process that runs on this kit sees that key and certificate do not fit, and waits for the second one.
            write_private(folder / PRIVATE_KEY_FILE, key)
            write_private(folder / CERTIFICATE_FILE, certificate)
        for name, (request, certificate) in self._answers.items():
            secret = id_key if self._role(name) == "party" else None
            write_answer(self._folder(name), certificate, request.key, secret)
        for name, chain in self._taken.items():
            write_answer(self._folder(name), chain, None, None)
            if self._role(name) == "party":
                self.notes.append(f"Hand {ID_KEY_FILE} of the folder authority to {name}, on a secret way.")
        here = [name for name in names if self._folder(name).is_dir()]
        for name in here:
            if (fresh_party := name in self._secrets) or order.rotate_id_key:
                self._write_id_key(name, id_key, made=fresh_party)
            write_trust(self._folder(name), name, store)
        return [self._describe(name) for name in here]

    def _write_id_key(self, name: str, id_key: str, *, made: bool) -> None:
        """Parties alone get it: the coordinator, or who computes, could try ids under the key."""
        if self._role(name) != "party":
            return
        folder = self._folder(name)
        if made or (folder / ID_KEY_FILE).is_file():
            write_private(folder / ID_KEY_FILE, id_key)

    def _describe(self, name: str) -> Kit:
        """What is no secret: the federation file, and the coordinator's address."""
        folder, network = self._folder(name), self._federation.network
        if not _is_agreed(self._federation, folder):
            if name == COORDINATOR:
                text = (self._authority.folder / SIGNED_FEDERATION_FILE).read_text(encoding="utf-8")
                write_private(folder / SIGNED_FEDERATION_FILE, text)
            self.notes.append(f"{folder} keeps its federation file until its stewards have agreed to the new one.")
        else:
            self._federation.to_toml(folder / FEDERATION_FILE)
        Kit(folder, self._role(name), name, network.host, network.port).write()
        return Kit.read_identity(folder)

    def _folder(self, name: str) -> Path:
        return self._out / (SERVER_FOLDER if name == COORDINATOR else name)

    def _role(self, name: str) -> Role:
        return "coordinator" if name == COORDINATOR else roles_of(self._federation)[name]


def _is_agreed(federation: Federation, folder: Path) -> bool:
    """Whether nobody has to agree: no process has run on the kit yet, or its file says the same to studies."""
    kept = _used_federation(folder)
    return kept is None or federation_fingerprint(kept) == federation_fingerprint(federation)


def _used_federation(folder: Path) -> Federation | None:
    """The federation file of a kit that a process has run on; None for others, and where it cannot be read."""
    if not (folder / PID_FILE).is_file():
        return None
    try:
        return Federation.from_toml(folder / FEDERATION_FILE)
    except SchemaError:
        return None


def _check_version(federation: Federation, out: Path) -> None:
    """SettingsError where a kit that was used has another file of this version, or a later one."""
    for path in sorted(out.glob(f"*/{PID_FILE}")):
        kept = _used_federation(path.parent)
        if kept is None or federation_fingerprint(kept) == federation_fingerprint(federation):
            continue
        if kept.version >= federation.version:
            raise SettingsError(
                f"{path.parent} has version {kept.version} of the federation file, and this one says something else as "
                f"version {federation.version}: count its `version` up"
            )
