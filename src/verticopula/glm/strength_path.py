"""What the central and the federated solver share: the path of strengths, its stopping rules, the choice on it.

A path runs from the strength at which every penalised coefficient is zero downwards. At each strength a concave
penalty is solved by local linear approximation (LLA): first the lasso at that strength, warm-started from the
lasso before, then weighted lassos with the penalty's slopes at the last solution as weights, until the weights
rest. Departs from Algorithm 4, which does not say where LLA starts: started at the lasso it has the strong oracle
property (Fan, Xue and Zou 2014), and it does not depend on how finely the path was cut. Started at the solution
for the strength before, it lingers at points that are about to stop being minima and leaves them when rounding
errors say so, in the logistic model above all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.families import Family

Floats = NDArray[np.float64]

_ROUNDING = 1e-18  # a loss so far below that of a constant is rounding


@dataclass(frozen=True)
class PathTuning:
    """Chosen constants of a path. All were chosen by hand, not tuned; `patience` was compared with refits at every
    strength in `python -m benchmarks glm_original`.

    Attributes
    ----------
    rest_slack, still : when the weights of a concave penalty rest: what they have moved last and what they have still
        to go, at the rate at which their moves become smaller, are both below so many tolerances, relative to the
        strength; or they move by next to nothing. Near a point that is about to stop being a minimum they move little
        but ever more. Where the loss is flatter than the penalty is concave, that happens more often, and they must
        rest more firmly
    last_share : such a point may also pass for a minimum because a column that should enter is held back by less than
        the tolerance. So where weights rest, a last lasso is solved to this share of the tolerance, and they must
        rest there, too
    most_explained, most_share_of_rows : where a path ends early: the share of the null deviance that is explained, and
        the selected columns over the rows. A bounded penalty keeps neither a logistic fit from separating the classes
        nor a linear one from interpolating; coefficients run off, and an information criterion follows them. A
        gaussian or poisson fit with few columns may be as good as it likes
    patience : models in a row that score worse than the best so far, before refitting stops
    strengths, strength_ratio : of a path, unless a user says otherwise: how many, and the smallest over the largest
    most_lla_steps : weighted lassos at one strength
    """

    rest_slack: Mapping[str, float] = field(default_factory=lambda: {"gaussian": 10.0, "binomial": 1.0, "poisson": 1.0})
    still: float = 0.01
    last_share: Mapping[str, float] = field(default_factory=lambda: {"gaussian": 1.0, "binomial": 0.1, "poisson": 0.1})
    most_explained: Mapping[str, float] = field(
        default_factory=lambda: {"gaussian": np.inf, "poisson": np.inf, "binomial": 0.8}
    )
    most_share_of_rows: float = 0.5
    patience: int = 10
    strengths: int = 40
    strength_ratio: float = 1e-3
    most_lla_steps: int = 100


PATH_TUNING = PathTuning()


@dataclass(frozen=True)
class Refit:
    """Maximum likelihood on the columns that one strength selects."""

    coef: Floats
    intercept: float
    loss: float
    converged: bool


@dataclass(frozen=True)
class PathPoint:
    """The solution at one strength.

    Attributes
    ----------
    coef, intercept : (q,) and a number, on the scale of the data; the strength is that of standardised columns
    loss : f of Eq. (3)
    penalty : its value
    degrees_of_freedom : selected columns, a group counting as many as it has
    converged : whether the solver and the linear approximation both came to rest
    refit : maximum likelihood on the selected columns, where it was asked for and exists
    """

    strength: float
    coef: Floats
    intercept: float
    loss: float
    penalty: float
    degrees_of_freedom: int
    converged: bool
    refit: Refit | None = None

    @property
    def objective(self) -> float:
        return self.loss + self.penalty


def geometric_strengths(
    largest: float, count: int = PATH_TUNING.strengths, ratio: float = PATH_TUNING.strength_ratio
) -> Floats:
    """From the largest strength down to `ratio` of it."""
    return np.asarray(largest * np.geomspace(1.0, ratio, count))


def strengths_down_to(largest: float, strength: float) -> Floats:
    """A short path that ends at a given strength, for its warm starts."""
    if strength >= largest:
        return np.array([strength])
    steps = int(np.ceil(np.log(largest / max(strength, 1e-3 * largest)) / np.log(2.0))) + 1
    return np.append(np.geomspace(largest, max(strength, 1e-3 * largest), steps)[:-1], strength)


class ConvergenceMonitor:
    """Says when the weights of one strength rest, and how exactly the next weighted lasso is to be solved.

    Attributes
    ----------
    tolerance : of the next weighted lasso
    """

    def __init__(self, tolerance: float, family: Family) -> None:
        self.tolerance = tolerance
        self._enough = PATH_TUNING.rest_slack[family.name] * tolerance
        self._last = PATH_TUNING.last_share[family.name] * tolerance
        self._forget()

    def _forget(self) -> None:
        self._before, self._rate = np.inf, 0.0

    def has_converged(self, change: float) -> bool:
        """Whether this change of the weights, relative to the strength, was the last."""
        rate = change / self._before
        small = self._is_small(change, max(rate, self._rate))  # of two rates, because inexact solutions blur them
        self._before, self._rate = change, rate
        if small and self.tolerance <= self._last:
            return True
        if small:
            self.tolerance = self._last
            self._forget()
        return False

    def _is_small(self, change: float, rate: float) -> bool:
        to_go = change * rate / (1.0 - rate) if rate < 1.0 else np.inf
        return max(change, to_go) <= self._enough or change <= PATH_TUNING.still * self._enough


class DevianceScale:
    """The losses of a constant and of a perfect fit, to judge others by.

    Parameters
    ----------
    null : the loss of a constant, even where no intercept is fitted: for rare classes that of eta = 0 is far too
        easily beaten
    perfect : the loss of a perfect fit
    """

    def __init__(self, family: Family, n_rows: int, null: float, perfect: float) -> None:
        self._family, self._n_rows, self._null, self._perfect = family, n_rows, null, perfect

    @classmethod
    def of_response(cls, family: Family, y: Floats) -> DevianceScale:
        """From the responses themselves."""
        null = family.loss(np.full(y.size, family.link(float(y.mean()))), y)
        return cls(family, y.size, null, float(np.mean(family.saturated(y))))

    def loss(self, eta: Floats, y: Floats) -> float:
        """f of Eq. (3), not less than rounding allows to tell from a perfect fit."""
        return self.at_least(self._family.loss(eta, y))

    def at_least(self, loss: float) -> float:
        """The loss, or what rounding allows to tell from a perfect fit."""
        return max(loss, self._perfect + _ROUNDING * (self._null - self._perfect))

    def explained(self, loss: float) -> float:
        """Share of the constant's deviance."""
        return 1.0 - (loss - self._perfect) / (self._null - self._perfect)

    def is_saturated(self, loss: float, df: int) -> bool:
        """Whether a fit is so close to perfect that an information criterion means nothing."""
        return (
            self.explained(loss) > PATH_TUNING.most_explained[self._family.name]
            or df > PATH_TUNING.most_share_of_rows * self._n_rows
        )


