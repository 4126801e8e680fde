"""What travels between the coordinator and a party: frozen records of numbers and names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    """Would you answer this? Nothing is drawn or recorded."""

    release: ReleaseRequest
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


Request = PresenceRequest | ReviewRequest | ReleaseRequest
Reply = PresenceReply | ReviewReply | ReleaseReply
