"""What the coordinator holds after a round of releases, latent by latent.

Public masks, noisy ranks and noisy margins; no raw data. Every method starts from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness
from verticopula.data.scratch_file import ROWS_IN_MEMORY, forget_pages
from verticopula.privacy.budget import ColumnBudget, coins_per_comparison
from verticopula.privacy.coins import flip_probability
from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import Layout
from verticopula.stats.correlation import GRADE_ROWS, GradeBlock, shared_masks
from verticopula.stats.marginals import Marginal
from verticopula.stats.ranks import debias_ranks, rank_noise_variance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Masks = Mapping[ColumnKey, NDArray[np.bool_]]

_BLOCKS_AT_ONCE = ROWS_IN_MEMORY // GRADE_ROWS


@dataclass(frozen=True)
class RankRelease:
    """Noisy ranks and margins.

    Attributes
    ----------
    layout : which latents belong to which column
    margins : privatized margins of the subjects that were ranked
    masks : per latent, who was ranked: (N,) each. Latents of the same people share one
    ranks : per latent, the noisy ranks of those subjects in cohort order; they may lie in a file that is mapped
    flips : (q,) probability that a comparison was flipped
    """

    layout: Layout
    margins: Mapping[ColumnKey, Marginal]
    masks: tuple[Bools, ...]
    ranks: tuple[Ints, ...]
    flips: Floats

    @classmethod
    def build(
        cls,
        layout: Layout,
        margins: Mapping[ColumnKey, Marginal],
        observed: Mapping[ColumnKey, Bools],
        ranks: Mapping[ColumnKey, NDArray[Any]],
        budgets: Mapping[ColumnKey, ColumnBudget],
        sampler: str,
    ) -> RankRelease:
        """From what the parties sent, column by column."""
        masks, columns, flips = [], [], []
        for key, part in zip(layout.keys, layout.slices, strict=True):
            coins = coins_per_comparison(margins[key].column, sampler)
            for offset in range(part.stop - part.start):
                masks.append(observed[key])
                columns.append(ranks[key][:, offset])
                flips.append(flip_probability(budgets[key].epsilon_ranks / coins))
        return cls(layout, margins, tuple(masks), tuple(columns), np.array(flips))

    @property
    def n_subjects(self) -> int:
        return int(self.masks[0].size)

    @cached_property
    def observed(self) -> Bools:
        """(N, q) who was ranked, per latent, in Fortran's order. As large as a table: not where N may be any number."""
        return np.stack(self.masks).T

    @property
    def latent_margins(self) -> list[Marginal]:
        """One margin per latent."""
        return [latent for key in self.layout.keys for latent in self.margins[key].latents()]

    def grades(self) -> Iterator[Floats]:
        """Per latent, debiased grades of the ranked subjects, centred at zero."""
        for ranks, flip in zip(self.ranks, self.flips, strict=True):
            yield (debias_ranks(ranks, flip) - (ranks.size + 1) / 2.0) / ranks.size

    def grade_blocks(self) -> Iterator[GradeBlock]:
        """Grades of all latents, some subjects at a time: (N, q) are never held."""
        people = shared_masks(self.masks)
        taken = [0] * len(self.ranks)
        for number, start in enumerate(range(0, self.n_subjects, GRADE_ROWS)):
            rows = slice(start, start + GRADE_ROWS)
            block = GradeBlock.empty(len(self.ranks), people.masks, rows)
            for j, (ranks, flip) in enumerate(zip(self.ranks, self.flips, strict=True)):
                taken[j] = _fill_grades(ranks, taken[j], self.masks[j][rows], float(flip), block.grades[j])
            if number % _BLOCKS_AT_ONCE == _BLOCKS_AT_ONCE - 1:
                self.forget()
            yield block
        self.forget()

    def forget(self) -> None:
        """Take ranks that lie in a file out of memory until they are asked for again."""
        for ranks in self.ranks:
            forget_pages(ranks)

    def grade_noise(self) -> Floats:
        """(q,) variance that the coins added to a grade."""
        return np.array(
            [
                rank_noise_variance(ranks.size, flip, latent.tied_share) / max(ranks.size, 1) ** 2
                for ranks, flip, latent in zip(self.ranks, self.flips, self.latent_margins, strict=True)
            ]
        )


@dataclass(frozen=True)
class CollectedReleases:
    """What the shared rounds of a study gathered.

    Attributes
    ----------
    observed : column -> who has a value
    budgets : column -> what it has spent, in one round
    """

    release: RankRelease
    observed: Masks
    missingness: Missingness
    budgets: Mapping[ColumnKey, ColumnBudget]


@njit(nogil=True, cache=True)
def _fill_grades(ranks: Ints, start: int, seen: Bools, flip: float, grades: Floats) -> int:
    """Debiased grades of the next subjects, as `RankRelease.grades` has them; returns how many ranks are used."""
    n = ranks.size
    for i in range(seen.size):
        if seen[i]:
            debiased = 1.0 + (ranks[start] - 1.0 - (n - 1) * flip) / (1.0 - 2.0 * flip)
            grades[i] = (debiased - (n + 1) / 2.0) / n
            start += 1
        else:
            grades[i] = 0.0
    return start


def spread_out(columns: Iterable[Floats], observed: Bools) -> Floats:
    """(N, q) from the observed subjects' values per latent; zero where nothing was observed. In Fortran's order."""
    full = np.zeros(observed.shape, order="F")
    for index, values in enumerate(columns):
        full[observed[:, index], index] = values
    return full
