"""A party's handler of regression requests; the columns that it may use are handed to it.

Every fit has its own solver, made by a DesignRequest. The last reply of a fit is stored, so that a request that is
sent again gets it again and does not move the solver twice. With a store, both survive a restart.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast, get_args

import numpy as np

from verticopula.errors import LedgerError, ProtocolError, SettingsError
from verticopula.glm.admm_block import BlockSolver, SolverState, Track, Weights
from verticopula.glm.feature_design import Features
from verticopula.glm.penalties import Penalty
from verticopula.protocol.messages import (
    CoefficientsReply,
    CoefficientsRequest,
    DesignReply,
    DesignRequest,
    RegressionReply,
    RegressionRequest,
    StrengthReply,
    StrengthRequest,
    UpdateReply,
    UpdateRequest,
    fingerprint,
)
from verticopula.protocol.wire import decode, encode
from verticopula.storage.blobs import Blobs

logger = logging.getLogger(__name__)

_MOST_FITS = 2  # one being finished, one being started

_Key = tuple[str, str]


@dataclass(frozen=True, repr=False)
class KeptFit:
    """A fit as it is written to disk after every step.

    Attributes
    ----------
    design_key, last_key : fingerprints of the design's request and of the last one that changed anything
    features : digest of the features; on others the state means nothing
    """

    design: DesignRequest
    design_key: str
    design_reply: DesignReply
    features: str
    state: SolverState
    last_key: str
    last_number: int
    last_reply: DesignReply | UpdateReply | CoefficientsReply


@dataclass(frozen=True, repr=False)
class _LastReply:
    """A request, or its key alone after a restart, and its reply."""

    request: RegressionRequest | None
    key: str
    number: int
    reply: RegressionReply

    def replies_to(self, request: RegressionRequest) -> bool:
        if getattr(request, "number", -1) != self.number:
            return False  # the common case, without hashing two vectors
        if self.request is None:
            return fingerprint(request) == self.key
        return type(request) is type(self.request) and fingerprint(request) == fingerprint(self.request)


@dataclass(frozen=True, repr=False)
class _Fit:
    """What a party keeps of a fit that is under way."""

    design: DesignRequest
    design_key: str
    design_reply: DesignReply
    features: str
    solver: BlockSolver
    untouched: SolverState


@dataclass(repr=False)
class RegressionHandler:
    """One party's solvers. No repr: its replies in raw regressions are exact.

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
    _last: dict[_Key, _LastReply] = field(default_factory=dict)
    _asked_again: set[_Key] = field(default_factory=set)
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
            if isinstance(request, DesignRequest) and key in self._fits:
                fit = self._fits[key]
                if fit.design_key == fingerprint(request):
                    self._fits[key] = self._fits.pop(key)  # nothing is opened, or paid for, twice
                    self._asked_again.add(key)
                    return fit.design_reply
            if key in self._last and self._last[key].replies_to(request):
                return self._last[key].reply
            if isinstance(request, DesignRequest):
                reply: RegressionReply = self._open(request)
            else:
                self._start_over(key, request)
                reply = self._work(request, self._solver(key))
            stored = "" if self.store is None else fingerprint(request)
            self._last[key] = _LastReply(request, stored, getattr(request, "number", -1), reply)
            self._save(key)
            return reply

    def _start_over(self, key: _Key, request: RegressionRequest) -> None:
        """Reset the solver where the path begins again: a repeated design alone may be a late copy."""
        if isinstance(request, UpdateRequest) and key in self._asked_again:
            self._asked_again.discard(key)
            if request.number == 0:
                self._fits[key].solver.restore(self._fits[key].untouched)

    def _open(self, request: DesignRequest) -> DesignReply:
        penalty = self._penalty(request)
        features = self._make_features(request)
        solver = BlockSolver(features, penalty, centre=request.centre, rows=request.rows)
        reply = DesignReply(
            self.party,
            features.values.shape[0],
            features.names,
            features.sources,
            features.starts,
            solver.design.sizes,
            solver.design.constant,
        )
        self._keep(_Fit(request, fingerprint(request), reply, self._digest(features), solver, solver.state()))
        return reply

    def _make_features(self, request: DesignRequest) -> Features:
        n_rows, make = self.features(request)
        rows = request.rows
        if rows is not None and (rows.dtype != np.bool_ or rows.shape != (n_rows,) or rows.sum() < 2):
            raise ProtocolError(
                f"party {self.party!r}: rows to learn from are a mask over its {n_rows} rows, two at least"
            )
        return make()

    def _keep(self, fit: _Fit) -> None:
        """Add the newest fit, and close the oldest ones."""
        key = (fit.design.study, fit.design.fit)
        self._fits.pop(key, None)  # opened again, it is the newest
        self._fits[key] = fit
        for old in list(self._fits)[:-_MOST_FITS]:
            self._discard(old)

    def close(self, study: str, kept: Iterable[str] = ()) -> None:
        """Forget a study's fits, on disk too: what they keep is exact.

        `kept` : names of fits that an earlier process may have stored
        """
        with self._lock:
            if self.store is not None:
                for fit in kept:
                    self.store.discard(_store_key(self.party, (study, fit)))
            for key in [key for key in self._fits if key[0] == study]:
                self._discard(key)

    def _discard(self, key: _Key) -> None:
        del self._fits[key]
        self._last.pop(key, None)
        self._asked_again.discard(key)
        if self.store is not None:
            self.store.discard(_store_key(self.party, key))

    # ---- over a restart ----------------------------------------------------------------------

    def _digest(self, features: Features) -> str:
        """The digest of the features; empty without a store, where nothing is compared with it."""
        return "" if self.store is None else fingerprint((features.values, features.starts))

    def _save(self, key: _Key) -> None:
        last = self._last[key]
        if self.store is None or not isinstance(last.reply, DesignReply | UpdateReply | CoefficientsReply):
            return
        fit = self._fits[key]
        kept = KeptFit(
            fit.design,
            fit.design_key,
            fit.design_reply,
            fit.features,
            fit.solver.state(),
            last.key,
            last.number,
            last.reply,
        )
        self.store.put(_store_key(self.party, key), encode(kept))

    def _read(self, key: _Key) -> KeptFit | None:
        try:
            data = None if self.store is None else self.store.get(_store_key(self.party, key))
            return None if data is None else cast(KeptFit, decode(data, (KeptFit,)))
        except (LedgerError, ProtocolError):
            logger.warning(
                "party %s: the state of a regression cannot be read; it has to be prepared again", self.party
            )
            return None

    def _restore(self, key: _Key, request: RegressionRequest) -> None:
        """Restore a fit that an earlier process stored, if this request belongs to it."""
        kept = self._read(key)
        if kept is None:
            return
        if isinstance(request, DesignRequest) and fingerprint(request) != kept.design_key:
            return  # another fit of the same name
        features = self._make_features(kept.design)
        if self._digest(features) != kept.features:
            if isinstance(request, DesignRequest):
                return
            raise ProtocolError(f"party {self.party!r}: its table has changed since this fit was prepared")
        design = kept.design
        solver = BlockSolver(features, self._penalty(design), centre=design.centre, rows=design.rows)
        untouched = solver.state()
        solver.restore(kept.state)
        self._keep(_Fit(design, kept.design_key, kept.design_reply, kept.features, solver, untouched))
        self._last[key] = _LastReply(None, kept.last_key, kept.last_number, kept.last_reply)

    def _penalty(self, request: DesignRequest) -> Penalty:
        try:
            return Penalty.build(request.penalty, request.concavity)
        except SettingsError as error:
            raise ProtocolError(f"party {self.party!r}: {error}") from None

    def _solver(self, key: _Key) -> BlockSolver:
        if key not in self._fits:
            raise ProtocolError(f"party {self.party!r} was not asked to prepare this fit, or has closed it")
        return self._fits[key].solver

    def _work(self, request: RegressionRequest, solver: BlockSolver) -> RegressionReply:
        n_rows = solver.design.columns.shape[0]
        if isinstance(request, StrengthRequest):
            self._check(request.residual, n_rows)
            return StrengthReply(self.party, solver.largest_strength(request.residual))
        if isinstance(request, CoefficientsRequest):
            if request.record:
                solver.record()
            return CoefficientsReply(self.party, *solver.path("main"), *solver.path("refit"))
        if isinstance(request, UpdateRequest):
            self._check(request.target, n_rows)
            self._check_update(request, solver)
            if request.record:
                solver.record()
            done = solver.update(
                request.track, request.weights, request.strength, request.rho, request.target, request.tolerance
            )
            return UpdateReply(
                self.party, done.prediction, done.penalty, done.selected, done.weight_change, done.solved
            )
        raise ProtocolError(f"party {self.party!r} does not know requests of type {type(request).__name__}")

    def _check_update(self, request: UpdateRequest, solver: BlockSolver) -> None:
        positive = (request.rho, request.tolerance, request.strength + 1.0)
        if not all(np.isfinite(value) and value > 0.0 for value in positive) or request.strength < 0.0:
            raise ProtocolError(f"party {self.party!r}: rho and tolerance must be positive, the strength not negative")
        known = request.track in get_args(Track) and request.weights in get_args(Weights)
        if not known or (request.weights == "keep" and not solver.has_weights(request.track)):
            raise ProtocolError(f"party {self.party!r} does not know these weights")

    def _check(self, values: np.ndarray, n_rows: int) -> None:
        if values.dtype != np.float64 or values.shape != (n_rows,) or not np.isfinite(values).all():
            raise ProtocolError(f"party {self.party!r}: expected {n_rows} finite numbers")


def fit_key(party: str, study: str, fit: str) -> str:
    """The key under which the state of a party's fit is kept."""
    return _store_key(party, (study, fit))


def _store_key(party: str, key: _Key) -> str:
    return hashlib.sha256(repr((party, *key)).encode()).hexdigest()