def information_criterion(family: Family, loss: float, df: int, n_subjects: float, charge: float) -> float:
    """Twice the negative log-likelihood of n subjects, plus a charge for every degree of freedom.

    Departs from the printed BIC(lambda) = f + df log N, which weighs a mean against a sum and always
    selects the empty model. The mean loss over the rows is scaled to the number of subjects they stand
    for: ten times as many synthetic rows are not ten times the evidence.
    """
    fit = np.log(2.0 * loss) if family.name == "gaussian" else 2.0 * loss
    return float(n_subjects * fit + df * charge)


@dataclass(frozen=True)
class RefitRule:
    """Whether and how long selected columns are fitted again without a penalty.

    The criterion then compares models, not penalised fits: a strength large enough to keep noise out
    also shrinks what it lets in, and would lose by that alone.

    Attributes
    ----------
    charge : for a degree of freedom, in the information criterion
    n_subjects : that the rows stand for
    """

    charge: float
    n_subjects: float


class RefitStopper:
    """Says when refitting further down the path has no more to give: its score has risen for long."""

    def __init__(self, rule: RefitRule | None, family: Family) -> None:
        self._rule, self._family = rule, family
        self._best, self._worse = np.inf, 0
        self.came_to_perfect = False

    @property
    def wanted(self) -> bool:
        return self._rule is not None and self._worse < PATH_TUNING.patience and not self.came_to_perfect

    def see(self, refit: Refit | None, df: int) -> None:
        """The refit of the next model on the path; None where it is all but perfect, and there is nothing beyond it."""
        if self._rule is None:
            return
        if refit is None:
            self.came_to_perfect = True
            return
        score = information_criterion(self._family, refit.loss, df, self._rule.n_subjects, self._rule.charge)
        self._best, self._worse = (score, 0) if score < self._best else (self._best, self._worse + 1)


def choose_point(scores: Sequence[float]) -> int:
    """The index of the lowest score; the larger strength wins a tie."""
    return int(np.argmin([score if np.isfinite(score) else np.inf for score in scores]))
