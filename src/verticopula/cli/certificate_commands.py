"""Commands about kits and their certificates: provision, propose-change, enrol, revoke, certificates."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.shared_options import FederationFile, Quiet, need_flare
from verticopula.errors import SettingsError
from verticopula.formatting import readable
from verticopula.schema.methods import STRICT

if TYPE_CHECKING:
    from verticopula.network.kit.startup_kit import Kit

_Out = Annotated[Path, typer.Option("--out", help="Where the kits are, with the folder authority.")]


def provision(
    federation: FederationFile,
    out: Annotated[Path, typer.Option("--out", help="Where to write the kits.")] = Path("kits"),
    host: Annotated[
        str | None, typer.Option(help="The coordinator's host, as parties reach it; else from \\[network].")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The coordinator's port; else from \\[network].")] = None,
    renew: Annotated[
        list[str] | None,
        typer.Option(
            help="Who gets a new key and certificate, before or after the old one has ended; may be given several "
            "times. The coordinator is called coordinator.",
            metavar="NAME",
        ),
    ] = None,
    renew_all: Annotated[
        bool, typer.Option("--renew-all", help="As --renew, for everybody whose key was made here.")
    ] = False,
    csr: Annotated[
        list[Path] | None,
        typer.Option(
            help="A request that `verticopula enrol` made at the organisation, whose private key stays there; may be "
            "given several times.",
            metavar="FILE",
        ),
    ] = None,
    own_ca: Annotated[
        list[str] | None,
        typer.Option(
            "--own-ca",
            help="NAME=CERTIFICATE,AUTHORITY: a certificate that the organisation's own authority has issued to NAME, "
            "and the certificate of that authority, which from now on alone counts for NAME.",
            metavar="NAME=FILE,FILE",
        ),
    ] = None,
    rotate_root: Annotated[
        bool,
        typer.Option("--rotate-root", help="Sign with a new root from now on; the present one stays trusted for now."),
    ] = False,
    retire_root: Annotated[
        bool, typer.Option("--retire-root", help="Trust no root any more but the one that signs now.")
    ] = False,
    rotate_id_key: Annotated[
        bool,
        typer.Option(
            "--rotate-id-key", help="Make a new id key; studies that were begun under the old one have to begin anew."
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Make one start-up kit per organisation: certificates for mutual TLS, its own private key, the federation file.

    Hand every kit over on a way you trust; keep the folder [bold]authority[/] off the network. A kit's certificate is
    valid for one year, the root for ten. Run again on the same folder, everybody keeps the key they have.
    """
    from verticopula.schema.federation import Federation
    from verticopula.schema.study_settings import check_roles

    need_flare()
    from verticopula.network.kit.provisioning import ProvisionOrder, carry_out

    study = Federation.from_toml(federation)
    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    study = Federation.from_dict({**study.to_dict(), "network": {**study.network.model_dump(), **given}})
    order = ProvisionOrder(
        renew or (),
        renew_all,
        rotate_root,
        retire_root,
        rotate_id_key,
        csr or (),
        dict(_own_authority(text) for text in own_ca or ()),
    )
    made = carry_out(study, out, order)
    if quiet:
        return
    table = Table("kit", "for")
    for kit in made.kits:
        role = {
            "coordinator": f"the coordinator, at {kit.host}:{kit.port}",
            "lead": "the study lead",
            "compute": f"{kit.name}, which computes without data",
        }
        table.add_row(Text(str(kit.folder)), Text(role.get(kit.role, f"party {kit.name}")))
    Console().print(table)
    for request in made.requests:
        print(
            f"The key of {request.name} is {_grouped(request.fingerprint)}: compare it with what enrol printed there."
        )
    for note in made.notes:
        print(note)
    if rotate_root:
        print("Next: let everybody connect once, which brings them the new root; then --renew-all, then --retire-root.")
    if rotate_id_key:
        print("Hand the new id.key to every party, on a secret way; until all have it, their studies do not begin.")
    try:
        check_roles(study, STRICT)
    except SettingsError as error:
        print(f"Not possible with these kits: {error}")
    elsewhere = sorted({party.name for party in study.parties} - {kit.name for kit in made.kits})
    if elsewhere:
        print(f"Have their kits already: {', '.join(elsewhere)}. The coordinator sends them a changed file.")
    print(f"Keep {out / 'authority'} to yourself: it signs certificates, and holds the parties' id key.")


