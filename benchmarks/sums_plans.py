"""Plans of secure sums from a mask of observed columns, for tests and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.mpc.sums_plan import SumsPlan, check_plan, choose_compute
from verticopula.mpc.verified_sums import choose_field_bits

Bools = NDArray[np.bool_]

PARTIES = {"a": 2, "b": 1, "c": 1}
CELLS = 3


def make_plan(
    widths: Mapping[str, int], observed: Bools, mu: float, per_column: float, compute: Sequence[str], cells: int = CELLS
) -> SumsPlan:
    """One pattern for every set of columns that somebody has values in, and as many fractional bits as fit.

    A column's cells stand for equal steps from -sqrt(per_column) to sqrt(per_column).

    Parameters
    ----------
    widths : party -> number of its columns, in the order of `observed`'s columns
    observed : (N, p) public mask; subjects without any value are left out
    mu : Gaussian differential privacy of all the sums together
    per_column : largest square of a column's scores
    compute : the three compute parties
    cells : of every column
    """
    if not per_column > 0.0:
        raise SettingsError("the bound per column must be positive")
    columns, labels, counts = np.unique(observed, axis=0, return_inverse=True, return_counts=True)
    labels = labels.reshape(-1)
    if columns.shape[0] and not columns[0].any():  # sorted, so the empty pattern is the first
        columns, labels, counts = columns[1:], labels - 1, counts[1:]
    if not counts.size:
        raise SettingsError("nobody has a value in any column")
    bits = min(
        choose_field_bits(int(n), per_column * int(row.sum()) + 1.0, mu) for n, row in zip(counts, columns, strict=True)
    )
    table = np.trunc(np.linspace(-1.0, 1.0, cells) * math.sqrt(per_column) * 2.0**bits).astype(np.int64)
    tables = tuple(column[:, None, None] * table[:, None] for column in columns.T.astype(np.int64))
    first, second, third = compute
    plan = SumsPlan(
        tuple(widths),
        tuple(widths.values()),
        (first, second, third),
        labels.astype(np.int64),
        columns,
        tables,
        bits,
        1.0,
        mu,
    )
    check_plan(plan)
    return plan


def complete_plan(mu: float, widths: Mapping[str, int] = PARTIES, per_column: float = 1.5) -> SumsPlan:
    """A plan for four subjects, every one observed in every column."""
    observed = np.ones((4, sum(widths.values())), dtype=bool)
    return make_plan(widths, observed, mu, per_column, choose_compute(list(widths)))
