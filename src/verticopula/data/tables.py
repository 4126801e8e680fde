"""Tables in, checked columns out: checking against the schema, aligning by id; `table_files.py` reads files.

A subject that is absent from a party's table is a missing block; single empty cells are allowed
too, so every column has its own mask. The response's party defines the cohort.

Everything wrong with a file or a column as a whole is collected as a `Problem`. Single cells never refuse a table:
a refusal that hangs on one person's value would tell others about it. A number outside the bounds counts as the nearest
bound, a cell that cannot be read counts as empty, and a constant column is a column like any other. How many cells that
were is a note for the table's own party. Problems and notes say where, what was expected and how many cells are
concerned; they never quote a cell. They give row numbers, because they stay in the house of the table's holder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.missingness import FEWEST_IN_COMMON, overlap_problems
from verticopula.errors import Problem, SchemaError
from verticopula.formatting import join_names
from verticopula.schema.cell_text import (
    EMPTY_SPELLINGS,
    WHOLE_FLOAT,
    is_empty,
    parse_days,
    parse_numbers,
    parse_seconds,
    strip_text,
    suggest_name,
)
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation, IdRule, Party
from verticopula.schema.id_rules import apply_id_rules, count_unknown, suggest_id_rules
from verticopula.schema.methods import STRICT

Floats = NDArray[np.float64]

_MOST_ROWS = 3  # that a note names
_SPREADSHEET_FLOAT = r"^[0-9]([.,][0-9]+)?[eE]\+[0-9]+$"
_WHOLE_CELL = re.compile(WHOLE_FLOAT)


@dataclass(frozen=True, repr=False)
class EncodedColumn:
    """A column as numbers. It has no repr: raw values must not end up in a log or a traceback.

    Attributes
    ----------
    values : (rows,) values; category codes 0..C-1 for ordinal, nominal and binary columns;
        unspecified where not observed
    observed : (rows,) mask
    clamped : how many values lay outside the bounds and were moved to them
    unreadable : how many cells hold something that is no value of the column; they count as empty
    notes : what the column's own party should know about it, and nobody else may
    doubt : why its cells may have been read wrongly as a whole; "" if there is no doubt
    has_open_mark : whether its commas were taken for thousands, and may be decimals: where values lie is then not known
    """

    values: Floats
    observed: NDArray[np.bool_]
    clamped: int = 0
    unreadable: int = 0
    notes: tuple[str, ...] = ()
    doubt: str = ""
    has_open_mark: bool = False


@dataclass(frozen=True, repr=False)
class AlignedTable:
    """One party's table in cohort order. It has no repr, like its columns.

    Attributes
    ----------
    columns : name -> values and mask over the whole cohort
    ignored : how many columns of the table are not in the federation file; they stay where they are
    """

    party: Party
    columns: Mapping[str, EncodedColumn]
    ignored: int = 0

    def observed(self) -> NDArray[np.bool_]:
        """(N, p_k) mask in the schema's column order."""
        return np.column_stack([self.columns[c.name].observed for c in self.party.columns])

    def written(self, name: str) -> Floats:
        """(N,) a column's values as the party's table has them: of one with a relation not the difference.

        Parameters
        ----------
        name : of the column
        """
        own, relation = self.columns[name].values, self.party.column(name).relation
        return own if relation is None else own + self.columns[relation].values

    def notes(self) -> list[Problem]:
        """What the party itself should know about its cells; they depend on single people, so they stay in house."""
        return _notes(self.party, self.columns)


def _notes(party: Party, columns: Mapping[str, EncodedColumn]) -> list[Problem]:
    return [
        Problem(f"party {party.name!r}, column {n!r}", what)
        for n, column in columns.items()
        for what in (*column.notes, *([column.doubt] if column.doubt else []))
    ]


# ---- one column --------------------------------------------------------------------------


def encode_column(
    series: pl.Series, column: Column, where: str, decimal: str | None = None
) -> tuple[EncodedColumn, list[Problem]]:
    """Numbers and mask of one column, and what is wrong with the column as a whole.

    Parameters
    ----------
    series : the cells, of any type
    column : its public description
    where : party and column, for problems
    decimal : the party's decimal mark, for cells of text that can be read two ways
    """
    unusable = _unusable(series.dtype, column)
    if unusable:
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), [Problem(where, unusable)]
    if column.kind in ("continuous", "count"):
        encoded = _within_bounds(_read_numbers(series, column, decimal), column)
    else:
        encoded = _encode_categories(series, column)
    return _noted(encoded, column), []


