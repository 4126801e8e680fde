"""The constants of method `strict` that were chosen, not derived; those of its model are in `stats/tilting`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StrictTuning:
    """When a strict study's report calls something unknown. Both were chosen by hand, not tuned.

    Attributes
    ----------
    nearly_all : share of all mass in one cell of a nominal column that leaves nothing to associate
    largest_error : expected; with a larger one a correlation is reported as not supported
    """

    nearly_all: float = 0.995
    largest_error: float = 0.05


STRICT_TUNING = StrictTuning()
