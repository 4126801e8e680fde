"""Tables in, checked columns out: checking against the schema, aligning by id; `table_files.py` reads files.

A subject that is absent from a party's table is a missing block; single empty cells are allowed
too, so every column has its own mask. The response's party defines the cohort.

Everything wrong with a file or a column as a whole is collected as a `Problem`. Single cells never refuse a table, and
become notes for its own party: `column_encoding.py` says why. Neither ever quotes a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.cell_facts import MarkedRows
from verticopula.data.column_encoding import (
    EncodedColumn,
    StoredColumn,
    encode_column,
    encode_difference,
    find_unusable,
    reorder_column,
    store_column,
)
from verticopula.data.column_table import ColumnTable
from verticopula.data.engine_table import EngineTable
from verticopula.data.id_checks import IdFacts, describe_ids, normalise_ids
from verticopula.data.id_places import count_unmatched, find_rows, mark_repeated
from verticopula.data.missingness import FEWEST_IN_COMMON, count_common, overlap_problems
from verticopula.data.row_chunks import ColumnReading
from verticopula.data.scratch_file import ROWS_IN_MEMORY, ScratchFile
from verticopula.errors import Problem, SchemaError
from verticopula.formatting import join_names
from verticopula.schema.cell_text import suggest_name
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation, IdRule, Party
from verticopula.schema.id_rules import suggest_id_rules

Floats = NDArray[np.float64]
RawTable = pl.DataFrame | ColumnTable | EngineTable


@dataclass(frozen=True, repr=False)
class AlignedTable:
    """One party's table in cohort order. It has no repr, like its columns.

    Attributes
    ----------
    columns : name -> values and mask over the whole cohort
    ignored : how many columns of the table are not in the federation file; they stay where they are
    rows : (N,) each subject's row in the party's own table, -1 where it has none; None where the table is in the
        order of the cohort
    source : where the columns' values are, if an engine's workers have them; None where they are here
    """

    party: Party
    columns: Mapping[str, EncodedColumn]
    ignored: int = 0
    rows: NDArray[np.int32] | None = None
    source: EngineTable | None = None

    def observed(self) -> NDArray[np.bool_]:
        """(N, p_k) mask in the schema's column order."""
        return np.column_stack([self.columns[c.name].observed for c in self.party.columns])

    def known(self) -> NDArray[np.bool_]:
        """(N,) whom the party has any value of."""
        found = [self.columns[column.name].observed for column in self.party.columns]
        return np.logical_or.reduce(found) if len(found) > 1 else found[0]

    @property
    def n_subjects(self) -> int:
        """Size of the cohort."""
        return int(self.columns[self.party.columns[0].name].observed.size)

    def in_own_order(self, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """A column's values and mask as the party's own table has them: its rows, in its order.

        Parameters
        ----------
        name : of the column
        """
        column = self.columns[name]
        if self.rows is None:
            return column.values, column.observed
        if isinstance(column, StoredColumn):
            return column.read_own()
        known = self.rows >= 0
        values, observed = np.empty(int(known.sum())), np.empty(int(known.sum()), dtype=bool)
        values[self.rows[known]], observed[self.rows[known]] = column.values[known], column.observed[known]
        return values, observed

    def own_mask(self, name: str) -> NDArray[np.bool_]:
        """Who has a value of a column, in the rows of the party's own table.

        Parameters
        ----------
        name : of the column
        """
        column = self.columns[name]
        return column.read_own_mask() if isinstance(column, StoredColumn) else self.in_own_order(name)[1]

    def in_cohort_order(
        self, numbers: NDArray[np.int32], observed: NDArray[np.bool_], column: EncodedColumn
    ) -> NDArray[np.int32]:
        """(n, L) numbers of a column's observed subjects in the order of the cohort.

        Parameters
        ----------
        numbers : (n, L) in the order of the party's own table
        observed : (rows,) as `in_own_order` has it
        column : as the cohort has it
        """
        if self.rows is None:
            return numbers
        rows = self.rows[column.observed]
        if not observed.all():
            rows = (np.cumsum(observed, dtype=np.int32) - 1)[rows]
        ordered = np.empty(numbers.shape, dtype=numbers.dtype, order="F")
        for latent in range(numbers.shape[1]):
            ordered[:, latent] = numbers[rows, latent]
        return ordered

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


def take_rows(table: AlignedTable, rows: NDArray[np.integer]) -> AlignedTable:
    """Some of a table's subjects."""
    columns = {name: EncodedColumn(c.values[rows], c.observed[rows]) for name, c in table.columns.items()}
    return AlignedTable(table.party, columns)


def _notes(party: Party, columns: Mapping[str, EncodedColumn]) -> list[Problem]:
    return [
        Problem(f"party {party.name!r}, column {n!r}", what)
        for n, column in columns.items()
        for what in (*column.notes, *([column.doubt] if column.doubt else []))
    ]


# ---- ids and alignment -------------------------------------------------------------------


def _ids_of(table: RawTable, rule: IdRule, where: str) -> tuple[pl.Series | None, list[Problem]]:
    if rule.name not in table.columns:
        hint = suggest_name(rule.name, table.columns)
        if len(table.columns) == 1 and not hint:
            hint = "; the table has a single column: what stands between its cells?"
        elif not hint:
            hint = f"; the table has {join_names(list(map(repr, table.columns)))}: which of them tells people apart?"
        alike = " All tables name it alike" if hint.endswith("?") else "; all tables name it alike"
        return None, [Problem(where, f"the id column {rule.name!r} is missing{hint}{alike}")]
    ids, facts = _normalised(table, rule)
    return ids, describe_ids(facts, MarkedRows.of(mark_repeated(ids)), where)


def _normalised(table: RawTable, rule: IdRule) -> tuple[pl.Series, IdFacts]:
    """A table's ids, or keyed hashes of them where workers have it; and what is wrong with them."""
    if isinstance(table, EngineTable):
        return table.ids(rule)
    ids = normalise_ids(table[rule.name], rule)
    return ids, IdFacts.of(ids)


def knows_everybody(tables: Mapping[str, AlignedTable]) -> bool:
    """Whether every party has something about everybody: no block is missing."""
    return all(bool(table.known().all()) for table in tables.values())


def align_tables(
    federation: Federation,
    tables: Mapping[str, RawTable],
    rule: IdRule | None = None,
    *,
    need_overlap: bool = True,
    rows_at_once: int = ROWS_IN_MEMORY,
) -> dict[str, AlignedTable]:
    """Check every table and put it in cohort order; SchemaError lists every problem of every party.

    Parameters
    ----------
    federation : who holds which column
    tables : party -> its raw table
    rule : where the tables have their ids; the federation's by default
    need_overlap : two columns without common subjects are a problem too
    rows_at_once : columns of tables with more rows lie in a scratch file, and are read one at a time
    """
    rule = rule or federation.id
    problems: list[Problem] = [
        Problem(f"party {name!r}", "has a table but is not in the federation")
        for name in tables
        if name not in {p.name for p in federation.parties}
    ]
    cohort = _cohort_ids(federation, tables, rule)
    found: dict[str, AlignedTable] = {}
    unmatched: list[Problem] = []
    for party in federation.parties:
        where = f"party {party.name!r}"
        table = tables.get(party.name)
        if table is None:
            problems.append(Problem(where, "has no table"))
            continue
        ids, id_problems = _ids_of(table, rule, where)
        problems += id_problems
        columns, column_problems = encode_party(party, table, where, rows_at_once)
        problems += column_problems
        # All tables are here, so nobody else learns of this refusal; between organisations it would be one.
        problems += _illegible(columns, where)
        if ids is None or cohort is None:
            continue
        rows = None if id_problems else find_rows(ids, cohort)
        unmatched += _unmatched(party.name, ids, cohort, federation.response.party, rows)
        if rows is not None and not (problems or unmatched):  # nobody's ids are held beside those of the cohort
            found[party.name] = _in_cohort_order(party, columns, rows, _count_ignored(party, table), _source_of(table))
    if problems or unmatched:
        raise SchemaError([*problems, *unmatched])
    apart = overlap_problems(_never_together(federation, found)) if need_overlap else []
    if apart:
        raise SchemaError(apart)
    return found


def _cohort_ids(federation: Federation, tables: Mapping[str, RawTable], rule: IdRule) -> pl.Series | None:
    """Ids of the party that defines the cohort; None where it has none, which is a problem of its table."""
    table = tables.get(federation.response.party)
    return None if table is None or rule.name not in table.columns else _normalised(table, rule)[0]


@dataclass(frozen=True, repr=False)
class OwnTable:
    """One party's table, checked and as numbers, before it has a cohort. It has no repr, like its columns.

    Attributes
    ----------
    ids : normalised, none empty, none twice; keyed hashes of them where workers have the table
    source : as `AlignedTable` has it
    rule : by which ids were normalised
    """

    party: Party
    ids: pl.Series
    columns: Mapping[str, EncodedColumn]
    ignored: int = 0
    source: EngineTable | None = None
    rule: IdRule | None = None

    @classmethod
    def check(cls, party: Party, table: RawTable, rule: IdRule, rows_at_once: int = ROWS_IN_MEMORY) -> OwnTable:
        """Check a party's table on its own; SchemaError lists every problem.

        Parameters
        ----------
        party : which columns it must have
        table : with ids and columns
        rule : which column holds the ids, and how they are normalised
        rows_at_once : as `align_tables` has it
        """
        where = f"party {party.name!r}"
        ids, problems = _ids_of(table, rule, where)
        columns, column_problems = encode_party(party, table, where, rows_at_once)
        problems += column_problems
        if problems or ids is None:
            raise SchemaError(problems)
        return cls(party, ids, columns, _count_ignored(party, table), _source_of(table), rule)

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
        rows = np.full(n_subjects, -1, dtype=np.int32)
        rows[positions] = np.arange(positions.size)
        return _in_cohort_order(self.party, self.columns, rows, self.ignored, self.source)


def encode_party(
    party: Party, table: RawTable, where: str, rows_at_once: int = ROWS_IN_MEMORY
) -> tuple[dict[str, EncodedColumn], list[Problem]]:
    """All of a party's columns as numbers, and what is wrong with them.

    Parameters
    ----------
    party : which columns it must have
    table : with these columns
    where : the party, for problems
    rows_at_once : as `align_tables` has it
    """
    if isinstance(table, EngineTable):
        return _encode_on_engine(party, table, where)
    file = ScratchFile() if len(table) > rows_at_once else None
    columns: dict[str, EncodedColumn] = {}
    problems: list[Problem] = []
    for column in party.columns:
        at = f"{where}, column {column.name!r}"
        if column.name not in table.columns:
            problems.append(_missing_column(column, table, at))
            continue
        if len(table) == 0:
            continue
        related = party.related(column)
        if related is not None and related.name not in table.columns:  # a problem of its own
            continue
        encoded, found = (
            encode_column(table[column.name], column, at, party.decimal)
            if related is None
            else encode_difference(table[column.name], table[related.name], (column, related), at, party.decimal)
        )
        columns[column.name] = encoded if file is None else store_column(encoded, column, file)
        problems += found
    return columns, problems


def _missing_column(column: Column, table: RawTable, at: str) -> Problem:
    hint = suggest_name(column.name, table.columns)
    return Problem(at, f"is in the federation file but not in the table{hint}")


def _encode_on_engine(party: Party, table: EngineTable, where: str) -> tuple[dict[str, EncodedColumn], list[Problem]]:
    """The same where workers have the table: columns without values, which only their engine can use."""
    readings, problems = [], []
    for column in party.columns:
        at, related = f"{where}, column {column.name!r}", party.related(column)
        reading = ColumnReading(column, related, party.decimal)
        if column.name not in table.columns:
            problems.append(_missing_column(column, table, at))
        elif unusable := find_unusable(table.types[column.name], reading.read_as):
            problems.append(Problem(at, unusable))
        elif related is None or (
            related.name in table.columns and not find_unusable(table.types[related.name], related)
        ):
            readings.append(reading)
    return table.encode(readings), problems


def _illegible(columns: Mapping[str, EncodedColumn], where: str) -> Iterable[Problem]:
    for name, column in columns.items():
        at = f"{where}, column {name!r}"
        if column.unreadable and not column.observed.any():
            yield Problem(at, f"none of its {column.unreadable} filled cells can be read")
        if column.doubt:
            yield Problem(at, column.doubt)


def _unmatched(
    name: str, own: pl.Series, cohort: pl.Series, response_party: str, rows: NDArray[np.int32] | None
) -> Iterable[Problem]:
    unknown = count_unmatched(own, cohort, rows) if name != response_party else 0
    if unknown:
        rules = suggest_id_rules(own, cohort) if own.dtype == pl.String else ()  # of hashes nobody knows the spelling
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


def _count_ignored(party: Party, table: RawTable) -> int:
    return table.width - len(party.columns) - 1


def _source_of(table: RawTable) -> EngineTable | None:
    return table if isinstance(table, EngineTable) else None


def _in_cohort_order(
    party: Party,
    columns: Mapping[str, EncodedColumn],
    rows: NDArray[np.int32],
    ignored: int,
    source: EngineTable | None,
) -> AlignedTable:
    """`rows` holds each subject's row, -1 where the party does not know the subject."""
    present = rows >= 0
    ordered = {name: reorder_column(column, rows, present) for name, column in columns.items()}
    return AlignedTable(party, ordered, ignored, rows, source)


def _never_together(
    federation: Federation, aligned: Mapping[str, AlignedTable]
) -> Iterable[tuple[ColumnKey, ColumnKey]]:
    """Pairs of columns without two common subjects: nothing can be said about their association."""
    keys = federation.keys
    together = count_common(aligned[key.party].columns[key.column].observed for key in keys)
    for j, k in np.argwhere(np.triu(together < FEWEST_IN_COMMON, 1)):
        yield keys[j], keys[k]
