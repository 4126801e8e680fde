"""Lists of categories that stand in a file of their own, beside the federation file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verticopula.errors import Problem, SchemaError

CODE_LIST_KEY = "categories_file"


def read_code_list(path: Path) -> list[str]:
    """The categories of a file; SchemaError if it cannot be read.

    A `.csv` file has them in its first column, below a header. Any other file has one on each line. Empty lines and
    lines that begin with `#` are left out.

    Parameters
    ----------
    path : the file
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise SchemaError([Problem(path.name, "no such file; it is looked for beside the federation file")]) from None
    except (OSError, UnicodeDecodeError):
        raise SchemaError([Problem(path.name, "cannot be read as UTF-8 text")]) from None
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if path.suffix.lower() == ".csv":
        separator = max(",;\t", key=kept[0].count) if kept else ","
        return [row[0].strip() for row in csv.reader(kept[1:], delimiter=separator)]
    return [line.strip() for line in kept]


def with_code_lists(raw: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The federation file's content with every `categories_file` read in, and what is wrong with these files.

    Parameters
    ----------
    raw : in the layout of the federation file
    folder : where relative paths begin
    """
    problems: list[Problem] = []
    parties = raw.get("party")
    if not isinstance(parties, list):
        return dict(raw), problems
    return {**raw, "party": [_party(party, folder, problems) for party in parties]}, problems


def _party(party: Any, folder: Path, problems: list[Problem]) -> Any:
    if not isinstance(party, Mapping) or not isinstance(party.get("column"), list):
        return party
    where = f"party {party.get('name', '?')!r}"
    return {**party, "column": [_column(column, folder, where, problems) for column in party["column"]]}


def _column(column: Any, folder: Path, where: str, problems: list[Problem]) -> Any:
    if not isinstance(column, Mapping) or CODE_LIST_KEY not in column:
        return column
    at = f"{where}, column {column.get('name', '?')!r}, {CODE_LIST_KEY}"
    kept = {key: value for key, value in column.items() if key != CODE_LIST_KEY}
    name = column[CODE_LIST_KEY]
    if column.get("categories"):
        problems.append(Problem(at, "give either categories or a file of them"))
    elif not isinstance(name, str) or not name:
        problems.append(Problem(at, "must be the name of a file"))
    else:
        try:
            return {**kept, "categories": read_code_list(folder / name)}
        except SchemaError as error:
            problems += [Problem(at, str(problem)) for problem in error.problems]
    return kept
