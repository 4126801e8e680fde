"""The other end of the pipeline: what somebody sees who gets the synthetic tables and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.attacked_releases import own_noise
from verticopula.data.tables import AlignedTable
from verticopula.privacy.budget import BudgetRequest
from verticopula.privacy.noise import Noise
from verticopula.privacy.release import Release
from verticopula.protocol.evcds import evcds
from verticopula.protocol.ievcds import ievcds
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.refined import refined
from verticopula.protocol.shared_rounds import Rounds
from verticopula.protocol.vcds import vcds
from verticopula.schema.federation import Federation
from verticopula.stats.fit_result import FitResult
from verticopula.storage.ledger import Ledger
from verticopula.transport.base import drive
from verticopula.transport.inprocess import InProcessTransport

Floats = NDArray[np.float64]

METHODS = ("vcds", "evcds", "ievcds", "refined")

_STUDY = "audit"


@dataclass(frozen=True)
class OutputRelease:
    """A whole study by its own method and as many synthetic rows as subjects, as their moments and quantiles."""

    federation: Federation
    request: BudgetRequest
    method: str = "vcds"

    def __call__(self, tables: Mapping[str, AlignedTable], noise: Noise) -> Floats:
        result = self._fit(tables, noise, Ledger())
        words = noise.stream(_STUDY, "rows").words(4)
        drawn = result.copula.sample(result.n_subjects, np.random.default_rng(words))
        rows = np.column_stack([drawn[key] for key in self.federation.keys])
        centred = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-12)
        products = (centred.T @ centred)[np.triu_indices(rows.shape[1], 1)]
        ends = np.quantile(rows, [0.0, 0.1, 0.5, 0.9, 1.0], axis=0).ravel()
        return np.concatenate([rows.mean(axis=0), rows.std(axis=0), ends, products])

    def entries(self, tables: Mapping[str, AlignedTable], noise: Noise) -> list[Release]:
        """What the parties write to their ledgers for it."""
        ledger = Ledger()
        self._fit(tables, noise, ledger)
        return list(ledger)

    def _fit(self, tables: Mapping[str, AlignedTable], noise: Noise, ledger: Ledger) -> FitResult:
        parties = {name: LocalParty(table, own_noise(noise, name), ledger) for name, table in tables.items()}
        return drive(self._rounds(noise), InProcessTransport(parties))

    def _rounds(self, noise: Noise) -> Rounds[FitResult]:
        if self.method == "refined":
            return refined(self.federation, self.request, _STUDY)
        if self.method == "vcds":
            return vcds(self.federation, self.request, _STUDY)
        rng = np.random.default_rng(noise.stream(_STUDY, "coordinator").words(4))
        return (evcds if self.method == "evcds" else ievcds)(self.federation, self.request, _STUDY, rng)
