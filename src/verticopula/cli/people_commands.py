"""`verticopula people`: who withdrew consent, and is left out of every later study."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.errors import SettingsError, VerticopulaError
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
    from verticopula.storage.vault_files import read_known_tables, read_withdrawals

    folder = _vault_of(place, vault)
    named = _read_ids(ids)
    found, people = _count_people(_known_ids(folder, named)), _count_people(named)
    if found < people:
        _check_is_one_column(folder, named)
    known = read_withdrawals(folder)
    news = known.record("withdrawn", named, reason, getpass.getuser())
    _remember(folder)
    print(f"Recorded: {count_of(news, 'person', 'people')}; {people - news} had withdrawn before.")
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
    from verticopula.storage.vault_files import read_withdrawals

    folder = _vault_of(place, vault)
    known = read_withdrawals(folder)
    named = _read_ids(ids)
    news = known.record("restored", named, reason, getpass.getuser())
    _remember(folder)
    print(f"Taken in again: {count_of(news, 'person', 'people')}; {_count_people(named) - news} had not withdrawn.")
    print(_standing(known))


@people_app.command("list")
def people_list(place: _Place, vault: _Vault = None) -> None:
    """When how many people withdrew, and why. Nobody can tell from it who they are."""
    from verticopula.storage.vault_files import read_withdrawals

    known = read_withdrawals(_vault_of(place, vault))
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
    else:
        try:
            data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
            text = data.decode("utf-8-sig")
        except (OSError, ValueError):
            raise SettingsError(f"--ids {file}: cannot be read as text in UTF-8") from None
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise SettingsError("no id was given; nothing was recorded")
    return found


def _check_is_one_column(folder: Path, ids: list[str]) -> None:
    """SettingsError where lines hold more than an id: a part of them is somebody, and the whole line is nobody."""
    parts = {one: set(_split(one)) - {one} for one in ids}
    known = _known_ids(folder, {*ids, *(part for found in parts.values() for part in found)})
    count = sum(one not in known and not found.isdisjoint(known) for one, found in parts.items())
    if count:
        raise SettingsError(
            f"{count_of(count, 'line')} of --ids hold more than an id, as a table with several columns does: give a "
            "file with ids alone; nothing was recorded"
        )


def _split(line: str) -> list[str]:
    return [part for part in re.split(r"[,;|\t]", line) if part.strip()]


def _remember(folder: Path) -> None:
    """Let the vault know how long the history is now; a process that uses the vault sees to it itself."""
    from verticopula.storage.vault import Vault

    if folder.stat().st_uid == os.geteuid():  # it would otherwise get files that its owner cannot read
        with contextlib.suppress(VerticopulaError, OSError), Vault.open(folder):
            pass


def _count_people(ids: Iterable[str]) -> int:
    """How many people these ids are, whatever their spelling."""
    from verticopula.storage.id_sketch import canonical_id

    return len({canonical_id(one) for one in ids})


def _known_ids(folder: Path, ids: Iterable[str]) -> set[str]:
    """Those of these ids who are in the sketches of the tables that a vault knows."""
    from verticopula.storage.id_sketch import hash_people
    from verticopula.storage.vault_files import SECRET, read_known_tables

    secret, named = (folder / SECRET).read_bytes(), list(ids)
    people = {value for table in read_known_tables(folder) for value in table.people}
    return {one for one, value in zip(named, hash_people(named, secret), strict=True) if value in people}
