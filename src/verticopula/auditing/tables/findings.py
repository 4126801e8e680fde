"""What an attack on a finished table found, and the intervals it comes with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Finding:
    """One figure with its interval, beside what an attack without the table would get.

    Attributes
    ----------
    name : which attack
    value, low, high : the figure and its interval
    expected : what it would be if the table held nothing about its own people
    baseline : what the same attack gets from rows that were made up from the margins alone, or from no row at all; None
        where that makes no sense
    means : one sentence for a person in the data
    details : figures behind it, for the report
    worse : whether a higher or a lower figure tells more about people
    conclusive : False where so few people decide the figure that no outcome could have been told from chance
    """

    name: str
    value: float
    low: float
    high: float
    expected: float
    baseline: float | None
    means: str
    details: dict[str, Any] | None = None
    worse: Literal["higher", "lower"] = "higher"
    conclusive: bool = True

    @property
    def is_suspicious(self) -> bool:
        """Whether chance is no explanation."""
        return self.low > self.expected if self.worse == "higher" else self.high < self.expected


def normal_interval(value: float, error: float, confidence: float) -> tuple[float, float]:
    """value ± z standard errors."""
    z = float(ndtri(0.5 + confidence / 2.0))
    return value - z * error, value + z * error


def wilson_interval(share: float, size: float, confidence: float) -> tuple[float, float]:
    """Wilson's interval of a share of `size` equal parts: it lies in [0, 1], also where the share is 0 or 1.

    It holds p exactly if the share is within z √(p(1-p)/size) of p, so a share is told from one half as by a score
    test. `size` need not be whole: 1/Σw² stands for parts with unequal weights w that sum to one.
    """
    z2 = float(ndtri(0.5 + confidence / 2.0)) ** 2 / size
    centre, reach = share + z2 / 2.0, np.sqrt(z2 * (share * (1.0 - share) + z2 / 4.0))
    low, high = (centre - reach) / (1.0 + z2), (centre + reach) / (1.0 + z2)
    return float(min(max(low, 0.0), share)), float(max(min(high, 1.0), share))


def difference_of_shares(
    first: tuple[float, int], second: tuple[float, int], confidence: float
) -> tuple[float, float, float]:
    """The first share less the second, each with its number of parts, with Newcombe's interval inside [-1, 1]."""
    (p, n), (q, m) = first, second
    (p_low, p_high), (q_low, q_high) = wilson_interval(p, n, confidence), wilson_interval(q, m, confidence)
    low = p - q - np.hypot(p - p_low, q_high - q)
    high = p - q + np.hypot(p_high - p, q - q_low)
    return p - q, float(low), float(high)


def can_tell_from_half(size: float, confidence: float) -> bool:
    """Whether Wilson's interval of a share of so many parts could leave out one half: for shares of 0 and 1, if any."""
    return wilson_interval(1.0, size, confidence)[0] > 0.5


def difference_of_means(first: Floats, second: Floats, confidence: float) -> tuple[float, float, float]:
    """Mean of the first less that of the second, with a normal interval (Welch)."""
    value = float(first.mean() - second.mean())
    error = float(np.sqrt(first.var(ddof=1) / first.size + second.var(ddof=1) / second.size))
    return (value, *normal_interval(value, error, confidence))


def auc(positive: Floats, negative: Floats, confidence: float) -> tuple[float, float, float]:
    """Probability that a positive scores above a negative (ties half), with DeLong's interval."""
    m, n = positive.size, negative.size
    together = rankdata(np.concatenate([positive, negative]))
    above = (together[:m] - rankdata(positive)) / n  # for each positive, the share of negatives below it
    below = 1.0 - (together[m:] - rankdata(negative)) / m
    value = float(above.mean())
    error = float(np.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n))
    low, high = normal_interval(value, error, confidence)
    return value, max(low, 0.0), min(high, 1.0)
