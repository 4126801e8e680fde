"""What travels in a strict study: margins with Gaussian noise, and secure sums (docs/explanation/strict.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.sealed_messages import SignedPublicKey
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.protocol.message_version import MESSAGE_VERSION


@dataclass(frozen=True)
class MarginQuery:
    """One column's cell counts, with Gaussian noise worth that of this standard deviation."""

    column: str
    deviation: float


@dataclass(frozen=True)
class GaussianMarginsRequest:
    """Send noisy cell counts of all your columns, in the schema's order. There is one such request a study."""

    study: str
    method: str
    queries: tuple[MarginQuery, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class GaussianMarginsReply:
    """Per column, the noisy number of subjects in each public cell, and the party's signature of them."""

    party: str
    cells: tuple[NDArray[np.int64], ...]
    signature: bytes
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PlanEvidence:
    """What the plan of secure sums follows from, party by party: masks, and margins as their parties signed them."""

    masks: tuple[NDArray[np.bool_], ...]
    margins: tuple[GaussianMarginsReply, ...]


# ---- secure sums -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SumsKeyRequest:
    """Send your public key for this study."""

    study: str
    method: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class SumsKeyReply:
    """The party's public key for this study, signed."""

    party: str
    key: SignedPublicKey
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class SumsShareRequest:
    """Share your scores among the plan's compute parties, sealed for each of them.

    `evidence` : from which a party computes the plan itself; None only among handlers without an agreement
    """

    study: str
    method: str
    plan: SumsPlan
    keys: tuple[SignedPublicKey, ...]
    evidence: PlanEvidence | None = None
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsShareReply:
    """One sealed message per compute party, in the plan's order; an empty one for the party itself."""

    party: str
    boxes: tuple[bytes, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsRequest:
    """Here is what everybody sealed for you, in the order of the plan's parties. Add up, add noise, send your term."""

    study: str
    method: str
    plan: SumsPlan
    keys: tuple[SignedPublicKey, ...]
    boxes: tuple[bytes, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsReply:
    """Per pattern, the compute party's noised term of the upper triangle of the Gram matrix, without its last entry.

    The last column is the 1 that is appended to every record, so the last entry is the public number of subjects.
    """

    party: str
    terms: tuple[NDArray[np.int64], ...]
    version: int = MESSAGE_VERSION


SecureRequest = SumsKeyRequest | SumsShareRequest | SumsRequest
SecureReply = SumsKeyReply | SumsShareReply | SumsReply
