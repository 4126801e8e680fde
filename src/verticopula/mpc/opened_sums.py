"""The sums that the coordinator opens: one pattern's noised sums and products, from three compute parties' shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.fixed_point import decode_sums
from verticopula.mpc.sums_plan import SumsPlan, noise_deviation
from verticopula.mpc.verified_sums import open_terms


@dataclass(frozen=True)
class PatternSums:
    """The noised moments of one pattern's scores.

    Attributes
    ----------
    n_subjects : public
    columns : (q,) which of the plan's columns they are about
    sums, products : (q,) and (q, q) sums of scores and of their products
    deviation_off, deviation_on : standard deviation of the noise on `sums` and off-diagonal products, and on the
        diagonal, with all three compute parties honest
    """

    n_subjects: int
    columns: NDArray[np.int64]
    sums: NDArray[np.float64]
    products: NDArray[np.float64]
    deviation_off: float
    deviation_on: float


def open_sums(plan: SumsPlan, shares: Sequence[Sequence[NDArray[np.int64]]]) -> tuple[PatternSums, ...]:
    """The sums of every pattern, in the plan's order.

    Parameters
    ----------
    shares : for each of the three compute parties, its share of every pattern's upper triangle
    """
    return tuple(
        _open_pattern(plan, pattern, [share[pattern] for share in shares]) for pattern in range(plan.columns.shape[0])
    )


def _open_pattern(plan: SumsPlan, pattern: int, shares: Sequence[NDArray[np.int64]]) -> PatternSums:
    columns = np.flatnonzero(plan.columns[pattern])
    opened = decode_sums(open_terms([np.ascontiguousarray(share).view(np.uint64) for share in shares]), plan.bits)
    whole = np.zeros((columns.size + 1, columns.size + 1))
    rows, others = (places[:-1] for places in np.triu_indices(columns.size + 1))
    whole[rows, others] = opened
    whole[others, rows] = opened
    count = int((plan.pattern_of == pattern).sum())
    return PatternSums(count, columns, whole[:-1, -1], whole[:-1, :-1], *noise_deviation(plan, pattern))
