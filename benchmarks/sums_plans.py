"""Plans of secure sums from a mask of observed columns, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.mpc.fixed_point import bound_of, choose_bits
from verticopula.mpc.sums_plan import SumsPlan, check_plan, choose_compute

Bools = NDArray[np.bool_]

PARTIES = {"a": 2, "b": 1, "c": 1}


def make_plan(
    widths: Mapping[str, int], observed: Bools, mu: float, per_column: float, compute: Sequence[str]
) -> SumsPlan:
    """One pattern for every set of columns that somebody has values in, and as many fractional bits as fit.

    Parameters
    ----------
    widths : party -> number of its columns, in the order of `observed`'s columns
    observed : (N, p) public mask; subjects without any value are left out
    mu : Gaussian differential privacy of all the sums together
    per_column : a party's part of a record has a squared norm of at most this times its observed columns
    compute : the three compute parties
    """
    if not per_column > 0.0:
        raise SettingsError("the bound per column must be positive")
    columns, labels, counts = np.unique(observed, axis=0, return_inverse=True, return_counts=True)
    labels = labels.reshape(-1)
    if columns.shape[0] and not columns[0].any():  # sorted, so the empty pattern is the first
        columns, labels, counts = columns[1:], labels - 1, counts[1:]
    ends = np.cumsum(list(widths.values()))
    starts = ends - np.array(list(widths.values()), dtype=np.int64)
    parts = np.column_stack([columns[:, a:b].sum(axis=1) for a, b in zip(starts, ends, strict=True)])
    if not counts.size:
        raise SettingsError("nobody has a value in any column")
    bits = min(
        choose_bits(int(n), per_column * int(row.sum()) + 1.0, mu, int(row.sum()) + 1)
        for n, row in zip(counts, parts, strict=True)
    )
    exact = {int(size): bound_of(per_column * int(size), bits) for size in np.unique(parts)}
    bounds = np.vectorize(exact.__getitem__, otypes=[np.int64])(parts)
    first, second, third = compute
    plan = SumsPlan(
        tuple(widths),
        tuple(widths.values()),
        (first, second, third),
        labels.astype(np.int64),
        columns,
        bounds,
        bits,
        mu,
    )
    check_plan(plan)
    return plan


def complete_plan(mu: float, widths: Mapping[str, int] = PARTIES, per_column: float = 1.5) -> SumsPlan:
    """A plan for four subjects, every one observed in every column."""
    observed = np.ones((4, sum(widths.values())), dtype=bool)
    return make_plan(widths, observed, mu, per_column, choose_compute(list(widths)))
