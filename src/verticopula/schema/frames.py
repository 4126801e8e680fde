"""Tables of other libraries as polars frames, and back."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import polars as pl

from verticopula.errors import Problem, SchemaError


def to_polars(frame: Any, party: str) -> pl.DataFrame:
    """Any frame that narwhals knows, as polars; SchemaError if it is none."""
    try:
        native = nw.from_native(frame, eager_only=True)
    except nw.exceptions.DuplicateError:
        raise SchemaError([Problem(f"party {party!r}", "two columns of the table have the same name")]) from None
    except TypeError:
        raise SchemaError([Problem(f"party {party!r}", "expected a pandas or polars DataFrame")]) from None
    names = [str(name) for name in native.columns]
    if len(set(names)) != len(names):
        raise SchemaError([Problem(f"party {party!r}", "two columns of the table have the same name")])
    if isinstance(frame, pl.DataFrame):
        return frame
    return pl.DataFrame([_to_series(name, native[:, position]) for position, name in enumerate(names)])


def _to_series(name: str, series: nw.Series[Any]) -> pl.Series:
    """One column as polars, without pyarrow; columns of mixed types become text and are checked later."""
    cells = [None if _is_null(cell) else cell for cell in series.to_list()]
    try:
        return pl.Series(name, cells, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(name, [None if cell is None else str(cell) for cell in cells], dtype=pl.String)


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value) or str(value) == "<NA>"


def backend_of(frame: Any) -> str:
    """Name of the library a frame belongs to."""
    return str(nw.get_native_namespace(nw.from_native(frame, eager_only=True)).__name__)


def from_polars(frame: pl.DataFrame, backend: str) -> Any:
    """The same table in the library its reader uses; polars for libraries not met here."""
    if backend == "pandas":
        import pandas as pd  # only for users who came with pandas

        return pd.DataFrame({s.name: s.to_list() if s.dtype == pl.String else s.to_numpy() for s in frame})
    return frame.to_arrow() if backend == "pyarrow" else frame
