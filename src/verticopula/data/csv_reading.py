"""CSV files of several habits as tables of text: at once, or a block of whole rows at a time."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
import polars as pl

from verticopula.data.database_cells import name_columns
from verticopula.errors import Problem, SchemaError

_SEPARATORS = (",", ";", "\t", "|")
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # at the beginning of a file in UTF-16
_BLOCK = 1 << 25  # bytes that are read at once
_QUOTE = ord('"')


@dataclass(frozen=True)
class _CsvLayout:
    """How a file's text is cut into cells.

    Attributes
    ----------
    name : the file's
    start : where in the text the header begins
    skipped : the lines before it; "" where there are none
    header : the names of the columns
    """

    name: str
    start: int
    skipped: str
    separator: str
    header: list[str]


def read_csv(path: Path) -> pl.DataFrame:
    """A table of text; SchemaError says which line is wrong.

    Parameters
    ----------
    path : the file
    """
    data = path.read_bytes()
    try:
        text = data.decode("utf-16" if data[:2] in _WIDE else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_text(path.name, error.object[: error.start].count(b"\n")) from None
    file = io.StringIO(text)
    layout = _find_layout(file, path.name)
    table = _parse(text[len(layout.skipped) :].encode(), layout, file, layout.header)
    marks = _OtherMarks(layout)
    marks.add(table)
    marks.check()
    return table


def can_be_read_in_blocks(path: Path) -> bool:
    """Whether `read_csv_blocks` reads the file; those in UTF-16 are read at once.

    Parameters
    ----------
    path : the file
    """
    with path.open("rb") as file:
        return file.read(2) not in _WIDE


def read_csv_blocks(path: Path) -> Iterator[pl.DataFrame]:
    """The rows of `read_csv` in tables that follow each other, at least one; the same errors, the last at the end.

    Parameters
    ----------
    path : the file
    """
    _check_text(path)
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        layout = _find_layout(file, path.name)
        marks, names = _OtherMarks(layout), layout.header
        head = b""
        for block in _row_blocks(path, layout):
            table = _parse(head + block, layout, file, names)
            marks.add(table)
            yield table
            names = table.columns
            head = layout.separator.join(f"c{j}" for j in range(table.width)).encode() + b"\n"
        marks.check()


def _find_layout(file: TextIO, name: str) -> _CsvLayout:
    first, start = file.readline(), 0
    hint = re.fullmatch(r'"?sep=(.)"?\s*', first)  # a spreadsheet's own
    if hint:
        start = file.tell()
    if all(not line.strip() for line in _lines(file, start)):
        raise SchemaError([Problem(name, "is empty")])
    separator = hint[1] if hint else max(_SEPARATORS, key=lambda mark: len(_first_row(file, start, mark)))
    # polars leaves doubled quotes in header names as they are; Python's reader resolves them.
    header = name_columns(_first_row(file, start, separator), name)
    return _CsvLayout(name, start, first if hint else "", separator, header)


def _lines(file: TextIO, start: int) -> TextIO:
    file.seek(start)
    return file


def _first_row(file: TextIO, start: int, separator: str) -> list[str]:
    """The names that a separator cuts the header into: they depend on nobody's cells."""
    return next(csv.reader(_lines(file, start), delimiter=separator), [])


def _parse(data: bytes, layout: _CsvLayout, file: TextIO, names: list[str]) -> pl.DataFrame:
    try:
        return pl.read_csv(data, separator=layout.separator, infer_schema=False, new_columns=names)
    except pl.exceptions.NoDataError:
        raise SchemaError([Problem(layout.name, "is empty")]) from None
    except pl.exceptions.ComputeError:
        raise SchemaError([Problem(layout.name, f"cannot be read as CSV{_ragged(file, layout)}")]) from None


def _ragged(file: TextIO, layout: _CsvLayout) -> str:
    """Which line does not have the header's number of cells, in words."""
    rows = csv.reader(_lines(file, layout.start), delimiter=layout.separator)
    expected = len(next(rows))
    if expected == 1:
        return ": the header has a single cell; write a comma, semicolon, tab or | between cells"
    with contextlib.suppress(csv.Error):  # a line that ends in the middle of one
        for row in rows:
            if len(row) > expected:
                hint = "; are decimals written with commas? Save it with semicolons between cells"
                hint *= layout.separator == ","
                return f": line {rows.line_num} has {len(row)} cells, the header has {expected}{hint}"
    return ": are all quotation marks closed?"


class _OtherMarks:
    """Whether all rows have one cell with another mark in it, under a header of several: no one row decides it."""

    def __init__(self, layout: _CsvLayout) -> None:
        self._layout, self._has_rows, self._single = layout, False, True
        self._marks = [mark for mark in _SEPARATORS if mark != layout.separator]

    def add(self, table: pl.DataFrame) -> None:
        first, *others = table.get_columns()
        self._has_rows |= bool(len(table))
        self._single &= bool(others) and all(column.null_count() == len(table) for column in others)
        if self._single:
            held = (first.str.contains(mark, literal=True).fill_null(False).all() for mark in self._marks)
            self._marks = [mark for mark, is_everywhere in zip(self._marks, held, strict=True) if is_everywhere]

    def check(self) -> None:
        if self._has_rows and self._single and self._marks:
            mark = self._layout.separator
            what = f"no row is cut by {mark!r}, as the header is; write the same mark between cells in all lines"
            raise SchemaError([Problem(self._layout.name, what)])


# ---- blocks ------------------------------------------------------------------------------


def _check_text(path: Path) -> None:
    """SchemaError where the file is not UTF-8."""
    decoder, lines = codecs.getincrementaldecoder("utf-8")(), 0
    with path.open("rb") as file:
        block = b"\n"
        while block:
            block = file.read(_BLOCK)
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise _not_text(path.name, lines + error.object[: error.start].count(b"\n")) from None
            lines += block.count(b"\n")


def _not_text(name: str, lines_before: int) -> SchemaError:
    what = f"is not UTF-8 text (line {lines_before + 1}); save it as UTF-8, in a spreadsheet as “CSV UTF-8”"
    return SchemaError([Problem(name, what)])


def _row_blocks(path: Path, layout: _CsvLayout) -> Iterator[bytes]:
    """The file's bytes from its header on, cut where rows end; none of them is blank."""
    with path.open("rb") as file:
        has_mark = file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
        file.seek(has_mark * len(codecs.BOM_UTF8) + len(layout.skipped.encode()))
        left = b""
        while more := file.read(max(_BLOCK, len(left))):
            left += more
            end = _end_of_rows(left)
            if left[:end].strip():
                yield left[:end]
                left = left[end:]
        if left:
            yield left


def _end_of_rows(data: bytes) -> int:
    """Where the last row ends: behind a line that leaves no quotation mark open; 0 where none does."""
    quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _QUOTE)
    end = data.rfind(b"\n") + 1
    while end and np.searchsorted(quotes, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return end
