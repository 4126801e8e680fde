"""How things show themselves in a notebook: small, escaped, at home on light and dark pages."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from verticopula.privacy.statement import PrivacyStatement, format_epsilon, format_price
from verticopula.report.formatting import listed, number, percent, readable, several, small
from verticopula.schema.units import Unit
from verticopula.storage.ledger import Release

if TYPE_CHECKING:
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.estimators.vertical_glm import VerticalGLM
    from verticopula.schema.federation import Column, Federation

MOST_ROWS = 40

# No colours of its own but those of the page around it, and lines that are half transparent.
_BOX = "font:13px/1.5 system-ui,sans-serif;max-width:60em;overflow-x:auto"
_CELL = "padding:2px 12px 2px 0;border-bottom:1px solid rgba(128,128,128,.35);text-align:{};vertical-align:top"


def federation_html(federation: Federation) -> str:
    """Parties, columns and their public ranges."""
    rows = [
        [party.name, column.name, column.kind, _range(column), "response" if column.name == federation.response.column
         and party.name == federation.response.party else ""]
        for party in federation.parties
        for column in party.columns
    ]  # fmt: skip
    lines = [
        f"Federation <b>{_text(federation.name)}</b>: {several(len(federation.parties), 'party', 'parties')}, "
        f"{several(len(federation.keys), 'column')}, response {_text(str(federation.response))}"
    ]
    if federation.bounds_source == "from-data":
        lines.append(_alarm("Bounds or categories were taken from the data: epsilon will be infinite."))
    return _box(lines, ["party", "column", "kind", "public range", ""], rows)


def synthesizer_html(synthesizer: Synthesizer) -> str:
    """Settings; once it is fitted, what it cost and who is missing where."""
    settings = ", ".join(f"{name} {value}" for name, value in synthesizer.settings_.items() if value is not None)
    head = f"<b>Synthesizer</b> for {_text(str(synthesizer.federation.name))}: {_text(settings)}"
    if synthesizer._result is None:
        return _box([head, "Not fitted yet."], [], [])
    missing, privacy = synthesizer.missingness_, synthesizer.privacy_
    lines = [head, *(_alarm(line) for line in privacy.warnings)]
    asked, complete = Unit.parse(synthesizer.unit), missing.complete_cases / missing.n_subjects
    lines.append(
        f"{several(missing.n_subjects, 'subject')}, {percent(complete)} known to every party; ε per {asked.value} "
        f"{format_epsilon(privacy.epsilon(asked))}, per person {format_epsilon(privacy.person)} at δ = "
        f"{small(privacy.delta)}"
    )
    rows = [
        [
            name,
            f"{percent(1.0 - missing.rate(name))}",
            *(format_epsilon(e) for e in (own.variable, own.client, own.block)),
        ]
        for name, own in privacy.parties.items()
    ]
    return _box(lines, ["party", "known", "ε per variable", "ε per client", "ε per block"], rows, numbers=1)


def statement_html(statement: PrivacyStatement) -> str:
    """Epsilon at every unit, and what it bounds."""
    rows = [
        [
            unit.value,
            format_epsilon(statement.epsilon(unit)),
            small(statement.delta) if statement.has_delta(unit) else "0",
            unit.meaning,
        ]
        for unit in Unit
    ]
    return _box(
        ["<b>Privacy</b>", *(_alarm(line) for line in statement.warnings)], ["unit", "ε", "δ", "what it bounds"], rows
    )


def ledger_html(entries: Iterable[Release]) -> str:
    """The last releases, and what all of them together cost is a call away."""
    known = list(entries)
    rows = [
        [e.time, e.study, f"{e.party}.{e.column}", e.what, f"{e.n_subjects:,}",
         format_price(e)]
        for e in known[-MOST_ROWS:]
    ]  # fmt: skip
    parties = listed(list(dict.fromkeys(entry.party for entry in known)))
    lines = [f"<b>Ledger</b>: {several(len(known), 'release')}{f' by {_text(parties)}' if parties else ''}"]
    if len(known) > MOST_ROWS:
        lines.append(f"The last {MOST_ROWS} of them:")
    return _box(lines, ["time", "study", "column", "what", "subjects", "ε"], rows)


def regression_html(model: VerticalGLM) -> str:
    """Settings before the fit, the selected coefficients after it."""
    if not hasattr(model, "coef_"):
        return _box([f"<code>{_text(repr(model))}</code>", "Not fitted yet."], [], [])
    summary = model.summary()
    rows = [
        [
            str(row["party"]),
            str(row["feature"]),
            *(number(row.get(name)) for name in ("coefficient", "lower", "upper", "p-value")),
        ]
        for row in summary.frame.to_dict("records")
    ]
    lines = [*(_alarm(line) for line in summary.warnings), *(_text(line) for line in summary.heading)]
    heads = ["party", "feature", "coefficient", "lower", "upper", "p"]
    return _box(lines, heads, rows, numbers=2, after=[_text(note) for note in summary.notes])


def _range(column: Column) -> str:
    if column.bounds is not None:
        low, high = column.bounds
        scale = "" if column.scale == "linear" else f", {column.scale}"
        return f"{number(low)} to {number(high)}{scale}{', clamped' if column.clamp else ''}"
    return listed([str(category) for category in column.categories or ()], 6)


def _box(
    lines: Sequence[str], heads: Sequence[str], rows: list[list[str]], *, numbers: int = 99, after: Sequence[str] = ()
) -> str:
    """Lines of markup, then a table of plain text; columns from `numbers` on are set to the right."""
    more = len(rows) - MOST_ROWS
    side = ["right" if i >= numbers else "left" for i in range(len(heads))]
    head = "".join(f'<th style="{_CELL.format(at)}">{_text(h)}</th>' for h, at in zip(heads, side, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL.format(at)}">{_text(c)}</td>' for c, at in zip(row, side, strict=True))
        + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    table = (
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        if rows
        else ""
    )
    below = [*([f"and {more} more"] if more > 0 else []), *after]
    return (
        f'<div style="{_BOX}">'
        + "".join(f"<div>{line}</div>" for line in lines)
        + table
        + "".join(f'<div style="opacity:.8">{line}</div>' for line in below)
        + "</div>"
    )


def _text(text: str) -> str:
    return f"<bdi>{html.escape(readable(text))}</bdi>"


def _alarm(text: str) -> str:
    return f'<b style="border-left:4px solid #c62828;padding-left:8px">{_text(text)}</b>'
