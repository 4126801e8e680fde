"""Where a party answers the requests of a regression; the columns it may use are handed to it.

Every fit has its own solver, made by a DesignRequest. The last answer of a fit is kept, so that a request that is
sent again is answered again and does not move the solver twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from verticopula.errors import ProtocolError, SettingsError
from verticopula.glm.block import BlockSolver, Track, Weights
from verticopula.glm.design import Features
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

_MOST_FITS = 2  # one being finished, one being started


@dataclass(repr=False)
class RegressionDesk:
    """One party's solvers. No repr: its answers to raw regressions are exact.

    Attributes
    ----------
    features : for a DesignRequest, the number of rows and what makes its features; may refuse. The second is called
        only when everything else about the request is fine, because for raw columns it is recorded as a release.
    """

    party: str
    features: Callable[[DesignRequest], tuple[int, Callable[[], Features]]]
    _solvers: dict[tuple[str, str], BlockSolver] = field(default_factory=dict)
    _last: dict[tuple[str, str], tuple[RegressionRequest, RegressionReply]] = field(default_factory=dict)
    _designs: dict[tuple[str, str], tuple[str, DesignReply]] = field(default_factory=dict)

    @classmethod
    def holding(cls, party: str, features: Features) -> RegressionDesk:
        """A desk whose features are known and nobody's secret: it uses all of them, whatever is asked."""
        return cls(party, lambda request: (features.values.shape[0], lambda: features))

    def handle(self, request: RegressionRequest) -> RegressionReply:
        key = (request.study, getattr(request, "fit", ""))
        if isinstance(request, DesignRequest) and self._designs.get(key, ("", None))[0] == fingerprint(request):
            self._solvers[key] = self._solvers.pop(key)  # a late copy: nothing is opened, or paid for, twice
            return self._designs[key][1]
        if key in self._last and _is_same(request, self._last[key][0]):
            return self._last[key][1]
        reply = self._open(request) if isinstance(request, DesignRequest) else self._work(request, self._solver(key))
        self._last[key] = (request, reply)
        return reply

    def _open(self, request: DesignRequest) -> DesignReply:
        penalty = self._penalty(request)
        n_rows, make = self.features(request)
        rows = request.rows
        if rows is not None and (rows.dtype != np.bool_ or rows.shape != (n_rows,) or rows.sum() < 2):
            raise ProtocolError(
                f"party {self.party!r}: rows to learn from are a mask over its {n_rows} rows, two at least"
            )
        features = make()
        solver = BlockSolver(features, penalty, centre=request.centre, rows=request.rows)
        self._solvers.pop((request.study, request.fit), None)  # opened again, it is the newest
        self._solvers[request.study, request.fit] = solver
        for old in list(self._solvers)[:-_MOST_FITS]:
            del self._solvers[old]
            self._last.pop(old, None)
            self._designs.pop(old, None)
        reply = DesignReply(
            self.party,
            features.values.shape[0],
            features.names,
            features.sources,
            features.starts,
            solver.design.sizes,
            solver.design.constant,
        )
        self._designs[request.study, request.fit] = (fingerprint(request), reply)
        return reply

    def _penalty(self, request: DesignRequest) -> Penalty:
        try:
            return Penalty.build(request.penalty, request.concavity)
        except SettingsError as error:
            raise ProtocolError(f"party {self.party!r}: {error}") from None

    def _solver(self, key: tuple[str, str]) -> BlockSolver:
        if key not in self._solvers:
            raise ProtocolError(f"party {self.party!r} was not asked to prepare this fit, or has closed it")
        return self._solvers[key]

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


def _is_same(request: RegressionRequest, last: RegressionRequest) -> bool:
    if isinstance(request, UpdateRequest) and isinstance(last, UpdateRequest) and request.number != last.number:
        return False  # the common case, without hashing two vectors
    return type(request) is type(last) and fingerprint(request) == fingerprint(last)
