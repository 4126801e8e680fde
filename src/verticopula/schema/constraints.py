"""What a party's rows never contradict, as its federation file declares it: `a <= b`, `a > 0 only if b`.

A constraint compares columns of one party, or a column and a public value. A comparison with an empty value holds.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.schema.cell_text import suggest_name
from verticopula.schema.columns import Column, read_value

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = Mapping[str, Floats]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_OPPOSITE = {"<=": ">", ">=": "<", "<": ">=", ">": "<="}
_SIGN = re.compile(r"(<=|>=|<|>|=)")
_ONLY_IF = re.compile(r"\s+only\s+if\s+")


@dataclass(frozen=True)
class Comparison:
    """A column against another one, or against a value or code.

    Attributes
    ----------
    left : name of a column
    sign : `<=`, `>=`, `<`, `>` or `=`
    right : name of a column, or a number
    """

    left: str
    sign: str
    right: str | float

    def other(self, rows: Rows) -> Floats:
        """(n,) what the column is compared with."""
        return rows[self.right] if isinstance(self.right, str) else np.full(rows[self.left].size, self.right)

    def holds(self, rows: Rows) -> Bools:
        """(n,) in which rows it holds."""
        own, other = rows[self.left], self.other(rows)
        return np.asarray(_COMPARE[self.sign](own, other) | np.isnan(own) | np.isnan(other))

    def is_filled(self, rows: Rows) -> Bools:
        """(n,) in which rows both sides have a value."""
        return np.asarray(~np.isnan(rows[self.left]) & ~np.isnan(self.other(rows)))

    def opposite(self) -> Comparison | None:
        """What holds where it does not; None for `=`, which has no nearest value on the other side."""
        return Comparison(self.left, _OPPOSITE[self.sign], self.right) if self.sign in _OPPOSITE else None


@dataclass(frozen=True)
class Constraint:
    """One constraint.

    Attributes
    ----------
    text : as it was written
    claim : what holds; where `only_if` is given, what holds in no row in which that does not
    """

    text: str
    claim: Comparison
    only_if: Comparison | None = None

    def holds(self, rows: Rows) -> Bools:
        """(n,) in which rows it is kept."""
        if self.only_if is None:
            return self.claim.holds(rows)
        return np.asarray(~(self.claim.holds(rows) & self.claim.is_filled(rows)) | self.only_if.holds(rows))


def read_constraints(texts: Sequence[str], own: Sequence[Column]) -> tuple[Constraint, ...]:
    """A party's constraints; SettingsError says what is wrong with one.

    Parameters
    ----------
    texts : as the federation file has them
    own : the party's columns
    """
    columns = {column.name: column for column in own}
    found = []
    for text in texts:
        parts = _ONLY_IF.split(text.strip())
        if len(parts) > 2:
            raise SettingsError(f"constraint {text!r}: at most one 'only if'")
        claim = _read_comparison(parts[0], columns, text)
        found.append(Constraint(text, claim, _read_reason(parts[1], columns, text) if len(parts) == 2 else None))
    return tuple(found)


def _read_reason(part: str, columns: Mapping[str, Column], text: str) -> Comparison:
    """What follows `only if`: a comparison, or the name of a binary column, which then has its second category."""
    name = part.strip()
    if name in columns and columns[name].kind == "binary":
        return Comparison(name, "=", 1.0)
    return _read_comparison(part, columns, text)


def _read_comparison(part: str, columns: Mapping[str, Column], text: str) -> Comparison:
    where = f"constraint {text!r}"
    sides = _SIGN.split(part, maxsplit=1)
    if len(sides) != 3:
        raise SettingsError(f"{where}: expected 'column <= column' or 'column <= value', with <=, >=, <, > or =")
    left, sign, right = sides[0].strip(), sides[1], sides[2].strip()
    if left not in columns:
        raise SettingsError(f"{where}: {left!r} is not a column of this party{suggest_name(left, list(columns))}")
    if sign != "=" and columns[left].kind in ("nominal", "binary"):
        raise SettingsError(f"{where}: {left!r} has no order, so it can only be compared with =")
    if right not in columns:
        return Comparison(left, sign, read_value(columns[left], right, where))
    if not _comparable(columns[left], columns[right]):
        raise SettingsError(f"{where}: {left!r} and {right!r} are measured differently")
    return Comparison(left, sign, right)


def _comparable(first: Column, second: Column) -> bool:
    """Whether numbers or codes of two columns mean the same."""
    return (first.categories, first.dates, first.times) == (second.categories, second.dates, second.times)
