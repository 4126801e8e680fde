"""One column's cells as numbers, by the column's public description; and numbers as cells again.

Single cells never refuse a table: a refusal that hangs on one person's value would tell others about it. A number
outside the bounds counts as the nearest bound, a cell that cannot be read counts as empty, and a constant column is a
column like any other. How many cells that were is a note for the table's own party (`cell_facts.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.cell_facts import CellFacts, MarkedRows, note_cells
from verticopula.data.scratch_file import ROWS_IN_MEMORY, ScratchFile, StoredArray
from verticopula.errors import EngineError, Problem
from verticopula.schema.cell_text import (
    EMPTY_SPELLINGS,
    WHOLE_FLOAT,
    is_empty,
    parse_days,
    parse_numbers,
    parse_seconds,
    strip_text,
)
from verticopula.schema.columns import Column

Floats = NDArray[np.float64]

_WHOLE_CELL = re.compile(WHOLE_FLOAT)
_NO_FACTS = CellFacts(0, ())


@dataclass(frozen=True, repr=False)
class EncodedColumn:
    """A column as numbers. It has no repr: raw values must not end up in a log or a traceback.

    Attributes
    ----------
    values : (rows,) values; category codes 0..C-1 for ordinal, nominal and binary columns;
        unspecified where not observed
    observed : (rows,) mask
    clamped : how many values lay outside the bounds and were moved to them
    unreadable : how many cells hold something that is no value of the column; they count as empty
    notes : what the column's own party should know about it, and nobody else may
    doubt : why its cells may have been read wrongly as a whole; "" if there is no doubt
    has_open_mark : whether its commas were taken for thousands, and may be decimals: where values lie is then not known
    """

    values: Floats
    observed: NDArray[np.bool_]
    clamped: int = 0
    unreadable: int = 0
    notes: tuple[str, ...] = ()
    doubt: str = ""
    has_open_mark: bool = False


NO_VALUES = "this step needs a column's values, which stay on the party's engine; it runs with the local engine only"


@dataclass(frozen=True)
class ValuesElsewhere:
    """In place of a `StoredArray`: values that are not in this process."""

    shape: tuple[int]

    def read(self) -> NDArray[Any]:
        raise EngineError(NO_VALUES)


class StoredColumn(EncodedColumn):
    """A column on disk: `values` and `observed` are read whenever they are asked for.

    Values lie there as the column's public description allows, whole numbers in as few bytes as its largest one needs.
    """

    def __init__(
        self,
        column: EncodedColumn,
        values: StoredArray | ValuesElsewhere,
        observed: StoredArray | None,
        rows: NDArray[np.int32] | None = None,
        present: NDArray[np.bool_] | None = None,
    ) -> None:
        vars(self).update({name: getattr(column, name) for name in _NOTED})
        vars(self).update(_values=values, _observed=observed, _rows=rows, _present=present)

    if TYPE_CHECKING:
        _values: StoredArray | ValuesElsewhere
        _observed: StoredArray | None
        _rows: NDArray[np.int32] | None
        _present: NDArray[np.bool_] | None

    def __getattr__(self, name: str) -> Any:
        """`values` and `observed`, which no instance has."""
        if name == "values":
            values = self._values.read()
            return (values if self._rows is None else values[self._rows]).astype(np.float64, copy=False)
        if name == "observed":
            return self._read_observed()
        raise AttributeError(name)

    def read_own(self) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Values, as narrow as they lie there, and mask, in the order of the party's own table."""
        return self._values.read(), self.read_own_mask()

    def read_own_mask(self) -> NDArray[np.bool_]:
        """Who has a value, in the order of the party's own table."""
        size = self._values.shape[0]
        if self._observed is None:
            return np.ones(size, dtype=bool)
        return np.unpackbits(self._observed.read(), count=size).view(np.bool_)

    def _read_observed(self) -> NDArray[np.bool_]:
        if self._observed is None and self._present is not None:
            return self._present
        seen = self.read_own_mask()
        return seen if self._rows is None or self._present is None else seen[self._rows] & self._present


_NOTED = ("clamped", "unreadable", "notes", "doubt", "has_open_mark")


