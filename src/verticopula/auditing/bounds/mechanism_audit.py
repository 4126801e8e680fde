"""Lower bounds on epsilon for any release, from the outside: run it many times on two data sets and guess which.

The releases are split in three. On the first part scores are fitted, on the second one of them and a cut are chosen,
and only the third is counted: the event is fixed before its probabilities are estimated, so the bounds are valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.bounds.claims import Claim
from verticopula.auditing.bounds.epsilon_bounds import epsilon_low, highest_visible
from verticopula.auditing.bounds.guessing import Score, fit_scores
from verticopula.auditing.bounds.trials import Mechanism, run_trials
from verticopula.errors import SettingsError

Floats = NDArray[np.float64]
Data = TypeVar("Data")

FEWEST_TRIALS = 100
_TOLERANCE = 1e-6  # of a claim computed in floating point


@dataclass(frozen=True)
class MechanismAuditTuning:
    """How trials are used. Chosen by hand, not tuned: any choice gives a valid bound.

    Attributes
    ----------
    fits, chooses : where the parts of the trials end that scores are fitted on, and chosen by
    cuts : of a score that are tried
    """

    fits: float = 0.3
    chooses: float = 0.5
    cuts: int = 200


MECHANISM_AUDIT_TUNING = MechanismAuditTuning()


@dataclass(frozen=True)
class Neighbours(Generic[Data]):
    """Two data sets that differ in what a claim is about.

    Attributes
    ----------
    first, second : both as the release takes them
    """

    first: Data
    second: Data


@dataclass(frozen=True)
class CurvePoint:
    """Another pair (ε, δ) that the claim implies, and what was measured at that δ.

    Attributes
    ----------
    epsilon, delta : the pair
    measured : the true epsilon at that delta is at least this
    """

    epsilon: float
    delta: float
    measured: float


@dataclass(frozen=True)
class MeasuredClaim:
    """What an audit of one claim found.

    Attributes
    ----------
    claim : what was tested
    epsilon_low : the true epsilon at the claim's delta is at least this
    visible : the largest bound that so many trials could have given
    trials : releases in all
    confidence : of this finding alone
    point : where else on the claim's curve it was tested, if anywhere
    """

    claim: Claim
    epsilon_low: float
    visible: float
    trials: int
    confidence: float
    point: CurvePoint | None = None

    @property
    def holds(self) -> bool:
        """False if the claim is refuted, at its own delta or elsewhere on its curve."""
        slack = 1.0 + _TOLERANCE
        inside = self.epsilon_low <= self.claim.epsilon * slack
        return inside and (self.point is None or self.point.measured <= self.point.epsilon * slack + _TOLERANCE)

    @property
    def outcome(self) -> str:
        """What the trials say of the claim, in words: that it was not refuted proves nothing."""
        if not self.holds:
            return "REFUTED"
        return "not refuted" if self.point is not None or self.visible > self.claim.epsilon else "too few trials"


def audit_release(
    release: Mechanism[Data],
    neighbours: Neighbours[Data] | Sequence[Neighbours[Data]],
    claim: Claim,
    trials: int = 20_000,
    *,
    confidence: float = 0.95,
    seed: int | None = None,
    label: str = "release",
    workers: int = 1,
) -> MeasuredClaim:
    """The largest epsilon that an attacker who sees releases can refute.

    Parameters
    ----------
    release : called with a data set and a source of noise; returns numbers
    neighbours : one pair of data sets, or several over which guesses are pooled (what holds for each pair holds for
        their average)
    claim : what is tested
    trials : releases in all, half of them of each data set
    confidence : of the bound
    label : keys the noise of a seeded run
    workers : processes that draw releases
    seed : makes it repeatable; None for cryptographic noise
    """
    check_trials(trials, confidence)
    pairs = [neighbours] if isinstance(neighbours, Neighbours) else list(neighbours)
    each = -(-trials // (2 * len(pairs)))
    runs = [
        tuple(
            run_trials(release, data, each, label=f"{label}, {k}, {side}", seed=seed, workers=workers)
            for side, data in (("first", pair.first), ("second", pair.second))
        )
        for k, pair in enumerate(pairs)
    ]
    return judge([(first, second) for first, second in runs], claim, confidence)


def check_trials(trials: int, confidence: float) -> None:
    """SettingsError for numbers that no bound can come from."""
    if trials < FEWEST_TRIALS:
        raise SettingsError(f"an audit needs at least {FEWEST_TRIALS} trials, got {trials}")
    if not 0.5 <= confidence < 1.0:
        raise SettingsError("the confidence of an audit must be at least 0.5 and below 1")


def judge(pairs: Sequence[tuple[Floats, Floats]], claim: Claim, confidence: float) -> MeasuredClaim:
    """The bound from (trials, features) of both data sets of every pair."""
    chosen: list[tuple[Floats, Floats]] = []
    judged: list[list[tuple[Floats, Floats]]] = []
    for first, second in pairs:
        tuning = MECHANISM_AUDIT_TUNING
        a, b = (int(len(first) * part) for part in (tuning.fits, tuning.chooses))
        scores = fit_scores(first[:a], second[:a])
        best = max(scores, key=lambda score: abs(separation(score, first[a:b], second[a:b])))
        use = scores if len(pairs) == 1 else [best]
        chosen += [(score(first[a:b]), score(second[a:b])) for score in use]
        judged.append([(score(first[b:]), score(second[b:])) for score in use])
    if len(pairs) == 1:
        candidates = list(zip(chosen, judged[0], strict=True))
    else:  # every pair's own score, cut at the same level
        joined = tuple(np.concatenate([part[side] for part in chosen]) for side in (0, 1))
        tested = tuple(np.concatenate([part[0][side] for part in judged]) for side in (0, 1))
        candidates = [((joined[0], joined[1]), (tested[0], tested[1]))]
    tries = [_Try(choose, test) for choose, test in candidates]
    alpha = (1.0 - confidence) / (2.0 if claim.curve else 1.0)
    at_claim = max(tries, key=lambda t: t.plan(claim.delta, alpha)[0]).measure(claim.delta, alpha)
    point = _test_curve(tries, claim, alpha) if claim.curve else None
    size = len(candidates[0][1][0])
    total = sum(len(first) + len(second) for first, second in pairs)
    return MeasuredClaim(claim, at_claim, highest_visible(size, claim.delta, alpha), total, confidence, point)


def _test_curve(tries: Sequence[_Try], claim: Claim, alpha: float) -> CurvePoint:
    """The point of the claim's curve that looked worst on the second part, measured on the third."""
    options = [(t.plan(delta, alpha)[0] - epsilon, epsilon, delta, t) for epsilon, delta in claim.curve for t in tries]
    _, epsilon, delta, best = max(options, key=lambda option: option[0])
    return CurvePoint(epsilon, delta, best.measure(delta, alpha))


