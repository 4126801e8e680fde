"""Tables in, checked columns out: reading files, checking against the schema, aligning by id.

A subject that is absent from a party's table is a missing block; single empty cells are allowed
too, so every column has its own mask. The response's party defines the cohort.

Everything wrong with a file or a column as a whole is collected as a `Problem`. Single cells never refuse a table:
a refusal that hangs on one person's value would tell others about it. A number outside the bounds counts as the nearest
bound, a cell that cannot be read counts as empty, and a constant column is a column like any other. How many cells that
were is a note for the table's own party. Problems and notes say where, what was expected and how many cells are
concerned; they never quote a cell.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.missingness import FEWEST_IN_COMMON, overlap_problems
from verticopula.errors import Problem, SchemaError
from verticopula.schema.federation import Column, ColumnKey, Federation, IdRule, Party

Floats = NDArray[np.float64]

# Spellings of "no value" in text columns, unless the schema lists them as a category.
_EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>"})


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
    """

    values: Floats
    observed: NDArray[np.bool_]
    clamped: int = 0
    unreadable: int = 0
    notes: tuple[str, ...] = ()


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

    def notes(self) -> list[Problem]:
        """What the party itself should know about its cells; they depend on single people, so they stay in house."""
        return _notes(self.party, self.columns)


def _notes(party: Party, columns: Mapping[str, EncodedColumn]) -> list[Problem]:
    return [
        Problem(f"party {party.name!r}, column {n!r}", what) for n, column in columns.items() for what in column.notes
    ]


# ---- reading -----------------------------------------------------------------------------


def read_table(path: Path) -> pl.DataFrame:
    """A CSV (all cells as text) or Parquet file; SchemaError if it cannot be read."""
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        text = path.read_bytes().decode("utf-8-sig")
        # polars leaves doubled quotes in header names as they are; Python's reader resolves them.
        header = next(csv.reader(io.StringIO(text)), [])
        if len(set(header)) != len(header):
            raise SchemaError([Problem(path.name, "two columns have the same name")])
        return pl.read_csv(path, infer_schema=False, encoding="utf8", new_columns=header)
    except UnicodeDecodeError:
        raise SchemaError([Problem(path.name, "is not UTF-8 text; save it as UTF-8")]) from None
    except pl.exceptions.NoDataError:
        raise SchemaError([Problem(path.name, "is empty")]) from None
    except (OSError, pl.exceptions.PolarsError) as error:
        kind = "Parquet" if path.suffix == ".parquet" else "CSV"
        raise SchemaError([Problem(path.name, f"cannot be read as {kind} ({type(error).__name__})")]) from None


def read_tables(federation: Federation, folder: Path, *, all_parties: bool = True) -> dict[str, pl.DataFrame]:
    """Each party's `<party>.parquet` or `<party>.csv`; SchemaError lists every file that fails.

    Without `all_parties` those of some parties may be missing.
    """
    tables: dict[str, pl.DataFrame] = {}
    problems: list[Problem] = []
    for party in federation.parties:
        found = [p for p in (folder / f"{party.name}.parquet", folder / f"{party.name}.csv") if p.is_file()]
        if not found and not all_parties:
            continue
        if len(found) != 1:
            what = "both .csv and .parquet are there; keep one" if found else "no .csv or .parquet file"
            problems.append(Problem(f"party {party.name!r}", f"{what} in {folder.name or 'the data folder'}"))
            continue
        try:
            tables[party.name] = read_table(found[0])
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise SchemaError(problems)
    return tables


# ---- one column --------------------------------------------------------------------------


