"""What a check consists of: measured points, slopes fitted to them, verdicts by rules that are stated with them.

A theorem of the form "error = O_P(rate)" is a bound. It is contradicted where the error falls more slowly than the rate
(or grows faster), and it is `tight` where both go together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reporting.tables import mean, standard_error

Floats = NDArray[np.float64]

WITHIN = 2.0  # standard errors
CURVATURE = 0.1  # what a finite range of sizes may take from a slope of the limit


@dataclass(frozen=True)
class MeasuredPoint:
    """One measured mean.

    Attributes
    ----------
    series : the line it belongs to
    variable, x : what is varied, and its value
    error : standard error over replications
    """

    series: str
    variable: str
    x: float
    measure: str
    mean: float
    error: float
    replications: int


@dataclass(frozen=True)
class Panel:
    """Points with common axes.

    Attributes
    ----------
    slope : of a dashed reference line through the first point of the first series; None for none
    level : of a dashed horizontal line; None for none
    """

    title: str
    points: Sequence[MeasuredPoint]
    x_label: str
    y_label: str
    slope: float | None = None
    level: float | None = None
    log_y: bool = True


@dataclass(frozen=True)
class Verdict:
    """One prediction, judged; `agrees` is None where the measurement is too coarse to say."""

    predicts: str
    measured: str
    rule: str
    agrees: bool | None
    tight: bool | None = None


@dataclass(frozen=True)
class Check:
    """Everything about one theorem."""

    theorem: str
    statement: str
    setup: str
    panels: Sequence[Panel]
    verdicts: Sequence[Verdict]
    note: str = ""


def to_dict(check: Check) -> dict[str, Any]:
    """As plain values."""
    return asdict(check)


def from_dict(raw: Mapping[str, Any]) -> Check:
    """The inverse of `to_dict`."""
    panels = [Panel(**{**panel, "points": [MeasuredPoint(**p) for p in panel["points"]]}) for panel in raw["panels"]]
    return Check(**{**raw, "panels": panels, "verdicts": [Verdict(**v) for v in raw["verdicts"]]})


def points_of(points: Sequence[MeasuredPoint], measure: str) -> list[MeasuredPoint]:
    """Those of one measure."""
    return [point for point in points if point.measure == measure]


def average(values: ArrayLike) -> tuple[float, float]:
    """Mean and its standard error."""
    return mean(values), standard_error(values)


def root_mean_square(errors: ArrayLike) -> tuple[float, float]:
    """Root mean square of the errors, and its standard error by the delta method."""
    square, error = average(np.asarray(errors, dtype=np.float64) ** 2)
    root = float(np.sqrt(square))
    return root, error / (2.0 * root) if root > 0.0 else 0.0


def point(
    series: str, variable: str, x: float, measure: str, values: ArrayLike, *, squared: bool = False
) -> MeasuredPoint:
    """The mean of replications, or their root mean square if `squared`."""
    found = np.asarray(values, dtype=np.float64)
    return MeasuredPoint(
        series, variable, float(x), measure, *(root_mean_square if squared else average)(found), found.size
    )


@dataclass(frozen=True)
class Slope:
    """A fitted exponent and its standard error."""

    value: float
    error: float

    @property
    def slack(self) -> float:
        return max(WITHIN * self.error, CURVATURE)

    def __str__(self) -> str:
        return f"{self.value:+.2f} (s.e. {self.error:.2f})"


def fit_slope(points: Sequence[MeasuredPoint], x: ArrayLike | None = None) -> Slope:
    """Exponent of mean against x by weighted least squares on logarithms.

    The standard error is that of the points' own errors, or of their scatter about the line where that is larger.
    """
    means = np.array([p.mean for p in points])
    places = np.log(np.array([p.x for p in points]) if x is None else np.asarray(x, dtype=np.float64))
    logs, errors = np.log(means), np.maximum(np.array([p.error for p in points]) / means, 1e-6)
    weights = errors**-2.0
    centred = places - np.average(places, weights=weights)
    information = float(np.sum(weights * centred**2))
    value = float(np.sum(weights * centred * logs) / information)
    rest = logs - np.average(logs, weights=weights) - value * centred
    scatter = float(np.sum(weights * rest**2) / max(len(points) - 2, 1))
    return Slope(value, float(np.sqrt(max(scatter, 1.0) / information)))


def judge_rate(predicts: str, slope: Slope, rate: float, *, what: str) -> Verdict:
    """A bound with that exponent: it holds unless the slope is above it, and is tight unless it is below it too."""
    widest = max(abs(rate) / 2.0, CURVATURE)
    decided = WITHIN * slope.error <= widest or slope.value > rate + slope.slack
    agrees = slope.value <= rate + slope.slack if decided else None
    return Verdict(
        predicts,
        f"{what}: slope {slope}",
        f"holds if the slope is at most {rate:+.3g} + max({WITHIN:g} s.e., {CURVATURE:g}); tight if also at least "
        f"{rate:+.3g} minus that; undecided if it does and {WITHIN:g} s.e. are more than {widest:.3g}",
        agrees,
        slope.value >= rate - slope.slack if agrees else None,
    )


def judge_plateau(predicts: str, points: Sequence[MeasuredPoint], *, what: str) -> Verdict:
    """A limit above zero: the larger half of the sizes lies on a level line, and the last point is not 0."""
    upper = points[len(points) // 2 - 1 :]
    slope, last = fit_slope(upper), points[-1]
    return Verdict(
        predicts,
        f"{what}: slope {slope} from {upper[0].x:,g} on; {last.mean:.3g} (s.e. {last.error:.2g}) at {last.x:,g}",
        f"holds if the slope of the larger half is within max({WITHIN:g} s.e., {CURVATURE:g}) of 0 and the last point "
        f"is more than {WITHIN:g} s.e. above 0",
        abs(slope.value) <= slope.slack and last.mean > WITHIN * last.error,
    )


def judge_equal(predicts: str, found: tuple[float, float], target: float, *, what: str) -> Verdict:
    """A number: within two standard errors of it."""
    mean, error = found
    return Verdict(
        predicts,
        f"{what}: {mean:.3g} (s.e. {error:.2g}), predicted {target:.3g}",
        f"holds if they differ by at most {WITHIN:g} s.e.",
        abs(mean - target) <= WITHIN * error,
    )


def of_series(points: Sequence[MeasuredPoint], series: str, measure: str | None = None) -> list[MeasuredPoint]:
    """The points of one line, in order."""
    chosen = [p for p in points if p.series == series and measure in (None, p.measure)]
    return sorted(chosen, key=lambda p: p.x)
