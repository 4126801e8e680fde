"""VCDS, verticopula's variant of Algorithm 1: correlations pair by pair from noisy ranks, margins from noisy cells.

For data missing completely at random, or complete.
"""

from __future__ import annotations

from verticopula.stats.copula import FittedCopula
from verticopula.stats.fit_result import FitResult
from verticopula.stats.pairwise import fit_pairwise
from verticopula.stats.rank_release import CollectedReleases


def fit_vcds(collected: CollectedReleases) -> FitResult:
    """A copula from what the parties released once."""
    correlation, report = fit_pairwise(collected.release)
    copula = FittedCopula(collected.release.layout, collected.release.margins, correlation)
    return FitResult(copula, collected.release.margins, report, collected.missingness, collected.budgets)