def separation(score: Score, first: Floats, second: Floats) -> float:
    """How far above the first data set a score puts the second, in its standard deviations."""
    a, b = score(first), score(second)
    return float((b.mean() - a.mean()) / (np.sqrt((a.var() + b.var()) / 2.0) + 1e-12))


@dataclass(frozen=True)
class _Try:
    """One score's values on the second part (to choose a cut) and the third (to count)."""

    choose: tuple[Floats, Floats]
    test: tuple[Floats, Floats]

    def plan(self, delta: float, alpha: float) -> tuple[float, float, bool]:
        """(bound on the second part, cut, whether the event is a score at least the cut)."""
        first, second = np.sort(self.choose[0]), np.sort(self.choose[1])
        pooled = np.unique(np.concatenate([first, second]))
        cuts = MECHANISM_AUDIT_TUNING.cuts
        if pooled.size > cuts:  # all of both ends, where ratios are largest, and quantiles between them
            ends = np.r_[np.arange(cuts // 4), np.arange(pooled.size - cuts // 4, pooled.size)]
            pooled = pooled[np.unique(np.r_[ends, np.linspace(0, pooled.size - 1, cuts // 2).astype(int)])]
        below = [np.searchsorted(part, pooled, side="left") for part in (first, second)]
        n, m = first.size, second.size
        up = epsilon_low(m - below[1], m, n - below[0], n, delta, alpha)
        down = epsilon_low(below[0], n, below[1], m, delta, alpha)
        i, j = int(np.argmax(up)), int(np.argmax(down))
        if up[i] >= down[j]:
            return float(up[i]), float(pooled[i]), True
        return float(down[j]), float(pooled[j]), False

    def measure(self, delta: float, alpha: float) -> float:
        """The bound on the third part, at the cut that the second part chose."""
        _, cut, above = self.plan(delta, alpha)
        first, second = self.test
        if above:
            return float(
                epsilon_low((second >= cut).sum(), second.size, (first >= cut).sum(), first.size, delta, alpha)
            )
        return float(epsilon_low((first < cut).sum(), first.size, (second < cut).sum(), second.size, delta, alpha))
