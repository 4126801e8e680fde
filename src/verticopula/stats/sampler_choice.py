"""Which sampler draws a study's ranks where the lead leaves it open: `sampler="auto"`.

A public function of the federation file and of how many subjects each column has. The coordinator chooses it after
presence is known and before anything is proposed. So the proposal that parties consent to, their ledgers and the study
itself name one of the two, and never `auto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from verticopula.privacy.budget import StudyBudget
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.setting_choices import AUTO_SAMPLER, BINOMIAL_SAMPLER, EXACT_SAMPLER
from verticopula.stats.copula import latent_count


@dataclass(frozen=True)
class SamplerTuning:
    """Chosen constants of the choice; by hand, not tuned.

    Attributes
    ----------
    comparisons : that the exact sampler may flip in all of a study's columns
    per_second : that one core flips; 3e11 are about a minute of the machine in benchmarks/results/growth.json
    """

    comparisons: float = 3e11
    per_second: float = 5e9


SAMPLER_TUNING = SamplerTuning()
BINOMIAL_COST = (
    "It draws each comparison twice, so each coin has half the epsilon: the price is the same, and the noise of a rank "
    "has up to four times the variance at units variable and client, twice at block and person."
)


def count_comparisons(federation: Federation, counts: Mapping[ColumnKey, int], n_subjects: int, rounds: int) -> float:
    """How many comparisons the exact sampler flips: of those with a value once, of everybody in every later round."""
    total = 0.0
    for key, n in counts.items():
        pairs = n * (n - 1.0) / 2.0 + (rounds - 1) * n_subjects * (n_subjects - 1.0) / 2.0
        total += latent_count(federation.column(key)) * pairs
    return total


def choose_sampler(
    federation: Federation, budget: StudyBudget, counts: Mapping[ColumnKey, int], n_subjects: int
) -> StudyBudget:
    """The budget with one of the two samplers: `auto` is exact while its comparisons are few enough, then binomial.

    Parameters
    ----------
    counts : (public) the subjects with a value, by column
    n_subjects : all of them
    """
    if budget.sampler != AUTO_SAMPLER:
        return budget
    comparisons = count_comparisons(federation, counts, n_subjects, budget.rounds)
    return replace(budget, sampler=EXACT_SAMPLER if comparisons <= SAMPLER_TUNING.comparisons else BINOMIAL_SAMPLER)


def describe_work(comparisons: float) -> str:
    """So many comparisons, and how long exact coins for them take, in words."""
    seconds = comparisons / SAMPLER_TUNING.per_second
    return f"{comparisons / 1e9:,.0f} billion comparisons, about {_duration(seconds)} of one core for all parties"


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:,.0f} seconds"
    return f"{seconds / 60.0:,.0f} minutes" if seconds < 7_200.0 else f"{seconds / 3_600.0:,.0f} hours"
