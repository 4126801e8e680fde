"""Step functions of a latent normal: the public score of every pooled cell.

**Cells.** A column's public cells are pooled by a rule on its noisy margin. An ordered column's pooled cells are runs
of neighbours: all of them where there are few, otherwise the runs whose ends are nearest to equal steps of the latent
normal within the cap. A nominal column's pooled cells are its categories; rare ones are one cell together.

**Scores.** A score is a function of one record's cell alone: the mean latent normal of the cell under the *observed*
noisy margin, capped, with mean 0 and variance 1 there. Three or more unordered categories have one latent each, whose
score is the category's standardised indicator; nothing is learnt of the latent of a pooled category.

**What is shared** of a latent is scale * (score - offset), so that the largest square that a record can have is small
(`SharedColumn`). Parties and coordinator compute all of it from the same releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from verticopula.mpc.verified_cells import COMPUTE
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FARTHEST = 6.0
_NO_MASS = 1e-9
_CAPS = 19


@dataclass(frozen=True)
class LatentScore:
    """One latent's score.

    Attributes
    ----------
    thresholds : (c-1,) increasing; latent values among the observed where the score steps; finite
    scores : (c,) of the cells
    """

    thresholds: Floats
    scores: Floats

    @classmethod
    def of(cls, p: Floats, cap: float = _FARTHEST) -> LatentScore:
        """For the probabilities of an ordered column's cells, or those of one category's indicator."""
        thresholds = np.clip(ndtri(np.clip(np.cumsum(p)[:-1], 0.0, 1.0)), -_FARTHEST, _FARTHEST)
        density = _density(np.concatenate([[-np.inf], thresholds, [np.inf]]))
        # Where there is no mass there is no mean: the place between the neighbours.
        middle = np.clip(ndtri(np.clip(np.cumsum(p) - 0.5 * p, 0.0, 1.0)), -_FARTHEST, _FARTHEST)
        means = np.where(p > _NO_MASS, (density[:-1] - density[1:]) / np.maximum(p, _NO_MASS), middle)
        capped = np.clip(means, -cap, cap)
        centred = capped - p @ capped
        least = abs(float(capped[-1] - capped[0])) * math.sqrt(TUNING.rarest_value * (1.0 - TUNING.rarest_value))
        deviation = max(math.sqrt(float(p @ centred**2)), least)
        return cls(thresholds, centred / deviation if deviation > 0.0 else np.zeros_like(centred))

    @property
    def is_flat(self) -> bool:
        """Whether one cell has (all but) all of the mass: nothing can be learnt of such a latent."""
        return self.moments()[1] < TUNING.flat_variance

    def shares(self, shift: float = 0.0, scale: float = 1.0) -> Floats:
        """(c,) chance of each cell for a latent N(shift, scale^2)."""
        return np.diff(ndtr((self.thresholds - shift) / scale), prepend=0.0, append=1.0)

    def moments(self, shift: float = 0.0, scale: float = 1.0) -> tuple[float, float]:
        """Mean and variance of the score for a latent N(shift, scale^2)."""
        shares = self.shares(shift, scale)
        mean = float(shares @ self.scores)
        return mean, max(float(shares @ self.scores**2) - mean**2, 0.0)

    def slope(self, shift: float = 0.0) -> float:
        """Covariance of score and latent, for a latent N(shift, 1)."""
        return float(np.diff(self.scores) @ _density(self.thresholds - shift))

    def read(self, latent: Floats) -> Floats:
        """The scores of these latents."""
        return np.asarray(self.scores[np.searchsorted(self.thresholds, latent)])


@dataclass(frozen=True)
class SharedColumn:
    """A column's pooled cells, the scores of its latents, and what is shared of them.

    Noise on every product is in proportion to the largest squared norm B of a record, and an error of
    1/(a_j a_k) in a latent correlation, a = scale * slope. With m the largest square of a column's shared scores at
    scale 1, the sum over all pairs of B^2/(a_j a_k)^2 is least for scale^2 = sqrt(sum of 1/slope^2 / m).

    Attributes
    ----------
    groups : (C,) the pooled cell of every public cell
    scores : one per latent
    table : (c, L) their scores of the pooled cells: mean 0 and variance 1 among the observed
    scale, offset : (L,) a latent's scores are shared as scale * (score - offset); scale is 0 where nothing is learnt
    """

    groups: Ints
    scores: tuple[LatentScore, ...]
    table: Floats
    scale: Floats
    offset: Floats

    @property
    def shared(self) -> Floats:
        """(c, L) what is shared of every pooled cell at weight 1."""
        return np.asarray(self.scale * (self.table - self.offset))

    @property
    def largest(self) -> float:
        """The largest squared norm of a row of `shared`."""
        return float(np.max(np.sum(self.shared**2, axis=1)))


def choose_cap(mu: float, n_subjects: int, n_columns: int) -> float:
    """The cap of scores, in standard deviations of the latent normal: from public quantities.

    A score capped at c has the slope s = 2 Phi(c) - 1 and, among v, the efficiency s^2/v. Records of such columns have
    a bound in proportion to k = c/s each, and noise on a correlation has a standard deviation in proportion to k^2.
    The cap is the one for which noise and sampling together are least, for a pair that everybody has.
    """
    caps = np.linspace(*TUNING.score_caps, _CAPS)
    slope = 2.0 * ndtr(caps) - 1.0
    variance = slope - 2.0 * caps * _density(caps) + 2.0 * caps**2 * ndtr(-caps)
    noise = math.sqrt(COMPUTE / 2.0) * n_columns * (caps / slope) ** 2 / (mu * n_subjects)
    sampling = variance**2 / slope**4 / n_subjects
    return float(caps[int(np.argmin(noise**2 + sampling))])


def share_column(marginal: Marginal, cap: float) -> SharedColumn:
    """A column's cells and scores, from its noisy margin."""
    if len(marginal.latents()) > 1:
        return _share_categories(marginal.probabilities, max(marginal.rarest, TUNING.rarest_value))
    p = marginal.probabilities
    groups = pool_neighbours(p, cap)
    score = LatentScore.of(np.bincount(groups, weights=p).astype(np.float64), cap)
    offset = 0.5 * (score.scores[0] + score.scores[-1])
    half = max(0.5 * float(score.scores[-1] - score.scores[0]), _NO_MASS)
    scale = 0.0 if score.is_flat else _limited(1.0 / (half * max(score.slope(), TUNING.weakest_slope)), half**2)
    return SharedColumn(groups, (score,), score.scores[:, None], np.array([scale]), np.array([offset]))