def _noted(encoded: EncodedColumn, column: Column) -> EncodedColumn:
    return replace(encoded, notes=(*encoded.notes, *_spread_notes(encoded), *_required_notes(encoded, column)))


def encode_difference(
    series: pl.Series, other: pl.Series, columns: tuple[Column, Column], where: str, decimal: str | None = None
) -> tuple[EncodedColumn, list[Problem]]:
    """A column with a relation as its difference from the other column; empty where one of the two is.

    Both are read as they are: where they are equal, they are also where they lie outside the other one's bounds.

    Parameters
    ----------
    series, other : the cells of both, of any type
    columns : their public descriptions
    where, decimal : as `encode_column` has them
    """
    column, related = columns
    written = column.as_written(related)
    unusable = _unusable(series.dtype, written)
    if unusable:
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), [Problem(where, unusable)]
    if _unusable(other.dtype, related):  # a problem of that column, and said there
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), []
    own, base = _read_numbers(series, written, decimal), _read_numbers(other, related, decimal)
    both = own.observed & base.observed & ~(np.isinf(own.values) & np.isinf(base.values))
    apart = replace(own, values=np.where(both, own.values, 0.0) - np.where(both, base.values, 0.0), observed=both)
    return _noted(_within_bounds(apart, column), column), []


def _unusable(dtype: pl.DataType, column: Column) -> str:
    """Why no cell of this type can be a value of the column; "" if some can."""
    if isinstance(dtype, (pl.List, pl.Struct, pl.Array, pl.Object, pl.Binary)):
        return "holds lists, bytes or objects, not single values"
    if column.kind not in ("continuous", "count"):
        return ""
    if dtype == pl.Boolean:
        return f'expected numbers for a {column.kind} column, got True and False: kind = "binary" reads them'
    if column.dates and dtype.is_numeric():
        return f"expected dates, as the bounds are, got {dtype}"
    if dtype in (pl.Date, pl.Datetime):
        wanted = 'kind = "count" with two dates as bounds reads them'
        return "" if column.dates else f"expected numbers for a {column.kind} column, got {dtype}: {wanted}"
    return f"expected numbers for a {column.kind} column, got {dtype}" if dtype.is_temporal() else ""


def _spread_notes(encoded: EncodedColumn) -> Iterable[str]:
    seen = encoded.values[encoded.observed]
    if encoded.has_open_mark:
        return  # one question at a time: all of them may be clamped because of it
    if seen.size < 2:
        yield f"only {seen.size} observed value(s): the study can say nothing about it"
    elif np.all(seen == seen[0]):
        yield "is constant where observed: the study can say nothing about its associations; leave it out"


def _required_notes(encoded: EncodedColumn, column: Column) -> Iterable[str]:
    empty = ~encoded.observed
    if column.required and empty.any():
        first = "the lower bound" if column.bounds is not None else "the first category"
        yield (
            f"{_cells(int(empty.sum()))} empty in a required column: a study by {STRICT.name} counts them as {first}, "
            f"unless the party knows nothing of the person{_rows(empty)}"
        )


def _encode_categories(series: pl.Series, column: Column) -> EncodedColumn:
    codes = {str(category).strip(): float(code) for code, category in enumerate(column.categories or ())}
    text = strip_text(series)
    spellings = text.unique().drop_nulls().to_list()
    found = {cell: _code_of(cell, codes) for cell in spellings}
    listed = {cell: code for cell, code in found.items() if code is not None}
    strange = [cell for cell, code in found.items() if code is None and cell.lower() not in EMPTY_SPELLINGS]
    numbers = text.replace_strict(listed, default=None, return_dtype=pl.Float64)
    observed = numbers.is_not_null().to_numpy().copy()
    values = numbers.fill_null(0.0).to_numpy().astype(np.float64)
    unlisted = text.is_in(strange).fill_null(False).to_numpy()
    count = int(unlisted.sum())
    if not count:
        return EncodedColumn(values, observed)
    said = f"{_cells(count)} not among the listed categories"
    if column.other is not None:
        values[unlisted], observed[unlisted] = codes[str(column.other).strip()], True
        return EncodedColumn(values, observed, notes=(f"{said}: counted as {column.other!r}{_rows(unlisted)}",))
    note = f"{said}: counted as empty{_rows(unlisted)}{_misspelt(text, strange, codes)}"
    return EncodedColumn(values, observed, unreadable=count, notes=(note,))


