"""A federation file that the federation's authority has signed: how a new version reaches processes that run.

Like the authority's notice it needs no secret way. Whoever holds it can show it; nobody can make one but the holder of
a root. That it is signed says who proposes it. Whether it holds at a party is for the party's stewards to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from verticopula.errors import SchemaError, SettingsError
from verticopula.network.kit.certificate_issuing import Root
from verticopula.network.kit.startup_kit import FEDERATION_FILE, RESERVED_NAMES, Kit, Role, write_private
from verticopula.network.kit.trust_store import is_signed_by_root, sign_as_roots
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import describe_federation, federation_file_digest, federation_fingerprint

SIGNED_FEDERATION_FILE = "federation-signed.json"
EARLIER_FOLDER = "earlier-federations"

_CONTEXT = b"verticopula federation 1\0"
_LARGEST = 1 << 24


@dataclass(frozen=True)
class SignedFederation:
    """A federation file with the authority's signature; `text` is the signed file, as it is stored and sent."""

    federation: Federation
    text: str

    @property
    def version(self) -> int:
        return self.federation.version

    @property
    def digest(self) -> str:
        """Of all that the file says."""
        return federation_file_digest(self.federation)

    @property
    def fingerprint(self) -> str:
        """What studies name it by."""
        return federation_fingerprint(self.federation)

    @property
    def description(self) -> str:
        return describe_federation(self.version, self.fingerprint)


def sign_federation(federation: Federation, signers: Iterable[Root], now: datetime) -> str:
    """The text of a signed federation file.

    Parameters
    ----------
    federation : what it says
    signers : the authority's roots
    now : when it is signed
    """
    body = {"federation": federation.to_dict(), "issued": now.isoformat()}
    return json.dumps({"file": body, "signatures": sign_as_roots(_CONTEXT, body, signers)}, indent=1)


def read_signed_federation(text: str, trusted: Iterable[x509.Certificate]) -> SignedFederation:
    """What a signed federation file says; SettingsError unless one of these roots has signed it.

    Parameters
    ----------
    text : as `sign_federation` made it
    trusted : the federation's roots
    """
    if len(text) > _LARGEST:
        raise SettingsError("the signed federation file is too large to be one")
    try:
        raw = json.loads(text)
        body, signatures = raw["file"], raw["signatures"]
        is_signed = is_signed_by_root(_CONTEXT, body, signatures, trusted)
        said = dict(body["federation"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SettingsError("the signed federation file cannot be read") from None
    if not is_signed:  # before anything in it is looked at
        raise SettingsError("the federation file is not signed by a root that this kit trusts; it was not taken")
    try:
        return SignedFederation(Federation.from_dict(said), text)
    except (SchemaError, TypeError, RecursionError):
        raise SettingsError("the signed federation file is none that this version of verticopula can read") from None


def read_kept(folder: Path, trusted: Iterable[x509.Certificate]) -> SignedFederation | None:
    """The signed federation file in a folder; None where there is none, SettingsError where it cannot be used.

    Parameters
    ----------
    folder : a kit, or the authority's folder
    trusted : the federation's roots
    """
    path = folder / SIGNED_FEDERATION_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"{path} cannot be read") from None
    return read_signed_federation(text, trusted)


def change_problem(present: Federation, proposed: Federation) -> str:
    """Why a federation file cannot take the place of another one while processes run; empty where it can.

    Parameters
    ----------
    present, proposed : the two files
    """
    if proposed.name != present.name:
        return f"it is of the federation {proposed.name!r}, and this one is {present.name!r}"
    if proposed.version <= present.version:
        own, other = (describe_federation(one.version, federation_fingerprint(one)) for one in (present, proposed))
        return (
            f"it is {other}, and {own} holds here: an earlier file does not come back. To undo a change, count the "
            "version up"
        )
    if (proposed.network.host, proposed.network.port) != (present.network.host, present.network.port):
        return "the coordinator's address would change, which needs other kits: provision again, and start anew"
    try:
        check_names(proposed)
    except SettingsError as error:
        return str(error)
    before, after = (roles_of(federation) for federation in (present, proposed))
    moved = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    if moved:
        return f"{', '.join(moved)} would have another role, which needs another kit: choose another name"
    return ""


def roles_of(federation: Federation) -> dict[str, Role]:
    """Name -> role of everybody who connects to the coordinator."""
    third = federation.network.compute
    found: dict[str, Role] = dict.fromkeys(federation.network.leads, "lead")
    found |= {party.name: "party" for party in federation.parties}
    return found if third is None else {**found, third: "compute"}


def members_of(federation: Federation) -> list[str]:
    """The parties, and who computes without data."""
    return [name for name, role in roles_of(federation).items() if role in ("party", "compute")]


def check_names(federation: Federation) -> None:
    """SettingsError where names could be mixed up between organisations.

    Parameters
    ----------
    federation : one whose parties have processes of their own
    """
    network = federation.network
    if network.host.lower() in map(str.lower, network.leads):
        raise SettingsError(f"the coordinator cannot have the host name {network.host!r}: a lead has that name")
    for name in members_of(federation):
        if name.lower() in RESERVED_NAMES:
            raise SettingsError(f"a party of a federation between organisations cannot be called {name!r}")
        if name.lower() == network.host.lower():
            # A client's certificate could then pass for the server's.
            raise SettingsError(f"party {name!r} has the coordinator's host name; rename one of them")
    names = [party.name.lower() for party in federation.parties]
    if len(set(names)) != len(names):
        raise SettingsError("two parties' names differ in upper and lower case only; their kits could be mixed up")


class KitFederations:
    """The federation files of a kit: the one that new studies have, and earlier ones for studies that began with them.

    Parameters
    ----------
    kit : whose

    Attributes
    ----------
    in_force, fingerprint : the file that new studies have, and its fingerprint
    """

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._use(kit.federation)

    def _use(self, federation: Federation) -> None:
        self.in_force, self.fingerprint = federation, federation_fingerprint(federation)

    @property
    def description(self) -> str:
        """The file that is in force, for a log line."""
        return describe_federation(self.in_force.version, self.fingerprint)

    def find(self, fingerprint: str) -> Federation | None:
        """The file of that fingerprint, in force or earlier; None where this kit had none.

        Parameters
        ----------
        fingerprint : as studies name it
        """
        if fingerprint == self.fingerprint:
            return self.in_force
        paths = {path.stem: path for path in (self._kit.folder / EARLIER_FOLDER).glob("*.toml")}
        if fingerprint not in paths:
            return None
        try:
            found = Federation.from_toml(paths[fingerprint])
        except SchemaError:
            return None
        return found if federation_fingerprint(found) == fingerprint else None

    def replace(self, federation: Federation) -> None:
        """Put another file in force, on disk first. Killed at any moment, the kit has one of the two, whole.

        Parameters
        ----------
        federation : the new one
        """
        earlier = self._kit.folder / EARLIER_FOLDER
        earlier.mkdir(mode=0o700, exist_ok=True)
        kept = earlier / f"{self.fingerprint}.toml"
        if not kept.exists():
            write_private(kept, self.in_force.to_toml())
        write_private(self._kit.folder / FEDERATION_FILE, federation.to_toml())
        self._use(federation)
