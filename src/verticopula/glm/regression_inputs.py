"""What a caller may hand to a regression: tables by party or one table, a response by value or by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from verticopula.errors import SettingsError
from verticopula.glm.feature_encoding import encode_response
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.schema.frames import to_polars

Floats = NDArray[np.float64]

SINGLE_PARTY = "X"


def read_blocks(blocks: Any) -> tuple[dict[str, pl.DataFrame], Federation | None, int | None]:
    """Tables by party, and, where a synthesizer made them, its federation and number of subjects."""
    if isinstance(blocks, Mapping):
        if not blocks:
            raise SettingsError("no tables were given")
        tables = {str(name): _read_table(table, str(name)) for name, table in blocks.items()}
    else:
        tables = {SINGLE_PARTY: _read_table(blocks, SINGLE_PARTY)}
    return tables, getattr(blocks, "federation", None), getattr(blocks, "n_subjects", None)


def _read_table(table: Any, party: str) -> pl.DataFrame:
    if hasattr(table, "columns") or isinstance(table, pl.DataFrame):
        return to_polars(table, party)
    values = _as_numbers(table)
    if values is None:
        raise SettingsError(f"party {party!r}: expected a DataFrame or an array of numbers")
    if values.ndim != 2:
        raise SettingsError(
            f"party {party!r}: expected a DataFrame or an array with two dimensions, got {values.ndim}; "
            "reshape(-1, 1) makes one column of a vector"
        )
    return pl.DataFrame({f"x{j + 1}": values[:, j] for j in range(values.shape[1])})


def _as_numbers(given: Any) -> Floats | None:
    """An array of real numbers, or None."""
    try:
        return None if np.iscomplexobj(given) else np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def take_response(
    tables: dict[str, pl.DataFrame], response: ArrayLike | str, federation: Federation | None
) -> tuple[Floats, dict[str, pl.DataFrame], str]:
    """The response, the tables without it, and its name if it has one."""
    if isinstance(response, ColumnKey):
        response = str(response)
    if not isinstance(response, str):
        values = _as_numbers(response)
        if values is None:
            raise SettingsError("the response must be numbers; code a yes or no as 1 and 0")
        if values.ndim != 1:
            raise SettingsError(f"expected one response per row, got an array with {values.ndim} dimensions")
        return values, tables, ""
    party, _, column = response.partition(".")
    if party not in tables or column not in tables[party].columns:
        raise SettingsError(f"no column {response!r} in these tables; a response is named party.column")
    known = None if federation is None else federation.column(ColumnKey(party, column))
    values = encode_response(tables[party][column], known, f"party {party!r}")
    rest = {name: t.drop(column) if name == party else t for name, t in tables.items()}
    rest = {name: table for name, table in rest.items() if table.width}
    if not rest:
        raise SettingsError("there are no columns beside the response")
    return values, rest, response


def check_rows(rows: Mapping[str, int], expected: int) -> None:
    """SettingsError unless all parties have the response's number of rows."""
    wrong = [f"{name} has {count}" for name, count in rows.items() if count != expected]
    if wrong:
        raise SettingsError(f"the response has {expected} rows, but party {', '.join(wrong)}")
    if expected < 2:
        raise SettingsError(f"a regression needs more than n_samples = {expected} row(s)")
