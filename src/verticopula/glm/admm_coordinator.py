"""The coordinator's side of the regression: Eqs. (6-2) and (6-3) in the sharing form of ADMM, accelerated.

Algorithm 4 lets all K parties move at once from the same residual, each as if the others stood still (a Jacobi
step). When their columns are correlated they overshoot together, and it diverges. The sharing form (Boyd et al.
2011, section 7.3) gives every party a share of the residual instead: it is ADMM with two blocks, the parties' and the
coordinator's, hence converges for every rho > 0 and every convex problem, which each weighted lasso is.

Written as a fixed-point iteration (Douglas-Rachford) on a state w, one vector per party:

    eta    = argmin  loss(eta + b) + rho / (2 K n) ||eta - sum_k w_k||^2      the coordinator, Eq. (6-2), b included
    z_k    = w_k + (eta - sum w) / K
    zeta_k = X_k argmin  penalty_k + rho / (2 n) ||X_k beta - (2 z_k - w_k)||^2   party k, Eq. (6-1)
    w_k   <- w_k + zeta_k - z_k                                                Eq. (6-3)

The plain iteration never moves further than the step before. Anderson's mixing of the last few states is tried on
top of it and given up for a plain step whenever it moves further, so that it can speed convergence up but not undo it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.families import Family
from verticopula.stats.mixing import AndersonMixer, MixingSettings

Floats = NDArray[np.float64]

_MIXING = MixingSettings(memory=20, damping=1.0, ridge=1e-14, most_growth=1.2)
_INTERCEPT_STEPS = 50
_LAST_STEP = 1e-6  # of the intercept, after which rows follow to first order and err by its square


@dataclass(frozen=True)
class SharingTuning:
    """Chosen constants of the sharing iteration. All were chosen by hand, not tuned; they change rounds, not solutions.

    Attributes
    ----------
    dual_slack : the dual residual's tolerance in units of the paper's
    dual_slack_magnified : the same by family, where other problems start from this one's solution. Where the loss is
        flatter than the penalty is concave (binomial), the weighted lassos of one strength lead away from each other,
        and errors of the first are magnified by those that follow: they must be smaller
    rho_share : of K times the loss's curvature, which would let parties and coordinator weigh the same if the blocks
        were uncorrelated
    mixing : of the last states
    inner_share : a party's own problem is solved to this share of the whole problem's tolerance
    """

    dual_slack: float = 2.0
    dual_slack_magnified: Mapping[str, float] = field(
        default_factory=lambda: {"gaussian": 2.0, "binomial": 0.2, "poisson": 0.2}
    )
    rho_share: float = 0.8
    mixing: MixingSettings = _MIXING
    inner_share: float = 1e-5


SHARING_TUNING = SharingTuning()


@dataclass(frozen=True)
class Residuals:
    """How far from a solution, per row (root mean squares), and how near is enough.

    Attributes
    ----------
    primal : sum_k X_k beta_k against eta
    dual : the gradient that the parties solved for against the loss's gradient at their own predictions; it bounds the
        violation of the optimality conditions. Departs from the paper's phi (eta - eta_old), which compares with
        a multiplier that is 1/N of this one but not with a tolerance that is, so that it always holds.
    """

    primal: float
    dual: float
    primal_enough: float
    dual_enough: float

    @property
    def done(self) -> bool:
        return self.primal <= self.primal_enough and self.dual <= self.dual_enough


class Sharing:
    """The iteration for one set of weights after the other, warm-started.

    Parameters
    ----------
    y : (n,) response
    n_parties : K
    magnified : whether other problems start from this one's solution
    """

    def __init__(
        self, y: Floats, family: Family, n_parties: int, *, fit_intercept: bool, magnified: bool = True
    ) -> None:
        tuning = SHARING_TUNING
        self._slack = tuning.dual_slack_magnified[family.name] if magnified else tuning.dual_slack
        self._y, self._family, self._fit_intercept = y, family, fit_intercept
        self.intercept = family.link(float(y.mean())) if fit_intercept else 0.0
        null = np.full(y.size, self.intercept)
        self.null_residual = family.residual(null, y)
        bend = float(np.mean(family.curvature(null)))
        self._unit = _rms(self.null_residual)
        self._reach = self._unit / bend
        # With uncorrelated blocks and a quadratic loss, rho = K times its curvature lets the parties' and the
        # coordinator's steps weigh the same.
        self.rho = SHARING_TUNING.rho_share * n_parties * bend
        self._state = np.zeros((n_parties, y.size))
        self._eta = np.zeros(y.size)
        self._mixer = AndersonMixer(SHARING_TUNING.mixing)

    def begin(self, *, afresh: bool = False) -> None:
        """New weights: they shift the map, and its slopes stay what they were wherever no column comes or goes.

        `afresh` forgets them all the same: what is mixed from old steps depends on rounding more than it need.
        """
        self._mixer = self._mixer.forget() if afresh else self._mixer.change_map()

    def inner_tolerance(self, tolerance: float) -> float:
        """How far a party's prediction may be off, in its own units, for a tolerance of the whole."""
        return tolerance * self._reach

    def targets(self) -> Floats:
        """(K, n) what each party is asked to come close to."""
        total = self._state.sum(axis=0)
        share = self.rho / self._state.shape[0]
        self._eta = self._minimise(total, share)
        self._z = self._state + (self._eta - total) / self._state.shape[0]
        return np.asarray(2.0 * self._z - self._state)

    def _minimise(self, centre: Floats, rho: float) -> Floats:
        """Eq. (6-2) with the intercept: Newton's method in it around the rows' own solutions."""
        eta = self._eta + self.intercept
        for _ in range(_INTERCEPT_STEPS if self._fit_intercept else 1):
            eta = self._family.minimise_near(centre + self.intercept, self._y, rho, eta)
            if not self._fit_intercept:
                break
            bend = self._family.curvature(eta)
            follow = rho / (bend + rho)  # how far each row's solution goes along with the intercept
            slope = max(float(bend @ follow) / eta.size, 1e-300)  # flat where a fit runs off; the step is cut anyway
            step = -float(self._family.residual(eta, self._y).sum()) / eta.size / slope
            step = min(max(step, -2.0 * self._reach), 2.0 * self._reach)
            self.intercept += step
            eta = eta + step * follow
            if abs(step) <= _LAST_STEP * self._reach:
                break
        return eta - self.intercept

    def absorb(self, predictions: Floats, tolerance: float) -> Residuals:
        """Take the parties' predictions (K, n) and move on."""
        asked = 2.0 * self._z - self._state
        total = predictions.sum(axis=0)
        gradient = self._family.residual(total + self.intercept, self._y)
        dual = max(_rms(self.rho * (a - p) + gradient) for a, p in zip(asked, predictions, strict=True))
        found = Residuals(
            primal=_rms(total - self._eta),
            dual=dual,
            primal_enough=tolerance * (self._reach + max(_rms(total), _rms(self._eta))),
            dual_enough=self._slack * tolerance * max(_rms(gradient), 1e-3 * self._unit),
        )
        self._state, self._mixer = self._mixer.next_state(self._state, predictions - self._z)
        return found


def _rms(values: Floats) -> float:
    return math.sqrt(float(values @ values) / values.size)
