"""Dealers and verifiers of verified cells, the rounds between them, and places to lie in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from verticopula.mpc import proof_rounds
from verticopula.mpc.cell_proofs import (
    FOLD,
    PROOF_VALUES,
    ProofCoefficients,
    folded_size,
    lagrange_basis,
    prove_values,
)
from verticopula.mpc.prime_field import PRIME, Field, add, element, invert, pack_field, unpack_field
from verticopula.mpc.proof_rounds import CellsDealer, CellsVerifier, VerifiedCells, VerifierRecord
from verticopula.mpc.verified_cells import (
    NO_BYTES,
    Bytes,
    CellsDealing,
    CellsStatement,
    Share,
    ShareReader,
    body_receivers,
    deal_values,
    receive_cells,
    verifiers_of,
)

COMPUTE = ("a", "b", "c")
DEALERS = ("a", "b", "c", "d")  # "d" does not compute

# round, sender, receiver, message -> the message that arrives
Meddle = Callable[[str, str, str, Any], Any]


def make_statement(
    dealer: str = "a", rows: int = 30, cells: tuple[int, ...] = (4, 2, 10), **other: Any
) -> CellsStatement:
    made = CellsStatement("study", "plan", dealer, COMPUTE, 0, rows, cells)
    return replace(made, **other)


def make_codes(statement: CellsStatement, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, statement.cells, (statement.rows, len(statement.cells)))


def secret_of(name: str) -> bytes:
    return f"the secret of {name}".encode().ljust(32)


def key_of(first: str, second: str) -> bytes:
    return f"common to {min(first, second)} and {max(first, second)}".encode().ljust(32)


def keys_of(statement: CellsStatement, name: str) -> dict[str, bytes]:
    return {other: key_of(name, other) for other in verifiers_of(statement) if other != name}


def make_verifier(
    statement: CellsStatement, name: str, dealing: CellsDealing, record: VerifierRecord | None = None
) -> CellsVerifier:
    body = dealing.body if name in body_receivers(statement) else NO_BYTES
    held = receive_cells(statement, name, dealing.bundles[name], body)
    return CellsVerifier(held, secret_of(name), keys_of(statement, name), record)


def honest(round_name: str, sender: str, receiver: str, message: Any) -> Any:
    return message


@dataclass
class Session:
    """One proof, from the dealing to the verdicts.

    Attributes
    ----------
    meddle : what happens to a message on its way
    dealings : verifier -> what it is dealt in place of the dealer's dealing
    sent : round -> (sender, receiver) -> message, as it arrived
    """

    statement: CellsStatement
    codes: np.ndarray
    meddle: Meddle = honest
    dealings: Mapping[str, CellsDealing] | None = None

    def __post_init__(self) -> None:
        self.dealer = CellsDealer(self.statement, self.codes, secret_of(self.statement.dealer))
        self.sent: dict[str, dict[tuple[str, str], Any]] = {}
        self.verifiers: dict[str, CellsVerifier] = {}

    def deal(self) -> None:
        dealing = self.dealer.deal()
        for name in verifiers_of(self.statement):
            given = dealing if self.dealings is None else self.dealings.get(name, dealing)
            bundle = self._carry("deal", self.statement.dealer, name, given.bundles[name])
            self.verifiers[name] = make_verifier(
                self.statement, name, CellsDealing({**given.bundles, name: bundle}, given.body)
            )

    def commit(self) -> None:
        self._round("commit", {name: machine.commit() for name, machine in self.verifiers.items()})

    def reveal_coefficients(self) -> None:
        made = {name: machine.reveal_coefficients(self.got("commit", name)) for name, machine in self.verifiers.items()}
        self._round("coefficients", {name: self._to_all(name, message, dealer=True) for name, message in made.items()})

    def prove(self) -> None:
        dealer = self.statement.dealer
        shares = self.dealer.prove(self.got("commit", dealer), self.got("coefficients", dealer))
        self._round("proof", {dealer: shares})

    def reveal_point(self) -> None:
        made = {
            name: machine.reveal_point(self.got("coefficients", name), self.sent["proof"][self.statement.dealer, name])
            for name, machine in self.verifiers.items()
        }
        self._round("point", {name: self._to_all(name, message) for name, message in made.items()})

    def open_queries(self) -> None:
        self._round(
            "openings", {n: machine.open_queries(self.got("point", n)) for n, machine in self.verifiers.items()}
        )

    def judge(self) -> None:
        self._round("verdicts", {n: machine.judge(self.got("openings", n)) for n, machine in self.verifiers.items()})

    def conclude(self) -> dict[str, VerifiedCells]:
        done = {name: machine.conclude(self.got("verdicts", name)) for name, machine in self.verifiers.items()}
        own = self.dealer.conclude(self.got("verdicts", self.statement.dealer))
        return done if own is None else {**done, self.statement.dealer: own}

    def run(self) -> dict[str, VerifiedCells]:
        """All rounds; every compute party's verified shares."""
        for step in STEPS:
            getattr(self, step)()
        return self.conclude()

    def run_until(self, last: str) -> Session:
        """The rounds up to this one."""
        for step in STEPS[: STEPS.index(last) + 1]:
            getattr(self, step)()
        return self

    def got(self, round_name: str, receiver: str) -> dict[str, Any]:
        """What a receiver got in a round, by sender."""
        return {s: message for (s, r), message in self.sent[round_name].items() if r == receiver}

    def got_by(self, round_name: str, sender: str) -> dict[str, Any]:
        """What a sender sent in a round, by receiver."""
        return {r: message for (s, r), message in self.sent[round_name].items() if s == sender}

    def _to_all(self, sender: str, message: Any, dealer: bool = False) -> dict[str, Any]:
        receivers = [name for name in self.verifiers if name != sender]
        return dict.fromkeys([*receivers, self.statement.dealer] if dealer else receivers, message)

    def _round(self, name: str, messages: Mapping[str, Mapping[str, Any]]) -> None:
        for sender, receivers in messages.items():
            for receiver, message in receivers.items():
                self._carry(name, sender, receiver, message)

    def _carry(self, name: str, sender: str, receiver: str, message: Any) -> Any:
        arrived = self.meddle(name, sender, receiver, message)
        self.sent.setdefault(name, {})[sender, receiver] = arrived
        return arrived