def propose_change(
    signed: Annotated[
        Path,
        typer.Argument(
            help="The federation file that provision signed, such as kits/authority/federation-signed.json.",
            show_default=False,
        ),
    ],
    kit: Annotated[Path, typer.Argument(help="The coordinator's kit, such as kits/server.", show_default=False)],
    quiet: Quiet = False,
) -> None:
    """Give a new version of the federation file to the coordinator, which shows it to everybody who stays.

    A running [bold]serve[/] takes it within a second. Every party's stewards are asked ([bold]verticopula requests[/]).
    Once all have agreed, studies begin with the new file; nobody has to restart. Until then nothing changes.
    """
    need_flare()
    from verticopula.network.kit.signed_federation import (
        SIGNED_FEDERATION_FILE,
        change_problem,
        read_signed_federation,
    )
    from verticopula.network.kit.startup_kit import Kit, write_private
    from verticopula.network.kit.trust_store import read_trust
    from verticopula.network.party.federation_difference import describe_change

    own = Kit.read(kit, "coordinator")
    try:
        text = signed.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"{signed} cannot be read; `verticopula provision` writes it") from None
    found, present = read_signed_federation(text, read_trust(own).federation_roots), own.federation
    if wrong := change_problem(present, found.federation):
        raise SettingsError(f"{signed} was not taken: {wrong}")
    write_private(own.folder / SIGNED_FEDERATION_FILE, text)
    if quiet:
        return
    print(f"Version {found.version} of the federation file is proposed; version {present.version} is in force.")
    for line in describe_change(present, found.federation):
        print(f"  {readable(line)}")


