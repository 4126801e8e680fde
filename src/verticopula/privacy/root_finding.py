"""Root finding: a bisection that errs to a stated side, and the safeguarded steps of Newton's method.

A search for a root stops near it, on one side or the other. Privacy accounting needs the safe side: an epsilon must be
reported from above, a noise scale chosen from below. `scipy.optimize` does not say on which side it stops, so `bisect`
is our own. `newton_step` is for compiled loops over many roots, which `scipy.optimize` cannot be called from. Where
neither matters (`scipy.optimize.brentq`) the library is used. The file stands here because privacy is the lowest room
that needs it; stats, glm and forecasting import it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from numba import njit

_ZERO_STEP = 1024.0  # a geometric search with an end at 0 divides the other end by this


def bisect(
    holds: Callable[[float], bool],
    true_end: float,
    false_end: float,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    steps: int | None = None,
    geometric: bool = False,
) -> float:
    """The point nearest to where `holds` changes, on the side where it is true.

    The answer is `true_end` itself or a point at which `holds` returned True: never one on the other side. So a
    `true_end` above `false_end` gives an answer from above, one below it an answer from below.

    Parameters
    ----------
    holds : changes once between the two ends; it is not called at the ends
    true_end : where it is true
    false_end : where it is false
    relative, absolute : the ends may be this far apart at the end, as a share of the larger one or as it is; 0 and 0
        for as near as floats allow
    steps : most evaluations of `holds`; no limit if None
    geometric : split by the geometric mean, for ends of different orders of magnitude, neither below 0
    """
    while steps is None or steps > 0:
        if not abs(true_end - false_end) > max(relative * max(abs(true_end), abs(false_end)), absolute):
            break
        middle = _geometric_middle(true_end, false_end) if geometric else 0.5 * (true_end + false_end)
        if middle in (true_end, false_end):  # no float between them
            break
        if holds(middle):
            true_end = middle
        else:
            false_end = middle
        steps = None if steps is None else steps - 1
    return true_end


def _geometric_middle(first: float, second: float) -> float:
    if min(first, second) > 0.0:
        return math.sqrt(first * second)
    return max(first, second) / _ZERO_STEP


def halve_until_lower(objective: Callable[[float], float], now: float, halvings: int) -> float:
    """The first of the shares 1, 1/2, 1/4, ... of a step at which an objective is not above `now`; 0 where none is.

    Parameters
    ----------
    objective : its value after so much of the step
    now : its value before it
    halvings : shares that are tried
    """
    tried = (0.5**k for k in range(halvings))
    return next((share for share in tried if objective(share) <= now), 0.0)


@njit(cache=True, nogil=True)
def newton_step(
    x: float, value: float, slope: float, low: float, high: float, longest: float = math.inf
) -> tuple[float, bool]:
    """The next guess for the root of a function that rises between `low` and `high`, and whether it is Newton's.

    Newton's step is taken where it stays between the two and is no longer than `longest`; otherwise the next guess is
    the middle. So neither a bad start nor a steep function costs more than a few dozen steps, if the caller moves the
    end on whose side `x` is to `x` first, and allows half the step before.

    Parameters
    ----------
    x : the guess
    value, slope : of the function there
    low, high : the function is not above 0 at the one, and not below it at the other
    longest : step of Newton's that is believed
    """
    step = -value / slope if slope > 0.0 else math.inf
    target = x + step
    if low <= target <= high and abs(step) <= longest:
        return target, True
    return 0.5 * (low + high), False
