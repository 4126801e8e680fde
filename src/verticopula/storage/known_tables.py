"""Whose budget a table is charged to: tables are known by their people, and columns by their values.

A vault keeps what it knows as `KnownTable`s. `charge` compares a new table with them. It says what the table and its
columns are called in the ledger and which other tables count, and what is known from then on.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from verticopula.data.column_encoding import EncodedColumn
from verticopula.errors import VerticopulaError
from verticopula.storage.column_sketch import (
    FEWEST_PEOPLE,
    ColumnFinder,
    ColumnSketch,
    Places,
    enough_people,
    place_values,
    sketched_people,
)
from verticopula.storage.id_sketch import (
    OLD_SKETCH_SIZE,
    hash_rows,
    have_common_people,
    is_same_table,
    sketch_ids,
    sketch_people,
    smallest,
)


@dataclass(frozen=True)
class TableAccount:
    """Whose budget a table's releases are charged to.

    Attributes
    ----------
    table : its name in the ledger
    columns : column -> its name in the ledger
    overlapping : the names of other tables with somebody in it, whose releases count, too
    same_people : those of other parties' tables with somebody in it, whose releases count at `person`
    people : its people, to be compared with tables that are opened later
    snapshot : digest of the table as it was read; "" where nobody made one
    """

    table: str
    columns: Mapping[str, str]
    overlapping: tuple[str, ...] = ()
    same_people: tuple[str, ...] = ()
    people: TableSketch | None = field(default=None, compare=False, repr=False)
    snapshot: str = field(default="", compare=False)


NO_ACCOUNT = TableAccount("", {})  # no vault keeps track of whom the table is about


@dataclass(frozen=True)
class KnownTable:
    """The names of one table (several, if it joined some), and everybody and every column ever in it.

    Attributes
    ----------
    sketch : ids as they were spelled, in vaults of version 0.1
    people : ids, whatever their spelling
    holders : what its party was called, in a vault that several parties share
    columns : where its values stand
    linked : names of other parties' tables that had one of its columns, or may have had: they count with it
    """

    names: list[str]
    sketch: list[int] = field(default_factory=list)
    people: list[int] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)
    columns: list[ColumnSketch] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> KnownTable:
        """A table as it was written, by this version or an earlier one."""
        columns = raw.get("columns", ())
        return cls(
            [str(name) for name in raw["names"]],
            [int(value) for value in raw["sketch"]],
            [int(value) for value in raw.get("people", ())],
            [str(name) for name in raw.get("holders", ())],
            [
                ColumnSketch(tuple(c["names"]), c["salt"], c["people"], c["places"], tuple(c.get("called", ())))
                for c in columns
            ],
            [str(name) for name in raw.get("linked", ())],
        )


@dataclass(frozen=True, repr=False)
class TableSketch:
    """A table that is to be charged: its people, and where its columns' values stand. No repr: it holds data."""

    people: list[int]
    as_spelled: list[int]
    columns: Mapping[str, Places]

    @classmethod
    def of(cls, ids: pl.Series, columns: Mapping[str, EncodedColumn], key: bytes) -> TableSketch:
        """Sketch a table. One column at a time is looked at.

        Parameters
        ----------
        ids : every row's subject id, in any spelling
        columns : every column's values, in the rows' order
        key : the vault's secret
        """
        if not len(ids):
            raise VerticopulaError("a table without subjects is about nobody")
        rows, size = hash_rows(ids, key), sketched_people(len(columns))
        places = {name: place_values(column, rows, size) for name, column in columns.items()}
        return cls(sketch_people(rows), sketch_ids(ids, key), places)

    def meets(self, table: KnownTable) -> bool:
        """Whether somebody is in both."""
        return have_common_people(table.people, self.people) or have_common_people(table.sketch, self.as_spelled)

    def is_same(self, table: KnownTable) -> bool:
        """Whether half of the smaller one's people are in the other."""
        old = is_same_table(table.sketch, self.as_spelled, OLD_SKETCH_SIZE)
        return old or is_same_table(table.people, self.people)


def charge(
    tables: list[KnownTable],
    found: TableSketch,
    key: bytes,
    holder: str | None = None,
    others: Mapping[str, TableSketch] | None = None,
) -> tuple[TableAccount, list[KnownTable]]:
    """Whose budget a table is charged to, and all tables that are known from then on.

    Parameters
    ----------
    tables : those that are known
    found : the table
    key : the vault's secret
    holder : the party's name, where several parties with the same people share the vault; None where all tables are
        one organisation's
    others : the tables of the other parties of the same study
    """
    known = [table for table in tables if found.meets(table)]
    own = [table for table in known if holder is None or not table.holders or holder in table.holders]
    theirs = [table for table in known if table not in own]
    linked = [t for t in theirs if _are_linked(t, own) or _holds_also(t, found, own, others or {}, key)]
    same = [table for table in own if found.is_same(table)]
    beside = [table for table in (*own, *linked) if table not in same]
    names = [name for table in same for name in table.names] or [secrets.token_hex(8)]
    columns, accounts = _recognise(
        [column for table in same for column in table.columns],
        [column for table in beside for column in table.columns],
        found.columns,
        key,
    )
    is_shared = holder is not None and all(table.holders for table in same)
    merged = KnownTable(
        names,
        smallest((value for table in same for value in table.sketch), OLD_SKETCH_SIZE),
        sorted({*found.people, *(value for table in same for value in table.people)}),  # uncut: nobody is forgotten
        sorted({holder or "", *(name for table in same for name in table.holders)}) if is_shared else [],
        columns,
        sorted({name for table in same for name in table.linked} | {name for table in linked for name in table.names}),
    )
    account = TableAccount(
        "+".join(names),
        accounts,
        tuple(name for table in beside for name in table.names),
        people=replace(found, columns={}),
    )
    return account, tables if same == [merged] else [*(table for table in tables if table not in same), merged]


