"""A party's handler of regression requests; the columns that it may use are handed to it.

An answer follows from the request and the columns alone, so a request that is sent again gets the same one. With a
store, the requests that prepared fits survive a restart.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import LedgerError, ProtocolError
from verticopula.glm.feature_design import Features, Standardised, standardise
from verticopula.glm.lasso import group_norms
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.regression_messages import (
    DesignReply,
    DesignRequest,
    EnteringColumnsReply,
    EnteringColumnsRequest,
    RegressionReply,
    RegressionRequest,
)
from verticopula.protocol.wire import decode, encode
from verticopula.storage.blobs import Blobs

logger = logging.getLogger(__name__)

_MOST_FITS = 2  # one being finished, one being started

_Key = tuple[str, str]


@dataclass(frozen=True, repr=False)
class KeptFit:
    """A fit as it is written to disk.

    Attributes
    ----------
    features : digest of the features; on others the fit would be another one
    """

    design: DesignRequest
    features: str


@dataclass(frozen=True, repr=False)
class _Fit:
    """What a party keeps of a fit that is under way."""

    request_key: str
    features: Features
    design: Standardised
    rows: NDArray[np.bool_] | slice


@dataclass(repr=False)
class RegressionHandler:
    """One party's columns in regressions. No repr: raw ones are exact.

    Attributes
    ----------
    features : for a DesignRequest, the number of rows and what makes its features; may refuse. The second is called
        only when everything else about the request is fine, because for raw columns it is recorded as a release.
    store : where fits are kept over a restart; None for nowhere
    """

    party: str
    features: Callable[[DesignRequest], tuple[int, Callable[[], Features]]]
    store: Blobs | None = None
    _fits: dict[_Key, _Fit] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def holding(cls, party: str, features: Features) -> RegressionHandler:
        """A handler of features that are not secret, such as synthetic columns: it uses all of them in every fit."""
        return cls(party, lambda request: (features.values.shape[0], lambda: features))

    def handle(self, request: RegressionRequest) -> RegressionReply:
        key = (request.study, getattr(request, "fit", ""))
        with self._lock:
            if key not in self._fits:
                self._restore(key, request)
            if isinstance(request, DesignRequest):
                return self._prepared(key, request)
            if isinstance(request, EnteringColumnsRequest):
                return self._send(request, self._fit(key))
        raise ProtocolError(f"party {self.party!r} does not know requests of type {type(request).__name__}")

    def close(self, study: str, kept: Iterable[str] = ()) -> None:
        """Forget a study's fits, on disk too.

        `kept` : names of fits that an earlier process may have stored
        """
        with self._lock:
            for key in [*((study, fit) for fit in kept), *(key for key in self._fits if key[0] == study)]:
                self._discard(key)

    # ---- a fit -------------------------------------------------------------------------------

    def _prepared(self, key: _Key, request: DesignRequest) -> DesignReply:
        """What the columns became; nothing is opened, or paid for, twice."""
        fit = self._fits.get(key)
        if fit is None or fit.request_key != fingerprint(request):
            fit = self._prepare(request)
            if self.store is not None:
                kept = KeptFit(request, fingerprint((fit.features.values, fit.features.starts)))
                self.store.put(fit_key(self.party, *key), encode(kept))
        self._keep(key, fit)
        own, design = fit.features, fit.design
        return DesignReply(
            self.party, own.values.shape[0], own.names, own.sources, own.starts, design.sizes, design.constant
        )

    def _prepare(self, request: DesignRequest) -> _Fit:
        n_rows, make = self.features(request)
        rows = request.rows
        if rows is not None and (rows.dtype != np.bool_ or rows.shape != (n_rows,) or rows.sum() < 2):
            raise ProtocolError(
                f"party {self.party!r}: rows to learn from are a mask over its {n_rows} rows, two at least"
            )
        features = make()
        chosen = slice(None) if rows is None else rows
        learnt = Features(features.values[chosen], features.starts, features.names, features.sources)
        return _Fit(fingerprint(request), features, standardise(learnt, centre=request.centre), chosen)

    def _keep(self, key: _Key, fit: _Fit) -> None:
        """Add the newest fit, and close the oldest ones."""
        self._fits.pop(key, None)  # opened again, it is the newest
        self._fits[key] = fit
        for old in list(self._fits)[:-_MOST_FITS]:
            self._discard(old)

    def _discard(self, key: _Key) -> None:
        self._fits.pop(key, None)
        if self.store is not None:
            self.store.discard(fit_key(self.party, *key))

    def _fit(self, key: _Key) -> _Fit:
        if key not in self._fits:
            raise ProtocolError(f"party {self.party!r} was not asked to prepare this fit, or has closed it")
        return self._fits[key]

    def _send(self, request: EnteringColumnsRequest, fit: _Fit) -> EnteringColumnsReply:
        """The groups that want to enter, and how far the others are from it."""
        design = fit.design
        n_rows, n_groups = design.columns.shape[0], design.factors.size
        residual, sent = request.residual, request.sent
        if residual.dtype != np.float64 or residual.shape != (n_rows,) or not np.isfinite(residual).all():
            raise ProtocolError(f"party {self.party!r}: expected {n_rows} finite numbers")
        if sent.dtype != np.bool_ or sent.shape != (n_groups,) or not request.strength >= 0.0:
            raise ProtocolError(f"party {self.party!r}: expected a mask over {n_groups} groups, and a strength")
        pull = group_norms(design.columns.T @ residual / n_rows, design.starts) / design.factors
        wanted = ~sent & ~design.constant & (pull > request.strength)
        inside = np.repeat(wanted, np.diff(design.starts))
        left = float(np.max(pull[~sent & ~wanted], initial=0.0))
        return EnteringColumnsReply(self.party, np.flatnonzero(wanted), fit.features.values[:, inside], left)

    # ---- over a restart ----------------------------------------------------------------------

    def _restore(self, key: _Key, request: RegressionRequest) -> None:
        """Prepare a fit again that an earlier process prepared, if this request belongs to it."""
        kept = self._read(key)
        if kept is None or isinstance(request, DesignRequest):
            return
        fit = self._prepare(kept.design)
        if fingerprint((fit.features.values, fit.features.starts)) != kept.features:
            raise ProtocolError(f"party {self.party!r}: its table has changed since this fit was prepared")
        self._keep(key, fit)

    def _read(self, key: _Key) -> KeptFit | None:
        try:
            data = None if self.store is None else self.store.get(fit_key(self.party, *key))
            return None if data is None else cast(KeptFit, decode(data, (KeptFit,)))
        except (LedgerError, ProtocolError):
            logger.warning(
                "party %s: the state of a regression cannot be read; it has to be prepared again", self.party
            )
            return None


def fit_key(party: str, study: str, fit: str) -> str:
    """The key under which a party's fit is kept."""
    return hashlib.sha256(repr((party, study, fit)).encode()).hexdigest()
