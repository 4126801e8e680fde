"""Messages of methods that rank: noisy ranks and cells of columns, then ranks of completed ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.protocol.message_version import MESSAGE_VERSION


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
    ranks: NDArray[np.int32]
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
