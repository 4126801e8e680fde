"""VCDS (Algorithm 1): correlations pair by pair from noisy ranks, margins from noisy cells.

For data missing completely at random, or complete.
"""

from __future__ import annotations

from verticopula.stats.copula import FittedCopula
from verticopula.stats.fit_result import FitResult
from verticopula.stats.pairwise import fit_pairwise
from verticopula.stats.rank_release import Collected


def fit_vcds(got: Collected) -> FitResult:
    """A copula from what the parties released once."""
    correlation, report = fit_pairwise(got.released)
    copula = FittedCopula(got.released.layout, got.released.marginals, correlation)
    return FitResult(copula, got.released.marginals, report, got.missingness, got.budgets)
