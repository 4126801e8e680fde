"""The other end of the pipeline: what somebody sees who gets the synthetic tables and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.audit.releases import own_noise
from verticopula.privacy.budget import BudgetRequest
from verticopula.privacy.ledger import Ledger, Release
from verticopula.privacy.noise import Noise
from verticopula.protocol.party import LocalParty
from verticopula.protocol.vcds import vcds
from verticopula.result import FitResult
from verticopula.schema import Federation
from verticopula.tables import AlignedTable
from verticopula.transport.base import drive
from verticopula.transport.inprocess import InProcessTransport

Floats = NDArray[np.float64]

_STUDY = "audit"


@dataclass(frozen=True)
class OutputRelease:
    """A whole VCDS study and as many synthetic rows as subjects, as their moments and quantiles.

    The other methods compute their tables from the same releases, so its claim is theirs too.
    """

    federation: Federation
    request: BudgetRequest

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
        return drive(vcds(self.federation, self.request, _STUDY), InProcessTransport(parties))