def enrol(
    kit: Annotated[Path, typer.Argument(help="The folder of the kit, at the organisation itself.", show_default=False)],
    name: Annotated[
        str | None,
        typer.Option(help="Make a private key and a request for a certificate of this name.", show_default=False),
    ] = None,
    accept: Annotated[
        Path | None,
        typer.Option(help="The folder that came back, with the certificate; it becomes the kit.", show_default=False),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Get a kit whose private key never leaves home; or renew one.

    First [bold]enrol KIT --name bank[/]: send KIT/request.csr to whoever provisions the federation, who gives it to
    [bold]provision --csr[/] and sends a folder back. It holds no secret in clear. Then
    [bold]enrol KIT --accept FOLDER[/].
    """
    if (name is None) == (accept is None):
        raise SettingsError("enrol takes --name to make a request, or --accept to take what came back")
    from verticopula.network.kit.certificate_issuing import current_time
    from verticopula.network.kit.enrolment import REQUEST_FILE, accept_answer, make_request

    if name is not None:
        request = make_request(kit, name)
        if not quiet:
            print(f"Send {kit / REQUEST_FILE} to who provisions the federation. Its key, to be compared:")
            print(f"  {_grouped(request.fingerprint)}")
        return
    assert accept is not None
    made = accept_answer(kit, accept, current_time())
    if not quiet:
        print(f"{made.folder} is the kit of {made.name}. A process that runs on it uses the new certificate at once.")


def revoke(
    name: Annotated[str, typer.Argument(help="Whose certificates: a party, coordinator or lead.", show_default=False)],
    out: _Out = Path("kits"),
    reason: Annotated[str, typer.Option(help="Why; whoever holds the certificate is told.")] = "",
    certificate: Annotated[
        Path | None,
        typer.Option(help="Revoke this certificate alone; without it, all of that name until now.", show_default=False),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Let the certificates of a name count no more: a kit was stolen, or an organisation has left.

    Writes a signed notice into authority and into every kit here. Copy notice.json into the coordinator's kit: it ends
    the connection within seconds, without a restart, and hands the notice to everybody who connects.
    """
    need_flare()
    from verticopula.network.kit.provisioning import AUTHORITY_FOLDER, revoke_certificates

    revoke_certificates(out, name, reason=reason, certificate=certificate)
    if quiet:
        return
    print(f"{name} is revoked, by {out / AUTHORITY_FOLDER / 'notice.json'} and in all kits below {out}.")
    print("Copy it into the coordinator's kit, if that is elsewhere: the coordinator hands it to all others.")
    print(f"A new certificate for the same name: verticopula provision ... --renew {name}")
    if name not in ("coordinator", "lead"):
        print("If the kit was stolen, its id.key was, too: verticopula provision ... --rotate-id-key")


def certificates(
    kits: Annotated[list[Path], typer.Argument(help="Kits, or a folder of kits.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """How many days each certificate still lasts, of a kit or of all kits in a folder."""
    from verticopula.network.kit.certificate_expiry import days_left, expiry_warning
    from verticopula.network.kit.startup_kit import KIT_FILE, Kit

    folders = [path for given in kits for path in (given, *sorted(given.glob("*/"))) if (path / KIT_FILE).is_file()]
    if not folders:
        raise SettingsError("no start-up kits there")
    found = {str(folder): days_left(Kit.read_identity(folder)) for folder in folders}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    table = Table("kit", "certificate", "days left")
    for folder, days in found.items():
        for name, left in days.items():
            style = "red" if expiry_warning(name, left) else ""
            table.add_row(Text(folder), Text(readable(name)), Text(f"{math.floor(left):,}", style=style))
    Console().print(table)
    for folder, days in found.items():
        for warning in filter(None, (expiry_warning(name, left) for name, left in days.items())):
            print(f"{folder}: {readable(warning)}")


def show_connection(kit: Kit, as_json: bool) -> None:
    """Print how it stands with a party's own process, its connection and its certificates.

    Parameters
    ----------
    kit : of a party, of the coordinator, or of who computes without data
    as_json : for programs
    """
    from verticopula.network.connection.connection_state import read_state
    from verticopula.network.kit.certificate_expiry import days_left, expiry_warning
    from verticopula.network.operations.kit_process import running_pid
    from verticopula.schema.federation import Federation

    federation: Federation = kit.federation
    pid, state, days, agreed = running_pid(kit.folder), read_state(kit.folder), days_left(kit), _agreed_version(kit)
    if as_json:
        shown = {"process": pid, "connection": None if state is None else asdict(state), "days_left": days}
        versions = {"federation_version": federation.version, "agreed_version": agreed}
        print(json.dumps({**shown, **versions}, indent=1))
        return
    print(f"{kit.name}: " + ("no process runs on this kit" if pid is None else f"process {pid}"))
    if pid is not None and state is not None:
        print(f"  {readable(state.problem) or 'connected to the coordinator'} (since {state.since})")
    if state is not None and state.mismatch:
        print(f"  {readable(state.mismatch)}")
    print(f"  federation file: version {federation.version}")
    if agreed is not None:
        print(f"  agreed to version {agreed}, which is not in force yet: others have not agreed so far")
    for warning in filter(None, (expiry_warning(name, left) for name, left in days.items())):
        print(f"  {readable(warning)}")


def _agreed_version(kit: Kit) -> int | None:
    """The version of the federation file that a party has agreed to and that is not in force; None without one."""
    from verticopula.network.kit.signed_federation import read_kept
    from verticopula.network.kit.trust_store import read_trust
    from verticopula.storage.request_store import RequestStore

    if kit.role not in ("party", "compute"):
        return None
    try:
        kept = read_kept(kit.folder, read_trust(kit).federation_roots)
    except SettingsError:
        return None
    if kept is None or kept.version <= kit.federation.version:
        return None
    asked = RequestStore.of_kit(kit.folder).all("approved")  # what lies in a kit is agreed to by a stored yes alone
    return kept.version if any(one.used and one.content.proposal == kept.digest for one in asked) else None


def _own_authority(text: str) -> tuple[str, tuple[Path, Path]]:
    name, equals, files = text.partition("=")
    certificate, comma, authority = files.partition(",")
    if not (name and equals and certificate and comma and authority):
        raise SettingsError(f"--own-ca {text}: expected NAME=CERTIFICATE,AUTHORITY, such as bank=bank.pem,bank-ca.pem")
    return name, (Path(certificate), Path(authority))


def _grouped(fingerprint: str) -> str:
    return " ".join(fingerprint[start : start + 4] for start in range(0, len(fingerprint), 4))
