"""What travels between the coordinator and a party: frozen records of numbers and names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from verticopula.secure.sealed import Introduction

MESSAGE_VERSION = 1


@dataclass(frozen=True)
class PresenceRequest:
    """Who is known to you, column by column? (Public in this setting.)"""

    study: str
    method: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PresenceReply:
    """(N, p_k) mask over the cohort, in the schema's column order."""

    party: str
    observed: NDArray[np.bool_]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ColumnOrder:
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
    orders: tuple[ColumnOrder, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ReviewRequest:
    """Would you answer this, and then `rounds` - 1 rounds on completed columns? Nothing is drawn or recorded."""

    release: ReleaseRequest
    rounds: int = 1
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ReviewReply:
    """Yes. (A no is an error with a reason.)"""

    party: str
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
    codes : (n_missing,) their categories, for an unordered column, in place of the two above
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


# ---- regression (Algorithm 4) --------------------------------------------------------------------


@dataclass(frozen=True)
class RawReviewRequest:
    """Would you take part, with exact values of all your columns for these subjects? Nothing is sent or recorded."""

    study: str
    subjects: NDArray[np.bool_]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class DesignRequest:
    """Prepare these columns for a regression.

    Attributes
    ----------
    fit : a name for this fit; later requests refer to it
    columns : in this order; None for all that the party holds besides `without`
    without : the response, where this party holds it
    centre : True where an intercept is fitted
    subjects : (N,) the cohort's subjects that the regression is about; None for all
    rows : among those, the ones to learn from; None for all
    """

    study: str
    fit: str
    columns: tuple[str, ...] | None
    without: str | None
    centre: bool
    subjects: NDArray[np.bool_] | None
    rows: NDArray[np.bool_] | None
    penalty: str
    concavity: float
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class DesignReply:
    """The features that the columns became: names, groups, each group's degrees of freedom, which do not vary."""

    party: str
    n_rows: int
    names: tuple[str, ...]
    sources: tuple[str, ...]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    constant: NDArray[np.bool_]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ResponseRequest:
    """Send the response itself: for a regression on raw columns whose coordinator does not hold it."""

    study: str
    column: str
    subjects: NDArray[np.bool_] | None
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class ResponseReply:
    """The response of those subjects; a category as its number. No repr: the values are exact."""

    party: str
    values: NDArray[np.float64]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class StrengthRequest:
    """From which strength on does none of your columns enter, given these residuals of a fit without any?"""

    study: str
    fit: str
    residual: NDArray[np.float64]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class StrengthReply:
    """That strength."""

    party: str
    strength: float
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class UpdateRequest:
    """Solve Eq. (6-1) for this target; see `glm.block.BlockSolver.update`.

    `record` says that the coefficients before this update solve the path's last strength.
    """

    study: str
    fit: str
    number: int
    track: Literal["lasso", "main", "refit"]
    weights: Literal["plain", "lasso", "own", "selected", "keep"]
    strength: float
    rho: float
    tolerance: float
    record: bool
    target: NDArray[np.float64]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class UpdateReply:
    """X_k beta_k and what the stopping rules need. No repr: of raw columns it is exact."""

    party: str
    prediction: NDArray[np.float64]
    penalty: float
    selected: NDArray[np.bool_]
    weight_change: float
    solved: bool
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CoefficientsRequest:
    """Send the coefficients of the recorded path; `record` as in UpdateRequest."""

    study: str
    fit: str
    record: bool
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CoefficientsReply:
    """(L, q) coefficients on the scale of the data; (L,) what centring took from the intercept; the same for refits."""

    party: str
    coef: NDArray[np.float64]
    shifts: NDArray[np.float64]
    refit_coef: NDArray[np.float64]
    refit_shifts: NDArray[np.float64]
    version: int = MESSAGE_VERSION


# ---- strict mode (docs/strict.md) ----------------------------------------------------------------


@dataclass(frozen=True)
class MarginOrder:
    """One column's cell counts, with Gaussian noise worth that of this standard deviation."""

    column: str
    deviation: float


@dataclass(frozen=True)
class StrictReviewRequest:
    """Would you send these margins, and then take part in secure sums? Nothing is drawn or recorded.

    `mu_moments` : what the sums would cost a person's block at this party at most, as Gaussian differential privacy
    """

    study: str
    method: str
    orders: tuple[MarginOrder, ...]
    mu_moments: float
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class GaussianMarginsRequest:
    """Send noisy cell counts of all your columns, in the schema's order. There is one such request a study."""

    study: str
    method: str
    orders: tuple[MarginOrder, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class GaussianMarginsReply:
    """Per column, the noisy number of subjects in each public cell."""

    party: str
    cells: tuple[NDArray[np.int64], ...]
    version: int = MESSAGE_VERSION


# ---- secure sums (docs/strict.md) ----------------------------------------------------------------


@dataclass(frozen=True)
class SumsPlan:
    """Which sums are opened, and with how much noise. All of it is public. See `protocol.sums_plan`.

    Attributes
    ----------
    parties, widths : who has scores, and how many columns of them each
    compute : the three that hold shares and add noise; at most one of them, the coordinator, has no scores
    pattern_of : (N,) every subject's pattern; -1 for none
    columns : (P, p) which columns a pattern's sums are about, the parties' columns side by side
    bounds : (P, K) largest squared norm of a party's part of a record, in units of 4^-bits; 0 where it has no part
    bits : fractional bits of a score
    mu : Gaussian differential privacy of everything that is opened, as long as one compute party at most is not honest
    """

    parties: tuple[str, ...]
    widths: tuple[int, ...]
    compute: tuple[str, str, str]
    pattern_of: NDArray[np.int64]
    columns: NDArray[np.bool_]
    bounds: NDArray[np.int64]
    bits: int
    mu: float


@dataclass(frozen=True)
class SumsKeyRequest:
    """Send your public key for this study."""

    study: str
    method: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class SumsKeyReply:
    """That key, signed."""

    party: str
    key: Introduction
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class SumsShareRequest:
    """Share your scores among the plan's compute parties, sealed for each of them."""

    study: str
    method: str
    plan: SumsPlan
    keys: tuple[Introduction, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsShareReply:
    """One box per compute party, in the plan's order; an empty one for the party itself."""

    party: str
    boxes: tuple[bytes, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class SumsRequest:
    """Here is what everybody sealed for you, in the order of the plan's parties. Add up, add noise, send your term."""

    study: str
    method: str
    plan: SumsPlan
    keys: tuple[Introduction, ...]
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


# ---- opening and closing a study -----------------------------------------------------------------


@dataclass(frozen=True)
class OpenRequest:
    """Will you take part in this study, and who are your subjects? Nothing is drawn.

    Attributes
    ----------
    federation : fingerprint of the coordinator's federation file; the party compares it with its own
    seed : for simulations, and then nothing is private; None otherwise
    witness_count, witness_head : what the coordinator last saw of this party's ledger; 0 for nothing
    """

    study: str
    method: str
    federation: str
    alignment: Literal["hash", "psi"]
    seed: int | None
    witness_count: int
    witness_head: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class OpenReply:
    """Yes, and keyed hashes of the subject ids; for alignment `psi`, points that the party has masked.

    Attributes
    ----------
    key_check : (32,) equal where two parties hold the same id key; zeros for `psi`, which needs none
    hashes : (n_k, 16), or (n_k, 32) points, in the order of their bytes; in the table's only in a seeded study
    keeps_block : the party keeps its synthetic block to itself
    ledger_count, ledger_head : where its ledger ends
    """

    party: str
    key_check: NDArray[np.uint8]
    hashes: NDArray[np.uint8]
    keeps_block: bool
    ledger_count: int
    ledger_head: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class MaskRequest:
    """Mask these points too: party `origin`'s subjects, in its order. Only in a study aligned by `psi`."""

    study: str
    origin: str
    points: NDArray[np.uint8]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class MaskReply:
    """(n, 32) the same points, masked by this party too."""

    party: str
    origin: str
    points: NDArray[np.uint8]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PlaceRequest:
    """Your i-th hash is subject `positions[i]` of a cohort of `n_subjects`."""

    study: str
    n_subjects: int
    positions: NDArray[np.int64]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PlaceReply:
    """The party's table is in the cohort's order now."""

    party: str
    n_subjects: int
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class BlockRequest:
    """Your own synthetic block, for you to write down: values, or category codes, in the schema's column order."""

    study: str
    columns: tuple[str, ...]
    values: tuple[NDArray[np.float64], ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class BlockReply:
    """Written, with so many rows; 0 where the party wants no synthetic block."""

    party: str
    rows: int
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CloseRequest:
    """Nothing more is asked in this study. Where does your ledger end?"""

    study: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CloseReply:
    """There. The coordinator shows it at the next study, so that a ledger put back from a copy is noticed."""

    party: str
    ledger_count: int
    ledger_head: str
    version: int = MESSAGE_VERSION


RegressionRequest = DesignRequest | ResponseRequest | StrengthRequest | UpdateRequest | CoefficientsRequest
RegressionReply = DesignReply | ResponseReply | StrengthReply | UpdateReply | CoefficientsReply
SecureRequest = SumsKeyRequest | SumsShareRequest | SumsRequest
SecureReply = SumsKeyReply | SumsShareReply | SumsReply
StrictRequest = StrictReviewRequest | GaussianMarginsRequest
StudyRequest = OpenRequest | MaskRequest | PlaceRequest | BlockRequest | CloseRequest
StudyReply = OpenReply | MaskReply | PlaceReply | BlockReply | CloseReply
Request = (
    PresenceRequest
    | ReviewRequest
    | ReleaseRequest
    | CompletedRanksRequest
    | RawReviewRequest
    | RegressionRequest
    | StrictRequest
    | SecureRequest
    | StudyRequest
)
Reply = (
    PresenceReply
    | ReviewReply
    | ReleaseReply
    | CompletedRanksReply
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
        digest.update(f"<{type(value).__name__}".encode())
        for field in fields(value):
            _feed(digest, getattr(value, field.name))
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
