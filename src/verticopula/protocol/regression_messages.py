"""What travels in a regression across parties (Algorithm 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verticopula.protocol.message_version import MESSAGE_VERSION


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
    """The strength from which on none of the party's columns enters."""

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


RegressionRequest = DesignRequest | ResponseRequest | StrengthRequest | UpdateRequest | CoefficientsRequest
RegressionReply = DesignReply | ResponseReply | StrengthReply | UpdateReply | CoefficientsReply
