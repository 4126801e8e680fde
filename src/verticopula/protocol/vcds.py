"""VCDS (Algorithm 1): ranks and marginals once from every party, then a copula.

For data missing completely at random, or complete. Everything after the releases is
post-processing at the coordinator.
"""

from __future__ import annotations

from verticopula.privacy.budget import BudgetRequest
from verticopula.protocol.shared_rounds import Rounds, collect
from verticopula.schema.federation import Federation
from verticopula.stats.copula import FittedCopula
from verticopula.stats.fit_result import FitResult
from verticopula.stats.pairwise import fit_pairwise


def vcds(federation: Federation, request: BudgetRequest, study: str) -> Rounds[FitResult]:
    """The shared rounds, then correlations pair by pair."""
    got = yield from collect(federation, request, study, "vcds")
    correlation, report = fit_pairwise(got.released)
    copula = FittedCopula(got.released.layout, got.released.marginals, correlation)
    return FitResult(copula, got.released.marginals, report, got.missingness, got.budgets)
