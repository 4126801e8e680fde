"""Which features a table's columns become: numbers stay, ordered categories become positions, others indicators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.formatting import join_names
from verticopula.glm.feature_design import Features
from verticopula.schema.cell_text import suggest_name
from verticopula.schema.columns import Column

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coding:
    """How one column becomes features.

    Attributes
    ----------
    levels : its categories; None for a number
    grouped : True for one indicator per category but the first, which are selected together; False for
        the category's position in the list
    """

    name: str
    levels: tuple[Any, ...] | None = None
    grouped: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(f"{self.name}={level}" for level in (self.levels or ())[1:]) if self.grouped else (self.name,)

    def spread(self, codes: Floats) -> Floats:
        """(n, d) features from numbers or category codes."""
        if not self.grouped:
            return codes[:, None]
        return np.asarray(codes[:, None] == np.arange(1, len(self.levels or ())), dtype=np.float64)


def code_schema_column(column: Column) -> Coding:
    """How a column enters a regression, by its entry in the federation file."""
    if column.kind in ("continuous", "count"):
        return Coding(column.name)
    return Coding(column.name, tuple(column.categories or ()), grouped=column.kind in ("nominal", "binary"))


def code_series(series: pl.Series) -> Coding:
    """From the data alone: text is taken for categories without an order."""
    if series.dtype.is_numeric() or series.dtype == pl.Boolean:
        return Coding(series.name)
    if series.dtype in (pl.String, pl.Categorical, pl.Enum):
        return Coding(series.name, tuple(series.drop_nulls().cast(pl.String).unique().sort()), grouped=True)
    raise SettingsError(f"column {series.name!r}: values of type {series.dtype} cannot enter a regression")


def code_table(frame: pl.DataFrame, columns: Sequence[Column] | None) -> tuple[Coding, ...]:
    """One coding per column of the table, by the schema's columns where they are known."""
    known = {column.name: column for column in columns or ()}
    return tuple(code_schema_column(known[s.name]) if s.name in known else code_series(s) for s in frame)


def encode_series(series: pl.Series, coding: Coding, where: str) -> Floats:
    """(n,) numbers or category codes; SettingsError names the column and how many cells are wrong, never a cell."""
    if coding.levels is None:
        if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
            raise SettingsError(f"{where}, column {coding.name!r}: expected numbers")
        values = series.cast(pl.Float64).to_numpy()
    else:
        texts = [str(level) for level in coding.levels]
        if series.dtype.is_nested():
            raise SettingsError(f"{where}, column {coding.name!r}: expected categories")
        codes = series.cast(pl.String).replace_strict(
            texts, list(range(len(texts))), default=None, return_dtype=pl.Float64
        )
        strange = codes.null_count() - series.null_count()
        if strange:
            raise SettingsError(f"{where}, column {coding.name!r}: {strange} cell(s) outside its known categories")
        values = codes.to_numpy()
    empty = int((~np.isfinite(values)).sum())
    if empty:
        raise SettingsError(
            f"{where}, column {coding.name!r}: {empty} cell(s) are empty, NaN or infinite; a regression needs complete "
            "columns, such as synthetic ones"
        )
    return np.asarray(values, dtype=np.float64)


def encode_table(frame: pl.DataFrame, codings: Sequence[Coding], where: str) -> Features:
    """The table's features."""
    absent = [coding.name for coding in codings if coding.name not in frame.columns]
    if absent:
        fitted = join_names([repr(coding.name) for coding in codings])
        hint = suggest_name(absent[0], frame.columns)
        raise SettingsError(f"{where} has no column {absent[0]!r}: the model was fitted on {fitted}{hint}")
    return features_of([encode_series(frame[c.name], c, where) for c in codings], codings, frame.height)


def features_of(codes: Sequence[Floats], codings: Sequence[Coding], n_rows: int) -> Features:
    """Features from every column's numbers or codes."""
    parts = [coding.spread(values) for values, coding in zip(codes, codings, strict=True)]
    kept = [(part, coding) for part, coding in zip(parts, codings, strict=True) if part.shape[1]]
    starts = np.concatenate([[0], np.cumsum([part.shape[1] for part, _ in kept])]).astype(np.int64)
    return Features(
        np.column_stack([part for part, _ in kept]) if kept else np.zeros((n_rows, 0)),
        starts,
        tuple(name for _, coding in kept for name in coding.names),
        tuple(coding.name for _, coding in kept),
    )


def check_response_kind(column: Column) -> None:
    """SettingsError for a response whose categories have no order."""
    if column.kind == "nominal":
        raise SettingsError(f"the response {column.name!r} has unordered categories: no family here fits it")


def encode_response(series: pl.Series, column: Column | None, where: str) -> Floats:
    """The response as numbers; a category as its number in the list, so that a binary one is 0 or 1."""
    if column is not None:
        check_response_kind(column)
    coding = (
        Coding(series.name)
        if column is None or column.kind in ("continuous", "count")
        else (Coding(series.name, tuple(column.categories or ())))
    )
    return encode_series(series, coding, where)