def encode_column(series: pl.Series, column: Column, where: str) -> tuple[EncodedColumn, list[Problem]]:
    """Numbers and mask of one column, and what is wrong with the column as a whole."""
    unusable = ""
    if isinstance(series.dtype, (pl.List, pl.Struct, pl.Array, pl.Object, pl.Binary)):
        unusable = "holds lists, bytes or objects, not single values"
    elif column.kind in ("continuous", "count") and (series.dtype == pl.Boolean or series.dtype.is_temporal()):
        unusable = f"expected numbers for a {column.kind} column, got {series.dtype}"
    if unusable:
        return EncodedColumn(np.zeros(len(series)), np.zeros(len(series), bool)), [Problem(where, unusable)]
    encode = _encode_numbers if column.kind in ("continuous", "count") else _encode_categories
    encoded = encode(series, column)
    return replace(encoded, notes=(*encoded.notes, *_spread_notes(encoded))), []


def _spread_notes(encoded: EncodedColumn) -> Iterable[str]:
    seen = encoded.values[encoded.observed]
    if seen.size < 2:
        yield f"only {seen.size} observed value(s): the study can say nothing about it"
    elif np.all(seen == seen[0]):
        yield "is constant where observed: the study can say nothing about its associations"


def _as_text(series: pl.Series) -> pl.Series:
    """Text of each cell, stripped; whole floats without a point; empty spellings as null."""
    if series.dtype == pl.Boolean:
        series = series.cast(pl.Int8)
    if series.dtype.is_float():
        whole = series.is_nan().fill_null(True).not_() & (series == series.round(0)) & (series.abs() < 2.0**53)
        text = pl.select(
            pl.when(whole).then(series.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(series.cast(pl.String))
        ).to_series()
        return pl.select(pl.when(series.is_nan()).then(None).otherwise(text)).to_series()
    return series.cast(pl.String).str.strip_chars()


def _encode_categories(series: pl.Series, column: Column) -> EncodedColumn:
    codes = {str(category).strip(): float(code) for code, category in enumerate(column.categories or ())}
    text = _as_text(series)
    # Every distinct text once: a listed category's code, -1 for an empty cell, -2 for what is not listed.
    distinct = text.unique().drop_nulls().to_list()
    meanings = [codes.get(cell, -1.0 if cell.lower() in _EMPTY else -2.0) for cell in distinct]
    found = text.replace_strict(distinct, meanings, default=-1.0, return_dtype=pl.Float64).fill_null(-1.0).to_numpy()
    observed, unlisted = found >= 0.0, found == -2.0
    values = np.where(observed, found, 0.0)
    count = int(unlisted.sum())
    if not count:
        return EncodedColumn(values, observed)
    said = f"{_cells(count)} not among the listed categories"
    if column.other is not None:
        values[unlisted], observed[unlisted] = codes[str(column.other).strip()], True
        return EncodedColumn(values, observed, notes=(f"{said}: counted as {column.other!r}",))
    return EncodedColumn(values, observed, unreadable=count, notes=(f"{said}: counted as empty",))


def _encode_numbers(series: pl.Series, column: Column) -> EncodedColumn:
    if series.dtype.is_numeric():
        numbers = series.cast(pl.Float64)
        empty = series.is_null() | numbers.is_nan().fill_null(False)
    else:
        text = _as_text(series)
        empty = text.is_null() | text.str.to_lowercase().is_in(list(_EMPTY)).fill_null(True)
        numbers = text.cast(pl.Float64, strict=False)
    values = numbers.fill_null(float("nan")).to_numpy().astype(np.float64)
    low, high = column.bounds or (0.0, 0.0)
    filled = ~empty.to_numpy()
    observed = filled & ~np.isnan(values)
    unreadable = int((filled & ~observed).sum())
    clamped = int((observed & ((values < low) | (values > high))).sum())
    values = np.where(observed, np.clip(values, low, high), 0.0)
    notes = [f"{_cells(unreadable)} not a number: counted as empty"] if unreadable else []
    if clamped and not column.clamp:
        notes.append(f"{_cells(clamped)} outside the public bounds: counted as the nearest bound")
    if column.kind == "count":
        whole = np.rint(values)  # the bounds are whole: it stays within them
        broken = int((values != whole).sum())
        if broken:
            notes.append(f"{_cells(broken)} not a whole number: rounded")
        values = whole
    return EncodedColumn(values, observed, clamped, unreadable, tuple(notes))


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count} cells are"


