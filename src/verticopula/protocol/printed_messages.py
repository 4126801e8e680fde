"""What travels in a study by the paper's algorithms as they are printed.

Ranks are those of Eq. (1). A margin is its noisy Bernstein coefficients and its range. Every request carries what the
party needs of earlier rounds, so that a party keeps nothing between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.protocol.message_version import MESSAGE_VERSION


@dataclass(frozen=True)
class EarlierRound:
    """What became of one column in one earlier round.

    Attributes
    ----------
    ranks : the noisy ranks that the party sent
    latents : (N,) the latents that the coordinator drew for them
    """

    ranks: NDArray[np.int64]
    latents: NDArray[np.float64]


@dataclass(frozen=True)
class PrintedQuery:
    """What is asked of one column.

    Attributes
    ----------
    epsilon : per comparison of ranks, or per value of a margin
    history : the earlier rounds, the first one first
    """

    column: str
    epsilon: float
    history: tuple[EarlierRound, ...]


@dataclass(frozen=True)
class PrintedRanksRequest:
    """Complete your columns by the history, inside your house, and send noisy ranks; without it, of observed values."""

    study: str
    method: str
    round_number: int
    queries: tuple[PrintedQuery, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PrintedRanksReply:
    """(n,) noisy ranks of each column, in the schema's order: of observed subjects in the first round, of all later."""

    party: str
    ranks: tuple[NDArray[np.int64], ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PrintedMarginsRequest:
    """Send noisy Bernstein coefficients of your columns' margins."""

    study: str
    method: str
    queries: tuple[PrintedQuery, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class NoisyCoefficients:
    """What is released of one column's margin: the range of its values, exact, and noisy coefficients on it."""

    WIRE_NAME = "PrintedMargin"  # its name in stored and sent messages

    column: str
    low: float
    high: float
    coefficients: NDArray[np.float64]


@dataclass(frozen=True)
class PrintedMarginsReply:
    """All columns' margins, in the schema's order."""

    party: str
    margins: tuple[NoisyCoefficients, ...]
    version: int = MESSAGE_VERSION


PrintedRequest = PrintedRanksRequest | PrintedMarginsRequest
PrintedReply = PrintedRanksReply | PrintedMarginsReply