def _code_of(cell: str, codes: Mapping[str, float]) -> float | None:
    """The code of the category that a cell means; None if it means none of them."""
    if cell in codes:
        return codes[cell]
    whole = _WHOLE_CELL.fullmatch(cell)
    if whole:
        return codes.get(whole[1])
    truth = cell.lower()
    if truth not in ("true", "false"):
        return None
    same = next((code for category, code in codes.items() if category.lower() == truth), None)
    return codes.get("1" if truth == "true" else "0") if same is None else same


def _misspelt(text: pl.Series, strange: list[str], codes: Mapping[str, float]) -> str:
    """What the unlisted cells have in common with the listed categories, in words."""
    folded = {"".join(category.casefold().split()) for category in codes}
    close = [cell for cell in strange if "".join(cell.casefold().split()) in folded]
    if close:
        return f"; {_cells(int(text.is_in(close).sum()))} a category but for case or blanks: write them alike"
    widths = {len(category) for category in codes}
    short = [cell for cell in strange if any(cell.zfill(width) in codes for width in widths)]
    if short:
        return f"; {_cells(int(text.is_in(short).sum()))} a category but for lost leading zeros: read it as text"
    return "; if they are valid, add them to the categories or declare other = ..."


def _read_numbers(series: pl.Series, column: Column, decimal: str | None) -> EncodedColumn:
    """Numbers, days or seconds as the cells have them, within the bounds or not."""
    notes, doubt, taken = [], "", ""
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if series.dtype.is_numeric():
        numbers = series.cast(pl.Float64)
        empty = series.is_null() | numbers.is_nan().fill_null(False)
        values = numbers.fill_null(float("nan")).to_numpy().astype(np.float64)
    else:
        text = strip_text(series)
        empty = is_empty(text)
        if column.dates:
            values = parse_seconds(text) if column.times else parse_days(text)
        else:
            parsed = parse_numbers(text, decimal)
            values, two_ways = parsed.values, parsed.two_ways
            doubt = _doubt(int(two_ways.sum()), parsed.with_comma, parsed.with_point, decimal)
            commas = two_ways & text.str.contains(",", literal=True).fill_null(False).to_numpy()
            if commas.any() and not doubt and decimal is None:
                taken = (
                    f"{_cells(int(commas.sum()))} taken for thousands, as in 1,000{_rows(commas)}; if the comma begins "
                    'decimals, the party needs decimal = "," in the federation file'
                )
    filled = ~empty.to_numpy()
    observed = filled & ~np.isnan(values)
    wrong = filled & ~observed
    unreadable = int(wrong.sum())
    if unreadable:
        low = (column.bounds or (0.0, 0.0))[0]
        wanted = f"a date such as {column.date_text(low)}" if column.dates else "a number"
        notes.append(f"{_cells(unreadable)} not {wanted}: counted as empty{_rows(wrong)}")
    if taken:
        notes.append(taken)
    return EncodedColumn(np.where(observed, values, 0.0), observed, 0, unreadable, tuple(notes), doubt, bool(taken))


def _within_bounds(read: EncodedColumn, column: Column) -> EncodedColumn:
    """Numbers that were read, moved to the bounds where they lie outside, and whole in a count column."""
    low, high = column.bounds or (0.0, 0.0)
    outside = read.observed & ((read.values < low) | (read.values > high))
    clamped = int(outside.sum())
    values = np.where(read.observed, np.clip(read.values, low, high), 0.0)
    notes = list(read.notes)
    if read.has_open_mark and clamped:
        notes[-1] += f". Read so, {_cells(clamped)} outside the public bounds"
    elif clamped and not column.clamp:
        notes.append(f"{_cells(clamped)} outside the public bounds: counted as the nearest bound{_rows(outside)}")
    if column.kind == "count":
        whole = np.rint(values)  # the bounds are whole: it stays within them
        broken = values != whole
        if broken.any():
            notes.append(f"{_cells(int(broken.sum()))} not a whole number: rounded{_rows(broken)}")
        values = whole
    return replace(read, values=values, clamped=clamped, notes=tuple(notes))


