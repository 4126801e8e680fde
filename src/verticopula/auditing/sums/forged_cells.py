"""Numbers that a dishonest party can share in place of cells, and the best proof that it can make for them.

Each forgery makes one person's scores a thousand times as long as they can be, so that their products with another
party's scores of that person stand out of the noise. It is made so that one check alone stands in its way:

| forgery | passes unless |
|---|---|
| an entry of 1000 | d is compared with 0 |
| an entry of 1000 with d = 0 | Q(t) is compared with the folds |
| an entry of 1000 in the first, or in the last group alone | all groups are combined |
| entries that cancel in a row | r is random |
| rows that cancel in a group | lambda is random |
| rows that cancel across groups | sigma is random |

Letters are those of `mpc.cell_proofs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from verticopula.mpc.cell_proofs import FOLD, PROOF_VALUES, ProofCoefficients, folded_size, prove_values
from verticopula.mpc.prime_field import (
    PRIME,
    Field,
    Ints,
    add,
    element,
    inner_product,
    invert,
    multiply,
    pack_field,
    subtract,
    total_of,
    unpack_field,
)
from verticopula.mpc.proof_messages import CellsVerdict
from verticopula.mpc.proof_rounds import CellsDealer, DealerRecord, VerifiedCells
from verticopula.mpc.verified_cells import (
    CellsDealing,
    CellsStatement,
    Codes,
    column_starts,
    deal_values,
    dealing_seeds,
    encode_cells,
    receive_cells,
)

LENGTH = 1000


@dataclass(frozen=True)
class Target:
    """Where a forgery sits in what one dealer shares.

    Attributes
    ----------
    rows : those of the attacked people
    column : among the dealer's
    cell : whose number becomes large
    other : a second cell of the column with a number of its own; None where there is none
    """

    rows: Ints
    column: int
    cell: int
    other: int | None


@dataclass(frozen=True)
class Forged:
    """What is shared: `values` (n, width), and the attacked `rows` that are too long in it."""

    values: Field
    rows: Ints


@dataclass(frozen=True)
class Forgery:
    """One way to lie.

    Attributes
    ----------
    spoil : statement, good numbers, target -> the rows that are too long; changes the numbers in place
    hide : the proof is changed so that d = 0
    """

    name: str
    spoil: Callable[[CellsStatement, Field, Target], list[int]]
    hide: bool = False

    def forge(self, statement: CellsStatement, codes: Codes, target: Target) -> Forged:
        """What the dealer shares. No row is too long where this forgery needs more rows, or more cells."""
        values = encode_cells(statement, codes)
        return Forged(values, np.array(self.spoil(statement, values, target), dtype=np.int64))


class ForgingDealer(CellsDealer):
    """A dealer that shares what `forge` makes of its cells. No repr: it holds cells."""

    def __init__(
        self,
        forgery: Forgery,
        target: Target,
        statement: CellsStatement,
        codes: Codes,
        secret: bytes,
        record: DealerRecord | None = None,
    ) -> None:
        super().__init__(statement, codes, secret, record)
        self._values = forgery.forge(statement, codes, target).values
        self._hide = forgery.hide
        self._dealing: CellsDealing | None = None

    def deal(self) -> CellsDealing:
        seeds = dealing_seeds(self.statement, self._codes, self._secret)
        self._dealing = deal_values(self.statement, self._values, seeds)
        self._bundle = self._dealing.bundles.get(self.statement.dealer)
        return self._dealing

    def _prove_cells(self, coefficients: ProofCoefficients, seeds: tuple[bytes, ...]) -> bytes:
        folded = _fold(self.statement, self._values, coefficients.weights)
        proof = prove_values(self.statement, [folded], coefficients, seeds)
        if not self._hide:
            return proof
        linear = _fold(self.statement, self._values, coefficients.squares)
        rest = multiply(subtract(multiply(folded, folded), linear), coefficients.within[None, :])
        missing = -inner_product(coefficients.across, np.array([total_of(row) for row in rest], dtype=np.uint64))
        change = np.zeros(PROOF_VALUES, dtype=np.uint64)
        change[0] = element(missing * invert(int(coefficients.within[0])))
        return pack_field(add(unpack_field(proof, (PROOF_VALUES,)), change))

    def conclude(self, verdicts: Mapping[str, CellsVerdict]) -> VerifiedCells | None:
        if super().conclude(verdicts) is None:
            return None
        dealing, name = self._dealing or self.deal(), self.statement.dealer
        return VerifiedCells(receive_cells(self.statement, name, dealing.bundles[name], dealing.body))


def _fold(statement: CellsStatement, values: Field, weights: Field) -> Field:
    """(S, k) the sum of weights and numbers in every row and column."""
    out = np.zeros(folded_size(statement) * FOLD, dtype=np.uint64)
    edges, width = (*column_starts(statement), statement.width), len(statement.cells)
    weighted = multiply(values, weights[None, :])
    for column in range(width):
        total = np.zeros(statement.rows, dtype=np.uint64)
        for place in range(edges[column], edges[column + 1]):
            total = add(total, weighted[:, place])
        out[column : statement.rows * width : width] = total
    return out.reshape(-1, FOLD)


# ---- the forgeries -----------------------------------------------------------------------


def _lengthen(statement: CellsStatement, values: Field, target: Target) -> list[int]:
    """One large number in every attacked row."""
    for row in target.rows.tolist():
        _put(statement, values, target, row, LENGTH)
    return [int(row) for row in target.rows]


def _lengthen_first(statement: CellsStatement, values: Field, target: Target) -> list[int]:
    return _lengthen_group(statement, values, target, 0)


def _lengthen_last(statement: CellsStatement, values: Field, target: Target) -> list[int]:
    return _lengthen_group(statement, values, target, _group(statement, target, int(target.rows[-1])))


def _lengthen_group(statement: CellsStatement, values: Field, target: Target, group: int) -> list[int]:
    """The same in the attacked rows of one group."""
    inside = [row for row in target.rows.tolist() if _group(statement, target, row) == group]
    return _lengthen(statement, values, replace(target, rows=np.array(inside, dtype=np.int64)))


def _cancel_in_row(statement: CellsStatement, values: Field, target: Target) -> list[int]:
    """Two numbers that sum to 1."""
    if target.other is None:
        return []
    for row in target.rows.tolist():
        _put(statement, values, target, row, LENGTH)
        values[row, column_starts(statement)[target.column] + target.other] = element(1 - LENGTH)
    return [int(row) for row in target.rows]


def _cancel_in_group(statement: CellsStatement, values: Field, target: Target) -> list[int]:
    """The next row makes up for it, in the same group of k."""

    def fits(row: int) -> bool:
        return _group(statement, target, row) == _group(statement, target, row + 1)

    return _cancel_rows(statement, values, target, 1, fits)


def _cancel_across(statement: CellsStatement, values: Field, target: Target) -> list[int]:
    """A row in the same place of another group makes up for it."""
    return _cancel_rows(statement, values, target, FOLD // gcd(FOLD, len(statement.cells)), lambda row: True)


def _cancel_rows(
    statement: CellsStatement, values: Field, target: Target, step: int, fits: Callable[[int], bool]
) -> list[int]:
    """Pairs of rows with x^2 - x + y^2 - y = 0."""
    x, y = _cancelling()
    used: set[int] = set()
    found = []
    for row in map(int, target.rows):
        if row in used or row + step in used or row + step >= statement.rows or not fits(row):
            continue
        _put(statement, values, target, row, x)
        _put(statement, values, target, row + step, y)
        used |= {row, row + step}
        found.append(row)
    return found


def _group(statement: CellsStatement, target: Target, row: int) -> int:
    """s, of a row's number in the target's column."""
    return (row * len(statement.cells) + target.column) // FOLD


def _put(statement: CellsStatement, values: Field, target: Target, row: int, number: int) -> None:
    """One number in the column, and zeros beside it."""
    start = column_starts(statement)[target.column]
    values[row, start : start + statement.cells[target.column] - 1] = 0
    values[row, start + target.cell] = element(number)


def _cancelling() -> tuple[int, int]:
    """x of at least `LENGTH`, and y with x^2 - x + y^2 - y = 0 modulo p: every second x has one."""
    x = LENGTH
    while True:
        square = (1 - 4 * (x * x - x)) % PRIME
        root = pow(square, (PRIME + 1) // 4, PRIME)  # p is 3 modulo 4
        if root * root % PRIME == square:
            return x, (1 + root) * invert(2) % PRIME
        x += 1


FORGERIES = (
    Forgery("an entry of 1000", _lengthen),
    Forgery("an entry of 1000 with d = 0", _lengthen, hide=True),
    Forgery("an entry of 1000 in the first group alone", _lengthen_first),
    Forgery("an entry of 1000 in the last group alone", _lengthen_last),
    Forgery("entries that cancel in a row", _cancel_in_row),
    Forgery("rows that cancel in a group", _cancel_in_group),
    Forgery("rows that cancel across groups", _cancel_across),
)
