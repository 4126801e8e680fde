"""A federation file guessed from tables: names, kinds, ids and response; bounds and categories stay blank.

Bounds and categories are public inputs, so a draft asks for them. They come from the data only where that is asked for
by name, and the federation then carries the mark (`bounds_source = "from-data"`): epsilon is infinite.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from verticopula.errors import Problem, SchemaError, SettingsError
from verticopula.schema.cell_text import is_empty, looks_mistyped, parse_days, parse_numbers, strip_text
from verticopula.schema.federation_draft import BLANK, FROM_DATA, ColumnDraft, FederationDraft, PartyDraft
from verticopula.schema.id_rules import apply_id_rules, count_unknown, suggest_id_rules


@dataclass(frozen=True)
class GuessThresholds:
    """When a guess is made. All were chosen by hand, not tuned.

    Attributes
    ----------
    few : a whole-number column with more distinct values than this is a count
    readable : share of filled cells that must be numbers, or dates, for the column to be one of them
    words : a column of text with more distinct values than this, and with `differing` of its cells different, holds
        names or remarks, and no categories
    differing : the share for `words`
    """

    few: int = 20
    readable: float = 0.95
    words: int = 50
    differing: float = 0.5


GUESS_AT = GuessThresholds()

_RESPONSE_NAMES = re.compile(
    r"^(y|target|label|outcome|response|default(ed)?|event|status|churn(ed)?|died|death)$", re.I
)
_SLASHED_DATE = r"^[0-9]{1,2}[/-][0-9]{1,2}[/-]([0-9]{2}|[0-9]{4})$"
_ID_NAMES = re.compile(
    r"(^|[_\W])(id|key|nr|no|num|number|code)$|id$|^(customer|client|patient|person|subject|firm)", re.I
)


def draft_federation(
    tables: Mapping[str, pl.DataFrame],
    *,
    response: str | None = None,
    bounds: str = BLANK,
    id: str | None = None,
    name: str = "study",
    described: Mapping[str, Mapping[str, ColumnDraft]] | None = None,
    sources: Mapping[str, str] | None = None,
) -> FederationDraft:
    """A draft from tables; SchemaError or SettingsError where one is impossible.

    Parameters
    ----------
    tables : party -> its table
    response : `party.column`; None to guess it
    bounds : `blank`, or `from-data`, which accepts by name that the ranges leak
    id : name of the subject-id column; None to guess it
    name : of the federation
    described : party -> column -> what a schema says of it, which goes before any guess
    sources : party -> the file that its table comes from
    """
    if bounds not in (BLANK, FROM_DATA):
        raise SettingsError(
            "ranges that are inferred from the data are not private; "
            f'say bounds="{FROM_DATA}" to accept that, or "{BLANK}" to be asked for them'
        )
    id_name, id_why = (id, "") if id is not None else _guess_id(tables)
    parties = []
    for party, table in tables.items():
        known = (described or {}).get(party, {})
        columns = [
            known[column] if column in known else _guess_column(table[column], bounds)
            for column in table.columns
            if column != id_name
        ]
        parties.append(
            PartyDraft(party, tuple(columns), _guess_decimal(table, id_name), (sources or {}).get(party, ""))
        )
    ids = {party: table[id_name] for party, table in tables.items() if id_name in table.columns}
    rules = _guess_rules(ids) if id is None else ()
    draft = FederationDraft(name, response or "", id_name, tuple(parties), rules, id_why, bounds_source=bounds)
    if response is None:
        return _with_response(draft, ids)
    return draft.with_response(response)


def require_values(draft: FederationDraft) -> None:
    """SchemaError names the columns in which nothing differs: no range can be taken from them."""
    flat = [
        Problem(f"party {p.name!r}, column {c.name!r}", c.why) for p in draft.parties for c in p.columns if c.is_open
    ]
    if flat:
        raise SchemaError(flat)


# ---- ids and response --------------------------------------------------------------------


def _guess_id(tables: Mapping[str, pl.DataFrame]) -> tuple[str, str]:
    """The column that every table has, and in which no two rows of a table are alike; and why it was taken."""
    first, *others = tables.values()
    shared = [name for name in first.columns if all(name in table.columns for table in others)]
    unlike = [name for name in shared if all(_is_key(table[name]) for table in tables.values())]
    where = "every table" if others else "the table"
    for name in sorted(unlike, key=lambda n: _ID_NAMES.search(n) is None):
        return name, f"in {where}, and different in every row"
    named = [name for name in shared if _ID_NAMES.search(name)]
    if named:
        return named[0], f"in {where}, but not different in every row: check it"
    pairs = ((mine, yours) for table in others for mine in first.columns for yours in table.columns)
    alike = sorted(
        (pair for pair in pairs if looks_mistyped(*pair)), key=lambda pair: _ID_NAMES.search(pair[0]) is None
    )
    if alike:
        return "", f"{alike[0][0]!r} and {alike[0][1]!r} differ in case or blanks: name the column alike in all tables"
    return "", "no column is in every table under the same name: name the id column alike in all tables"


def _is_key(series: pl.Series) -> bool:
    ids = strip_text(series) if not series.dtype.is_nested() else pl.Series([], dtype=pl.String)
    return len(ids) > 0 and not is_empty(ids).any() and ids.n_unique() == len(ids)


def _guess_rules(ids: Mapping[str, pl.Series]) -> tuple[str, ...]:
    """Rules under which the ids of all tables are found in the one that has most of them."""
    texts = {party: apply_id_rules(series, ()) for party, series in ids.items()}
    if len(texts) < 2:
        return ()
    widest = max(texts, key=lambda party: texts[party].n_unique())
    found = (suggest_id_rules(text, texts[widest]) for party, text in texts.items() if party != widest)
    return max(found, key=len)


def _with_response(draft: FederationDraft, ids: Mapping[str, pl.Series]) -> FederationDraft:
    """The draft with a column to be explained, of a party that knows everybody."""
    texts = {party: apply_id_rules(series, draft.id_rules) for party, series in ids.items()}
    knows_all = [p for p, own in texts.items() if not any(count_unknown(other, own) for other in texts.values())]
    able = [party for party in draft.parties if party.name in knows_all]
    for party in able:
        for column in party.columns:
            if column.kind and _RESPONSE_NAMES.match(column.name):
                return _explaining(draft, party, column, "guessed by its name")
    for party in sorted(able, key=lambda party: len(party.columns)):
        for column in reversed(party.columns):
            if column.kind == "binary":
                return _explaining(draft, party, column, "guessed: a column of two values")
    names = " or ".join(party.name for party in able)
    why = f"the people of its party are the study's, so it is a column of {names or 'a party that knows everybody'}"
    if not able and texts:
        why = "no table has everybody: the people of the response's party are the study's, and others may be no more"
    return replace(draft, response_why=why)


def _explaining(draft: FederationDraft, party: PartyDraft, column: ColumnDraft, how: str) -> FederationDraft:
    why = f"{how}; the people of this party are the study's"
    return replace(draft, response=f"{party.name}.{column.name}", response_why=why)


# ---- columns -----------------------------------------------------------------------------


def _guess_column(series: pl.Series, bounds: str) -> ColumnDraft:
    take = bounds == FROM_DATA
    name, dtype = series.name, series.dtype
    if dtype.is_nested() or dtype in (pl.Object, pl.Binary):
        return ColumnDraft(name, "", "holds lists, bytes or objects")
    text = strip_text(series)
    seen = text.filter(~is_empty(text))
    distinct = seen.n_unique()
    if distinct < 2 and take:
        return ColumnDraft(name, "nominal", "fewer than two different values")
    if len(seen) == 0:
        return ColumnDraft(name, "", "has no values")
    if dtype == pl.Boolean or seen.str.to_lowercase().is_in(["true", "false"]).all():
        return ColumnDraft(name, "binary", "True and False", truth=True)
    days = parse_days(seen)
    if _share(days) >= GUESS_AT.readable:
        found = pl.Series(days).drop_nans().cast(pl.Int32).cast(pl.Date)
        return ColumnDraft(name, "count", "dates", (str(found.min()), str(found.max())) if take else None, is_date=True)
    if int(seen.str.contains(_SLASHED_DATE).sum()) >= GUESS_AT.readable * len(seen):
        return ColumnDraft(name, "", "dates such as 12/11/2024, which can be read two ways; write them as 2024-11-12")
    codes = not dtype.is_numeric() and bool(seen.str.contains(r"^0[0-9]+$").any())
    values = parse_numbers(seen).values
    if _share(values) >= GUESS_AT.readable and not codes:
        return _guess_numbers(name, values[~np.isnan(values)], distinct, take)
    if distinct > GUESS_AT.words and distinct > GUESS_AT.differing * len(seen):
        return ColumnDraft(name, "", "names or remarks: hardly two cells are alike")
    listed = tuple(sorted(seen.unique().to_list())) if take else None
    why = "codes with leading zeros" if codes else "words"
    return ColumnDraft(name, "binary" if distinct == 2 else "nominal", why, categories=listed)


def _share(values: Any) -> float:
    return 1.0 - float(np.isnan(values).mean())


def _guess_numbers(name: str, values: Any, distinct: int, take: bool) -> ColumnDraft:
    low, high = float(values.min()), float(values.max())
    whole = bool(np.all(values == np.rint(values)))
    if not whole:
        return ColumnDraft(name, "continuous", "numbers with decimals", (low, high) if take else None)
    if distinct <= 2 and {low, high} <= {0.0, 1.0}:
        return ColumnDraft(name, "binary", "0 and 1", truth=True)
    if distinct == 2:
        pair = (int(low), int(high)) if take else None
        return ColumnDraft(name, "binary", "two whole numbers", categories=pair)
    if distinct <= GUESS_AT.few:
        listed = tuple(sorted({int(v) for v in values})) if take else None
        why = "few whole numbers; if they count something, count with bounds is simpler"
        return ColumnDraft(name, "ordinal", why, categories=listed)
    return ColumnDraft(name, "count", "whole numbers", (int(low), int(high)) if take else None)


def _guess_decimal(table: pl.DataFrame, id_name: str) -> str | None:
    """The comma, where numbers of the table can only be read with one; None where a point will do."""
    commas = points = two_ways = 0
    for name in table.columns:
        if table[name].dtype == pl.String and name != id_name:
            parsed = parse_numbers(strip_text(table[name]))
            commas, points = commas + parsed.with_comma, points + parsed.with_point
            two_ways += int(parsed.two_ways.sum())
    return "," if commas > points and (commas or two_ways) else None
