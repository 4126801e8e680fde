"""The posterior of `glm.bayes` where every party keeps its columns: the same Gibbs sampler, party after party.

A party draws its own coefficients given the others' part of the linear predictor, a few sweeps at a time, and answers
with X_k b_k: one number per row each way, as in Algorithm 4. What else leaves it is how many of
its columns have which size (the coordinator draws the weights), the extent of its sizes, and at the end the
averages. The Gram matrix of all columns, which the central sampler works on, is never formed.

Differs from the central sampler in the standard errors that the smallest size is taken from (of a party's own columns)
and in the order of the draws; both sample the same kind of posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.bayes import BAYES_TUNING, Posterior, Prior, group_scales, lay_out_sizes, rotate_groups
from verticopula.glm.bayes_sweeps import CONCENTRATION, sweep_columns
from verticopula.glm.families import Family
from verticopula.glm.feature_design import Features, standardise
from verticopula.glm.lasso import group_norms

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PASSES = 10  # of sampling, and fitting the quadratic again
_LAYOUTS = 3  # passes in which the sizes are laid out anew, and all weights are even again
_SWEEPS = 4  # of a party, before it answers
_SETTLING = 30  # rounds of the ridge regression to begin with
_VISITS = 40  # of every party in a pass
_FINAL_VISITS = 400
_BURN = 1 / 3


@dataclass(frozen=True, repr=False)
class BlockDraw:
    """A party's answer.

    Attributes
    ----------
    prediction : (n,) X_k b_k of its last draw
    counts : (C + 1,) how many of its columns are zero, and of each size
    """

    prediction: Floats
    counts: Floats


class PosteriorBlock:
    """A party's columns, its draws, and their averages."""

    def __init__(self, features: Features, *, centre: bool, rng: np.random.Generator) -> None:
        self._design = standardise(features, centre=centre)
        self._scales = group_scales(features)
        self._rng = rng
        self._starts = self._design.starts
        self._coef = np.zeros(self._starts[-1])
        self._errors = np.zeros(self._starts.size - 1)
        self._variance = 1.0
        self._norms: list[Floats] = []
        self.forget()

    def forget(self) -> None:
        """Begin the averages anew."""
        self._visits = 0
        self._mean = np.zeros(self._coef.size)
        self._included = np.zeros(self._starts.size - 1)

    def prepare(self, bend: Floats, share: float) -> None:
        """New curvatures of the rows' log-likelihoods."""
        columns = self._design.columns
        gram = share * (columns.T @ (columns * bend[:, None]))
        self._rotate = rotate_groups(gram, self._starts)
        self._gram = np.ascontiguousarray(self._rotate.T @ gram @ self._rotate)

    def settle(self, target: Floats, noise: float) -> Floats:
        """Its part of a ridge regression, given the others'; the ridge's variance by EM on its own columns."""
        cover = np.linalg.inv(self._gram / noise + np.eye(self._coef.size) / self._variance)
        coef = cover @ (self._rotate.T @ (self._design.columns.T @ target)) / noise
        spread = np.diag(cover)
        self._coef, self._variance = self._rotate @ coef, max(float(np.mean(coef**2 + spread)), 1e-12)
        self._errors = np.array([np.sqrt(spread[first:last].sum()) for first, last in pairwise(self._starts)])
        return np.asarray(self._design.columns @ self._coef)

    def extent(self) -> tuple[tuple[float, float], ...]:
        """On each scale the smallest standard error and the largest size of the last draws, at first of the ridge."""
        if self._norms:
            sizes = 1.1 * np.quantile(self._norms, 0.95, axis=0)
        else:
            sizes = 2.0 * (group_norms(self._coef, self._starts) + self._errors)
        self._norms = []
        return tuple((float(np.min(self._errors / scale)), float(np.max(sizes / scale))) for scale in self._scales)

    def lay_out(self, grids: Sequence[Floats]) -> None:
        self._prior = Prior.around(grids, self._scales)

    def draw(self, target: Floats, weights: Floats, noise: float) -> BlockDraw:
        """A few sweeps.

        Parameters
        ----------
        target : (n,) the response of the quadratic less the others' part: what X_k' is applied to
        """
        coef = self._rotate.T @ self._coef
        mean, included, _, _, _, counts = sweep_columns(
            self._gram,
            self._rotate.T @ (self._design.columns.T @ target),
            coef,
            self._starts,
            self._prior.centre,
            self._prior.precision,
            weights,
            noise,
            0.0,
            0.0,
            _SWEEPS,
            0,
            _SWEEPS,
            False,
            self._rng,
        )
        self._coef = self._rotate @ coef
        self._mean += self._rotate @ mean
        self._included += included
        self._visits += 1
        self._norms.append(group_norms(self._coef, self._starts))
        return BlockDraw(self._design.columns @ self._coef, counts)

    def averages(self) -> tuple[Floats, Floats]:
        """Mean coefficients on the scale of the data, and inclusion probabilities, since `forget`."""
        included = np.where(self._design.constant, 0.0, self._included / self._visits)
        return self._design.to_raw(self._mean / self._visits), included


