"""What the coordinator opens from three compute parties' terms: a noised Gram matrix, and noised tables of counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.fixed_point import decode_sums
from verticopula.mpc.sums_plan import SumsPlan, noise_deviation
from verticopula.mpc.table_noise import table_bits, table_deviation, table_sizes, tables_sensitivity
from verticopula.mpc.verified_sums import open_terms

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class NoisyGram:
    """The first opening.

    Attributes
    ----------
    matrix : (q, q) sums over people of products of features, each times the weights of its row
    deviation_off : standard deviation of the noise off the diagonal, with all three compute parties honest
    """

    matrix: NDArray[np.float64]
    deviation_off: float


@dataclass(frozen=True)
class OpenedCounts:
    """One table of the second opening.

    Attributes
    ----------
    pair : the two columns
    counts : (c_a, c_b) people in each pair of cells
    deviation : standard deviation of the noise on each of them, with all three compute parties honest
    """

    pair: tuple[int, int]
    counts: NDArray[np.float64]
    deviation: float


def open_gram(plan: SumsPlan, terms: Sequence[Ints]) -> NoisyGram:
    """The first opening.

    Parameters
    ----------
    terms : of the three compute parties
    """
    opened = decode_sums(open_terms([_as_field(term) for term in terms]), plan.bits)
    whole = np.zeros((plan.width, plan.width))
    rows, others = np.triu_indices(plan.width)
    whole[rows, others] = opened
    whole[others, rows] = opened
    return NoisyGram(whole, noise_deviation(plan))


def open_counts(plan: SumsPlan, pairs: Ints, terms: Sequence[Ints]) -> tuple[OpenedCounts, ...]:
    """The second opening, table by table.

    Parameters
    ----------
    pairs : (m, 2) that were asked for
    terms : of the three compute parties
    """
    n, mu = plan.pattern_of.size, plan.mu_tables
    opened = open_terms([_as_field(term) for term in terms]) / 2.0 ** table_bits(n, mu)
    deviation = table_deviation(n, mu, tables_sensitivity(pairs, plan.owners, several_rows=plan.several_rows))
    cells = [len(table) for table in plan.features]
    ends = np.cumsum(table_sizes(cells, pairs))
    return tuple(
        OpenedCounts((a, b), part.reshape(cells[a], cells[b]), deviation)
        for (a, b), part in zip(pairs.tolist(), np.split(opened, ends[:-1]), strict=True)
    )


def _as_field(term: Ints) -> NDArray[np.uint64]:
    return np.ascontiguousarray(term).view(np.uint64)
