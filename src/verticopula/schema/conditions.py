"""What synthetic rows are asked to have in some columns: one public value, or a public range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.schema.cell_text import suggest_name
from verticopula.schema.columns import Column, ColumnKey, read_value
from verticopula.schema.federation import Federation

BETWEEN = ".."  # in text, between the two ends of a range


@dataclass(frozen=True)
class Condition:
    """Values, or codes of categories, from `low` to `high`, both included."""

    low: float
    high: float

    @property
    def is_single(self) -> bool:
        return self.low == self.high


Conditions = Mapping[ColumnKey, Condition]

ALIGNED_EXCLUDES = "--aligned excludes --condition and --missing: people are as they are"


def describe_conditions(texts: Sequence[str]) -> str:
    """A note for readers of rows that were drawn under conditions.

    Parameters
    ----------
    texts : the conditions as they were given
    """
    return f"All rows were drawn under conditions: {', '.join(texts)}."


def parse_conditions(texts: Sequence[str]) -> dict[str, str]:
    """Conditions from a command line.

    Parameters
    ----------
    texts : each `party.column=value` or `party.column=low..high`
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise SettingsError(f"a condition reads party.column=value or party.column=low{BETWEEN}high, not {text!r}")
        if name in found:
            raise SettingsError(f"{name} has two conditions")
        found[name] = value
    return found


def read_conditions(federation: Federation, given: Mapping[str, Any]) -> dict[ColumnKey, Condition]:
    """Conditions in numbers; SettingsError says which of them no row can meet.

    Parameters
    ----------
    federation : whose columns they are about
    given : `party.column` -> a value, or the two ends of a range as a pair or as text (`low..high`)
    """
    found = {}
    names = [str(key) for key in federation.keys]
    for name, wanted in given.items():
        if str(name) not in names:
            raise SettingsError(
                f"condition on {str(name)!r}: no such column in the federation{suggest_name(str(name), names)}"
            )
        key = ColumnKey.parse(str(name))
        relation = federation.column(key).relation
        if relation is not None:
            raise SettingsError(
                f"condition on {name}: it is modelled as its difference from {relation!r}, so rows cannot be drawn for "
                f"a value of it; put the condition on {key.party}.{relation}, or take the relation out"
            )
        found[key] = _read_condition(federation.column(key), wanted, f"condition on {name}")
    return found


def _read_condition(column: Column, wanted: Any, where: str) -> Condition:
    labels = [str(category) for category in column.categories or ()]
    if isinstance(wanted, str) and BETWEEN in wanted and wanted not in labels:
        wanted = tuple(wanted.split(BETWEEN, 1))
    ends = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted, wanted]
    if len(ends) != 2:
        raise SettingsError(f"{where}: a range has two ends")
    if column.kind == "nominal" and str(ends[0]) != str(ends[1]):
        raise SettingsError(f"{where}: categories without an order have no range; give one of them")
    low, high = (read_value(column, end, where) for end in ends)
    if column.kind == "count":
        low, high = math.ceil(low), math.floor(high)
    if low > high:
        what = "no whole number is there" if column.kind == "count" else "its lower end is above its upper end"
        raise SettingsError(f"{where}: nothing lies in that range: {what}")
    return Condition(float(low), float(high))


def check_met(conditions: Conditions, values: Mapping[ColumnKey, NDArray[np.float64]]) -> None:
    """SettingsError if rows had to be moved out of a condition to keep a party's constraints.

    Parameters
    ----------
    conditions : what was asked for
    values : column -> its rows
    """
    for key, own in conditions.items():
        if not ((values[key] >= own.low) & (values[key] <= own.high)).all():
            raise SettingsError(f"condition on {key}: rows that meet it contradict the constraints of {key.party!r}")