def sample_in_parts(
    blocks: Sequence[Features],
    y: Floats,
    family: Family,
    *,
    n_effective: float | None = None,
    fit_intercept: bool = True,
    random_state: int = 0,
) -> tuple[Posterior, int]:
    """The coordinator's side, and how many times a party was asked."""
    rng = np.random.default_rng(random_state)
    parties = [
        PosteriorBlock(own, centre=fit_intercept, rng=part)
        for own, part in zip(blocks, rng.spawn(len(blocks)), strict=True)
    ]
    return _Coordinator(parties, y, family, n_effective, rng, fit_intercept=fit_intercept).run()


class _Coordinator:
    """Holds the response, and every party's last part of the linear predictor."""

    def __init__(
        self,
        parties: Sequence[PosteriorBlock],
        y: Floats,
        family: Family,
        n_effective: float | None,
        rng: np.random.Generator,
        *,
        fit_intercept: bool,
    ) -> None:
        self._parties, self._y, self._family, self._rng = parties, y, family, rng
        self._share = 1.0 if n_effective is None else n_effective / y.size
        self._fit_intercept, self._gaussian = fit_intercept, family.name == "gaussian"
        self._intercept = family.link(float(y.mean())) if fit_intercept else 0.0
        self._parts = np.zeros((len(parties), y.size))
        self._noise = float(np.mean((y - self._intercept) ** 2)) if self._gaussian else 1.0
        self._asked = 0

    @property
    def _eta(self) -> Floats:
        return np.asarray(self._parts.sum(axis=0) + self._intercept)

    def run(self) -> tuple[Posterior, int]:
        self._settle()
        some = [self._eta]
        for number in range(_PASSES):
            self._approximate(some)
            if number <= _LAYOUTS:
                self._lay_out()
            some = self._visit(_VISITS)
        self._approximate(some)
        self._visit(_FINAL_VISITS // 4)
        halves = []
        for _ in range(2):
            for party in self._parties:
                party.forget()
            self._visit(_FINAL_VISITS // 2)
            halves.append([party.averages() for party in self._parties])
        mean = np.mean([np.concatenate([part[0] for part in half]) for half in halves], axis=0)
        inclusion = np.array([np.concatenate([part[1] for part in half]) for half in halves])
        chain_difference = float(np.mean(np.ptp(inclusion, axis=0)))
        return Posterior(mean, inclusion.mean(axis=0), float(self._weights[0]), chain_difference), self._asked

    def _settle(self) -> None:
        """A ridge regression of all columns, to begin with."""
        for _ in range(_SETTLING):
            self._approximate([self._eta])
            for k, party in enumerate(self._parties):
                self._parts[k] = party.settle(self._target(self._parts[k]), self._noise)
            self._asked += len(self._parties)
            self._draw_intercept_and_noise()

    def _approximate(self, some: Sequence[Floats]) -> None:
        """The quadratic u' eta - eta' bend eta / 2 of the rows, averaged over draws of their linear predictors."""
        if self._gaussian:
            self._bend, self._pull = np.ones_like(self._y), self._y
        else:
            self._bend = np.mean([self._family.curvature(eta) for eta in some], axis=0)
            residual = np.mean([self._family.residual(eta, self._y) for eta in some], axis=0)
            self._pull = self._bend * np.mean(some, axis=0) - residual
        for party in self._parties:
            party.prepare(self._bend, self._share)

    def _target(self, part: Floats) -> Floats:
        """What is left for somebody whose part of the linear predictor this is."""
        return np.asarray(self._share * (self._pull - self._bend * (self._eta - part)))

    def _lay_out(self) -> None:
        extents = np.array([party.extent() for party in self._parties])
        grids = [lay_out_sizes(float(e[:, 0].min()), float(e[:, 1].max())) for e in extents.transpose(1, 0, 2)]
        for party in self._parties:
            party.lay_out(grids)
        n_sizes = sum(grid.size for grid in grids)
        self._weights = np.append(0.5, np.full(n_sizes, 0.5 / n_sizes))

    def _visit(self, times: int) -> list[Floats]:
        """Every party so often; every so many-th linear predictor of the last part."""
        burn, some = int(_BURN * times), []
        thin = max((times - burn) // BAYES_TUNING.snapshots, 1)
        for number in range(times):
            counts = np.zeros(self._weights.size)
            for k, party in enumerate(self._parties):
                answer = party.draw(self._target(self._parts[k]), self._weights, self._noise)
                self._parts[k] = answer.prediction
                counts += answer.counts
            self._asked += len(self._parties)
            self._draw_weights(counts)
            self._draw_intercept_and_noise()
            if number >= burn and (number - burn) % thin == 0:
                some.append(self._eta)
        return some

    def _draw_weights(self, counts: Floats) -> None:
        prior = np.full(counts.size, CONCENTRATION / (counts.size - 1))
        prior[0] = 1.0
        self._weights = self._rng.dirichlet(counts + prior)

    def _draw_intercept_and_noise(self) -> None:
        if self._fit_intercept:
            total = self._share * float(self._bend.sum())
            centre = float(self._target(np.full(self._y.size, self._intercept)).sum()) / total
            self._intercept = centre + float(np.sqrt(self._noise / total) * self._rng.normal())
        if self._gaussian:
            rest = self._share * float(np.sum((self._y - self._eta) ** 2))
            self._noise = 0.5 * rest / float(self._rng.gamma(0.5 * self._share * self._y.size))
