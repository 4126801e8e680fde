"""Tables of cells on `results.html`: one number a cell, coloured by how it compares with the printed one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from experiments.judge import JUDGE_NAMES, TITLES, JudgeName
from experiments.methods import PRINTED, TABLES, UNPROTECTED, find_row
from experiments.metrics import METRIC_NAMES
from experiments.results import Figure, count_once

MARKS = {"better": " ▲", "worse": " ▼"}
SHORT = {"paper": "paper's judge", "library": "library's default", "bayes": "bayes"}
Place = tuple[str, str, int, float]


@dataclass(frozen=True)
class HtmlTable:
    """A table that scrolls sideways where there is no room.

    Attributes
    ----------
    groups : (label, number of columns) above the header; empty for none
    heads : how many cells of a row are its name
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    groups: Sequence[tuple[str, int]] = ()
    heads: int = 1

    def __str__(self) -> str:
        over = "".join(f"<th colspan='{span}'>{escape(label)}</th>" for label, span in self.groups)
        top = (f"<tr>{over}</tr>" if over else "") + f"<tr>{''.join(f'<th>{_break(h)}</th>' for h in self.header)}</tr>"
        body = "".join(
            "<tr>"
            + "".join(f"<th>{escape(cell)}</th>" for cell in row[: self.heads])
            + "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in row[self.heads :])
            + "</tr>"
            for row in self.rows
        )
        return (
            f"<figure class='cells'><figcaption>{self.caption}</figcaption><div class='scroll'><table>"
            f"<thead>{top}</thead><tbody>{body}</tbody></table></div></figure>"
        )


def _break(label: str) -> str:
    """A column's label, which may go on below behind a hyphen."""
    return escape(label).replace("-", "-<wbr>")


def render_number(figure: Figure | None, *, judged: bool = True) -> str:
    """A mean and its standard error on one line; coloured and marked unless it is not `judged`."""
    if figure is None:
        return "<td class='none'></td>"
    verdict = figure.verdict if judged else ""
    error = "" if math.isnan(figure.error) else f" ± {figure.error:.3f}"
    return f"<td class='{verdict or 'none'}'>{number(figure.mean)}{error}{MARKS.get(verdict, '')}</td>"


def number(value: float) -> str:
    """Three digits, or a dash where there is no number."""
    return "–" if math.isnan(value) else f"{value:.3f}"


def render_table(name: str, figures: Sequence[Figure]) -> list[str]:
    """All rows of one of Tables 1 to 7: for each a table with every setting."""
    design, parts = TABLES[name], []
    for metric in design.metrics:
        parts.append(f"<h3>{escape(METRIC_NAMES[metric])}</h3>")
        for row in design.rows:
            own = [f for f in figures if find_row(f.key.method) == row and f.key.metric == metric]
            if own:
                parts.append(_render_row(name, row, metric, own))
    return parts


def _render_row(name: str, row: str, metric: str, figures: Sequence[Figure]) -> str:
    once = row in UNPROTECTED
    cells: dict[Place, dict[tuple[JudgeName, str], Figure]] = {}
    for f in count_once(figures) if once else figures:
        key = f.key
        place = (key.model, key.mechanism, key.n_subjects, key.epsilon)
        cells.setdefault(place, {})[f.judge, key.method] = f
    has_printed = any(f.printed is not None for f in figures)
    columns = [
        (judge, method)
        for judge in JUDGE_NAMES
        for method in (row + PRINTED, row)
        if any((judge, method) in found for found in cells.values())
    ]
    named, many = _name_settings(list(cells))
    lines = [
        (
            *names,
            *([f"{first.printed.mean:.3f}" if first.printed else ""] if has_printed else []),
            *(render_number(found.get(column)) for column in columns),
        )
        for names, found in zip(named, cells.values(), strict=True)
        for first in [next(iter(found.values()))]
    ]
    variants = {row + PRINTED: "as printed", row: "ours"}
    header = (*many, *(["printed"] if has_printed else []), *(variants[method] for _, method in columns))
    judges = [judge for judge in JUDGE_NAMES if any(j == judge for j, _ in columns)]
    blank = len(many) + has_printed
    groups = [("", blank), *((SHORT[judge], sum(j == judge for j, _ in columns)) for judge in judges)]
    caption = (
        f"Table {name.removeprefix('table')}, {row}: {METRIC_NAMES[metric]}. Judged by "
        f"{join([f'{TITLES[judge]}, {_span(figures, judge)}' for judge in judges])}.{_describe_failures(figures)}"
    )
    return str(HtmlTable(escape(caption), header, lines, groups, heads=len(many)))


def _name_settings(places: Sequence[Place]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """What differs between the rows, and the names of that."""
    labels = ("model", "blocks", "N", "ε")
    texts = [(model, mechanism, f"{n:,}", f"{epsilon:g}") for model, mechanism, n, epsilon in places]
    kept = [i for i in range(len(labels)) if i == 2 or len({t[i] for t in texts}) > 1]
    return [tuple(t[i] for i in kept) for t in texts], tuple(labels[i] for i in kept)


def _span(figures: Iterable[Figure], judge: JudgeName) -> str:
    """How many data sets stand behind a judge's numbers."""
    count = count_sets(f for f in figures if f.judge == judge)
    return f"{count} data set{'' if count == '1' else 's'}"


def count_sets(figures: Iterable[Figure]) -> str:
    """The number of data sets of a cell, or the fewest and the most."""
    counts = sorted({f.replications + f.failures for f in figures})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _describe_failures(figures: Iterable[Figure]) -> str:
    failed = [f for f in figures if f.failures and f.judge == "paper"]
    if not failed:
        return ""
    most = max(failed, key=lambda f: f.failures)
    return (
        f" Left out where it gave no answer: at most {most.failures} of {most.failures + most.replications} data sets "
        f"({most.key.mechanism}, N = {most.key.n_subjects:,})."
    )


def join(parts: Sequence[str]) -> str:
    """a; b; and c."""
    return parts[0] if len(parts) == 1 else f"{'; '.join(parts[:-1])}; and {parts[-1]}"


def by_cell(figures: Iterable[Figure]) -> Mapping[tuple[Place, str], dict[tuple[str, JudgeName], Figure]]:
    """Figures by setting and measure, then by method and judge."""
    found: dict[tuple[Place, str], dict[tuple[str, JudgeName], Figure]] = {}
    for f in figures:
        key = f.key
        place = (key.model, key.mechanism, key.n_subjects, key.epsilon)
        found.setdefault((place, key.metric), {})[key.method, f.judge] = f
    return found
