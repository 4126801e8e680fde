"""Start-up kits from a federation file, with the certificates of NVIDIA FLARE's provisioning.

The authority's folder holds the key that signs certificates, the parties' id key, and who has a kit: nobody's private
key. Run again on the same folder, it signs for organisations that are new; everybody else keeps the key they have.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.startup_kit import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    FEDERATION_FILE,
    ID_KEY_FILE,
    PRIVATE_KEY_FILE,
    RESERVED_NAMES,
    Kit,
    Role,
    new_id_key,
    write_private,
)
from verticopula.schema.federation import Federation
from verticopula.schema.study_settings import COORDINATOR

AUTHORITY_FOLDER = "authority"
SERVER_FOLDER = "server"
_STATE_FILE = "cert.json"  # FLARE's name for what its authority remembers
_ROOT_ENTRIES = ("root_cert", "root_pri_key")
_ISSUED_FILE = "issued.json"
_PROJECT = "federation"


def provision(federation: Federation, out: Path, renew: Collection[str] = ()) -> list[Kit]:
    """One kit for the coordinator (`server`), one for the study lead, and one for each party and compute party.

    Whoever has a kit already keeps its key; if the kit is still in this folder, its federation file is brought up to
    date. `renew` names those who get a new key instead, because the old one was lost or runs out.
    """
    _check_names(federation)
    authority = out / AUTHORITY_FOLDER
    if out.exists() and any(out.iterdir()) and not authority.is_dir():
        raise SettingsError(f"{out} is not empty and holds no earlier kits; choose another --out")
    names = [COORDINATOR, *federation.network.leads, *_others(federation)]
    unknown = sorted(set(renew) - set(names))
    if unknown:
        raise SettingsError(f"nobody here is called {', '.join(unknown)}; known: {', '.join(names)}")
    out.mkdir(parents=True, exist_ok=True)
    authority.mkdir(mode=0o700, exist_ok=True)
    key_file = authority / ID_KEY_FILE
    if not key_file.exists():
        write_private(key_file, new_id_key())
    issued = _read_issued(authority)
    if issued.get(COORDINATOR) != federation.network.host:  # its certificate names the host that parties must reach
        issued.pop(COORDINATOR, None)
    new = [name for name in names if name not in issued or name in renew]
    with tempfile.TemporaryDirectory(dir=authority) as scratch:
        made = _build_certificates(federation.network.host, new, authority, Path(scratch)) if new else {}
        for name in new:
            _write_secrets(out, name, _role(federation, name), made[name], key_file)
    kits = [_describe(federation, out, name) for name in names if _folder(out, name).is_dir()]
    hosts = {**issued, **{name: federation.network.host if name == COORDINATOR else "" for name in new}}
    write_private(authority / _ISSUED_FILE, json.dumps(hosts, indent=1))
    return kits


def _read_issued(authority: Path) -> dict[str, str]:
    """Who has a kit already; for the coordinator, under which host."""
    path = authority / _ISSUED_FILE
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (OSError, ValueError):
        raise SettingsError(f"{path} cannot be read") from None


def _check_names(federation: Federation) -> None:
    network = federation.network
    if network.host.lower() in map(str.lower, network.leads):
        raise SettingsError(f"the coordinator cannot have the host name {network.host!r}: a lead has that name")
    for name in _others(federation):
        if name.lower() in RESERVED_NAMES:
            raise SettingsError(f"a party of a federation between organisations cannot be called {name!r}")
        if name.lower() == network.host.lower():
            # A client's certificate would then pass for the server's.
            raise SettingsError(f"party {name!r} has the coordinator's host name; rename one of them")
    names = [party.name.lower() for party in federation.parties]
    if len(set(names)) != len(names):
        raise SettingsError("two parties' names differ in upper and lower case only; their kits could be mixed up")


def _others(federation: Federation) -> list[str]:
    """The parties, and who computes without data."""
    third = [] if federation.network.compute is None else [federation.network.compute]
    return [*(party.name for party in federation.parties), *third]


def _build_certificates(host: str, names: Sequence[str], authority: Path, scratch: Path) -> dict[str, Path]:
    """FLARE's authority signs for these; returns where each one's files are."""
    project = Project(_PROJECT, "verticopula")
    project.set_server(COORDINATOR, _PROJECT, {"default_host": host})
    for name in names:
        if name != COORDINATOR:
            project.add_client(name, name.replace("-", "_"), {})
    state = scratch / _PROJECT / "state"
    state.mkdir(parents=True)
    if (authority / _STATE_FILE).is_file():
        write_private(state / _STATE_FILE, (authority / _STATE_FILE).read_text(encoding="utf-8"))
    context = Provisioner(str(scratch), [WorkspaceBuilder(), CertBuilder()]).provision(project, logger=_Silent())
    result = context.get_result_location()
    if result is None or not (state / _STATE_FILE).is_file():
        raise VerticopulaError("NVIDIA FLARE's provisioning failed")
    # FLARE would remember everybody's private key; whoever read it could speak as anybody.
    known = json.loads((state / _STATE_FILE).read_text(encoding="utf-8"))
    write_private(authority / _STATE_FILE, json.dumps({key: known[key] for key in _ROOT_ENTRIES}))
    return {name: Path(result) / name / "startup" for name in names}


def _folder(out: Path, name: str) -> Path:
    return out / (SERVER_FOLDER if name == COORDINATOR else name)


def _write_secrets(out: Path, name: str, role: Role, made: Path, key_file: Path) -> None:
    folder = _folder(out, name)
    folder.mkdir(mode=0o700, exist_ok=True)
    base = "server" if name == COORDINATOR else "client"
    (folder / CERTIFICATE_FILE).write_bytes((made / f"{base}.crt").read_bytes())
    (folder / AUTHORITY_FILE).write_bytes((made / "rootCA.pem").read_bytes())
    write_private(folder / PRIVATE_KEY_FILE, (made / f"{base}.key").read_text(encoding="ascii"))
    if role == "party":  # never the coordinator, or who computes: they could try ids under the key
        write_private(folder / ID_KEY_FILE, key_file.read_text(encoding="ascii"))


def _describe(federation: Federation, out: Path, name: str) -> Kit:
    """What is no secret: the federation file, and the coordinator's address."""
    folder = _folder(out, name)
    federation.to_toml(folder / FEDERATION_FILE)
    Kit(folder, _role(federation, name), name, federation.network.host, federation.network.port).write()
    return Kit.read(folder)


def _role(federation: Federation, name: str) -> Role:
    if name == federation.network.compute:
        return "compute"
    if name in federation.network.leads:
        return "lead"
    return "coordinator" if name == COORDINATOR else "party"


class _Silent:
    """What FLARE tells while it works goes nowhere: the kits are the result."""

    def info(self, *_: object) -> None: ...

    def debug(self, *_: object) -> None: ...

    def warning(self, *_: object) -> None: ...

    def error(self, *_: object) -> None: ...
