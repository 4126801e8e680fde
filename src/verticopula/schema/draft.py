"""A federation guessed from tables: for trying things out, at the price of leaking the ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from verticopula.errors import Problem, SchemaError, SettingsError
from verticopula.schema.frames import to_polars

_FEW = 20  # a whole-number column with more distinct values than this is a count


def draft_federation(tables: Mapping[str, Any], *, response: str, bounds: str, id: str, name: str) -> dict[str, Any]:
    """A federation file's content with kinds, bounds and categories as the data show them.

    It is marked `bounds_source = "from-data"`.
    """
    if bounds != "from-data":
        raise SettingsError(
            "inferring a federation takes the ranges from the data, which is not private; "
            'say bounds="from-data" to accept that'
        )
    parties = []
    problems: list[Problem] = []
    for party, frame in tables.items():
        table = to_polars(frame, party)
        columns = []
        for column in table.columns:
            if column == id:
                continue
            guess = _guess_column(table[column])
            if guess is None:
                problems.append(Problem(f"party {party!r}, column {column!r}", "fewer than two different values"))
            else:
                columns.append({"name": column, **guess})
        parties.append({"name": party, "column": columns})
    if problems:
        raise SchemaError(problems)
    return {"name": name, "response": response, "id": id, "bounds_source": "from-data", "party": parties}


def _guess_column(series: pl.Series) -> dict[str, Any] | None:
    if series.dtype.is_float():
        series = series.fill_nan(None)
    seen = series.drop_nulls()
    distinct = seen.n_unique()
    if distinct < 2:
        return None
    if not seen.dtype.is_numeric():
        if seen.dtype == pl.Boolean:
            return {"kind": "binary"}
        return {"kind": "nominal", "categories": sorted(str(v).strip() for v in seen.cast(pl.String).unique())}
    low, high = float(seen.min()), float(seen.max())  # type: ignore[arg-type]
    whole = seen.dtype.is_integer() or bool((seen == seen.round(0)).all())
    if not whole:
        return {"kind": "continuous", "bounds": [low, high]}
    if distinct == 2:
        return {"kind": "binary", "categories": [int(low), int(high)]}
    if distinct <= _FEW:
        return {"kind": "ordinal", "categories": sorted(int(v) for v in seen.unique())}
    return {"kind": "count", "bounds": [int(low), int(high)]}
