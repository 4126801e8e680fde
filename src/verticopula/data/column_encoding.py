"""One column's cells as numbers, by the column's public description; and numbers as cells again.

Single cells never refuse a table: a refusal that hangs on one person's value would tell others about it. A number
outside the bounds counts as the nearest bound, a cell that cannot be read counts as empty, and a constant column is a
column like any other. How many cells that were is a note for the table's own party. Notes say what was expected and
how many cells are concerned; they never quote a cell. They give row numbers, because they stay in the house of the
table's holder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.errors import Problem
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
from verticopula.schema.methods import STRICT

Floats = NDArray[np.float64]

_MOST_ROWS = 3  # that a note names
_WHOLE_CELL = re.compile(WHOLE_FLOAT)


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
    unusable = _unusable(series.dtype, column)
    if unusable:
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), [Problem(where, unusable)]
    if column.kind in ("continuous", "count"):
        encoded = _within_bounds(_read_numbers(series, column, decimal), column)
    else:
        encoded = _encode_categories(series, column)
    return _noted(encoded, column), []


def _noted(encoded: EncodedColumn, column: Column) -> EncodedColumn:
    return replace(encoded, notes=(*encoded.notes, *_spread_notes(encoded), *_required_notes(encoded, column)))


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
    unusable = _unusable(series.dtype, written)
    if unusable:
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), [Problem(where, unusable)]
    if _unusable(other.dtype, related):  # a problem of that column, and said there
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), []
    own, base = _read_numbers(series, written, decimal), _read_numbers(other, related, decimal)
    both = own.observed & base.observed & ~(np.isinf(own.values) & np.isinf(base.values))
    apart = replace(own, values=np.where(both, own.values, 0.0) - np.where(both, base.values, 0.0), observed=both)
    return _noted(_within_bounds(apart, column), column), []


def _unusable(dtype: pl.DataType, column: Column) -> str:
    """Why no cell of this type can be a value of the column; "" if some can."""
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


def _spread_notes(encoded: EncodedColumn) -> Iterable[str]:
    seen = encoded.values[encoded.observed]
    if encoded.has_open_mark:
        return  # one question at a time: all of them may be clamped because of it
    if seen.size < 2:
        yield f"only {seen.size} observed value(s): the study can say nothing about it"
    elif np.all(seen == seen[0]):
        yield "is constant where observed: the study can say nothing about its associations; leave it out"


def _required_notes(encoded: EncodedColumn, column: Column) -> Iterable[str]:
    empty = ~encoded.observed
    if column.required and empty.any():
        first = "the lower bound" if column.bounds is not None else "the first category"
        yield (
            f"{_cells(int(empty.sum()))} empty in a required column: a study by {STRICT.name} counts them as {first}, "
            f"unless the party knows nothing of the person{name_rows(empty)}"
        )


def _encode_categories(series: pl.Series, column: Column) -> EncodedColumn:
    codes = {str(category).strip(): float(code) for code, category in enumerate(column.categories or ())}
    text = strip_text(series)
    spellings = text.unique().drop_nulls().to_list()
    found = {cell: _code_of(cell, codes) for cell in spellings}
    listed = {cell: code for cell, code in found.items() if code is not None}
    strange = [cell for cell, code in found.items() if code is None and cell.lower() not in EMPTY_SPELLINGS]
    numbers = text.replace_strict(listed, default=None, return_dtype=pl.Float64)
    observed = numbers.is_not_null().to_numpy().copy()
    values = numbers.fill_null(0.0).to_numpy().astype(np.float64)
    unlisted = text.is_in(strange).fill_null(False).to_numpy()
    count = int(unlisted.sum())
    if not count:
        return EncodedColumn(values, observed)
    said = f"{_cells(count)} not among the listed categories"
    if column.other is not None:
        values[unlisted], observed[unlisted] = codes[str(column.other).strip()], True
        return EncodedColumn(values, observed, notes=(f"{said}: counted as {column.other!r}{name_rows(unlisted)}",))
    note = f"{said}: counted as empty{name_rows(unlisted)}{_misspelt(text, strange, codes)}"
    return EncodedColumn(values, observed, unreadable=count, notes=(note,))


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


def _misspelt(text: pl.Series, strange: list[str], codes: Mapping[str, float]) -> str:
    """What the unlisted cells have in common with the listed categories, in words."""
    folded = {"".join(category.casefold().split()) for category in codes}
    close = [cell for cell in strange if "".join(cell.casefold().split()) in folded]
    if close:
        return f"; {_cells(int(text.is_in(close).sum()))} a category but for case or blanks: write them alike"
    widths = {len(category) for category in codes}
    short = [cell for cell in strange if any(cell.zfill(width) in codes for width in widths)]
    if short:
        return f"; {_cells(int(text.is_in(short).sum()))} a category but for lost leading zeros: read it as text"
    return "; if they are valid, add them to the categories or declare other = ..."


def _read_numbers(series: pl.Series, column: Column, decimal: str | None) -> EncodedColumn:
    """Numbers, days or seconds as the cells have them, within the bounds or not."""
    notes, doubt, taken = [], "", ""
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
            doubt = _doubt(int(two_ways.sum()), parsed.with_comma, parsed.with_point, decimal)
            commas = two_ways & text.str.contains(",", literal=True).fill_null(False).to_numpy()
            if commas.any() and not doubt and decimal is None:
                taken = (
                    f"{_cells(int(commas.sum()))} taken for thousands, as in 1,000{name_rows(commas)}; if the comma "
                    'begins decimals, the party needs decimal = "," in the federation file'
                )
    filled = ~empty.to_numpy()
    observed = filled & ~np.isnan(values)
    wrong = filled & ~observed
    unreadable = int(wrong.sum())
    if unreadable:
        low = (column.bounds or (0.0, 0.0))[0]
        wanted = f"a date such as {column.date_text(low)}" if column.dates else "a number"
        notes.append(f"{_cells(unreadable)} not {wanted}: counted as empty{name_rows(wrong)}")
    if taken:
        notes.append(taken)
    return EncodedColumn(np.where(observed, values, 0.0), observed, 0, unreadable, tuple(notes), doubt, bool(taken))


def _within_bounds(read: EncodedColumn, column: Column) -> EncodedColumn:
    """Numbers that were read, moved to the bounds where they lie outside, and whole in a count column."""
    low, high = column.bounds or (0.0, 0.0)
    outside = read.observed & ((read.values < low) | (read.values > high))
    clamped = int(outside.sum())
    values = np.where(read.observed, np.clip(read.values, low, high), 0.0)
    notes = list(read.notes)
    if read.has_open_mark and clamped:
        notes[-1] += f". Read so, {_cells(clamped)} outside the public bounds"
    elif clamped and not column.clamp:
        notes.append(f"{_cells(clamped)} outside the public bounds: counted as the nearest bound{name_rows(outside)}")
    if column.kind == "count":
        whole = np.rint(values)  # the bounds are whole: it stays within them
        broken = values != whole
        if broken.any():
            notes.append(f"{_cells(int(broken.sum()))} not a whole number: rounded{name_rows(broken)}")
        values = whole
    return replace(read, values=values, clamped=clamped, notes=tuple(notes))


def _doubt(two_ways: int, with_comma: int, with_point: int, decimal: str | None) -> str:
    """Why cells such as 1,234 may have been read wrongly: others of the column have the other decimal mark."""
    others, mark = (with_point, ".") if decimal == "," else (with_comma, ",")
    if not two_ways or not others:
        return ""
    means = "a decimal comma" if mark == "," else "a decimal point"
    return (
        f"{_cells(others)} written with {means}, so {two_ways} others, such as 1,234 or 1.234, can be read two ways: "
        f'write decimal = "{mark}" for the party, or the cells without marks between thousands'
    )


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count} cells are"


def name_rows(mask: NDArray[np.bool_]) -> str:
    """Where these cells are, for whoever holds the table: rows are counted below the header.

    Parameters
    ----------
    mask : (rows,) which cells
    """
    at = [str(row + 1) for row in np.flatnonzero(mask)[:_MOST_ROWS]]
    more = int(mask.sum()) - len(at)
    if len(at) == 1:
        return f" (data row {at[0]})"
    return f" (data rows {', '.join(at)} and {more} more)" if more else f" (data rows {', '.join(at)})"


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
