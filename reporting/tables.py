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


@dataclass(frozen=True)
class Table:
    """A title, a header and rows of text; a page has the note between title and table."""

    title: str
    header: Row
    rows: Sequence[Row]
    note: str = ""

    def to_markdown(self) -> str:
        """The table as GitHub shows it, without the title."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def show(self, console: Console) -> None:
        """Print the table."""
        shown = RichTable(*self.header, title=self.title, title_justify="left")
        for row in self.rows:
            shown.add_row(*row)
        console.print(shown)


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