def _doubt(two_ways: int, with_comma: int, with_point: int, decimal: str | None) -> str:
    """Why cells such as 1,234 may have been read wrongly: others of the column have the other decimal mark."""
    others, mark = (with_point, ".") if decimal == "," else (with_comma, ",")
    if not two_ways or not others:
        return ""
    means = "a decimal comma" if mark == "," else "a decimal point"
    return (
        f"{_cells(others)} written with {means}, so {two_ways} others, such as 1,234 or 1.234, can be read two ways: "
        f'write decimal = "{mark}" for the party, or the cells without marks between thousands'
    )


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count} cells are"


def _rows(mask: NDArray[np.bool_]) -> str:
    """Where these cells are, for whoever holds the table: rows are counted below the header."""
    at = [str(row + 1) for row in np.flatnonzero(mask)[:_MOST_ROWS]]
    more = int(mask.sum()) - len(at)
    if len(at) == 1:
        return f" (data row {at[0]})"
    return f" (data rows {', '.join(at)} and {more} more)" if more else f" (data rows {', '.join(at)})"


# ---- ids and alignment -------------------------------------------------------------------


def normalise_ids(series: pl.Series, rule: IdRule) -> pl.Series:
    """Ids as text, with the federation's rules applied in order."""
    return apply_id_rules(series, rule.rules)


def _ids_of(table: pl.DataFrame, rule: IdRule, where: str) -> tuple[pl.Series | None, list[Problem]]:
    if rule.name not in table.columns:
        hint = suggest_name(rule.name, table.columns)
        if len(table.columns) == 1 and not hint:
            hint = "; the table has a single column: what stands between its cells?"
        elif not hint:
            hint = f"; the table has {join_names(list(map(repr, table.columns)))}: which of them tells people apart?"
        alike = " All tables name it alike" if hint.endswith("?") else "; all tables name it alike"
        return None, [Problem(where, f"the id column {rule.name!r} is missing{hint}{alike}")]
    ids = normalise_ids(table[rule.name], rule)
    problems: list[Problem] = []
    if len(ids) == 0:
        problems.append(Problem(where, "has no rows"))
    blank = (ids.is_null() | (ids == "")).fill_null(True).to_numpy()
    if blank.any():
        problems.append(Problem(where, f"{blank.sum()} row(s) without a subject id{_rows(blank)}"))
    repeated = (~ids.is_first_distinct()).to_numpy()
    if repeated.any() and not blank.any():
        problems.append(
            Problem(where, f"{repeated.sum()} row(s) repeat a subject id{_rows(repeated)}: keep one a person")
        )
    rounded = ids.str.contains(_SPREADSHEET_FLOAT).fill_null(False).to_numpy()
    if rounded.any():
        what = f"{rounded.sum()} subject id(s) are written like 1.2E+09{_rows(rounded)}: a spreadsheet has rounded them"
        problems.append(Problem(where, f"{what}; save the column as text"))
    return ids, problems


def knows_everybody(tables: Mapping[str, AlignedTable]) -> bool:
    """Whether every party has something about everybody: no block is missing."""
    return all(bool(table.observed().any(axis=1).all()) for table in tables.values())