def store_column(encoded: EncodedColumn, column: Column, file: ScratchFile) -> StoredColumn:
    """The same column, on disk.

    Parameters
    ----------
    encoded : the column in memory
    column : its public description, which says how wide its values are
    file : where to
    """
    values = file.append(encoded.values.astype(_width(column)))
    observed = None if encoded.observed.all() else file.append(np.packbits(encoded.observed))
    return StoredColumn(encoded, values, observed)


def _width(column: Column) -> np.dtype[Any]:
    """The narrowest type that holds all values that the column may have."""
    if column.kind == "continuous":
        return np.dtype(np.float64)
    low, high = column.bounds or (0, len(column.categories or ()))
    return np.result_type(np.min_scalar_type(int(low)), np.min_scalar_type(int(high)))


def reorder_column(encoded: EncodedColumn, rows: NDArray[np.int32], present: NDArray[np.bool_]) -> EncodedColumn:
    """The column of a cohort whose subject i has row `rows[i]`, if it is `present`.

    Parameters
    ----------
    encoded : in the order of the party's own table
    rows, present : (N,) of the cohort
    """
    if isinstance(encoded, StoredColumn):
        return StoredColumn(encoded, encoded._values, encoded._observed, rows, present)
    return replace(encoded, values=encoded.values[rows], observed=encoded.observed[rows] & present)


@dataclass(frozen=True, repr=False)
class EncodedCells:
    """Some rows of a column as numbers, and what notes about them rest on. No repr.

    Attributes
    ----------
    values, observed : as `EncodedColumn` has them
    facts : about these rows
    """

    values: Floats
    observed: NDArray[np.bool_]
    facts: CellFacts


def encode_column(
    series: pl.Series, column: Column, where: str, decimal: str | None = None
) -> tuple[EncodedColumn, list[Problem]]:
    """Numbers and mask of one column, and what is wrong with the column as a whole.

    Parameters
    ----------
    series : the cells, of any type
    column : its public description
    where : party and column, for problems
    decimal : the party's decimal mark, for cells of text that can be read two ways
    """
    unusable = find_unusable(series.dtype, column)
    if unusable:
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), [Problem(where, unusable)]
    cells = _encode_in_parts(
        len(series), lambda start, size: encode_rows(series.slice(start, size), column, decimal, start)
    )
    return _with_notes(cells, column, column, decimal), []


def encode_difference(
    series: pl.Series, other: pl.Series, columns: tuple[Column, Column], where: str, decimal: str | None = None
) -> tuple[EncodedColumn, list[Problem]]:
    """A column with a relation as its difference from the other column; empty where one of the two is.

    Both are read as they are: where they are equal, they are also where they lie outside the other one's bounds.

    Parameters
    ----------
    series, other : the cells of both, of any type
    columns : their public descriptions
    where, decimal : as `encode_column` has them
    """
    column, related = columns
    written = column.as_written(related)
    unusable = find_unusable(series.dtype, written)
    if unusable:
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), [Problem(where, unusable)]
    if find_unusable(other.dtype, related):  # a problem of that column, and said there
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), []
    cells = _encode_in_parts(
        len(series),
        lambda start, size: encode_apart(series.slice(start, size), other.slice(start, size), columns, decimal, start),
    )
    return _with_notes(cells, column, written, decimal), []


def _encode_in_parts(rows: int, encode: Callable[[int, int], EncodedCells]) -> EncodedCells:
    """All rows, some at a time, because what is needed to read cells is many times as large as their numbers."""
    values, observed = np.empty(rows), np.empty(rows, dtype=bool)
    facts = _NO_FACTS
    for start in range(0, rows, ROWS_IN_MEMORY):
        some = slice(start, start + ROWS_IN_MEMORY)
        part = encode(start, ROWS_IN_MEMORY)
        values[some], observed[some] = part.values, part.observed
        facts = facts + part.facts
    return EncodedCells(values, observed, facts)


def _with_notes(cells: EncodedCells, column: Column, read_as: Column, decimal: str | None) -> EncodedColumn:
    return EncodedColumn(cells.values, cells.observed, **vars(note_cells(cells.facts, column, read_as, decimal)))


