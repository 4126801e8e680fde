"""What was spent on a party's people, study by study, and what is left of its caps.

The numbers come from the functions that refuse a release (`Policy.count`) and that state its price (`state_privacy`),
on the entries that the party itself counts (`spent_on`). A vault is read beside the process that uses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verticopula.errors import SchemaError
from verticopula.privacy.policy import Policy
from verticopula.privacy.release import Release, spent_on, spent_on_people
from verticopula.privacy.statement import party_epsilons, state_privacy
from verticopula.schema.units import Unit
from verticopula.storage.id_sketch import have_common_people
from verticopula.storage.known_tables import KnownTable
from verticopula.storage.record_store import FolderRecords
from verticopula.storage.vault_files import STUDIES, read_entries, read_known_tables

_MOST_POINTS = 40  # of one picture; each is an account of everything before it


@dataclass(frozen=True)
class UnitBudget:
    """One unit's standing at one moment.

    Attributes
    ----------
    spent : epsilon by exact composition, as the statement has it
    counted : what counts against the cap, by its filter; the same as `spent` where there is no cap
    cap : None where there is none
    """

    spent: float
    counted: float
    cap: float | None

    @property
    def left(self) -> float | None:
        """What is left of the cap; None where there is none."""
        return None if self.cap is None else max(self.cap - self.counted, 0.0)


@dataclass(frozen=True)
class BudgetPoint:
    """Where all units stood after a study's releases."""

    time: str
    study: str
    units: dict[Unit, UnitBudget]


@dataclass(frozen=True)
class TableBudget:
    """One table's people, and what was spent on them.

    Attributes
    ----------
    names : of the table in the ledger; "" where nobody kept track
    columns : what its columns are called
    policy : as the vault remembers it; None where it remembers none
    points : from old to new; the last one is now
    """

    names: str
    columns: tuple[str, ...]
    policy: Policy | None
    points: tuple[BudgetPoint, ...]

    @property
    def now(self) -> dict[Unit, UnitBudget]:
        return self.points[-1].units

    @property
    def delta(self) -> float:
        return (self.policy or Policy()).delta


def read_budgets(vault: Path, party: str) -> list[TableBudget]:
    """One budget a table that the vault knows; those with releases first.

    Parameters
    ----------
    vault : a party's vault, which another process may be using
    party : its name
    """
    tables, entries = read_known_tables(vault), read_entries(vault)  # a table is known before anything of it is written
    records = FolderRecords(vault / STUDIES)
    found = [_budget(table, tables, entries, party, records) for table in tables]
    if not found:
        found = [TableBudget("", (), None, _history(entries, party, "", (), None))]
    return sorted(found, key=lambda budget: len(budget.points) == 1)


def _budget(
    table: KnownTable, tables: Sequence[KnownTable], entries: list[Release], party: str, records: FolderRecords
) -> TableBudget:
    beside = tuple(name for other in tables if other is not table and _meet(table, other) for name in other.names)
    names = "+".join(table.names)
    policy = _remembered(records, table)
    columns = tuple(dict.fromkeys(name for column in table.columns for name in column.called[:1]))
    return TableBudget(names, columns, policy, _history(entries, party, names, beside, policy))


def _meet(one: KnownTable, two: KnownTable) -> bool:
    """Whether somebody is in both tables, or one holds columns of the other."""
    known = have_common_people(one.people, two.people) or have_common_people(one.sketch, two.sketch)
    return known or bool(set(one.linked) & set(two.names) or set(two.linked) & set(one.names))


def _remembered(records: FolderRecords, table: KnownTable) -> Policy | None:
    """The rules that the vault remembers for a table, as they were when they were last used."""
    for name in table.names:
        if (record := records.get(f"policy:{name}")) is not None:
            try:
                return Policy.from_rules(record["rules"])
            except SchemaError:  # rules of another version: no cap is shown rather than a wrong one
                return None
    return None


def _history(
    entries: list[Release], party: str, names: str, beside: tuple[str, ...], policy: Policy | None
) -> tuple[BudgetPoint, ...]:
    """Where everything stood after each study, and before the first one."""
    own = {id(entry) for entry in spent_on_people(entries, party, names, beside)}
    ends = [k for k, entry in enumerate(entries) if id(entry) in own]
    # A study may come back after others: the last of a run of entries is where it stood.
    ends = [k for j, k in enumerate(ends) if j + 1 == len(ends) or entries[ends[j + 1]].study != entries[k].study]
    if len(ends) > _MOST_POINTS:
        ends = [ends[round(j * (len(ends) - 1) / (_MOST_POINTS - 1))] for j in range(_MOST_POINTS)]
    points = [BudgetPoint("", "", _units([], [], policy))]
    for end in ends:
        known = entries[: end + 1]
        about = spent_on_people(known, party, names, beside)
        units = _units(spent_on(known, party, names, beside), about, policy)
        points.append(BudgetPoint(entries[end].time, entries[end].study, units))
    return tuple(points)


def _units(own: list[Release], about: list[Release], policy: Policy | None) -> dict[Unit, UnitBudget]:
    rules = policy or Policy()
    alone, people = party_epsilons(own, rules.delta), state_privacy(about, rules.delta)
    spent = {unit: getattr(alone, unit.value) for unit in (Unit.VARIABLE, Unit.CLIENT, Unit.BLOCK)}
    spent[Unit.PERSON] = people.person
    if any(entry.noise == "seeded" for entry in about):  # noise from a seed is none to whoever knows it
        spent = dict.fromkeys(spent, math.inf)
    caps = rules.caps.model_dump(exclude_none=True)
    counted = rules.count(own, about) if caps else None
    found = {}
    for unit in Unit:
        count = spent[unit] if counted is None else max(getattr(counted, unit.value), 0.0)
        cap = caps.get(unit.value)
        found[unit] = UnitBudget(spent[unit], spent[unit] if cap is None else count, cap)
    return found