def align_tables(
    federation: Federation,
    tables: Mapping[str, pl.DataFrame],
    rule: IdRule | None = None,
    *,
    need_overlap: bool = True,
) -> dict[str, AlignedTable]:
    """Check every table and put it in cohort order; SchemaError lists every problem of every party.

    `need_overlap`: two columns without common subjects are a problem too.
    """
    rule = rule or federation.id
    problems: list[Problem] = [
        Problem(f"party {name!r}", "has a table but is not in the federation")
        for name in tables
        if name not in {p.name for p in federation.parties}
    ]
    ids: dict[str, pl.Series] = {}
    encoded: dict[str, dict[str, EncodedColumn]] = {}
    for party in federation.parties:
        where = f"party {party.name!r}"
        table = tables.get(party.name)
        if table is None:
            problems.append(Problem(where, "has no table"))
            continue
        found, id_problems = _ids_of(table, rule, where)
        problems += id_problems
        if found is not None:
            ids[party.name] = found
        columns, column_problems = encode_party(party, table, where)
        problems += column_problems
        # All tables are here, so nobody else learns of this refusal; between organisations it would be one.
        problems += _illegible(columns, where)
        encoded[party.name] = columns
    cohort = ids.get(federation.response.party)
    if cohort is not None:
        problems += _unmatched(ids, cohort, federation.response.party)
    if problems or cohort is None:
        raise SchemaError(problems)
    aligned = {
        p.name: _align(p, encoded[p.name], ids[p.name], cohort, ignored=tables[p.name].width - len(p.columns) - 1)
        for p in federation.parties
    }
    apart = overlap_problems(_never_together(federation, aligned)) if need_overlap else []
    if apart:
        raise SchemaError(apart)
    return aligned


@dataclass(frozen=True, repr=False)
class OwnTable:
    """One party's table, checked and as numbers, before it has a cohort. It has no repr, like its columns.

    Attributes
    ----------
    ids : normalised, none empty, none twice
    """

    party: Party
    ids: pl.Series
    columns: Mapping[str, EncodedColumn]
    ignored: int = 0

    @classmethod
    def check(cls, party: Party, table: pl.DataFrame, rule: IdRule) -> OwnTable:
        """Check a party's table on its own; SchemaError lists every problem.

        Parameters
        ----------
        party : which columns it must have
        table : with ids and columns
        rule : which column holds the ids, and how they are normalised
        """
        where = f"party {party.name!r}"
        ids, problems = _ids_of(table, rule, where)
        columns, column_problems = encode_party(party, table, where)
        problems += column_problems
        if problems or ids is None:
            raise SchemaError(problems)
        return cls(party, ids, columns, ignored=table.width - len(party.columns) - 1)

    def notes(self) -> list[Problem]:
        """As `AlignedTable.notes`."""
        return _notes(self.party, self.columns)

    def in_cohort(self, n_subjects: int, positions: NDArray[np.int64]) -> AlignedTable:
        """The table in cohort order, where row i is subject `positions[i]` of `n_subjects`.

        Parameters
        ----------
        n_subjects : size of the cohort
        positions : (n,) every row's place in the cohort
        """
        rows = np.zeros(n_subjects, dtype=np.int64)
        present = np.zeros(n_subjects, dtype=bool)
        rows[positions] = np.arange(positions.size)
        present[positions] = True
        return _in_cohort_order(self.party, self.columns, rows, present, self.ignored)


def encode_party(party: Party, table: pl.DataFrame, where: str) -> tuple[dict[str, EncodedColumn], list[Problem]]:
    """All of a party's columns as numbers, and what is wrong with them.

    Parameters
    ----------
    party : which columns it must have
    table : with these columns
    where : the party, for problems
    """
    columns: dict[str, EncodedColumn] = {}
    problems: list[Problem] = []
    for column in party.columns:
        at = f"{where}, column {column.name!r}"
        if column.name not in table.columns:
            hint = suggest_name(column.name, table.columns)
            problems.append(Problem(at, f"is in the federation file but not in the table{hint}"))
            continue
        if len(table) == 0:
            continue
        related = party.related(column)
        if related is not None and related.name not in table.columns:  # a problem of its own
            continue
        columns[column.name], found = (
            encode_column(table[column.name], column, at, party.decimal)
            if related is None
            else encode_difference(table[column.name], table[related.name], (column, related), at, party.decimal)
        )
        problems += found
    return columns, problems


def _illegible(columns: Mapping[str, EncodedColumn], where: str) -> Iterable[Problem]:
    for name, column in columns.items():
        at = f"{where}, column {name!r}"
        if column.unreadable and not column.observed.any():
            yield Problem(at, f"none of its {column.unreadable} filled cells can be read")
        if column.doubt:
            yield Problem(at, column.doubt)


