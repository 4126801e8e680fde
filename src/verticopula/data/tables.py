"""Tables in, checked columns out: checking against the schema, aligning by id; `table_files.py` reads files.

A subject that is absent from a party's table is a missing block; single empty cells are allowed
too, so every column has its own mask. The response's party defines the cohort.

Everything wrong with a file or a column as a whole is collected as a `Problem`. Single cells never refuse a table, and
become notes for its own party: `column_encoding.py` says why. Neither ever quotes a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.column_encoding import EncodedColumn, encode_column, encode_difference, name_rows
from verticopula.data.missingness import FEWEST_IN_COMMON, overlap_problems
from verticopula.errors import Problem, SchemaError
from verticopula.formatting import join_names
from verticopula.schema.cell_text import suggest_name
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation, IdRule, Party
from verticopula.schema.id_rules import apply_id_rules, count_unknown, suggest_id_rules

Floats = NDArray[np.float64]

_SPREADSHEET_FLOAT = r"^[0-9]([.,][0-9]+)?[eE]\+[0-9]+$"


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
        problems.append(Problem(where, f"{blank.sum()} row(s) without a subject id{name_rows(blank)}"))
    repeated = (~ids.is_first_distinct()).to_numpy()
    if repeated.any() and not blank.any():
        problems.append(
            Problem(where, f"{repeated.sum()} row(s) repeat a subject id{name_rows(repeated)}: keep one a person")
        )
    rounded = ids.str.contains(_SPREADSHEET_FLOAT).fill_null(False).to_numpy()
    if rounded.any():
        where_rounded = name_rows(rounded)
        what = f"{rounded.sum()} subject id(s) are written like 1.2E+09{where_rounded}: a spreadsheet has rounded them"
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
