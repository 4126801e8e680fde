"""What travels while a dealer proves its cells: frozen records, and who sends which of them to whom.

`proof_rounds.py` has the machines that make and check them, and why they are safe.
"""

from __future__ import annotations

from dataclasses import dataclass

from verticopula.mpc.verified_cells import CellsBundle, CellsStatement, verifiers_of


@dataclass(frozen=True)
class CellsCommitment:
    """A verifier's commitments to its two seeds, and the tag of the share that it and the receiver hold.

    To the dealer the tag is empty.
    """

    statement: str
    coefficients: bytes
    point: bytes
    tag: bytes


@dataclass(frozen=True)
class CoefficientReveal:
    """A verifier's first seed; `transcript` is a digest of all commitments."""

    statement: str
    transcript: bytes
    seed: bytes


@dataclass(frozen=True, repr=False)
class ProofShare:
    """A verifier's share of the proof; `transcript` is a digest of all commitments and first seeds.

    Attributes
    ----------
    seeds : one for each part that the verifier holds
    correction : for the holders of the last part, what makes the sum right
    """

    statement: str
    transcript: bytes
    seeds: tuple[bytes, ...]
    correction: bytes


@dataclass(frozen=True)
class PointReveal:
    """A verifier's second seed; `transcript` is that of the proof."""

    statement: str
    transcript: bytes
    seed: bytes


@dataclass(frozen=True, repr=False)
class QueryOpening:
    """The opening of the part that the receiver lacks; `transcript` is a digest of all challenges."""

    statement: str
    transcript: bytes
    values: bytes


@dataclass(frozen=True)
class CellsVerdict:
    """Whether a verifier accepts; `transcript` is that of the openings."""

    statement: str
    transcript: bytes
    accepted: bool


ProofMessage = CellsCommitment | CoefficientReveal | ProofShare | PointReveal | QueryOpening | CellsVerdict


@dataclass(frozen=True)
class ProofRound:
    """One round: who sends which message to whom. Nobody sends to itself."""

    name: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    message: type


def rounds_of(statement: CellsStatement) -> tuple[ProofRound, ...]:
    """The rounds of one dealing, in order. Rounds of several dealings can run side by side."""
    verifiers, dealer = verifiers_of(statement), (statement.dealer,)
    everybody = verifiers + dealer
    return (
        ProofRound("deal", dealer, verifiers, CellsBundle),
        ProofRound("commit", verifiers, everybody, CellsCommitment),
        ProofRound("coefficients", verifiers, everybody, CoefficientReveal),
        ProofRound("proof", dealer, verifiers, ProofShare),
        ProofRound("point", verifiers, verifiers, PointReveal),
        ProofRound("openings", verifiers, verifiers, QueryOpening),
        ProofRound("verdicts", verifiers, everybody, CellsVerdict),
    )