def _unmatched(ids: Mapping[str, pl.Series], cohort: pl.Series, response_party: str) -> Iterable[Problem]:
    for name, own in ids.items():
        unknown = count_unknown(own, cohort) if name != response_party else 0
        if unknown:
            rules = suggest_id_rules(own, cohort)
            yield Problem(f"party {name!r}", describe_unmatched(unknown, len(own), response_party, rules))


def describe_unmatched(unknown: int, known: int, response_party: str, rules: tuple[str, ...] = ()) -> str:
    """What to do about ids of a party that the cohort does not have.

    Parameters
    ----------
    unknown, known : how many such ids there are, of how many
    response_party : whose table has the cohort
    rules : those that make ids alike, where somebody saw both tables
    """
    if rules:
        listed = ", ".join(f'"{rule}"' for rule in rules)
        lost = " (leading zeros were lost)" if any(rule.startswith("zfill") for rule in rules) else ""
        return (
            f"{unknown} of {known} subject ids are unknown to {response_party!r}, whose table defines the cohort: they "
            f'are written differently{lost}. Write id = {{ name = "...", rules = [{listed}] }} in the federation file'
        )
    if unknown == known:
        return (
            f"no subject in common with {response_party!r}, whose table defines the cohort: are ids written "
            "differently, or were leading zeros lost? Rules in the federation file make them alike, for example "
            'id = { name = "...", rules = ["strip", "upper", "zfill:8"] }'
        )
    return (
        f"{unknown} subject id(s) are unknown to {response_party!r}, whose table defines the cohort: take these rows "
        "out, or give ids rules in the federation file if they are written differently (zfill:8 for lost leading zeros)"
    )


def _align(
    party: Party, columns: Mapping[str, EncodedColumn], own: pl.Series, cohort: pl.Series, *, ignored: int
) -> AlignedTable:
    index = pl.DataFrame({"id": cohort}).join(
        pl.DataFrame({"id": own, "row": np.arange(len(own))}), on="id", how="left", maintain_order="left"
    )["row"]
    present = index.is_not_null().to_numpy()
    rows = index.fill_null(0).to_numpy().astype(np.int64)
    return _in_cohort_order(party, columns, rows, present, ignored)


def _in_cohort_order(
    party: Party,
    columns: Mapping[str, EncodedColumn],
    rows: NDArray[np.int64],
    present: NDArray[np.bool_],
    ignored: int,
) -> AlignedTable:
    """`rows` holds each subject's row, any row where the party does not know the subject."""
    return AlignedTable(
        party,
        {
            name: replace(column, values=column.values[rows], observed=column.observed[rows] & present)
            for name, column in columns.items()
        },
        ignored,
    )


def _never_together(
    federation: Federation, aligned: Mapping[str, AlignedTable]
) -> Iterable[tuple[ColumnKey, ColumnKey]]:
    """Pairs of columns without two common subjects: nothing can be said about their association."""
    seen = np.hstack([aligned[p.name].observed() for p in federation.parties]).astype(np.float32)
    keys = federation.keys
    for j, k in np.argwhere(np.triu(seen.T @ seen < FEWEST_IN_COMMON, 1)):
        yield keys[j], keys[k]


# ---- writing -----------------------------------------------------------------------------


def decode_column(values: Floats, column: Column) -> pl.Series:
    """Values or category codes in the column's own type; what is not a number comes out empty."""
    empty = np.isnan(values)
    filled = pl.Series(~empty)
    if column.kind == "continuous":
        return pl.select(pl.when(filled).then(pl.Series(values)).alias(column.name)).to_series()
    whole_values = np.where(empty, 0.0, values).astype(np.int64)
    if column.kind == "count":
        whole_numbers = pl.select(pl.when(filled).then(pl.Series(whole_values)).alias(column.name)).to_series()
        if column.times:
            return (whole_numbers * 1_000_000).cast(pl.Datetime("us"))
        return whole_numbers.cast(pl.Int32).cast(pl.Date) if column.dates else whole_numbers
    categories = column.categories or ()
    whole = all(isinstance(c, int) for c in categories)
    labels = pl.Series([c if whole else str(c) for c in categories], dtype=pl.Int64 if whole else pl.String)
    return pl.select(pl.when(filled).then(labels.gather(whole_values)).alias(column.name)).to_series()