def pool_neighbours(p: Floats, cap: float) -> Ints:
    """(C,) the pooled cell of every cell of an ordered column, at least two of them."""
    total = np.cumsum(p)
    ends = np.flatnonzero(p > _NO_MASS)[:-1]
    most = min(2 + math.ceil(2.0 * cap / TUNING.cell_step), TUNING.most_cells)
    if ends.size >= most:
        wanted = ndtr(np.linspace(-cap, cap, most - 1))
        ends = np.unique(ends[np.argmin(np.abs(total[ends] - wanted[:, None]), axis=1)])
    if not ends.size:
        ends = np.array([0])
    return np.searchsorted(ends, np.arange(p.size), side="left").astype(np.int64)


def pool_categories(p: Floats, rarest: float = TUNING.rarest_value) -> Ints:
    """(C,) the pooled cell of every category: the last one for those that are rarer, if there are two or more."""
    order = np.argsort(-p, kind="stable")
    kept = max(min(int((p >= rarest).sum()), TUNING.most_cells - 1), 1)
    groups = np.full(p.size, kept, dtype=np.int64)
    groups[order[:kept]] = np.arange(kept)
    return groups


def _share_categories(p: Floats, rarest: float) -> SharedColumn:
    groups = pool_categories(p, rarest)
    sizes = np.bincount(groups)
    scores, table = [], np.zeros((sizes.size, p.size))
    scale, offset = np.zeros(p.size), np.zeros(p.size)
    for category, share in enumerate(p):
        score = LatentScore.of(np.array([1.0 - share, share]))
        if sizes[groups[category]] > 1:
            score = LatentScore(score.thresholds, np.zeros(2))
        table[:, category] = score.scores[0]
        table[groups[category], category] = score.scores[1]
        scores.append(score)
        offset[category] = score.scores[0]
        if not score.is_flat:
            scale[category] = 1.0 / (score.scores[1] - score.scores[0])
    # Whatever its category, a record has one entry of this size: the largest square is 1.
    slopes = np.array([max(float(_density(score.thresholds)[0]), TUNING.weakest_slope) for score in scores])
    missed = float(np.sum(1.0 / slopes[scale > 0.0] ** 2))
    return SharedColumn(groups, tuple(scores), table, scale * _limited(math.sqrt(missed), 1.0), offset)


def _limited(squared: float, largest: float) -> float:
    """The scale from its square, such that no record's square exceeds `most_square` where that of scale 1 is known."""
    return math.sqrt(min(squared, TUNING.most_square / largest))


def _density(x: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi))
