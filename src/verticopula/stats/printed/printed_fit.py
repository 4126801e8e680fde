"""The server's side of Algorithms 1 to 3: from noisy ranks to Ω, and to the study's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness, count_common
from verticopula.privacy.budget import ColumnBudget
from verticopula.privacy.coins import flip_probability
from verticopula.schema.columns import ColumnKey
from verticopula.schema.printed_choices import PrintedChoices
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.fit_result import AlignedDraw, FitResult
from verticopula.stats.marginals import Marginal
from verticopula.stats.matrix_repair import Repair
from verticopula.stats.pairwise import FitReport
from verticopula.stats.printed.bernstein_margins import BernsteinMargin
from verticopula.stats.printed.ordered_latents import draw_latents, draw_missing
from verticopula.stats.printed.rank_correlation import correlate_ranks
from verticopula.stats.ranks import debias_ranks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RankedRound:
    """The noisy ranks of one round, the response's column first.

    Attributes
    ----------
    keys : the columns, the response first
    observed : (N, p+1) who was ranked
    ranks : per column, the noisy ranks of those subjects in cohort order
    repair : Ω, and what it took to make it positive definite
    """

    keys: tuple[ColumnKey, ...]
    observed: Bools
    ranks: tuple[Ints, ...]
    repair: Repair

    def draw(self, rng: np.random.Generator, choices: PrintedChoices) -> Floats:
        """(N, p+1) latents in the order of these ranks."""
        return draw_latents(self.repair.correlation, self.observed, self.ranks, rng, choices)

    def draw_all(self, rng: np.random.Generator, choices: PrintedChoices) -> Floats:
        """The same; where a value was not ranked, given the subject's other latents."""
        return draw_missing(self.draw(rng, choices), self.repair.correlation, self.observed, rng)


def fit_ranks(
    keys: tuple[ColumnKey, ...],
    observed: Mapping[ColumnKey, Bools],
    ranks: Mapping[ColumnKey, Ints],
    budgets: Mapping[ColumnKey, ColumnBudget],
    choices: PrintedChoices,
) -> RankedRound:
    """Ω from one round of noisy ranks, debiased by Eq. (2)."""
    masks = np.column_stack([observed[key] for key in keys])
    debiased = np.zeros(masks.shape)
    for j, key in enumerate(keys):
        debiased[masks[:, j], j] = debias_ranks(ranks[key], flip_probability(budgets[key].epsilon_ranks))
    repair = correlate_ranks(debiased, masks, choices)
    return RankedRound(keys, masks, tuple(ranks[key] for key in keys), repair)


def build_printed_result(
    layout: Layout,
    last: RankedRound,
    margins: Mapping[ColumnKey, BernsteinMargin],
    missingness: Missingness,
    budgets: Mapping[ColumnKey, ColumnBudget],
    choices: PrintedChoices,
    *,
    aligned: bool,
) -> FitResult:
    """The study's result, its columns in the layout's order again.

    Parameters
    ----------
    aligned : whether rows follow the subjects (the end of Algorithms 2 and 3)
    """
    back = np.array([last.keys.index(key) for key in layout.keys])
    overlap = count_common(last.observed.T)[np.ix_(back, back)]

    def draw_aligned(rng: np.random.Generator) -> Floats:
        return last.draw(rng, choices)[:, back]

    draw: AlignedDraw | None = draw_aligned if aligned else None
    as_margins: Mapping[ColumnKey, Marginal] = margins
    report = FitReport(
        overlap=overlap,
        # Of either rank correlation between independent columns, times the slope of its arcsine at zero.
        standard_error=np.pi / 3.0 / np.sqrt(np.maximum(overlap - 1.0, 1.0)) * (1.0 - np.eye(back.size)),
        shrink_rank=back.size,
        shrink_change=0.0,
        psd_change=last.repair.change,
        smallest_eigenvalue=last.repair.smallest_eigenvalue_before,
        margin_repairs={key: margin.repair for key, margin in margins.items()},
    )
    copula = FittedCopula(layout, as_margins, last.repair.correlation[np.ix_(back, back)])
    return FitResult(copula, as_margins, report, missingness, budgets, draw_aligned=draw)
