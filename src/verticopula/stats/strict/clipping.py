"""What cutting records to their bounds does to moments: simulated with the model at hand, through the very same steps.

A party's part z of a record is cut by the factor min(1, sqrt(clip * expected / |weighted z|^2)), whatever weight the
pattern gives it. So the mean products of cut scores are nearly those of uncut ones times a factor per latent; the
factor, and what it leaves over, come from records drawn from the model. It costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.federation import ColumnKey
from verticopula.stats.copula import Layout
from verticopula.stats.marginals import Marginal
from verticopula.stats.nominal import choose_category, solve_thresholds
from verticopula.stats.strict.latent_scores import LatentScore, score_table
from verticopula.stats.strict.noisy_moments import NoisyMoments
from verticopula.stats.strict.score_plan import expected_squares

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRAWS = 20_000


@dataclass(frozen=True)
class ClipGap:
    """From mean products of cut scores to those of whole ones: products * factor_j * factor_k + rest_jk.

    Attributes
    ----------
    factor : (q+1,)
    rest : (q+1, q+1)
    cut : (q,) share of records that are cut, in the part that the latent is in
    """

    factor: Floats
    rest: Floats
    cut: Floats

    def undo(self, noisy: NoisyMoments) -> NoisyMoments:
        """A pattern's moments as whole records would have them."""
        scale = np.outer(self.factor[noisy.seen], self.factor[noisy.seen])
        rest = self.rest[np.ix_(noisy.seen, noisy.seen)]
        return replace(noisy, products=noisy.products * scale + rest, noise=noisy.noise * scale)

    @classmethod
    def none(cls, q: int) -> ClipGap:
        return cls(np.ones(q + 1), np.zeros((q + 1, q + 1)), np.zeros(q))


@dataclass(frozen=True)
class ScoreSimulator:
    """Draws scores from a latent correlation; the same normals every time.

    Attributes
    ----------
    normals : (draws, q)
    parties : (q,) whose a latent is
    clip : `score_plan.plan_clip`
    """

    layout: Layout
    marginals: Mapping[ColumnKey, Marginal]
    scores: Sequence[LatentScore]
    parties: Ints
    clip: float
    normals: Floats

    def draw(self, correlation: Floats) -> Floats:
        """(draws, q) whole scores of the observed."""
        latent = self.normals @ np.linalg.cholesky(correlation).T
        drawn = np.empty_like(latent)
        for key, part in zip(self.layout.keys, self.layout.slices, strict=True):
            if part.stop - part.start > 1:
                marginal = self.marginals[key]
                chosen = choose_category(latent[:, part], solve_thresholds(marginal.probabilities))
                drawn[:, part] = score_table(marginal)[chosen]
            else:
                drawn[:, part.start] = self.scores[part.start].read(latent[:, part.start])
        return drawn

    def gap(self, correlation: Floats) -> ClipGap:
        """What cutting does where latents have this correlation."""
        whole = self.draw(correlation)
        lengths = np.array([score.length for score in self.scores])
        expected = expected_squares(self.scores)
        kept = np.ones_like(whole)
        for party in np.unique(self.parties):
            own = self.parties == party
            squared = np.square(whole[:, own] * lengths[own]).sum(axis=1)
            limit = self.clip * float(expected[own].sum())
            kept[:, own] = np.sqrt(limit / np.maximum(squared, limit))[:, None]
        ones = np.ones((whole.shape[0], 1))
        before, after = (_mean_products(np.hstack([x, ones])) for x in (whole, whole * kept))
        factor = np.sqrt(np.diag(before) / np.maximum(np.diag(after), 1e-12))
        return ClipGap(factor, before - after * np.outer(factor, factor), np.mean(kept < 1.0, axis=0))


def _mean_products(rows: Floats) -> Floats:
    return np.asarray(rows.T @ rows / rows.shape[0])