STEPS = ("deal", "commit", "reveal_coefficients", "prove", "reveal_point", "open_queries", "judge")


# ---- a dealer that cheats ----------------------------------------------------------------


def shared_values(statement: CellsStatement, verified: Mapping[str, VerifiedCells]) -> Field:
    """The numbers that the compute parties' shares sum up to."""
    first, second, _ = (verified[name].held for name in statement.compute)
    return add(add(numbers_of(first.first), numbers_of(first.second)), numbers_of(second.second))


def numbers_of(share: Share) -> Field:
    """(n, width) all numbers of a share."""
    return ShareReader(share).read(np.empty(share.statement.shape, dtype=np.uint64))


def packed(values: Field) -> Bytes:
    """Elements as a body has them."""
    return np.frombuffer(pack_field(values), dtype=np.uint8)


def exact_folds(statement: CellsStatement, values: Field, coefficients: ProofCoefficients) -> list[tuple[int, int]]:
    """u and v of every row and column, with Python's integers."""
    out = []
    for row in values.tolist():
        start = 0
        for cells in statement.cells:
            part = row[start : start + cells - 1]
            weights = coefficients.weights[start : start + cells - 1].tolist()
            u = sum(x * r for x, r in zip(part, weights, strict=True)) % PRIME
            v = sum(x * r * r for x, r in zip(part, weights, strict=True)) % PRIME
            out.append((u, v))
            start += cells - 1
    return out


def fold_values(statement: CellsStatement, values: Field, coefficients: ProofCoefficients) -> Field:
    """(S, k) u of any numbers."""
    flat = [u for u, _ in exact_folds(statement, values, coefficients)]
    out = np.zeros(folded_size(statement) * FOLD, dtype=np.uint64)
    out[: len(flat)] = flat
    return out.reshape(-1, FOLD)


def equation_of(statement: CellsStatement, values: Field, coefficients: ProofCoefficients) -> int:
    """The left side of the one equation, with Python's integers: 0 for good cells."""
    return (
        sum(
            int(coefficients.within[m % FOLD]) * int(coefficients.across[m // FOLD]) * (u * u - v)
            for m, (u, v) in enumerate(exact_folds(statement, values, coefficients))
        )
        % PRIME
    )


def forge_dealing(statement: CellsStatement, values: Field, seed: int = 1) -> CellsDealing:
    """A dealing of any numbers."""
    return deal_values(statement, values, tuple(bytes([seed, index]).ljust(16) for index in range(3)))


@dataclass
class ForgedProver:
    """In place of `prove_codes`: the best that a dealer of bad numbers can do.

    Attributes
    ----------
    values : what was dealt
    hide_difference : make d = 0 by changing Q at a point that the cells stand on; otherwise send the true Q
    point : t, if the dealer knew it: then the change is zero there
    """

    values: Field
    hide_difference: bool
    point: int | None = None

    def __call__(
        self, statement: CellsStatement, codes: np.ndarray, coefficients: ProofCoefficients, seeds: tuple[bytes, ...]
    ) -> bytes:
        folded = fold_values(statement, self.values, coefficients)
        true = unpack_field(prove_values(statement, [folded], coefficients, seeds), (PROOF_VALUES,))
        if not self.hide_difference:
            return pack_field(true)
        change = np.zeros(PROOF_VALUES, dtype=np.uint64)
        missing = -equation_of(statement, self.values, coefficients)
        first, second = (int(value) for value in coefficients.within[:2])
        ratio = 0
        if self.point is not None:
            basis = lagrange_basis(2 * FOLD, self.point)
            ratio = -int(basis[0]) * invert(int(basis[1]))
        change[0] = element(missing * invert(first + ratio * second))
        change[1] = element(ratio * int(change[0]))
        return pack_field(add(true, change))


def cheat(monkeypatch: pytest.MonkeyPatch, values: Field, prover: ForgedProver) -> None:
    """From now on dealers deal `values` and prove with `prover`."""
    monkeypatch.setattr(proof_rounds, "deal_cells", lambda statement, codes, secret: forge_dealing(statement, values))
    monkeypatch.setattr(proof_rounds, "prove_codes", prover)
