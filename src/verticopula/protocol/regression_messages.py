"""What travels in a regression across parties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.sealed_messages import SignedPublicKey
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


@dataclass(frozen=True, repr=False)
class EnteringColumnsRequest:
    """Send the columns that want to enter a model with these residuals. No repr: they tell the response.

    Attributes
    ----------
    number : of this request in the fit, from 0
    strength : columns whose correlation with the residuals is above it are sent; infinite for none
    sent : (G,) groups that were sent before; they are not sent again
    residual : one number for each row to learn from
    """

    study: str
    fit: str
    number: int
    strength: float
    sent: NDArray[np.bool_]
    residual: NDArray[np.float64]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class EnteringColumnsReply:
    """The columns that want to enter, and how far the others are from it. No repr: values of raw columns are exact.

    Attributes
    ----------
    groups : which groups of features, in increasing order
    values : (N, columns of these groups) as they are, for all rows
    strength : the least at which none of the groups enters that were never sent
    """

    party: str
    groups: NDArray[np.int64]
    values: NDArray[np.float64]
    strength: float
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class MomentsKeyRequest:
    """Send your public key in this study: for a regression on second moments."""

    study: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class MomentsKeyReply:
    """The party's public key, signed."""

    party: str
    key: SignedPublicKey
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class MomentsRequest:
    """Send sums and products of your own columns, and these columns masked.

    Attributes
    ----------
    response : the response, where this party holds it
    subjects : (N,) the cohort's subjects that the regression is about
    folds : (n,) number of the fold of each of them, from 0; None for one sum over all
    keys : public keys of all parties that have columns, in their order
    """

    study: str
    response: str | None
    subjects: NDArray[np.bool_]
    folds: NDArray[np.int64] | None
    keys: tuple[SignedPublicKey, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class MomentsReply:
    """What a party says of its own columns z = (x - centre) / scale, the response last where it has it.

    Attributes
    ----------
    names, sources, starts : of its features, the response aside
    sums, products : (F, c) and (F, c, c) of z, in each fold
    masked : (n, c) z in fixed point plus a mask, modulo p (`mpc/masked_products.py`)
    boxes : the mask's seed, sealed for every other party in the order of the keys
    """

    party: str
    names: tuple[str, ...]
    sources: tuple[str, ...]
    starts: NDArray[np.int64]
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    sums: NDArray[np.float64]
    products: NDArray[np.float64]
    masked: NDArray[np.int64]
    boxes: tuple[bytes, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CrossMomentsRequest:
    """Send your terms of the products with every other party's columns.

    Attributes
    ----------
    moments : the request before this one
    widths : how many columns each party has, in the order of the keys
    boxes : what the others sealed for this party, in that order
    """

    study: str
    moments: MomentsRequest
    widths: tuple[int, ...]
    boxes: tuple[bytes, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, repr=False)
class CrossMomentsReply:
    """One padded term for each other party in the order of the keys: (F, columns of the first, of the second)."""

    party: str
    terms: tuple[NDArray[np.int64], ...]
    version: int = MESSAGE_VERSION


ExactColumnsRequest = DesignRequest | ResponseRequest | EnteringColumnsRequest
SecondMomentsRequest = MomentsKeyRequest | MomentsRequest | CrossMomentsRequest
RegressionRequest = ExactColumnsRequest | SecondMomentsRequest
RegressionReply = (
    DesignReply | ResponseReply | EnteringColumnsReply | MomentsKeyReply | MomentsReply | CrossMomentsReply
)
