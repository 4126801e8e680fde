"""Bisection that errs to a stated side.

A search for a root stops near it, on one side or the other. Privacy accounting needs the safe side: an epsilon must be
reported from above, a noise scale chosen from below. `scipy.optimize` does not say on which side it stops, so this is
our own. Where the side does not matter (`scipy.optimize.brentq`) the library is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
