"""Tables of finished cells, for a terminal, Markdown, HTML and CSV; and the numbers in them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from rich.table import Table as RichTable

Row = Sequence[str]
WIDEST = 5  # columns of a table on a page


@dataclass(frozen=True)
class Table:
    """A title, a header and rows of text; a page has the note between title and table.

    Attributes
    ----------
    heads : how many of the first columns say what a row is about
    """

    title: str
    header: Row
    rows: Sequence[Row]
    note: str = ""
    heads: int = 1

    def to_markdown(self) -> str:
        """The table as GitHub shows it, without the title; a wide one is cut into several with the same rows."""
        if len(self.header) <= WIDEST:
            return _markdown([self.header, *self.rows])
        lines = [(", ".join(filter(None, row[: self.heads])), *row[self.heads :]) for row in (self.header, *self.rows)]
        figures = range(1, len(lines[0]))
        parts = np.array_split(figures, math.ceil(len(figures) / (WIDEST - 1)))
        return "\n\n".join(_markdown([(line[0], *(line[k] for k in part)) for line in lines]) for part in parts)

    def show(self, console: Console) -> None:
        """Print the table."""
        shown = RichTable(*self.header, title=self.title, title_justify="left")
        for row in self.rows:
            shown.add_row(*row)
        console.print(shown)


def _markdown(lines: Sequence[Row]) -> str:
    """Lines as a table; the first of them is its header."""
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)


def to_html(header: Row, rows: Iterable[Row], *, heads: int = 1) -> str:
    """An HTML table; the first `heads` cells of a row are text, the others `<td>` elements or the HTML inside one."""
    top = "".join(f"<th>{escape(label)}</th>" for label in header)
    lines = []
    for row in rows:
        names = "".join(f"<th>{escape(cell)}</th>" for cell in row[:heads])
        cells = "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in row[heads:])
        lines.append(f"<tr>{names}{cells}</tr>")
    return f"<table><tr>{top}</tr>{''.join(lines)}</table>"


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The text of a CSV file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def csv_number(value: float, digits: int = 6) -> str:
    """A number to so many digits, or nothing for NaN."""
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def verdict(value: float, target: float) -> str:
    """Whether a figure that should be small is small enough."""
    return "reached" if value <= target else "not reached"


def mean(values: ArrayLike) -> float:
    """The mean, NaN of nothing."""
    found = np.asarray(values, dtype=np.float64)
    return float(found.mean()) if found.size else math.nan


def standard_error(values: ArrayLike) -> float:
    """The mean's standard error, NaN of fewer than two values."""
    found = np.asarray(values, dtype=np.float64)
    return float(found.std(ddof=1) / np.sqrt(found.size)) if found.size > 1 else math.nan