def encode_rows(series: pl.Series, column: Column, decimal: str | None = None, start: int = 0) -> EncodedCells:
    """Some rows of a column as numbers. Each cell is read on its own: rows may be cut anywhere.

    Parameters
    ----------
    series : the cells, of a type that the column can have
    column : its public description
    decimal : the party's decimal mark
    start : the first of these rows in the whole table, for notes
    """
    if column.kind in ("continuous", "count"):
        return _finish(_within_bounds(_read_numbers(series, column, decimal, start), column, start), start)
    return _finish(_encode_categories(series, column, start), start)


def encode_apart(
    series: pl.Series, other: pl.Series, columns: tuple[Column, Column], decimal: str | None = None, start: int = 0
) -> EncodedCells:
    """The same of a column with a relation.

    Parameters
    ----------
    series, other, columns : as `encode_difference` has them
    decimal, start : as `encode_rows` has them
    """
    column, related = columns
    own = _read_numbers(series, column.as_written(related), decimal, start)
    base = _read_numbers(other, related, decimal, start)
    both = own.observed & base.observed & ~(np.isinf(own.values) & np.isinf(base.values))
    apart = np.where(both, own.values, 0.0) - np.where(both, base.values, 0.0)
    return _finish(_within_bounds(EncodedCells(apart, both, own.facts), column, start), start)


def _finish(cells: EncodedCells, start: int) -> EncodedCells:
    """With what is known of values only at the end."""
    seen = cells.values[cells.observed]
    ends = (float(seen.min()), float(seen.max())) if seen.size else ()
    return replace(
        cells, facts=replace(cells.facts, seen=seen.size, ends=ends, empty=MarkedRows.of(~cells.observed, start))
    )


def find_unusable(dtype: pl.DataType, column: Column) -> str:
    """Why no cell of this type can be a value of the column; "" if some can.

    Parameters
    ----------
    dtype : of the cells
    column : its public description
    """
    if isinstance(dtype, (pl.List, pl.Struct, pl.Array, pl.Object, pl.Binary)):
        return "holds lists, bytes or objects, not single values"
    if column.kind not in ("continuous", "count"):
        return ""
    if dtype == pl.Boolean:
        return f'expected numbers for a {column.kind} column, got True and False: kind = "binary" reads them'
    if column.dates and dtype.is_numeric():
        return f"expected dates, as the bounds are, got {dtype}"
    if dtype in (pl.Date, pl.Datetime):
        wanted = 'kind = "count" with two dates as bounds reads them'
        return "" if column.dates else f"expected numbers for a {column.kind} column, got {dtype}: {wanted}"
    return f"expected numbers for a {column.kind} column, got {dtype}" if dtype.is_temporal() else ""


def _encode_categories(series: pl.Series, column: Column, start: int) -> EncodedCells:
    """Codes of the categories: every different cell is looked at once, and counted as often as it stands there."""
    codes = {str(category).strip(): float(code) for code, category in enumerate(column.categories or ())}
    cells = series.unique().drop_nulls()
    text = strip_text(cells)
    found = [None if cell is None else _code_of(cell, codes) for cell in text]
    strange = [
        code is None and cell is not None and cell.lower() not in EMPTY_SPELLINGS
        for code, cell in zip(found, text, strict=True)
    ]
    is_strange = np.array([*strange, False])
    table = np.array([*(np.nan if code is None else code for code in found), np.nan])
    which = _number_cells(series, cells)
    values, unlisted = table[which], is_strange[which]
    observed = ~np.isnan(values)
    values[~observed] = 0.0
    rows = MarkedRows.of(unlisted, start)
    if not rows.count:
        return EncodedCells(values, observed, _NO_FACTS)
    if column.other is not None:
        values[unlisted], observed[unlisted] = codes[str(column.other).strip()], True
        return EncodedCells(values, observed, replace(_NO_FACTS, unlisted=rows))
    often = np.bincount(which, minlength=table.size)
    spelled = Counter[str]()
    for place in np.flatnonzero(is_strange).tolist():
        spelled[text[place]] += int(often[place])
    near = _count_near(spelled, codes)
    facts = replace(_NO_FACTS, unlisted=rows, unreadable=rows, near_spelling=near[0], near_zeros=near[1])
    return EncodedCells(values, observed, facts)


def _number_cells(series: pl.Series, cells: pl.Series) -> NDArray[np.int64]:
    """(rows,) which of the different cells each cell is; their number where it is empty."""
    if series.dtype == pl.String:
        numbers = series.cast(pl.Enum(cells)).to_physical()
    else:
        numbers = series.replace_strict(cells, pl.int_range(len(cells), eager=True), default=None)
    return numbers.fill_null(len(cells)).to_numpy().astype(np.int64)


