"""Plans of secure sums from who knows whom, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.sums_plan import SumsPlan, check_plan, choose_compute

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

PARTIES = {"a": 2, "b": 1, "c": 1}
CELLS = 3
BITS = 10
MOST_TABLES = 6


def make_plan(
    widths: Mapping[str, int],
    known: Bools,
    mu: float,
    compute: Sequence[str],
    *,
    cells: int = CELLS,
    mu_tables: float = 1.0,
    most_tables: int = MOST_TABLES,
    several_rows: bool = False,
    selection: bool = False,
    features: int = 2,
) -> SumsPlan:
    """One pattern for every set of parties that know somebody, with weights that make all records equally long.

    A column's cells stand for equal steps from -1 to 1, and for -1 at the ends and 1 between them.

    Parameters
    ----------
    widths : party -> number of its columns
    known : (N, K) whom the parties know
    mu, mu_tables : of the two openings
    compute : the three compute parties
    cells : of every column
    selection : whether parties that know everybody release features of those whom others know
    features : of a column: the steps, or both
    """
    patterns, labels = np.unique(known, axis=0, return_inverse=True)
    steps = np.linspace(-1.0, 1.0, cells)
    table = np.rint(np.column_stack([steps, 1.0 - 2.0 * (np.abs(steps) == 1.0)]) * 2.0**BITS).astype(np.int64)[
        :, :features
    ]
    sizes = patterns @ np.array(list(widths.values()), dtype=np.float64)
    weights = np.where(patterns, np.rint(64.0 / np.sqrt(np.maximum(sizes, 1.0)))[:, None], 0.0).astype(np.int64)
    selecting = ~known.all(axis=0)
    base = ~selecting if selection and selecting.any() else np.zeros_like(selecting)
    first, second, third = compute
    plan = SumsPlan(
        parties=tuple(widths),
        n_columns=tuple(widths.values()),
        compute=(first, second, third),
        pattern_of=labels.reshape(-1).astype(np.int64),
        weights=weights,
        features=(table,) * sum(widths.values()),
        groups=(np.arange(cells),) * sum(widths.values()),
        bits=BITS,
        cap=1.0,
        selecting=selecting,
        base=base,
        most_tables=most_tables,
        several_rows=several_rows,
        mu=mu,
        mu_tables=mu_tables if most_tables else 0.0,
        mu_selection=0.5 if base.any() else 0.0,
    )
    check_plan(plan)
    return plan


def complete_plan(mu: float, widths: Mapping[str, int] = PARTIES, n: int = 4) -> SumsPlan:
    """A plan for a few subjects whom everybody knows; mu of both openings."""
    known = np.ones((n, len(widths)), dtype=bool)
    return make_plan(widths, known, mu, choose_compute(list(widths)), mu_tables=mu, features=1)


def all_pairs(plan: SumsPlan) -> Ints:
    """(m, 2) every pair of columns, the nearest first, as many as the plan allows."""
    rows, columns = np.triu_indices(len(plan.features), 1)
    order = np.argsort(columns - rows, kind="stable")
    return np.column_stack([rows, columns])[order][: plan.most_tables].astype(np.int64)
