"""A draft of a federation file: what is known, guessed and still asked, as records and as the file's text.

The text says what was guessed and why, what is asked, and where the answer may stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verticopula.errors import Problem, SchemaError
from verticopula.formatting import readable
from verticopula.schema.cell_text import suggest_name
from verticopula.schema.methods import DEFAULT_METHOD

BLANK, FROM_DATA = "blank", "from-data"  # where a draft's bounds and categories come from
_AS_SAID = "as you said; the people of this party are the study's"

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


@dataclass(frozen=True)
class ColumnDraft:
    """What is known or guessed of a column.

    Attributes
    ----------
    kind : as in the federation file; "" for a column that is better left out
    why : what the guess rests on
    bounds, categories : None where they are still a question
    is_date : whether its cells are dates
    truth : whether its two categories are 0 and 1, which need not be written
    required : whether a schema says that it never has empty values; never from data
    """

    name: str
    kind: str
    why: str
    bounds: tuple[Any, Any] | None = None
    categories: tuple[Any, ...] | None = None
    is_date: bool = False
    truth: bool = False
    required: bool = False

    @property
    def is_open(self) -> bool:
        """Whether bounds or categories are still to be written."""
        if self.kind in ("continuous", "count"):
            return self.bounds is None
        return bool(self.kind) and self.categories is None and not self.truth

    def to_dict(self) -> dict[str, Any]:
        """In the layout of the federation file, with blanks where there is a question."""
        out: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind in ("continuous", "count"):
            out["bounds"] = list(self.bounds or ())
        elif not self.truth:
            out["categories"] = list(self.categories or ())
        if self.required:
            out["required"] = True
        return out


@dataclass(frozen=True)
class PartyDraft:
    """What is known or guessed of a party; `source` is the file or frame that was looked at."""

    name: str
    columns: tuple[ColumnDraft, ...]
    decimal: str | None = None
    source: str = ""


@dataclass(frozen=True)
class FederationDraft:
    """A federation file before its questions are answered.

    Attributes
    ----------
    id, response : "" where nothing could be guessed
    id_rules : under which ids of all tables are alike
    id_why, response_why : what the guesses rest on
    bounds_source : `blank` or `from-data`
    """

    name: str
    response: str
    id: str
    parties: tuple[PartyDraft, ...]
    id_rules: tuple[str, ...] = ()
    id_why: str = ""
    response_why: str = ""
    bounds_source: str = BLANK

    @property
    def open_questions(self) -> list[str]:
        """What is still to be answered: `id`, `response`, and columns as `party.column`."""
        head = [name for name, value in (("id", self.id), ("response", self.response)) if not value]
        return [*head, *(f"{p.name}.{c.name}" for p in self.parties for c in p.columns if c.is_open)]

    def to_dict(self) -> dict[str, Any]:
        """In the layout of the federation file; columns that are left out are not in it."""
        out: dict[str, Any] = {"name": self.name, "response": self.response}
        out["id"] = {"name": self.id, "rules": list(self.id_rules)} if self.id_rules else self.id
        if self.bounds_source == FROM_DATA:
            out["bounds_source"] = FROM_DATA
        out["party"] = [
            {
                "name": party.name,
                **({} if party.decimal is None else {"decimal": party.decimal}),
                "column": [column.to_dict() for column in party.columns if column.kind],
            }
            for party in self.parties
        ]
        return out

    @property
    def response_was_given(self) -> bool:
        """Whether somebody named the response."""
        return self.response_why == _AS_SAID

    def with_response(self, response: str) -> FederationDraft:
        """The draft with the response that somebody named; SchemaError if it is no column that can be explained.

        Parameters
        ----------
        response : as party.column
        """
        known = {f"{party.name}.{column.name}": column for party in self.parties for column in party.columns}
        if response not in known:
            alike = [name for name in known if name.partition(".")[2] == response] or list(known)
            form = "" if "." in response else ", written as party.column"
            hint = suggest_name(response, alike)
            raise SchemaError([Problem("response", f"{response!r} is not a column of these tables{form}{hint}")])
        if not known[response].kind:
            raise SchemaError([Problem("response", f"{response!r} cannot be in a study: {known[response].why}")])
        return replace(self, response=response, response_why=_AS_SAID)

    def to_toml(self, path: str | Path | None = None, *, check_with: str = "verticopula check federation.toml") -> str:
        """The text of a federation file with comments; also written to `path` if one is given.

        Parameters
        ----------
        path : where to write it; None for nowhere
        check_with : the command that says what is still open
        """
        text = _draft_text(self, check_with)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def with_column(self, party: str, column: ColumnDraft) -> FederationDraft:
        """The draft with another description of one column.

        Parameters
        ----------
        party : whose column it is
        column : takes the place of the column of that name
        """
        parties = tuple(
            replace(p, columns=tuple(column if c.name == column.name else c for c in p.columns))
            if p.name == party
            else p
            for p in self.parties
        )
        return replace(self, parties=parties)


def _draft_text(draft: FederationDraft, check_with: str = "verticopula check federation.toml") -> str:
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
    if len(draft.parties) == 2:
        yield ""
        yield f"# Method {DEFAULT_METHOD.name}, the default, needs three that compute. Of two parties the third is an"
        yield "# organisation without data. Name it, or choose another method by name:"
        yield "# [network]"
        yield '# compute = "NAME"'


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
