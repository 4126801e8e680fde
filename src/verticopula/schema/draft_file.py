"""A draft as the text of a federation file: what was guessed and why, what is asked and where the answer may stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from verticopula.formatting import readable
from verticopula.schema.federation_draft import FROM_DATA, ColumnDraft, FederationDraft, PartyDraft

_COMMENT_AT = 34  # the column of the text where comments begin

# A part of a column's name, and where its range or its list can be looked up.
_PLACES = (
    (r"(^|_)age($|_)|alter", "who may be in the table: a law or the terms of a product say from which age"),
    (r"year|jahr", "when the register began, and this year"),
    (r"share|rate|ratio|percent|pct|quote", "a share lies in [0, 1], or in [0, 100] if it is in per cent"),
    (
        r"income|salary|wage|price|amount|balance|turnover|revenue|assets|loan|debt|cost|fee",
        "its currency; limits of the product, a tax table, a published report",
    ),
    (r"country|nation|land$", "ISO 3166, the list of countries"),
    (r"sector|industry|branch|nace|naics|sic", "NACE, NAICS or SIC, the lists of industries"),
    (r"diagnos|icd|disease", "ICD, the list of diseases"),
    (r"region|state|district|zip|postal|plz", "the statistical office's list of areas"),
    (r"weight|height|bmi|pressure|glucose|cholest|pulse|temperature", "the range of the instrument, or a textbook"),
)
_BOUNDS_AT = "its unit, a law, the form that it is typed into, the manual of the file"
_LIST_AT = "the code list in the manual of the file"


def draft_text(draft: FederationDraft, check_with: str = "verticopula check federation.toml") -> str:
    """The text of a federation file with comments.

    Parameters
    ----------
    draft : what is known and guessed
    check_with : the command that says what is still open
    """
    lines = [*_head(draft, check_with)]
    for party in draft.parties:
        lines += ["", *_party(party)]
    return "\n".join(lines) + "\n"


def _head(draft: FederationDraft, check_with: str) -> Iterator[str]:
    guessed = "kinds and ids" if draft.response_was_given else "kinds, ids and the response"
    yield f"# Who holds what. This is a draft: {guessed} were guessed from the tables."
    if draft.bounds_source == FROM_DATA:
        yield "# Bounds and categories were TAKEN FROM THE DATA, as asked for: epsilon will be infinite."
    else:
        yield "# Bounds and categories are public: every party sees them. So they were not taken from the data, and a"
        yield "# question mark asks you for them. Take them from what is known without the data."
    yield "# Delete columns that the study does not need. A column that never has empty values may say so, with"
    yield "# required = true: studies that protect a whole person are then a little better."
    yield f"# Then: {_one_line(check_with)}"
    yield ""
    yield _line("name", draft.name, "of the study")
    why = draft.response_why or "the people of its party are the study's"
    yield _line("response", draft.response, why if draft.response else f'? "party.column" to be explained: {why}')
    rules = {"name": draft.id, "rules": list(draft.id_rules)} if draft.id_rules else draft.id
    why = draft.id_why or "the column that all tables share"
    if draft.id_rules:
        why += "; the rules make ids of all tables alike"
    yield _line("id", rules, why if draft.id else f"? {why}")
    if draft.bounds_source == FROM_DATA:
        yield _line("bounds_source", FROM_DATA, "not private")


def _party(party: PartyDraft) -> Iterator[str]:
    yield "[[party]]"
    yield _line("name", party.name, party.source)
    if party.decimal is not None:
        yield _line("decimal", party.decimal, "guessed: numbers are written with a decimal comma")
    for column in party.columns:
        yield ""
        yield from (f"  {line}" for line in (_column(column) if column.kind else _left_out(column)))


def _column(column: ColumnDraft) -> Iterator[str]:
    yield "[[party.column]]"
    yield _line("name", column.name)
    yield _line("kind", column.kind, column.why if column.why.startswith("from ") else f"guessed: {column.why}")
    if column.kind in ("continuous", "count"):
        yield from _bounds_lines(column)
    elif column.categories is not None:
        yield _line("categories", list(column.categories))
    elif not column.truth:
        asked = "both values" if column.kind == "binary" else "all values"
        order = ", in order" if column.kind == "ordinal" else ""
        yield f"# ? {asked}{order}. Look at: {_place(column.name, _LIST_AT)}."
        if column.kind != "binary":
            yield '# A file with one on each line will do, too: categories_file = "codes.txt"'
        yield _line("categories", [])
    if column.required:
        yield _line("required", True, "no empty values")


def _bounds_lines(column: ColumnDraft) -> Iterator[str]:
    if column.bounds is not None:
        yield _line("bounds", list(column.bounds))
        return
    if column.is_date:
        yield "# ? the first and the last possible day, as in [2000-01-01, 2030-12-31]."
    else:
        yield f"# ? the smallest and the largest possible value. Look at: {_place(column.name, _BOUNDS_AT)}."
    if column.kind == "continuous":
        yield '# If most values are small and a few very large, write scale = "log", too, with bounds above 0.'
    yield _line("bounds", [])


def _left_out(column: ColumnDraft) -> Iterator[str]:
    yield f"# Left out: column {_value(column.name)} ({_one_line(column.why)})."


def _place(name: str, otherwise: str) -> str:
    return next((place for pattern, place in _PLACES if re.search(pattern, name, re.IGNORECASE)), otherwise)


def _line(key: str, value: Any, comment: str = "") -> str:
    said = f"{key} = {_value(value)}"
    return f"{said.ljust(_COMMENT_AT)}  # {_one_line(comment)}" if comment else said


def _one_line(text: str) -> str:
    return readable(" ".join(text.split()))


def _value(value: Any) -> str:
    """Text, numbers and lists of them are written in TOML as in JSON; dates as they are."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
