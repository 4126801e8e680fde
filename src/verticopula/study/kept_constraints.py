"""Synthetic rows that keep what parties declare: drawn again as often as that helps, and then moved.

Rows that contradict a constraint are drawn again, all columns of them: rows come from the fitted model given that they
keep the constraints. What is left after a bounded number of tries is projected: the compared column is moved to the
nearest value that is allowed, or the other one where its bounds forbid that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.constraints import Comparison, Constraint, read_constraints
from verticopula.schema.federation import Federation, Party

Floats = NDArray[np.float64]
Values = dict[ColumnKey, Floats]

_MIRRORED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<", "=": "="}


@dataclass(frozen=True)
class ConstraintTuning:
    """How long rows are drawn again before they are moved. All were chosen by hand, not tuned.

    Attributes
    ----------
    most_tries : where one row in four keeps the constraints, next to none is moved
    fewest_redrawn : rows that are drawn at once
    most_passes : of the projection over all constraints
    """

    most_tries: int = 20
    fewest_redrawn: int = 256
    most_passes: int = 10


CONSTRAINT_TUNING = ConstraintTuning()


@dataclass(frozen=True)
class KeptConstraints:
    """How rows came to keep the constraints.

    Attributes
    ----------
    n_rows : in all
    redrawn : rows that were drawn again
    moved : constraint, as it was written -> how many rows were moved for it
    """

    n_rows: int
    redrawn: int
    moved: Mapping[str, int]

    def __str__(self) -> str:
        moved = ", ".join(f"{count} for {text!r}" for text, count in self.moved.items() if count)
        return (
            f"Constraints: {self.redrawn} of {self.n_rows} rows contradicted one and were drawn again; "
            f"{f'moved to the nearest allowed value: {moved}' if moved else 'none was moved'}."
        )


def add_kept(parts: Iterable[KeptConstraints | None]) -> KeptConstraints | None:
    """What it took for all parts of some rows; None where there are no constraints."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    moved: Counter[str] = Counter()
    for part in known:
        moved.update(part.moved)
    return KeptConstraints(sum(part.n_rows for part in known), sum(part.redrawn for part in known), dict(moved))


def keep_constraints(
    federation: Federation, values: Values, draw: Callable[[int], Values] | None
) -> tuple[Values, KeptConstraints | None]:
    """Rows that keep all parties' constraints, and what it took; None where there are no constraints.

    Parameters
    ----------
    values : column -> its rows
    draw : so many more rows; None where rows cannot be drawn again, because they belong to people
    """
    constraints = {
        party.name: read_constraints(party.constraints, party.written_columns) for party in federation.parties
    }
    if not any(constraints.values()):
        return values, None
    kept = {key: own.copy() for key, own in values.items()}
    n_rows = len(next(iter(kept.values())))
    bad = np.flatnonzero(~_hold(constraints, kept))
    redrawn = bad.size if draw is not None else 0
    for _ in range(CONSTRAINT_TUNING.most_tries if draw is not None else 0):
        if bad.size == 0 or draw is None:
            break
        more = draw(max(int(bad.size), CONSTRAINT_TUNING.fewest_redrawn))
        good = np.flatnonzero(_hold(constraints, more))[: bad.size]
        for key, own in kept.items():
            own[bad[: good.size]] = more[key][good]
        bad = bad[good.size :]
    moved: dict[str, int] = {}
    for party in federation.parties:
        rows = {key.column: own[bad] for key, own in kept.items() if key.party == party.name}
        moved |= _project(party, constraints[party.name], rows)
        for name, own in rows.items():
            kept[ColumnKey(party.name, name)][bad] = own
    return kept, KeptConstraints(n_rows, redrawn, moved)


def _hold(constraints: Mapping[str, tuple[Constraint, ...]], values: Values) -> NDArray[np.bool_]:
    """(n,) which rows keep all constraints."""
    held = np.ones(len(next(iter(values.values()))), dtype=np.bool_)
    for party, own in constraints.items():
        rows = {key.column: column for key, column in values.items() if key.party == party}
        for constraint in own:
            held &= constraint.holds(rows)
    return held


def _project(party: Party, constraints: tuple[Constraint, ...], rows: dict[str, Floats]) -> dict[str, int]:
    """Constraint -> how many of the rows were moved for it, in place; SettingsError if no row can keep them all."""
    moved = {constraint.text: 0 for constraint in constraints}
    for _ in range(CONSTRAINT_TUNING.most_passes):
        broken = False
        for constraint in constraints:
            at = np.flatnonzero(~constraint.holds(rows))
            if at.size:
                broken = True
                moved[constraint.text] += at.size
                denied = constraint.claim.opposite()
                target = constraint.claim if constraint.only_if is None else denied or constraint.only_if
                _move(party, target, rows, at)
        if not broken:
            return moved
    raise SettingsError(
        f"party {party.name!r}: no synthetic row could be made to keep its constraints; do they contradict each other?"
    )


def _move(party: Party, wanted: Comparison, rows: dict[str, Floats], at: NDArray[np.int64]) -> None:
    """Make a comparison hold in these rows: the left side to the right one, or the other way round at its bounds."""
    left, other = party.written(wanted.left), wanted.other(rows)[at]
    rows[wanted.left][at] = _within(left, _shift(left, other, wanted.sign))
    if isinstance(wanted.right, str):
        still = at[~wanted.holds(rows)[at]]
        right, sign = party.written(wanted.right), _MIRRORED[wanted.sign]
        rows[wanted.right][still] = _within(right, _shift(right, rows[wanted.left][still], sign))


def _shift(column: Column, values: Floats, sign: str) -> Floats:
    """The column's nearest values that compare so with these."""
    if column.kind == "continuous" and column.decimals is None:
        towards = {"<": -np.inf, ">": np.inf}
        return np.nextafter(values, towards[sign]) if sign in towards else values
    decimals = column.decimals or 0
    steps = values * 10.0**decimals
    whole = {
        "<=": np.floor(steps),
        ">=": np.ceil(steps),
        "<": np.ceil(steps) - 1.0,
        ">": np.floor(steps) + 1.0,
        "=": np.rint(steps),
    }
    return np.asarray(np.round(whole[sign] / 10.0**decimals, decimals))


def _within(column: Column, values: Floats) -> Floats:
    low, high = column.bounds or (0.0, len(column.categories or ()) - 1.0)
    return np.clip(values, low, high)
