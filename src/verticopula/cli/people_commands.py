"""`verticopula people`: who withdrew consent, and is left out of every later study."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.errors import SettingsError
from verticopula.formatting import count_of, format_time, readable

if TYPE_CHECKING:
    from verticopula.storage.withdrawals import Withdrawals

people_app = typer.Typer(
    help="Record that people withdrew consent: every later study is made as if the party did not know them.",
    no_args_is_help=True,
)

_Place = Annotated[
    Path,
    typer.Argument(metavar="KIT", help="The party's kit, such as kits/bank; or a vault of `run`.", show_default=False),
]
_Vault = Annotated[
    Path | None,
    typer.Option(help="The party's vault, as `join` has it; default: inside the kit.", show_default=False),
]
_Ids = Annotated[
    Path | None,
    typer.Option(
        "--ids",
        help="A file with one id a line; - for standard input. Without it, one id is asked for and not shown.",
        show_default=False,
    ),
]
_Reason = Annotated[str, typer.Option(help="Why, for the record. No names: auditors read it.")]


@people_app.command("withdraw")
def people_withdraw(place: _Place, ids: _Ids = None, reason: _Reason = "", vault: _Vault = None) -> None:
    """Record that people withdrew. It holds at once, in every study that begins from now on; [bold]join[/] may run.

    Studies that have begun go on with the table of then, and what was released cannot be called back. Ids are kept as
    keyed hashes. They are never part of the command, so no history of commands has them.
    """
    from verticopula.storage.vault_files import read_known_tables
    from verticopula.storage.withdrawals import Withdrawals

    folder = _vault_of(place, vault)
    named = _read_ids(ids)
    known = Withdrawals(folder)
    news = known.record("withdrawn", named, reason, getpass.getuser())
    people = _count_people(named)
    print(f"Recorded: {count_of(news, 'person', 'people')}; {people - news} had withdrawn before.")
    found = _count_known(folder, named)
    if found < people:
        tables = count_of(len(read_known_tables(folder)), "table")
        print(
            f"! {found} of {people} are among the people whom this vault knows from {tables}: look for typing "
            "errors. Of a table with more than 65,536 people it knows a part."
        )
    print(_standing(known))


@people_app.command("restore")
def people_restore(place: _Place, ids: _Ids = None, reason: _Reason = "", vault: _Vault = None) -> None:
    """Take people in again who had withdrawn, in studies that begin from now on. The history keeps both."""
    from verticopula.storage.withdrawals import Withdrawals

    known = Withdrawals(_vault_of(place, vault))
    named = _read_ids(ids)
    news = known.record("restored", named, reason, getpass.getuser())
    print(f"Taken in again: {count_of(news, 'person', 'people')}; {_count_people(named) - news} had not withdrawn.")
    print(_standing(known))


@people_app.command("list")
def people_list(place: _Place, vault: _Vault = None) -> None:
    """When how many people withdrew, and why. Nobody can tell from it who they are."""
    from verticopula.storage.withdrawals import Withdrawals

    known = Withdrawals(_vault_of(place, vault))
    events = known.events()
    if events:
        table = Table("when", "what", "people", "reason", "by")
        for event in events:
            cells = (format_time(event.time), event.what, f"{event.people:,}", event.reason, event.by)
            table.add_row(*(Text(readable(cell)) for cell in cells))
        Console().print(table)
    print(_standing(known))


def _standing(known: Withdrawals) -> str:
    from verticopula.storage.withdrawals import count_left_out

    count = count_left_out(known.events())
    return f"Studies that begin from now on leave out {count_of(count, 'person', 'people')}."


def _vault_of(place: Path, vault: Path | None) -> Path:
    """The vault; SettingsError where there is none: what is recorded in a new one would be honoured by nobody."""
    from verticopula.storage.vault_files import is_vault

    folder = vault or (place / "vault" if (place / "kit.toml").is_file() else place)
    if not is_vault(folder):
        raise SettingsError(
            f"{folder} is no vault: name the one that `join` or `run` uses (--vault). A party that has never joined "
            "makes its vault when it does"
        )
    return folder


def _read_ids(file: Path | None) -> list[str]:
    """The ids, without blanks around them; SettingsError where there are none, which quotes nothing."""
    if file is None:
        text = str(typer.prompt("Id of the person", hide_input=True, confirmation_prompt="The same id again"))
    elif str(file) == "-":
        text = sys.stdin.read()
    else:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, ValueError):
            raise SettingsError(f"--ids {file}: cannot be read as text in UTF-8") from None
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise SettingsError("no id was given; nothing was recorded")
    return found


def _count_people(ids: list[str]) -> int:
    """How many people these ids are, whatever their spelling."""
    from verticopula.storage.id_sketch import canonical_id

    return len({canonical_id(one) for one in ids})


def _count_known(folder: Path, ids: list[str]) -> int:
    """How many of these people are in the sketches of the tables that a vault knows."""
    from verticopula.storage.id_sketch import hash_people
    from verticopula.storage.vault_files import SECRET, read_known_tables

    secret = (folder / SECRET).read_bytes()
    people = {value for table in read_known_tables(folder) for value in table.people}
    return len(people & set(hash_people(ids, secret)))
