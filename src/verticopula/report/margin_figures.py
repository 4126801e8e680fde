"""Every column's distribution: as observed, as corrected for missing blocks, and, in the house, as it really is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.formatting import format_number, format_percent
from verticopula.report.report_data import ReportData, real_columns
from verticopula.schema.columns import Column
from verticopula.stats.margin_cells import from_unit, to_cells
from verticopula.stats.marginals import Marginal
from verticopula.study.text_summary import margin_shifts

Floats = NDArray[np.float64]

MOST_BARS = 40
_FAR_TAIL = 0.002  # a last piece with less is drawn as wide as the one before: the rest of the range is all but empty


def describe_margins(subject: ReportData) -> list[dict[str, Any]]:
    """One entry per column, in the federation's order; `real` only where the caller holds the table."""
    shifts = dict(margin_shifts(subject.result))
    real = real_columns(subject)
    found = []
    for key in subject.layout.keys:
        observed, corrected = subject.result.observed_margins[key], subject.result.copula.margins[key]
        bars = _Bars.of(observed, corrected)
        series = {"observed": bars.shares(observed), "synthetic": bars.shares(corrected)}
        if key in real:
            values = real[key].values[real[key].observed]
            series["real"] = bars.count(values)
        found.append(
            {
                "key": str(key),
                "party": key.party,
                "column": key.column,
                "title": observed.column.heading,
                "kind": observed.column.kind,
                "dates": observed.column.dates,
                "known": subject.result.missingness.observed[key],
                "missing": round(subject.missing_share(key), 4),
                "moved": round(shifts[str(key)], 4),
                "labels": bars.labels,
                "edges": bars.edge_labels,
                "places": bars.places,
                "ordered": observed.column.kind != "nominal",
                "series": {name: [round(float(share), 5) for share in shares] for name, shares in series.items()},
                "facts": _facts(observed, corrected),
            }
        )
    return found


class _Bars:
    """How a column is cut for a reader: few enough pieces, the far tail in one of them.

    Attributes
    ----------
    edges : where the pieces of a continuous column meet
    labels : what a piece is called
    groups : piece of each cell of a discrete column, or None
    edge_labels : what stands where pieces meet, both ends included; None where only pieces have names
    places : the values where pieces of a count column meet, if these differ in width; None otherwise
    """

    def __init__(
        self,
        column: Column,
        edges: Floats,
        labels: list[str],
        groups: NDArray[np.int64] | None,
        edge_labels: list[str] | None = None,
        places: list[int] | None = None,
    ) -> None:
        self.column, self.edges, self.labels, self.groups = column, edges, labels, groups
        self.edge_labels, self.places = edge_labels, places

    @classmethod
    def of(cls, observed: Marginal, corrected: Marginal) -> _Bars:
        column = observed.column
        if column.kind == "continuous":
            edges = from_unit(np.linspace(0.0, 1.0, MOST_BARS + 1), column.model_copy(update={"decimals": None}))
            named = [format_number(edge) for edge in edges]
            return cls(column, edges, [f"{low} – {high}" for low, high in pairwise(named)], None, named)
        size = observed.probabilities.size
        if column.kind != "count":
            return cls(column, np.empty(0), [str(c) for c in column.categories or ()], np.arange(size))
        last = max(int(np.searchsorted(np.cumsum(m.probabilities), 0.999)) for m in (observed, corrected))
        groups = np.minimum(np.arange(size), min(max(last + 1, 1), size - 1, MOST_BARS - 1))
        ends = corrected.upper_ends().astype(np.int64)
        starts = np.concatenate([[int((column.bounds or (0, 0))[0])], ends[:-1] + 1])
        labels = []
        for group in np.unique(groups):
            cells = np.flatnonzero(groups == group)
            low, high = (format_value(int(at), column) for at in (starts[cells[0]], ends[cells[-1]]))
            last_word = f"{low} or {'later' if column.dates else 'more'}"
            labels.append(low if low == high else last_word if cells[-1] == size - 1 else f"{low} – {high}")
        firsts = np.append(starts[np.unique(groups, return_index=True)[1]], ends[-1] + 1)
        if min(np.sum(m.probabilities[groups == groups[-1]]) for m in (observed, corrected)) < _FAR_TAIL:
            firsts[-1] = min(firsts[-1], 2 * firsts[-2] - firsts[-3]) if firsts.size > 2 else firsts[-1]
        if np.ptp(np.diff(firsts)[:-1]) == 0 if firsts.size > 2 else True:
            return cls(column, np.empty(0), labels, groups)
        named = [format_value(int(at), column) for at in (*firsts[:-1], firsts[-1] - 1)]
        return cls(column, np.empty(0), labels, groups, named, firsts.tolist())

    def shares(self, margin: Marginal) -> Floats:
        """Of the whole, in every piece, as sampling has them."""
        if self.groups is None:
            inner = self.edges[1:-1]
            if self.column.atoms:  # one on an edge belongs to what follows
                inner = np.nextafter(inner, -np.inf)
            return np.maximum(np.diff(np.concatenate([[0.0], margin.cdf(inner), [1.0]])), 0.0)
        return np.asarray(np.bincount(self.groups, weights=margin.probabilities), dtype=np.float64)

    def count(self, values: Floats) -> Floats:
        """Of real values, in every piece."""
        if self.groups is None:
            cells = np.clip(np.searchsorted(self.edges, values, side="right") - 1, 0, MOST_BARS - 1)
            return np.bincount(cells, minlength=MOST_BARS) / max(values.size, 1)
        cells = self.groups[to_cells(values, self.column, self.groups.size)]
        return np.bincount(cells, minlength=len(self.labels)) / max(values.size, 1)


def _facts(observed: Marginal, corrected: Marginal) -> list[list[str]]:
    """Rows of [what, among the observed, corrected]: a text alternative to the figure."""
    if observed.column.kind in ("continuous", "count"):
        points = (
            ("5 % are at most", 0.05),
            ("a quarter is at most", 0.25),
            ("median", 0.5),
            ("three quarters are at most", 0.75),
        )
        rows = [
            [name, *(format_value(float(m.quantile(np.array([at]))[0]), m.column) for m in (observed, corrected))]
            for name, at in (*points, ("95 % are at most", 0.95))
        ]
        return [["mean", *(format_value(mean_of(m), m.column) for m in (observed, corrected))], *rows]
    order = np.argsort(-corrected.probabilities, kind="stable")[:8]
    categories = observed.column.categories or ()
    return [
        [f"share of {categories[i]}", *(format_percent(float(m.probabilities[i])) for m in (observed, corrected))]
        for i in order
    ]


def format_value(value: float, column: Column) -> str:
    """A value of a column as a reader writes it: a day for dates, whole counts in full."""
    if column.dates:
        return column.date_text(round(value))
    return f"{value:,}" if isinstance(value, int) else format_number(value)


def mean_of(margin: Marginal) -> float:
    """Mean of a numeric margin: of its quantiles, as sampling has it."""
    return float(np.mean(margin.quantile((np.arange(2_000) + 0.5) / 2_000)))
