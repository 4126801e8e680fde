"""`verticopula ledger`: what was released, and whether anybody changed the record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.option_records import with_options
from verticopula.cli.study_inputs import PartyData, PartyDatabaseOptions
from verticopula.errors import SettingsError
from verticopula.formatting import readable
from verticopula.schema.defaults import DEFAULT_DELTA

if TYPE_CHECKING:
    from verticopula.privacy.release import Release

ledger_app = typer.Typer(
    help="Look at what was released, and see that nobody changed the record.", no_args_is_help=True
)


@ledger_app.command("show")
def ledger_show(
    folder: Annotated[Path, typer.Argument(help="A study's folder, a party's vault, or a ledger file.")],
    delta: Annotated[float, typer.Option(help="The delta at which block and person are counted.")] = DEFAULT_DELTA,
) -> None:
    """Every release, and what all of them together cost at every unit."""
    from verticopula.privacy.statement import format_price, state_privacy
    from verticopula.storage.ledger import read_ledger

    entries = read_ledger(_ledger_path(folder))
    console = Console()
    for study in dict.fromkeys(e.study for e in entries):
        own = [e for e in entries if e.study == study]
        tables = [f"table {table}" for table in dict.fromkeys(_short_table(e) for e in own) if table]
        read = [f"snapshot {digest[:12]}" for digest in dict.fromkeys(e.snapshot for e in own) if digest]
        marks = ", ".join([*sorted({f"{e.noise} noise, {e.bounds} bounds" for e in own}), *tables, *read])
        console.print(Text(readable(f"{study}, {own[0].time} ({marks})"), style="bold"), soft_wrap=True)
        table = Table("party.column", "what", "subjects", "epsilon")
        for e in own:
            cells = (f"{e.party}.{e.column}", e.what, f"{e.n_subjects:,}", format_price(e))
            table.add_row(*(Text(readable(cell)) for cell in cells))
        console.print(table)
    print("\n".join(state_privacy(entries, delta).lines()))


@ledger_app.command("export")
def ledger_export(
    kit: Annotated[Path, typer.Argument(help="The party's kit, such as kits/bank.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The folder to write; it must be new.", show_default=False)],
    vault: Annotated[
        Path | None,
        typer.Option(help="The party's vault, as `join` has it; default: inside the kit.", show_default=False),
    ] = None,
) -> None:
    """Write the audit trail for an auditor: every release, every request and decision, signed by the party.

    It holds no data and no secret, and can be made while [bold]join[/] runs. The auditor needs nothing but the folder:
    [bold]verticopula ledger verify FOLDER[/] checks all of it.
    """
    from verticopula.network.kit.startup_kit import Kit
    from verticopula.network.operations.audit_trail import export_audit_trail

    own = Kit.read(kit, "party")
    print(f"Written: {export_audit_trail(own, vault or own.folder / 'vault', out)}")
    print(f"To verify it: verticopula ledger verify {out}")


@ledger_app.command("verify")
def ledger_verify(
    folder: Annotated[Path, typer.Argument(help="A study's folder, a party's vault or audit trail, or a ledger file.")],
) -> None:
    """See that no entry was changed, removed from the middle or put in another order; in a vault, nor from the end.

    Of an audit trail also: that requests, decisions and their signatures belong together, and who signed the whole.
    """
    from verticopula.network.operations.audit_trail import is_audit_trail, verify_audit_trail
    from verticopula.storage.ledger import read_ledger
    from verticopula.storage.vault_files import inspect_vault, is_vault

    if is_audit_trail(folder):
        print("\n".join(readable(line) for line in verify_audit_trail(folder).lines()))
        return
    if is_vault(folder):
        entries, replies = inspect_vault(folder)
        print(f"{entries} entries, chain intact and complete; {replies} stored replies, all whole and recorded")
        return
    print(f"{len(read_ledger(_ledger_path(folder)))} entries, chain intact")


@ledger_app.command("snapshot")
@with_options
def ledger_snapshot(
    vault: Annotated[Path, typer.Argument(help="A party's vault.", show_default=False)],
    federation: Annotated[Path, typer.Argument(help="The federation file of the studies.", show_default=False)],
    party: Annotated[str, typer.Argument(help="Whose table it is.", show_default=False)],
    data: PartyData,
    *,
    database: PartyDatabaseOptions,
) -> None:
    """Which studies read exactly these data: a copy that was kept, or the table as it is now.

    Every entry of a vault's ledger has a digest of the table that was read, under the vault's own secret. Whoever has
    the ledger but not the vault can test nothing with it. Where people of the table have withdrawn, or were taken in
    again, the table without them is looked for, too. Ends with 1 where no study read this table.
    """
    from verticopula.data.table_source import party_source
    from verticopula.data.tables import OwnTable
    from verticopula.schema.federation import Federation
    from verticopula.storage.ledger import read_ledger
    from verticopula.storage.vault_files import digest_with_secret, is_vault, read_withdrawals

    if not is_vault(vault):
        raise SettingsError(f"{vault} is no vault: only a vault has the secret that the digests were made with")
    study = Federation.from_toml(federation)
    if party not in {known.name for known in study.parties}:
        raise SettingsError(f"no party {party!r} in {federation}")
    table = party_source(party, data, database.query, database.password_file, database.query_timeout).load().table
    own = study.party(party)
    versions = read_withdrawals(vault).versions(table, study.id.name)
    digests = [digest_with_secret(vault, OwnTable.check(own, one, study.id)) for one in versions]
    entries = [entry for entry in read_ledger(_ledger_path(vault)) if entry.party == party]
    found = dict.fromkeys(entry.study for entry in entries if entry.snapshot in digests)
    for digest in digests:
        print(f"snapshot {digest}")
    for name in found:
        when = next(entry.time for entry in entries if entry.study == name and entry.snapshot in digests)
        print(readable(f"read by study {name}, {when}"))
    if not found:
        print(f"read by none of {len({entry.study for entry in entries})} studies of {party} in this ledger")
        raise typer.Exit(1)


def _ledger_path(folder: Path) -> Path:
    from verticopula.study.study_folder import LEDGER_FILE

    path = folder / LEDGER_FILE if folder.is_dir() else folder
    if not path.is_file():
        raise SettingsError(f"no ledger at {path}")
    return path


def _short_table(entry: Release) -> str:
    """The beginnings of a table's names."""
    return "+".join(name[:6] for name in entry.table.split("+"))
