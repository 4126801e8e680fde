"""The other end of the pipeline: what somebody sees who gets the synthetic tables and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.bounds.trials import AUDIT_STUDY
from verticopula.auditing.releases.attacked_releases import own_noise
from verticopula.data.tables import AlignedTable
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import Noise
from verticopula.privacy.release import Release
from verticopula.schema.federation import Federation
from verticopula.schema.study_settings import StudySettings
from verticopula.simulate.in_process import run_in_process
from verticopula.stats.fit_result import FitResult
from verticopula.storage.ledger import Ledger

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OutputRelease:
    """A whole study by its own method and as many synthetic rows as subjects, as their moments and quantiles."""

    federation: Federation
    budget: StudyBudget
    settings: StudySettings

    def __call__(self, tables: Mapping[str, AlignedTable], noise: Noise) -> Floats:
        result = self._fit(tables, noise, Ledger())
        words = noise.stream(AUDIT_STUDY, "rows").words(4)
        drawn = result.copula.sample(result.n_subjects, np.random.default_rng(words))
        rows = np.column_stack([drawn[key] for key in self.federation.keys])
        empty = np.isnan(rows)
        rows = np.where(empty, 0.0, rows)
        centred = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-12)
        products = (centred.T @ centred)[np.triu_indices(rows.shape[1], 1)]
        ends = np.quantile(rows, [0.0, 0.1, 0.5, 0.9, 1.0], axis=0).ravel()
        return np.concatenate([empty.mean(axis=0), rows.mean(axis=0), rows.std(axis=0), ends, products])

    def entries(self, tables: Mapping[str, AlignedTable], noise: Noise) -> list[Release]:
        """What the parties write to their ledgers for it."""
        ledger = Ledger()
        self._fit(tables, noise, ledger)
        return list(ledger)

    def _fit(self, tables: Mapping[str, AlignedTable], noise: Noise, ledger: Ledger) -> FitResult:
        return run_in_process(
            self.federation,
            self.settings,
            tables,
            study=AUDIT_STUDY,
            noise=lambda name: own_noise(noise, name),
            rng=np.random.default_rng(noise.stream(AUDIT_STUDY, "coordinator").words(4)),
            ledger=ledger,
            threads=1,
            budget=self.budget,
            ask_consent=False,  # of people who do not exist, with shares of a budget that no settings give
        )
