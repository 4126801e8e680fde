"""Start-up kits from a federation file, with the certificates of NVIDIA FLARE's provisioning.

The authority's folder holds the key that signs certificates. Run again on the same folder, the same authority signs
for organisations that are new, and everybody else's key stays as it was.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.kit import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    COORDINATOR,
    FEDERATION_FILE,
    ID_KEY_FILE,
    LEAD,
    PRIVATE_KEY_FILE,
    RESERVED_NAMES,
    Kit,
    Role,
    new_id_key,
    write_private,
)
from verticopula.schema import Federation

AUTHORITY_FOLDER = "authority"
SERVER_FOLDER = "server"
_STATE_FILE = "cert.json"  # FLARE's name for what its authority remembers
_PROJECT = "federation"


def provision(federation: Federation, out: Path) -> list[Kit]:
    """One kit for the coordinator (`server`), one for the study lead, and one for each party."""
    _check_names(federation)
    authority = out / AUTHORITY_FOLDER
    if out.exists() and any(out.iterdir()) and not authority.is_dir():
        raise SettingsError(f"{out} is not empty and holds no earlier kits; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    authority.mkdir(mode=0o700, exist_ok=True)
    key_file = authority / ID_KEY_FILE
    if not key_file.exists():
        write_private(key_file, new_id_key())
    with tempfile.TemporaryDirectory(dir=authority) as scratch:
        moved = (out / SERVER_FOLDER).is_dir() and Kit.read(out / SERVER_FOLDER).host != federation.network.host
        made = _build_certificates(federation, authority, Path(scratch), moved=moved)
        return [_write_kit(federation, out, folder, role, name, key_file) for folder, role, name in made]


def _check_names(federation: Federation) -> None:
    network = federation.network
    if network.host.lower() == LEAD:
        raise SettingsError(f"the coordinator's host cannot be called {LEAD!r}: the lead's certificate has that name")
    for party in federation.parties:
        if party.name.lower() in RESERVED_NAMES:
            raise SettingsError(f"a party of a federation between organisations cannot be called {party.name!r}")
        if party.name.lower() == network.host.lower():
            # A client's certificate would then pass for the server's.
            raise SettingsError(f"party {party.name!r} has the coordinator's host name; rename one of them")
    names = [party.name.lower() for party in federation.parties]
    if len(set(names)) != len(names):
        raise SettingsError("two parties' names differ in upper and lower case only; their kits could be mixed up")


def _build_certificates(
    federation: Federation, authority: Path, scratch: Path, *, moved: bool
) -> list[tuple[Path, Role, str]]:
    """FLARE's authority signs for everybody; returns where each one's files are."""
    project = Project(_PROJECT, "verticopula")
    project.set_server(COORDINATOR, _PROJECT, {"default_host": federation.network.host})
    names = [LEAD, *(party.name for party in federation.parties)]
    for name in names:
        project.add_client(name, name.replace("-", "_"), {})
    state = scratch / _PROJECT / "state"
    state.mkdir(parents=True)
    if (authority / _STATE_FILE).is_file():
        known = json.loads((authority / _STATE_FILE).read_text(encoding="utf-8"))
        if moved:  # its certificate names the host that parties must reach
            known.pop(COORDINATOR, None)
        write_private(state / _STATE_FILE, json.dumps(known))
    context = Provisioner(str(scratch), [WorkspaceBuilder(), CertBuilder()]).provision(project, logger=_Silent())
    result = context.get_result_location()
    if result is None or not (state / _STATE_FILE).is_file():
        raise VerticopulaError("NVIDIA FLARE's provisioning failed")
    write_private(authority / _STATE_FILE, (state / _STATE_FILE).read_text(encoding="utf-8"))
    roles: dict[str, Role] = {COORDINATOR: "coordinator", LEAD: "lead"}
    return [(Path(result) / name / "startup", roles.get(name, "party"), name) for name in (COORDINATOR, *names)]


def _write_kit(federation: Federation, out: Path, made: Path, role: Role, name: str, key_file: Path) -> Kit:
    folder = out / (SERVER_FOLDER if role == "coordinator" else name)
    folder.mkdir(mode=0o700, exist_ok=True)
    base = "server" if role == "coordinator" else "client"
    (folder / CERTIFICATE_FILE).write_bytes((made / f"{base}.crt").read_bytes())
    (folder / AUTHORITY_FILE).write_bytes((made / "rootCA.pem").read_bytes())
    write_private(folder / PRIVATE_KEY_FILE, (made / f"{base}.key").read_text(encoding="ascii"))
    federation.to_toml(folder / FEDERATION_FILE)
    if role == "party":  # never the coordinator: it could try ids under the key
        write_private(folder / ID_KEY_FILE, key_file.read_text(encoding="ascii"))
    Kit(folder, role, name, federation.network.host, federation.network.port).write()
    return Kit.read(folder)


class _Silent:
    """What FLARE tells while it works goes nowhere: the kits are the result."""

    def info(self, *_: object) -> None: ...

    def debug(self, *_: object) -> None: ...

    def warning(self, *_: object) -> None: ...

    def error(self, *_: object) -> None: ...