def _code_of(cell: str, codes: Mapping[str, float]) -> float | None:
    """The code of the category that a cell means; None if it means none of them."""
    if cell in codes:
        return codes[cell]
    whole = _WHOLE_CELL.fullmatch(cell)
    if whole:
        return codes.get(whole[1])
    truth = cell.lower()
    if truth not in ("true", "false"):
        return None
    same = next((code for category, code in codes.items() if category.lower() == truth), None)
    return codes.get("1" if truth == "true" else "0") if same is None else same


def _count_near(strange: Mapping[str, int], codes: Mapping[str, float]) -> tuple[int, int]:
    """How many of the unlisted cells are a category but for case or blanks, and but for lost leading zeros."""
    folded = {"".join(category.casefold().split()) for category in codes}
    close = sum(times for cell, times in strange.items() if "".join(cell.casefold().split()) in folded)
    widths = {len(category) for category in codes}
    short = sum(times for cell, times in strange.items() if any(cell.zfill(width) in codes for width in widths))
    return close, short


def _read_numbers(series: pl.Series, column: Column, decimal: str | None, start: int) -> EncodedCells:
    """Numbers, days or seconds as the cells have them, within the bounds or not."""
    facts = _NO_FACTS
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if series.dtype.is_numeric():
        numbers = series.cast(pl.Float64)
        empty = series.is_null() | numbers.is_nan().fill_null(False)
        values = numbers.fill_null(float("nan")).to_numpy().astype(np.float64)
    else:
        text = strip_text(series)
        empty = is_empty(text)
        if column.dates:
            values = parse_seconds(text) if column.times else parse_days(text)
        else:
            parsed = parse_numbers(text, decimal)
            values, two_ways = parsed.values, parsed.two_ways
            commas = two_ways & text.str.contains(",", literal=True).fill_null(False).to_numpy()
            facts = replace(
                facts,
                two_ways=int(two_ways.sum()),
                commas=MarkedRows.of(commas, start),
                with_comma=parsed.with_comma,
                with_point=parsed.with_point,
            )
    filled = ~empty.to_numpy()
    observed = filled & ~np.isnan(values)
    facts = replace(facts, unreadable=MarkedRows.of(filled & ~observed, start))
    return EncodedCells(np.where(observed, values, 0.0), observed, facts)


def _within_bounds(read: EncodedCells, column: Column, start: int) -> EncodedCells:
    """Numbers that were read, moved to the bounds where they lie outside, and whole in a count column."""
    low, high = column.bounds or (0.0, 0.0)
    outside = read.observed & ((read.values < low) | (read.values > high))
    values = np.where(read.observed, np.clip(read.values, low, high), 0.0)
    facts = replace(read.facts, outside=MarkedRows.of(outside, start))
    if column.kind == "count":
        whole = np.rint(values)  # the bounds are whole: it stays within them
        facts = replace(facts, broken=MarkedRows.of(values != whole, start))
        values = whole
    return EncodedCells(values, read.observed, facts)


def decode_column(values: Floats, column: Column) -> pl.Series:
    """Values or category codes in the column's own type; what is not a number comes out empty."""
    empty = np.isnan(values)
    filled = pl.Series(~empty)
    if column.kind == "continuous":
        return pl.select(pl.when(filled).then(pl.Series(values)).alias(column.name)).to_series()
    whole_values = np.where(empty, 0.0, values).astype(np.int64)
    if column.kind == "count":
        whole_numbers = pl.select(pl.when(filled).then(pl.Series(whole_values)).alias(column.name)).to_series()
        if column.times:
            return (whole_numbers * 1_000_000).cast(pl.Datetime("us"))
        return whole_numbers.cast(pl.Int32).cast(pl.Date) if column.dates else whole_numbers
    categories = column.categories or ()
    whole = all(isinstance(c, int) for c in categories)
    labels = pl.Series([c if whole else str(c) for c in categories], dtype=pl.Int64 if whole else pl.String)
    return pl.select(pl.when(filled).then(labels.gather(whole_values)).alias(column.name)).to_series()
