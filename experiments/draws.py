"""The data sets of Section 5: one design cell and a replication number give one data set, whoever asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.designs import (
    FAMILY_OF_MODEL,
    MarCase,
    Model,
    SimulatedData,
    SimulationDesign,
    make_complete,
    mask_mar,
    mask_mcar,
)
from experiments.metrics import kolmogorov
from experiments.paper import COMPLETE
from experiments.study import Study
from verticopula.errors import SettingsError
from verticopula.schema.columns import ColumnKey
from verticopula.stats.marginals import Marginal

Bools = NDArray[np.bool_]

MODELS: tuple[Model, ...] = tuple(FAMILY_OF_MODEL)
MECHANISMS = ("MAR-simple", "MAR-complex", "MCAR")
CASES: dict[str, MarCase] = {"MAR-simple": "simple", "MAR-complex": "complex"}
FEWEST_AT_PARTY, FEWEST_IN_COMMON = 10, 2
MOST_DRAWS = 1_000  # of which one must be usable; at the paper's sizes nearly every one is


class Cell(NamedTuple):
    """One design: a model, how blocks go missing (`complete`: they do not), and how many subjects there are."""

    model: Model
    mechanism: str
    n_subjects: int

    @property
    def name(self) -> str:
        return f"{self.model}-{self.mechanism}-{self.n_subjects}"


@dataclass(frozen=True)
class Drawn:
    """A data set, and who is observed where (None: everybody everywhere)."""

    data: SimulatedData
    observed: Bools | None

    @property
    def complete_cases(self) -> float:
        """Share of the subjects."""
        return 1.0 if self.observed is None else float(self.observed.all(axis=1).mean())

    def margin_error(self, margins: Mapping[ColumnKey, Marginal]) -> float:
        """Mean over the covariates of the Kolmogorov distance between a fitted margin and the complete data's."""
        design, kinds = self.data.design, self.data.kinds
        return float(
            np.mean(
                [
                    kolmogorov(
                        margins[ColumnKey(party, f"x{j + 1}")].cdf,
                        self.data.x[:, j] - (kinds[j] == "ordinal"),  # categories are 1, 2, ...; codes begin at 0
                        discrete=kinds[j] != "continuous",
                    )
                    for party, block in zip(design.client_names, self.data.blocks, strict=True)
                    for j in range(block.start, block.stop)
                ]
            )
        )

    def study(self, epsilon: float, seed: int, rows_per_subject: int) -> Study:
        """As the parties hold it."""
        return Study(
            self.data.federation(),
            self.data.tables(self.observed),
            FAMILY_OF_MODEL[self.data.design.model],
            epsilon,
            seed,
            rows_per_subject,
        )


def draw(cell: Cell, replication: int, design: SimulationDesign | None = None) -> Drawn:
    """One replication's data set; `design` in place of the paper's own for smaller ones.

    A cell without missing blocks has the data of its MAR-simple cell, as long as the first draw of that is usable: to
    numpy a key and the same key with a 0 behind it are one seed.
    """
    key = [replication, cell.n_subjects, MODELS.index(cell.model)]
    setting = design or SimulationDesign(model=cell.model)
    if cell.mechanism == COMPLETE:
        return Drawn(make_complete(setting, cell.n_subjects, rng=np.random.default_rng(key)), None)
    rng = np.random.default_rng([*key, MECHANISMS.index(cell.mechanism)])
    if cell.n_subjects < FEWEST_AT_PARTY:
        raise SettingsError(f"N = {cell.n_subjects} is too small: every client must have {FEWEST_AT_PARTY} subjects")
    for _ in range(MOST_DRAWS):
        data = make_complete(setting, cell.n_subjects, rng=rng)
        if cell.mechanism == "MCAR":
            observed = mask_mcar(cell.n_subjects, rng=rng)
        else:
            observed = mask_mar(data, rng=rng, case=CASES[cell.mechanism])
        if _is_usable(observed):
            return Drawn(data, observed)
    raise SettingsError(
        f"{cell.name}: of {MOST_DRAWS} data sets none has {FEWEST_AT_PARTY} subjects at every client and "
        f"{FEWEST_IN_COMMON} in common of every two; take a larger N"
    )


def _is_usable(observed: Bools) -> bool:
    """Whether VCDS can run: every client has some subjects, every two have some in common."""
    overlap = observed.astype(np.int64).T @ observed
    return bool(overlap.min() >= FEWEST_IN_COMMON and overlap.diagonal().min() >= FEWEST_AT_PARTY)
