"""What travels between the coordinator and a party: frozen records of numbers and names.

Here are the messages of methods that rank; those of consent, of regressions, of strict studies and of beginning a study
have files of their own, and are names of this one too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.protocol.consent_messages import (
    AgreementAnswer,
    AgreementMessage,
    AgreementReply,
    AgreementRequest,
    ConsentReply,
    ConsentRequest,
    PresenceReply,
    PresenceRequest,
    SignedConsent,
    SignedPresence,
    StudyProposal,
)
from verticopula.protocol.message_fields import kind_name, sent_fields
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.printed_messages import (
    EarlierRound,
    NoisyCoefficients,
    PrintedMarginsReply,
    PrintedMarginsRequest,
    PrintedQuery,
    PrintedRanksReply,
    PrintedRanksRequest,
    PrintedReply,
    PrintedRequest,
)
from verticopula.protocol.regression_messages import (
    CoefficientsReply,
    CoefficientsRequest,
    DesignReply,
    DesignRequest,
    RegressionReply,
    RegressionRequest,
    ResponseReply,
    ResponseRequest,
    StrengthReply,
    StrengthRequest,
    UpdateReply,
    UpdateRequest,
)
from verticopula.protocol.strict_messages import (
    GaussianMarginsReply,
    GaussianMarginsRequest,
    MarginQuery,
    PlanEvidence,
    SecureReply,
    SecureRequest,
    SumsKeyReply,
    SumsKeyRequest,
    SumsProofReply,
    SumsProofRequest,
    SumsReply,
    SumsRequest,
    SumsShareReply,
    SumsShareRequest,
    TablesReply,
    TablesRequest,
)
from verticopula.protocol.study_messages import (
    BeginReply,
    BeginRequest,
    BlockReply,
    BlockRequest,
    CloseReply,
    CloseRequest,
    MaskReply,
    MaskRequest,
    PlaceReply,
    PlaceRequest,
    SignedAsking,
    SignedPoints,
    StudyReply,
    StudyRequest,
)

__all__ = [
    "MESSAGE_VERSION",
    "AgreementReply",
    "AgreementRequest",
    "BeginReply",
    "BeginRequest",
    "BlockReply",
    "BlockRequest",
    "CloseReply",
    "CloseRequest",
    "CoefficientsReply",
    "CoefficientsRequest",
    "ColumnQuery",
    "ColumnRelease",
    "CompletedRanksReply",
    "CompletedRanksRequest",
    "ConsentReply",
    "ConsentRequest",
    "DesignReply",
    "DesignRequest",
    "EarlierRound",
    "GaussianMarginsReply",
    "GaussianMarginsRequest",
    "Imputation",
    "MarginQuery",
    "MaskReply",
    "MaskRequest",
    "NoisyCoefficients",
    "PlaceReply",
    "PlaceRequest",
    "PlanEvidence",
    "PresenceReply",
    "PresenceRequest",
    "PrintedMarginsReply",
    "PrintedMarginsRequest",
    "PrintedQuery",
    "PrintedRanksReply",
    "PrintedRanksRequest",
    "PrintedReply",
    "PrintedRequest",
    "RegressionReply",
    "RegressionRequest",
    "ReleaseReply",
    "ReleaseRequest",
    "Reply",
    "Request",
    "ResponseReply",
    "ResponseRequest",
    "SecureReply",
    "SecureRequest",
    "SignedAsking",
    "SignedConsent",
    "SignedPoints",
    "SignedPresence",
    "StrengthReply",
    "StrengthRequest",
    "StudyProposal",
    "StudyReply",
    "StudyRequest",
    "SumsKeyReply",
    "SumsKeyRequest",
    "SumsProofReply",
    "SumsProofRequest",
    "SumsReply",
    "SumsRequest",
    "SumsShareReply",
    "SumsShareRequest",
    "TablesReply",
    "TablesRequest",
    "UpdateReply",
    "UpdateRequest",
    "fingerprint",
    "payload_bytes",
]


@dataclass(frozen=True)
class ColumnQuery:
    """What is asked of one column.

    `epsilon_ranks` is per comparison, `epsilon_marginal` per person's value in this column.
    """

    column: str
    epsilon_ranks: float
    epsilon_marginal: float


@dataclass(frozen=True)
class ReleaseRequest:
    """Send noisy ranks and noisy cell counts of these columns."""

    study: str
    method: str
    sampler: str
    queries: tuple[ColumnQuery, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ColumnRelease:
    """One column's releases.

    Attributes
    ----------
    ranks : (n_observed, L) noisy ranks of the observed subjects in cohort order; L = 1, or one
        per category of a nominal column
    cells : (C,) noisy number of subjects in each public cell
    """

    column: str
    ranks: NDArray[np.int64]
    cells: NDArray[np.int64]


@dataclass(frozen=True)
class ReleaseReply:
    """All columns' releases of one party."""

    party: str
    columns: tuple[ColumnRelease, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class Imputation:
    """How to complete one column, and what its ranks may cost.

    Attributes
    ----------
    epsilon_ranks : per comparison
    curve : (n_observed,) increasing grades of the sorted observed values
    grades : (n_missing,) grades of the subjects without a value, in cohort order
    codes : (n_missing,) their category codes or counts, for a discrete column, in place of the two above
    """

    column: str
    epsilon_ranks: float
    curve: NDArray[np.float64]
    grades: NDArray[np.float64]
    codes: NDArray[np.int64] | None


@dataclass(frozen=True)
class CompletedRanksRequest:
    """Complete your columns as told, inside your house, and send noisy ranks of the completed ones.

    Only ranks are asked for, so a subject without a value needs a place, not a value.
    """

    study: str
    method: str
    sampler: str
    round_number: int
    imputations: tuple[Imputation, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CompletedRanksReply:
    """(N, L) noisy ranks of each column, in the schema's order."""

    party: str
    ranks: tuple[NDArray[np.int64], ...]
    version: int = MESSAGE_VERSION


Request = (
    AgreementMessage
    | ReleaseRequest
    | CompletedRanksRequest
    | PrintedRequest
    | RegressionRequest
    | GaussianMarginsRequest
    | SecureRequest
    | StudyRequest
)
Reply = (
    AgreementAnswer
    | ReleaseReply
    | CompletedRanksReply
    | PrintedReply
    | RegressionReply
    | GaussianMarginsReply
    | SecureReply
    | StudyReply
)


def payload_bytes(message: Request | Reply) -> int:
    """The size of a message's arrays, which is nearly all of it."""
    return sum(value.nbytes for value in vars(message).values() if isinstance(value, np.ndarray))


def fingerprint(message: Any) -> str:
    """A hash of a message's whole content: equal messages have equal ones."""
    digest = hashlib.sha256()
    _feed(digest, message)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Every part with its type and length, so that different contents cannot run together."""
    if is_dataclass(value) and not isinstance(value, type):
        digest.update(f"<{kind_name(type(value))}".encode())
        for name in sent_fields(value):
            _feed(digest, getattr(value, name))
        digest.update(b">")
    elif isinstance(value, tuple):
        digest.update(f"({len(value)}".encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"[{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, bytes):
        digest.update(f"bytes{len(value)}:".encode())
        digest.update(value)
    else:
        text = repr(value).encode()
        digest.update(f"{type(value).__name__}{len(text)}:".encode() + text)
