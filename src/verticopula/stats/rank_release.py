"""What the coordinator holds after a round of releases, latent by latent.

Public masks, noisy ranks and noisy margins; no raw data. Every method starts from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness
from verticopula.privacy.budget import ColumnBudget, coins_per_comparison
from verticopula.privacy.coins import flip_probability
from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import Layout
from verticopula.stats.marginals import Marginal
from verticopula.stats.ranks import debias_ranks, rank_noise_variance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Masks = Mapping[ColumnKey, NDArray[np.bool_]]


@dataclass(frozen=True)
class RankRelease:
    """Noisy ranks and margins.

    Attributes
    ----------
    layout : which latents belong to which column
    margins : privatized margins of the subjects that were ranked
    observed : (N, q) who was ranked, per latent; in Fortran's order where parties sent it
    ranks : per latent, the noisy ranks of those subjects in cohort order
    flips : (q,) probability that a comparison was flipped
    """

    layout: Layout
    margins: Mapping[ColumnKey, Marginal]
    observed: Bools
    ranks: tuple[Ints, ...]
    flips: Floats

    @classmethod
    def build(
        cls,
        layout: Layout,
        margins: Mapping[ColumnKey, Marginal],
        observed: Mapping[ColumnKey, Bools],
        ranks: Mapping[ColumnKey, NDArray[np.int64]],
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
        return cls(layout, margins, np.stack(masks).T, tuple(columns), np.array(flips))

    @property
    def n_subjects(self) -> int:
        return int(self.observed.shape[0])

    @property
    def latent_margins(self) -> list[Marginal]:
        """One margin per latent."""
        return [latent for key in self.layout.keys for latent in self.margins[key].latents()]

    def grades(self) -> Iterator[Floats]:
        """Per latent, debiased grades of the ranked subjects, centred at zero."""
        for ranks, flip in zip(self.ranks, self.flips, strict=True):
            yield (debias_ranks(ranks, flip) - (ranks.size + 1) / 2.0) / ranks.size

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


def spread_out(columns: Iterable[Floats], observed: Bools) -> Floats:
    """(N, q) from the observed subjects' values per latent; zero where nothing was observed. In Fortran's order."""
    full = np.zeros(observed.shape, order="F")
    for index, values in enumerate(columns):
        full[observed[:, index], index] = values
    return full
