"""What travels in a strict study: margins with Gaussian noise, and secure sums (docs/explanation/strict.md)."""

from __future__ import annotations

from collections.abc import Iterable
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
    """What the plan of secure sums follows from, party by party: whom it knows, and margins as it signed them.

    `known` : for every party (N / 8,) bytes with a bit for each subject; masks of many parties are as large as a table
    """

    known: tuple[NDArray[np.uint8], ...]
    margins: tuple[GaussianMarginsReply, ...]

    @classmethod
    def of(cls, known: Iterable[NDArray[np.bool_]], margins: Iterable[GaussianMarginsReply]) -> PlanEvidence:
        """Of masks (N,) and margins, in the order of the parties."""
        return cls(tuple(np.packbits(mask) for mask in known), tuple(margins))

    def mask(self, place: int, n_subjects: int) -> NDArray[np.bool_] | None:
        """(N,) whom a party knows; None where there are not as many bits as subjects."""
        if self.known[place].shape != (-(-n_subjects // 8),):
            return None
        return np.unpackbits(self.known[place], count=n_subjects).view(np.bool_)


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
    """Bind yourself to this plan and these keys, and share your cells among the plan's compute parties.

    `evidence` : from which a party computes the plan itself; None for who has no data, and among handlers without an
        agreement
    """

    study: str
    method: str
    plan: SumsPlan
    keys: tuple[SignedPublicKey, ...]
    evidence: PlanEvidence | None = None
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsShareReply:
    """The party's dealing: sealed bundles in the order of `proof_routes.routes_from`, and its body, in clear.

    Both are empty from a party without cells to share.

    Attributes
    ----------
    selection : (selecting parties, features) a base party's noisy sums of its own features over those whom each
        selecting party knows; (0, 0) from others
    """

    party: str
    boxes: tuple[bytes, ...]
    body: NDArray[np.uint8]
    selection: NDArray[np.int64]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsProofRequest:
    """Here are all messages for you so far, round by round. Send yours of the next round.

    Attributes
    ----------
    step : which round's messages to send
    boxes : for each round before it, the sealed messages in the order of `proof_routes.routes_to`
    bodies : of the dealings, in the order of `proof_routes.bodies_to`; none where the party has them already
    """

    study: str
    method: str
    plan: SumsPlan
    keys: tuple[SignedPublicKey, ...]
    step: str
    boxes: tuple[tuple[bytes, ...], ...]
    bodies: tuple[NDArray[np.uint8], ...] = ()
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsProofReply:
    """The party's sealed messages of one round; or none, where it was started anew and needs the bodies again."""

    party: str
    boxes: tuple[bytes, ...]
    lacks_bodies: bool
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsRequest:
    """All cells are proven: here are all messages for you, round by round. Add up, add noise, send your term."""

    study: str
    method: str
    plan: SumsPlan
    keys: tuple[SignedPublicKey, ...]
    boxes: tuple[tuple[bytes, ...], ...]
    bodies: tuple[NDArray[np.uint8], ...] = ()
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsReply:
    """The compute party's noised term of the Gram matrix: its upper triangle, row by row."""

    party: str
    term: NDArray[np.int64]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class TablesRequest:
    """Add up the tables of these pairs of columns from the same proven cells, add noise, send your term.

    There is one choice of pairs a study.

    Attributes
    ----------
    pairs : (m, 2) numbers of columns among all, the smaller one first
    boxes, bodies : as in `SumsRequest`
    """

    study: str
    method: str
    plan: SumsPlan
    keys: tuple[SignedPublicKey, ...]
    pairs: NDArray[np.int64]
    boxes: tuple[tuple[bytes, ...], ...]
    bodies: tuple[NDArray[np.uint8], ...] = ()
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class TablesReply:
    """The compute party's noised term of all tables, one after the other."""

    party: str
    term: NDArray[np.int64]
    version: int = MESSAGE_VERSION


SecureRequest = SumsKeyRequest | SumsShareRequest | SumsProofRequest | SumsRequest | TablesRequest
SecureReply = SumsKeyReply | SumsShareReply | SumsProofReply | SumsReply | TablesReply