def charge_parties(
    known: list[KnownTable], found: Mapping[str, TableSketch], key: bytes
) -> tuple[dict[str, TableAccount], list[KnownTable]]:
    """Party -> whose budget its table is charged to, of a study whose parties share a vault; and all known tables.

    Parameters
    ----------
    known : those that are known
    found : party -> its table
    key : the vault's secret
    """
    accounts = {}
    for name, sketch in found.items():
        others = {other: theirs for other, theirs in found.items() if other != name}
        accounts[name], known = charge(known, sketch, key, name, others)
    for name, account in accounts.items():  # now that all tables of the study are known
        counted = {*account.table.split("+"), *account.overlapping}
        met = [given for table in known if found[name].meets(table) for given in table.names]
        accounts[name] = replace(account, same_people=tuple(given for given in met if given not in counted))
    return accounts, known


def _are_linked(table: KnownTable, own: list[KnownTable]) -> bool:
    return any(set(table.linked) & set(mine.names) or set(mine.linked) & set(table.names) for mine in own)


def _holds_also(
    table: KnownTable, found: TableSketch, own: list[KnownTable], others: Mapping[str, TableSketch], key: bytes
) -> bool:
    """Whether another party's known table may be this party's, under another name.

    It may be if this party's name is new and the other one does not take part in the study: nothing says that they are
    two. It may be, too, if they have a column in common that this party did not have before, and that the other party
    does not hold in the same study: then both hold it. Where too few people are in both to compare columns, it may be
    unless the other party takes part in the same study.
    """
    theirs = [column.open(key) for column in table.columns]
    still_theirs: set[int] = set()
    present = [name for name in table.holders if name in others]
    if not present and not own:
        return True
    for name in present:
        still_theirs |= set().union(*_matches(theirs, others[name].columns).values())
    had = _matches([column.open(key) for mine in own for column in mine.columns], found.columns)
    shared = _matches(theirs, found.columns)
    if any(not had[name] and rows - still_theirs for name, rows in shared.items()):
        return True
    can_tell = any(enough_people(one, two) for one in theirs for two in found.columns.values())
    return not can_tell and not present


def _matches(known: list[Places], columns: Mapping[str, Places]) -> dict[str, set[int]]:
    """Column -> which of the known ones are the same."""
    finder = ColumnFinder([*known, *columns.values()])
    return {
        name: {j for j in finder.earlier_same(row) if j < len(known)}
        for row, name in enumerate(columns, start=len(known))
    }


def _recognise(
    own: list[ColumnSketch], others: list[ColumnSketch], columns: Mapping[str, Places], key: bytes
) -> tuple[list[ColumnSketch], dict[str, str]]:
    """The table's columns, old and new; and what each of the new ones is called in the ledger.

    A column that keeps its name is the column of that name, whatever its values are: whether a cap is reached must not
    depend on them. Values are compared where a name is new in this table, and only with columns whose names are gone.

    Parameters
    ----------
    own, others : the columns known of this table, and of others with some of its people
    columns : the new ones
    """
    known, here = [*own, *others], {name for column in own for name in column.called}
    gone = [j for j, column in enumerate(known) if not columns.keys() & set(column.called)]
    new = {name: places for name, places in columns.items() if name not in here}
    places = {j: known[j].open(key) for j in {*gone, *range(len(own))}}
    matched = _matches([places[j] for j in gone], new) if new and gone else {}
    kept: dict[int, ColumnSketch] = dict(enumerate(own))
    accounts: dict[str, str] = {}
    for row, (name, found) in enumerate(columns.items(), start=len(known)):
        same = [j for j, column in enumerate(known) if name in column.called]
        same += [gone[j] for j in sorted(matched.get(name, ()))]
        names = tuple(dict.fromkeys(token for j in same for token in known[j].names)) or (secrets.token_hex(8),)
        accounts[name] = "+".join(names)
        mine = [j for j in same if j in kept]
        called = (name, *sorted({old for j in mine for old in kept[j].called} - columns.keys()))
        is_known = len(mine) == 1 and (kept[mine[0]].names, kept[mine[0]].called) == (names, called)
        if is_known and found.items() <= places[mine[0]].items():
            continue
        earlier = {person: place for j in mine for person, place in places[j].items() if person not in found}
        together = dict([*found.items(), *earlier.items()][: 2 * max(len(found), FEWEST_PEOPLE)])
        kept = {j: column for j, column in kept.items() if j not in mine}
        kept[row] = ColumnSketch.seal(names, together, key, called)
    return list(kept.values()), accounts
