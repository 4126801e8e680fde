"""What a column's own party should know about its cells: counted in some rows at a time, added up, and put into words.

Notes say what was expected and how many cells are concerned; they never quote a cell. They give row numbers, because
they stay in the house of the table's holder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.columns import Column
from verticopula.schema.methods import STRICT

_MOST_ROWS = 3  # that a note names


@dataclass(frozen=True)
class MarkedRows:
    """How many rows something is the case in, and which are the first of them.

    Attributes
    ----------
    count : how many
    first : the first few, counted from 0 in the whole table
    """

    count: int = 0
    first: tuple[int, ...] = ()

    @classmethod
    def of(cls, mask: NDArray[np.bool_], start: int = 0) -> MarkedRows:
        """Those that a mask marks.

        Parameters
        ----------
        mask : (rows,) of some rows of a table
        start : the first of these rows
        """
        return cls(int(mask.sum()), tuple(start + int(row) for row in np.flatnonzero(mask)[:_MOST_ROWS]))

    def __add__(self, later: MarkedRows) -> MarkedRows:
        return MarkedRows(self.count + later.count, (*self.first, *later.first)[:_MOST_ROWS])

    def named(self) -> str:
        """Where these cells are, for whoever holds the table: rows are counted below the header."""
        at, more = [str(row + 1) for row in self.first], self.count - len(self.first)
        if len(at) == 1:
            return f" (data row {at[0]})"
        return f" (data rows {', '.join(at)} and {more} more)" if more else f" (data rows {', '.join(at)})"


NO_ROWS = MarkedRows()


@dataclass(frozen=True, repr=False)
class CellFacts:
    """What notes about some rows of a column rest on; facts of rows that follow each other are added. No repr.

    Attributes
    ----------
    seen, empty : rows with a value of the column, and without one
    ends : the smallest and the largest value; none where there is no value
    unreadable : filled cells that are no value of the column, nor listed as another one
    unlisted : cells that are not among the categories
    near_spelling, near_zeros : how many of these are a category but for case or blanks, or for leading zeros
    two_ways : cells whose mark may begin decimals or separate thousands
    commas : those of them with a comma
    with_comma, with_point : cells that have decimals after a comma, and after a point
    outside : values outside the bounds
    broken : values of a count column that are not whole
    """

    seen: int
    ends: tuple[float, ...]
    empty: MarkedRows = NO_ROWS
    unreadable: MarkedRows = NO_ROWS
    unlisted: MarkedRows = NO_ROWS
    near_spelling: int = 0
    near_zeros: int = 0
    two_ways: int = 0
    commas: MarkedRows = NO_ROWS
    with_comma: int = 0
    with_point: int = 0
    outside: MarkedRows = NO_ROWS
    broken: MarkedRows = NO_ROWS

    def __add__(self, later: CellFacts) -> CellFacts:
        added = {f.name: getattr(self, f.name) + getattr(later, f.name) for f in fields(self) if f.name != "ends"}
        both = (*self.ends, *later.ends)
        return CellFacts(**added, ends=(min(both), max(both)) if both else ())


@dataclass(frozen=True)
class CellNotes:
    """What is said of a column's cells; nothing in it is a value.

    Attributes
    ----------
    clamped, unreadable, notes, doubt, has_open_mark : as `EncodedColumn` has them
    """

    clamped: int
    unreadable: int
    notes: tuple[str, ...]
    doubt: str
    has_open_mark: bool


def note_cells(facts: CellFacts, column: Column, read_as: Column, decimal: str | None) -> CellNotes:
    """The notes of a whole column.

    Parameters
    ----------
    facts : of all its rows
    column : its public description
    read_as : the description by which its cells are read, which is another one for a column with a relation
    decimal : the party's decimal mark
    """
    doubt = _doubt(facts, decimal)
    has_open_mark = facts.commas.count > 0 and not doubt and decimal is None
    notes = [
        *_unreadable_notes(facts, read_as),
        *_unlisted_notes(facts, column),
        *([_open_mark_note(facts)] if has_open_mark else []),
        *_bound_notes(facts, column, has_open_mark=has_open_mark),
        *_spread_notes(facts, has_open_mark=has_open_mark),
        *_required_notes(facts, column),
    ]
    return CellNotes(facts.outside.count, facts.unreadable.count, tuple(notes), doubt, has_open_mark)


def _unreadable_notes(facts: CellFacts, column: Column) -> Iterator[str]:
    if facts.unreadable.count and column.kind in ("continuous", "count"):
        low = (column.bounds or (0.0, 0.0))[0]
        wanted = f"a date such as {column.date_text(low)}" if column.dates else "a number"
        yield f"{_cells(facts.unreadable.count)} not {wanted}: counted as empty{facts.unreadable.named()}"


def _unlisted_notes(facts: CellFacts, column: Column) -> Iterator[str]:
    rows = facts.unlisted
    if not rows.count:
        return
    said = f"{_cells(rows.count)} not among the listed categories"
    if column.other is not None:
        yield f"{said}: counted as {column.other!r}{rows.named()}"
    else:
        yield f"{said}: counted as empty{rows.named()}{_misspelt(facts)}"


def _misspelt(facts: CellFacts) -> str:
    """What the unlisted cells have in common with the categories, in words."""
    if facts.near_spelling:
        return f"; {_cells(facts.near_spelling)} a category but for case or blanks: write them alike"
    if facts.near_zeros:
        return f"; {_cells(facts.near_zeros)} a category but for lost leading zeros: read it as text"
    return "; if they are valid, add them to the categories or declare other = ..."


def _open_mark_note(facts: CellFacts) -> str:
    said = (
        f"{_cells(facts.commas.count)} taken for thousands, as in 1,000{facts.commas.named()}; if the comma "
        'begins decimals, the party needs decimal = "," in the federation file'
    )
    outside = facts.outside.count
    return f"{said}. Read so, {_cells(outside)} outside the public bounds" if outside else said


def _bound_notes(facts: CellFacts, column: Column, *, has_open_mark: bool) -> Iterator[str]:
    rows = facts.outside
    if rows.count and not column.clamp and not has_open_mark:
        yield f"{_cells(rows.count)} outside the public bounds: counted as the nearest bound{rows.named()}"
    if facts.broken.count:
        yield f"{_cells(facts.broken.count)} not a whole number: rounded{facts.broken.named()}"


def _spread_notes(facts: CellFacts, *, has_open_mark: bool) -> Iterable[str]:
    if has_open_mark:
        return  # one question at a time: all of them may be clamped because of it
    if facts.seen < 2:
        yield f"only {facts.seen} observed value(s): the study can say nothing about it"
    elif facts.ends[0] == facts.ends[-1]:
        yield "is constant where observed: the study can say nothing about its associations; leave it out"


def _required_notes(facts: CellFacts, column: Column) -> Iterable[str]:
    if column.required and facts.empty.count:
        first = "the lower bound" if column.bounds is not None else "the first category"
        yield (
            f"{_cells(facts.empty.count)} empty in a required column: a study by {STRICT.name} counts them as {first}, "
            f"unless the party knows nothing of the person{facts.empty.named()}"
        )


def _doubt(facts: CellFacts, decimal: str | None) -> str:
    """Why cells such as 1,234 may have been read wrongly: others of the column have the other decimal mark."""
    others, mark = (facts.with_point, ".") if decimal == "," else (facts.with_comma, ",")
    if not facts.two_ways or not others:
        return ""
    means = "a decimal comma" if mark == "," else "a decimal point"
    return (
        f"{_cells(others)} written with {means}, so {facts.two_ways} others, such as 1,234 or 1.234, can be read two "
        f'ways: write decimal = "{mark}" for the party, or the cells without marks between thousands'
    )


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count} cells are"
