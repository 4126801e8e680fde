"""What a client does with the latents that the server sends back: margins of Eqs. (7), (8) and (10), missing values.

A client is sent every round's ranks and latents again, and replays them. What it replayed before it need not replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from verticopula.schema.columns import Column
from verticopula.schema.printed_choices import PrintedChoices
from verticopula.stats.printed.bernstein_margins import MonotoneSpline, ecdf_spline, round_values
from verticopula.stats.printed.row_order_ranks import order_ranks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class PrintedRound:
    """What became of one column in one round.

    Attributes
    ----------
    ranks : noisy ranks of the subjects that were ranked, in cohort order: the observed ones in the first round, all of
        them later
    latents : (N,) Z' of all subjects
    """

    ranks: Ints
    latents: Floats


@dataclass(frozen=True, repr=False)
class Completed:
    """A column after some rounds. No repr: it holds values.

    Attributes
    ----------
    values : (N,), any number where nobody has one
    known : (N,) who has a value
    """

    rounds: tuple[PrintedRound, ...]
    values: Floats
    known: Bools

    def is_begin_of(self, history: Sequence[PrintedRound]) -> bool:
        """Whether a history begins with these rounds."""
        return len(self.rounds) <= len(history) and all(
            np.array_equal(own.ranks, other.ranks) and np.array_equal(own.latents, other.latents)
            for own, other in zip(self.rounds, history, strict=False)
        )


def latent_spline(values: Floats, ranks: Ints, latents: Floats, choices: PrintedChoices) -> MonotoneSpline:
    """The spline through F~(x~) = Φ(Z~(x~)), for subjects with these values, noisy ranks and latents.

    Eq. (8): x~ are the values, reordered by noisy rank; of equal ranks, the earlier row comes first. Eqs. (7) and (10):
    Z~(x~_i) is the largest latent among the subjects whose noisy rank is at most that of subject i.
    """
    order, _, ends = order_ranks(ranks)
    largest = np.maximum.accumulate(latents[order])[ends - 1]
    sorted_values = np.sort(values)
    perturbed = sorted_values if choices.reorder else sorted_values[ranks[order] - 1]
    knots = np.unique(perturbed)
    heights = ndtr(largest[np.searchsorted(perturbed, knots, side="right") - 1])
    return MonotoneSpline(knots, heights, choices.smooth)


def impute_column(
    column: Column,
    values: Floats,
    observed: Bools,
    history: Sequence[PrintedRound],
    choices: PrintedChoices,
    earlier: Completed | None = None,
) -> Completed:
    """The pseudo-complete column after these rounds; nobody new has a value before the first.

    Missing values are F~^-1(Φ(Z'_mis)), by the spline of the last round, which is not privatized.

    Parameters
    ----------
    earlier : the same column after some rounds, which are not replayed if `history` begins with them
    """
    current = earlier if earlier is not None and earlier.is_begin_of(history) else Completed((), values, observed)
    for done in history[len(current.rounds) :]:
        known = current.known
        spline = latent_spline(current.values[known], done.ranks, done.latents[known], choices)
        renewed = current.values.copy()
        renewed[~observed] = round_values(spline.inverse(ndtr(done.latents[~observed])), column, choices)
        current = Completed((*current.rounds, done), renewed, np.ones_like(observed))
    return current


def margin_spline(
    column: Column,
    values: Floats,
    observed: Bools,
    history: Sequence[PrintedRound],
    choices: PrintedChoices,
    earlier: Completed | None = None,
) -> tuple[MonotoneSpline, Floats]:
    """The margin that is to be privatized, and the values that it is of: Algorithm 1 without rounds, 2 or 3 with."""
    if not history:
        return ecdf_spline(values[observed], smooth=choices.smooth), values[observed]
    completed = impute_column(column, values, observed, history[:-1], choices, earlier)
    current, known = completed.values, completed.known
    last = history[-1]
    return latent_spline(current[known], last.ranks, last.latents[known], choices), current[known]
