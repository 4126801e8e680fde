"""`verticopula init`: a federation file from tables, with questions where only people know the answer."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from verticopula.cli.option_records import with_options
from verticopula.cli.shared_options import Quiet
from verticopula.cli.study_inputs import (
    DatabaseOptions,
    show_marks,
)
from verticopula.errors import Problem, SchemaError, SettingsError
from verticopula.formatting import count_of, readable

if TYPE_CHECKING:
    from verticopula.data.table_source import TableSource
    from verticopula.schema.federation_draft import ColumnDraft, FederationDraft
    from verticopula.schema.imported_schemas import DescribedTable

_LEAVE_OUT = "out"


@with_options
def init(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="A folder with one table for each party (CSV, Parquet, Arrow, spreadsheet, SQLite, DuckDB), or the "
            "tables; or one database, postgresql://user@host/name, with a --query for each party.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The federation file to write.")] = Path("federation.toml"),
    response: Annotated[
        str | None, typer.Option(help="The column to be explained, as party.column. Default: guessed.")
    ] = None,
    id_name: Annotated[str | None, typer.Option("--id", help="The id column. Default: guessed.")] = None,
    name: Annotated[str | None, typer.Option(help="The study's name. Default: the folder's.")] = None,
    schema: Annotated[
        list[Path] | None,
        typer.Option(
            help="SDV metadata, or a Frictionless or CSVW schema (JSON), whose kinds, bounds and lists are taken over. "
            "May be repeated.",
            show_default=False,
        ),
    ] = None,
    bounds: Annotated[
        str,
        typer.Option(
            help="blank asks for bounds and categories; from-data takes them from the tables, so that epsilon is "
            "infinite: for trying things out only."
        ),
    ] = "blank",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: take every guess, and leave questions in the file.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    *,
    database: DatabaseOptions,
    quiet: Quiet = False,
) -> None:
    """Write a commented federation file from tables. Names, kinds, ids and response are guessed.

    Bounds and categories are public, so you are asked for them. On a terminal that happens right away, and Enter leaves
    a question for later; elsewhere give --yes.
    """
    from verticopula.data.table_source import draft_sources, load_all
    from verticopula.schema.draft_guesses import draft_federation
    from verticopula.schema.imported_schemas import read_schema

    if not yes and not sys.stdin.isatty():
        raise SettingsError("there is no terminal to ask questions at: give --yes to take every guess")
    if out.exists() and not overwrite:
        raise SettingsError(f"{out} is there already; choose another --out, or --overwrite to replace it")
    found = draft_sources(paths, database.queries, database.password_file, database.query_timeout)
    tables = show_marks(load_all(found))
    described = _described([table for path in schema or () for table in read_schema(path)], list(tables))
    keys = {table.id for table in described.values() if table.id}
    draft = draft_federation(
        tables,
        response=response,
        bounds=bounds,
        id=id_name or (keys.pop() if len(keys) == 1 and len(described) == len(tables) else None),
        name=name or _study_name(paths, database.queries),
        described={party: {c.name: c for c in table.columns} for party, table in described.items()},
        sources={source.party: source.name if source.query is None else source.query.name for source in found},
    )
    if not yes:
        draft = _ask(draft)
    command = _check_command(out, paths, found, database.queries)
    draft.to_toml(out, check_with=command)
    if not quiet:
        _say(draft, out, command)


def _check_command(out: Path, paths: list[str], found: list[TableSource], queries: tuple[Path, ...]) -> str:
    """The command that looks at the file and the same tables."""
    place = found[0].place
    data = paths[0] if queries or not isinstance(place, Path) else str(place.parent)
    asked = "".join(f" --query {shlex.quote(str(path))}" for path in queries)
    return f"verticopula check {out} --data {shlex.quote(data)}{asked}"


def _study_name(paths: list[str], queries: tuple[Path, ...]) -> str:
    place = queries[0] if queries else Path(paths[0])
    folder = place if place.is_dir() else place.parent
    return folder.resolve().name or "study"


def _described(found: list[DescribedTable], parties: list[str]) -> dict[str, DescribedTable]:
    """Party -> what a schema says of its table; a schema without a name is of the only table."""
    from verticopula.data.table_files import party_name_of
    from verticopula.schema.cell_text import suggest_name

    out: dict[str, DescribedTable] = {}
    for table in found:
        party = party_name_of(Path(f"{table.name}.csv")) if table.name else (parties[0] if len(parties) == 1 else "")
        if party not in parties:
            hint = suggest_name(party, parties) if party else ""
            said = f"describes table {table.name!r}" if table.name else "does not name the table that it describes"
            raise SchemaError([Problem("--schema", f"{said}, which is not among {', '.join(parties)}{hint}")])
        out[party] = table
    return out


# ---- questions ---------------------------------------------------------------------------


def _ask(draft: FederationDraft) -> FederationDraft:
    """The draft with what somebody at the terminal says; Enter takes the guess, or leaves the question open."""
    from verticopula.schema.columns import Kind

    kinds = get_args(Kind)
    typer.echo(
        "Enter takes what stands in brackets. Bounds and categories are public: do not look at the data for them."
    )
    draft = replace(draft, id=_answer("id column", draft.id))
    while (response := _answer("column to be explained", draft.response)) != draft.response:
        try:
            draft = draft.with_response(response)
        except SchemaError as error:
            typer.echo(f"  {readable(error.problems[0].what)}")
        else:
            break
    for party in draft.parties:
        for column in party.columns:
            typer.echo(f"\n{readable(f'{party.name}.{column.name}')}: {column.why}")
            guess = column.kind or _LEAVE_OUT
            kind = _one_of(f"  kind ({', '.join(kinds)}, or {_LEAVE_OUT} to leave it out)", guess, (*kinds, _LEAVE_OUT))
            if kind != guess:
                column = replace(column, kind="" if kind == _LEAVE_OUT else kind, bounds=None, categories=None)
                column = replace(column, truth=kind == "binary" and column.truth, why="as you said")
            draft = draft.with_column(party.name, _ask_range(column))
    return draft


def _ask_range(column: ColumnDraft) -> ColumnDraft:
    if not column.is_open:
        return column
    if column.kind in ("continuous", "count"):
        form = (
            "first and last possible day (2000-01-01 2030-12-31"
            if column.is_date
            else "smallest and largest possible value (0 100"
        )
        while answer := _answer(f"  {form}; Enter: later)", ""):
            bounds = _bounds(answer, column)
            if bounds is not None:
                return replace(column, bounds=bounds)
            typer.echo("  two of them, the smaller first")
        return column
    order = ", in order" if column.kind == "ordinal" else ""
    answer = _answer(f"  all categories{order}, with commas between (Enter: later)", "")
    listed = tuple(part.strip() for part in answer.split(",") if part.strip())
    return replace(column, categories=listed or None)


def _bounds(answer: str, column: ColumnDraft) -> tuple[Any, Any] | None:
    """Two bounds that the schema accepts; None otherwise."""
    from verticopula.schema.columns import Column

    parts = answer.replace("[", " ").replace("]", " ").replace(";", " ").replace(", ", " ").split()
    try:
        bounds: list[Any] = parts if column.is_date else [float(part) for part in parts]
        made = Column(name="x", kind=column.kind, bounds=bounds)
    except (ValueError, SchemaError):
        return None
    if column.is_date or made.bounds is None:
        return (parts[0], parts[1])
    low, high = made.bounds
    return (int(low), int(high)) if low.is_integer() and high.is_integer() else (low, high)


def _answer(question: str, default: str) -> str:
    return str(typer.prompt(question, default=default, show_default=bool(default))).strip()


def _one_of(question: str, default: str, allowed: tuple[str, ...]) -> str:
    while (answer := _answer(question, default)) not in allowed:
        typer.echo(f"  one of {', '.join(allowed)}")
    return answer


def _say(draft: FederationDraft, out: Path, command: str) -> None:
    columns = sum(bool(column.kind) for party in draft.parties for column in party.columns)
    parties = count_of(len(draft.parties), "party", "parties")
    print(f"Written to {out}: {parties}, {count_of(columns, 'column')}, response {draft.response or 'still open'}")
    asked = len(draft.open_questions)
    if asked:
        print(f"{count_of(asked, 'question is', 'questions are')} open: look for “?” in the file.")
    print(f"Then: {command}")