# ---- ids and alignment -------------------------------------------------------------------


def normalise_ids(series: pl.Series, rule: IdRule) -> pl.Series:
    """Ids as text, with the federation's rules applied in order."""
    text = series.cast(pl.String) if series.dtype == pl.String else _as_text(series)
    for step in rule.rules:
        if step == "strip":
            text = text.str.strip_chars()
        elif step == "upper":
            text = text.str.to_uppercase()
        elif step == "lower":
            text = text.str.to_lowercase()
        else:
            text = text.str.zfill(int(step.partition(":")[2]))
    return text


def _ids_of(table: pl.DataFrame, rule: IdRule, where: str) -> tuple[pl.Series | None, list[Problem]]:
    if rule.name not in table.columns:
        hint = ""
        if len(table.columns) == 1:
            hint = "; the table has a single column: is the delimiter a comma?"
        return None, [Problem(where, f"the id column {rule.name!r} is missing{hint}")]
    ids = normalise_ids(table[rule.name], rule)
    problems: list[Problem] = []
    if len(ids) == 0:
        problems.append(Problem(where, "has no rows"))
    blank = int((ids.is_null() | (ids == "")).fill_null(True).sum())
    if blank:
        problems.append(Problem(where, f"{blank} row(s) without a subject id"))
    repeated = len(ids) - ids.n_unique()
    if repeated and not blank:
        problems.append(Problem(where, f"{repeated} row(s) repeat a subject id"))
    return ids, problems


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
        columns, column_problems = _encode_party(party, table, where)
        problems += column_problems
        # All tables are here, so nobody else learns of this refusal; between organisations it would be one.
        problems += _illegible(columns, where)
        encoded[party.name] = columns
    cohort = ids.get(federation.response.party)
    if cohort is not None:
        problems += _strangers(ids, cohort, federation.response.party)
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
        columns, column_problems = _encode_party(party, table, where)
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


def _encode_party(party: Party, table: pl.DataFrame, where: str) -> tuple[dict[str, EncodedColumn], list[Problem]]:
    columns: dict[str, EncodedColumn] = {}
    problems: list[Problem] = []
    for column in party.columns:
        at = f"{where}, column {column.name!r}"
        if column.name not in table.columns:
            problems.append(Problem(at, "is in the federation file but not in the table"))
            continue
        if len(table) == 0:
            continue
        columns[column.name], found = encode_column(table[column.name], column, at)
        problems += found
    return columns, problems


def _illegible(columns: Mapping[str, EncodedColumn], where: str) -> Iterable[Problem]:
    for name, column in columns.items():
        if column.unreadable and not column.observed.any():
            yield Problem(f"{where}, column {name!r}", f"none of its {column.unreadable} filled cells can be read")


def _strangers(ids: Mapping[str, pl.Series], cohort: pl.Series, response_party: str) -> Iterable[Problem]:
    for name, own in ids.items():
        unknown = int((~own.is_in(cohort.implode())).fill_null(False).sum()) if name != response_party else 0
        if unknown:
            yield Problem(f"party {name!r}", describe_strangers(unknown, len(own), response_party))


def describe_strangers(unknown: int, known: int, response_party: str) -> str:
    """What to do about ids of a party that the cohort does not have.

    Parameters
    ----------
    unknown, known : how many such ids there are, of how many
    """
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
    """Values or category codes in the column's own type."""
    if column.kind == "continuous":
        return pl.Series(column.name, values)
    if column.kind == "count":
        return pl.Series(column.name, values.astype(np.int64))
    categories = column.categories or ()
    whole = all(isinstance(c, int) for c in categories)
    labels = pl.Series([c if whole else str(c) for c in categories], dtype=pl.Int64 if whole else pl.String)
    return labels.gather(values.astype(np.int64)).alias(column.name)
