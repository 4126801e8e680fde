"""Studies of coded tables, with margins and openings simulated in one process: for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.simulate.strict_openings import SimulatedOpenings, simulate_openings
from verticopula.stats.marginals import project_to_simplex
from verticopula.stats.strict.gaussian_margins import cell_sensitivity
from verticopula.stats.tilting.opening_plan import CodedColumn, plan_openings
from verticopula.stats.tilting.population_fit import split_budget
from verticopula.stats.tilting.selection import find_base_columns
from verticopula.stats.tilting.study_fit import prepare_fit_inputs
from verticopula.stats.tilting.tilted_fit import FitInputs, TiltedFit, fit_tilted

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CodedStudy(SimulatedOpenings):
    """All that a study of coded columns has released."""

    @property
    def settled(self) -> FitInputs:
        """Everybody's columns and tables."""
        return prepare_fit_inputs(self.plan, self.chosen, self.tables)

    def fit(self, n_rows: int, *, rng: np.random.Generator, threads: int = 1) -> TiltedFit:
        """The tilted copula and synthetic rows."""
        return fit_tilted(self.settled, n_rows, rng=rng, threads=threads)


def simulate_margins(
    codes: Ints, coded: Sequence[CodedColumn], mu: float, rng: np.random.Generator
) -> tuple[list[Floats], Floats]:
    """Released margins of all columns, and the standard deviation of the noise on a share of each."""
    sensitivities = np.array([cell_sensitivity(c.n_cells + c.may_be_empty) for c in coded])
    # d_j^2 in proportion to s_j makes the sum of the columns' squared errors least.
    deviations = np.sqrt(sensitivities * sensitivities.sum()) / mu
    margins = []
    for j, column in enumerate(coded):
        size = column.n_cells + column.may_be_empty
        counts = np.bincount(codes[codes[:, j] >= 0, j], minlength=size).astype(np.float64)
        n = counts.sum()
        noisy = counts + rng.normal(0.0, deviations[j], size)
        if size == 2:
            noisy[1] = n - noisy[0]
        margins.append(project_to_simplex(noisy / n) if n > 0 else np.full(size, 1.0 / size))
    people = np.maximum((codes >= 0).sum(axis=0), 1)
    return margins, deviations / people


def simulate_opening(
    codes: Ints,
    coded: Sequence[CodedColumn],
    mu: float,
    *,
    rng: np.random.Generator,
    response: int | None = None,
) -> CodedStudy:
    """All openings of a study.

    Parameters
    ----------
    codes : (N, p) public cells; -1 where the party does not know the person
    mu : of everything about one person
    response : the column that models will be made for, if there is one
    """
    owners = np.array([column.party for column in coded], dtype=np.int64)
    known = np.column_stack([(codes[:, owners == k] >= 0).any(axis=1) for k in range(int(owners.max()) + 1)])
    base, selecting = find_base_columns(known, owners)
    split = split_budget(mu, coded, corrected=bool(base.any() and selecting.any()))
    margins, deviations = simulate_margins(codes, coded, split.margins, rng)
    opened = simulate_openings(plan_openings(coded, known, split, margins, deviations), codes, rng, response)
    return CodedStudy(opened.plan, opened.chosen, opened.tables)
