"""Which columns matter, and by how much, weighed by their posterior probability: an alternative to BIC on a path.

The prior of a column's coefficient is nothing but "zero or of some size", and how often which size is learnt from all
columns together:

    b_j ~ w_0 (zero) + sum_c w_c (N(m_c, h_c^2) + N(-m_c, h_c^2)) / 2,    w ~ Dirichlet(1, 1/C, ..., 1/C)

with C sizes m_c on a geometric grid, of widths h_c that let neighbours touch. This is the nonparametric empirical
Bayes view of regression (George and Foster 2000 with two parameters; Kim, Wang, Carbonetto and Stephens 2024 and
Mukherjee, Sen and Sen 2023 with mixtures), the weights drawn, not maximised, as in MacLehose, Dunson, Herring and
Hoppin 2007. Signs are even, because a column may as well be coded the other way round. Sizes stand on two scales side
by side, per unit of the data and per standard deviation of the column, since either may be what columns have in common
(the alpha of Stephens 2017); their weights say which. The smallest size is two standard errors: what is
smaller cannot be told from zero, and a slab that reaches down to zero would call noise signal (Johnson and Rossell
2010).

The posterior is drawn by Gibbs sampling, one column after the other, on the quadratic that fits the log-likelihood
best where the posterior is: its gradient and curvature are averaged over the last draws, not taken at a mode (the
stationary point of a Gaussian variational approximation; Opper and Archambeau 2009). So a sweep costs q^2 whatever the
number of rows. A nominal column's whitened indicators have one size together, and are normal given it.

Rows that somebody else's estimate has made, synthetic ones, hold less evidence than as many real ones, and not the same
for all columns. Where draws of the error of their score are given, the quadratic keeps its maximum but gets the
curvature that these imply: that of H^-1 S H^-1, with H the curvature of the rows' own likelihood and S the covariance
of the score, the "sandwich" of quasi-likelihood (Huber 1967), and of the error of a finite sample of rows. Some
hundreds of draws do not make an inverse, so half of what correlates errors is given up.

A column is selected where its posterior probability of not being zero is above a threshold, and its coefficient is
the posterior mean: shrunken as far as columns of its kind turned out to be, where maximum likelihood overshoots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.bayes_sweeps import sweep_columns
from verticopula.glm.central_solver import null_point
from verticopula.glm.families import Family
from verticopula.glm.feature_design import Features, standardise
from verticopula.glm.lasso import group_norms
from verticopula.privacy.root_finding import halve_until_lower

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rng = np.random.Generator


@dataclass(frozen=True)
class BayesTuning:
    """Chosen constants of the posterior and of what it selects.

    `odds_divisor` was tuned on the paper's simulated designs (Section 5.1), by `python -m benchmarks glm_bayes`. The
    bars were judged on the same designs, 0.6 on their synthetic tables. The others were chosen by hand, not tuned.

    Attributes
    ----------
    least_bar : a column is never selected below this posterior probability
    known_errors_bar : the bar where the errors of the score are known: no allowance for evidence that is not there
    odds_divisor : posterior odds that a column must have are the root of the number of subjects over this
    smallest_size : in standard errors
    size_ratio : of neighbouring sizes
    size_width : a size's standard deviation, in distances to the next one
    size_quantile, size_room : the largest size is so much of this quantile of what was drawn
    kept_covariance : share of the covariances between the columns' errors that is believed
    passes : of sampling, and fitting the quadratic again
    layouts : passes in which the sizes are laid out anew
    sweeps, final_sweeps : of a pass; of each chain at the end
    chains : at the end
    snapshots : draws of a chain that the quadratic is fitted at
    ridge_steps, ridge_tolerance, ridge_halvings : EM steps of the ridge that chains begin at, the relative change that
        ends them, and how often a step is halved
    """

    least_bar: float = 0.7
    known_errors_bar: float = 0.6
    odds_divisor: float = 9.0
    smallest_size: float = 2.0
    size_ratio: float = 1.12
    size_width: float = 0.5
    size_quantile: float = 0.95
    size_room: float = 1.1
    kept_covariance: float = 0.5
    passes: Mapping[str, int] = field(default_factory=lambda: {"gaussian": 3, "binomial": 10, "poisson": 10})
    layouts: int = 3
    sweeps: int = 300
    final_sweeps: int = 1500
    chains: int = 2
    snapshots: int = 40
    ridge_steps: int = 50
    ridge_tolerance: float = 1e-4
    ridge_halvings: int = 30


BAYES_TUNING = BayesTuning()

DrawScoreErrors = Callable[[Floats, float], Floats]


def default_bar(n_subjects: float) -> float:
    """The posterior probability above which a column is selected, unless a user says otherwise.

    BIC asks a column for evidence that grows like the root of the number of subjects, so that false columns vanish
    where there is enough of it. So does this (`BayesTuning`).
    """
    odds = np.sqrt(n_subjects) / BAYES_TUNING.odds_divisor
    return max(BAYES_TUNING.least_bar, float(odds / (1.0 + odds)))


@dataclass(frozen=True)
class Posterior:
    """What the columns' coefficients are, given the data.

    Attributes
    ----------
    mean : (q,) of the coefficients, on the scale of the data
    inclusion : (G,) probability that a group of columns has an effect
    share_of_zero : posterior mean of w_0
    chain_difference : mean absolute difference of the chains' inclusion probabilities; large where they do not mix
    """

    mean: Floats
    inclusion: Floats
    share_of_zero: float
    chain_difference: float

    def select(self, starts: Ints, threshold: float) -> Floats:
        """(q,) the mean where the probability is above the threshold, otherwise zero."""
        return np.where(np.repeat(self.inclusion > threshold, np.diff(starts)), self.mean, 0.0)


@dataclass(frozen=True)
class _Quadratic:
    """linear' b - b' gram b / 2 in units of the noise: the log-likelihood of all subjects where the posterior is."""

    gram: Floats
    linear: Floats


@dataclass(frozen=True)
class Prior:
    """(G, C) sizes of the groups' coefficients on the solvers' scale, and the precisions around them."""

    centre: Floats
    precision: Floats

    @classmethod
    def around(cls, grids: Sequence[Floats], scales: Sequence[Floats]) -> Prior:
        """One grid of sizes for each scale."""
        pairs = list(zip(grids, scales, strict=True))
        centre = [np.outer(scale, grid) for grid, scale in pairs]
        width = [np.outer(scale, BAYES_TUNING.size_width * grid * (grid[1] / grid[0] - 1.0)) for grid, scale in pairs]
        return cls(np.concatenate(centre, axis=1), np.concatenate(width, axis=1) ** -2.0)

    def even_weights(self) -> Floats:
        """(C + 1,) half for zero."""
        n_sizes = self.centre.shape[1]
        return np.append(0.5, np.full(n_sizes, 0.5 / n_sizes))


@dataclass
class _Chain:
    """Where a chain stands; sampling moves it on."""

    coef: Floats
    weights: Floats
    noise: float


@dataclass(frozen=True)
class _Draws:
    """Averages over a chain's sweeps, and every so many-th draw itself."""

    mean: Floats
    inclusion: Floats
    share_of_zero: float
    some: Floats


def sample_posterior(
    features: Features,
    y: Floats,
    family: Family,
    *,
    n_effective: float | None = None,
    fit_intercept: bool = True,
    seed: int = 0,
    score_errors: DrawScoreErrors | None = None,
) -> Posterior:
    """Draw from the posterior and average.

    Parameters
    ----------
    n_effective : subjects that the rows stand for, None for their number; the log-likelihood is scaled to them
    fit_intercept : with a flat prior
    score_errors : (coefficients, mean curvature) -> (T, q) draws of the error of the mean score, on the features' scale
    """
    share = 1.0 if n_effective is None else n_effective / y.size
    sampler = _Sampler(features, y, family, share, score_errors, fit_intercept=fit_intercept)
    return sampler.run(np.random.default_rng(seed))


class _Sampler:
    """The rows, and what is done with them; everything on the scale of standardised columns."""

    def __init__(
        self,
        features: Features,
        y: Floats,
        family: Family,
        share: float,
        score_errors: DrawScoreErrors | None = None,
        *,
        fit_intercept: bool,
    ) -> None:
        self._design = standardise(features, centre=fit_intercept)
        self._y, self._family, self._share, self._score_errors = y, family, share, score_errors
        columns, self._starts = self._design.columns, self._design.starts
        self._rows = np.column_stack([columns, np.ones(y.size)]) if fit_intercept else columns
        self._null = null_point(self._design, y, family, fit_intercept=fit_intercept)
        self._gaussian = family.name == "gaussian"
        self._square = share * float(y @ y)
        self._draws_noise = self._gaussian and score_errors is None  # else it is in the score's errors
        self._noise = 1.0  # of the rows, where errors are known
        self._scales = group_scales(features)
        rows = self._rows
        self._exact = _Quadratic(share * (rows.T @ rows), share * (rows.T @ y)) if self._gaussian else None

    def run(self, rng: Rng) -> Posterior:
        ridge, errors, noise = self._fit_ridge()
        if self._score_errors is not None:
            self._noise = noise
            errors, noise = self._group_errors(np.diag(_invert(self._approximate(ridge[None]).gram))), 1.0
        prior = self._lay_out(2.0 * (self._norms(ridge[None])[0] + errors), errors)
        chain = _Chain(ridge.copy(), prior.even_weights(), noise)
        some = ridge[None]
        for number in range(BAYES_TUNING.passes[self._family.name]):
            some = self._sample(self._approximate(some), prior, chain, BAYES_TUNING.sweeps, rng).some
            if number < BAYES_TUNING.layouts:
                largest = np.quantile(self._norms(some), BAYES_TUNING.size_quantile, axis=0)
                prior = self._lay_out(BAYES_TUNING.size_room * largest, errors)
                chain.weights = prior.even_weights()
        quadratic = self._approximate(some)
        chains = [chain, *(_Chain(ridge.copy(), prior.even_weights(), noise) for _ in range(BAYES_TUNING.chains - 1))]
        ends = [self._sample(quadratic, prior, c, BAYES_TUNING.final_sweeps, rng) for c in chains]
        inclusion = np.array([np.where(self._design.constant, 0.0, end.inclusion) for end in ends])
        mean = np.mean([end.mean for end in ends], axis=0)
        return Posterior(
            self._design.to_raw(mean[: self._design.columns.shape[1]]),
            inclusion.mean(axis=0),
            float(np.mean([end.share_of_zero for end in ends])),
            float(np.mean(np.ptp(inclusion, axis=0))) if inclusion.size else 0.0,
        )

    def _norms(self, coef: Floats) -> Floats:
        """(S, G) sizes of the groups' coefficients."""
        return np.array([group_norms(row[: self._starts[-1]], self._starts) for row in coef])

    def _approximate(self, some: Floats) -> _Quadratic:
        """What is drawn from: the rows' own likelihood, or the evidence that is really there."""
        own = self._likelihood(some)
        return own if self._score_errors is None else self._widen(own, some.mean(axis=0), self._score_errors)

    def _likelihood(self, some: Floats) -> _Quadratic:
        """The quadratic whose gradient and curvature at the draws' mean are the averages over the draws."""
        if self._exact is not None:
            return self._exact
        y, rows, centre = self._y, self._rows, some.mean(axis=0)
        eta = rows @ some.T
        bend = self._family.curvature(eta).mean(axis=1)
        residual = self._family.residual(eta, y[:, None]).mean(axis=1)
        gram = self._share * (rows.T @ (rows * bend[:, None]))
        return _Quadratic(gram, gram @ centre - self._share * (rows.T @ residual))

    def _widen(self, own: _Quadratic, coef: Floats, score_errors: DrawScoreErrors) -> _Quadratic:
        """The quadratic with the same maximum whose curvature is that of the errors."""
        q, n = int(self._starts[-1]), self._share * self._y.size
        bend = 1.0 if self._gaussian else float(self._family.curvature(self._rows @ coef).mean())
        scores = n * self._design.turn(score_errors(self._design.to_raw(coef[:q]), bend))
        cover = _invert(own.gram)
        found = np.cov(scores @ cover[:q, :q], rowvar=False).reshape(q, q)
        errors = self._share * self._noise * cover  # the rows are a sample too
        errors[q:, q:] = self._noise * cover[q:, q:]  # of an intercept, about which the draws say nothing
        kept = BAYES_TUNING.kept_covariance
        errors[:q, :q] += kept * found + (1.0 - kept) * np.diag(np.diag(found))
        gram: Floats = np.asarray(np.linalg.inv(errors))
        return _Quadratic(gram, gram @ (cover @ own.linear))

    def _group_errors(self, variances: Floats) -> Floats:
        """(G,) standard errors."""
        return np.array([np.sqrt(variances[first:last].sum()) for first, last in pairwise(self._starts)])

    def _fit_ridge(self) -> tuple[Floats, Floats, float]:
        """Where to begin: all columns with one normal prior, its variance by EM; (G,) standard errors; the noise."""
        q, y = self._starts[-1], self._y
        coef = np.zeros(self._rows.shape[1])
        coef[q:] = self._null.intercept
        noise = float(np.mean(self._family.residual(self._rows @ coef, y) ** 2)) if self._gaussian else 1.0
        variance = noise / max(q, 1)
        for _ in range(BAYES_TUNING.ridge_steps):
            quadratic = self._likelihood(coef[None])
            penalty = np.zeros(coef.size)
            penalty[:q] = 1.0 / variance
            cover = np.linalg.inv(quadratic.gram / noise + np.diag(penalty))
            target = cover @ quadratic.linear / noise
            before, coef = (coef, variance), self._step(coef, target, penalty)
            spread = np.diag(cover)
            variance = max(float(np.mean(coef[:q] ** 2 + spread[:q])), 1e-12) if q else 1.0
            if self._gaussian:
                fitted = 2.0 * float(coef @ quadratic.linear) - float(coef @ quadratic.gram @ coef)
                left = self._square - fitted + float(np.sum(cover * quadratic.gram))
                noise = max(left, 1e-12 * self._square) / (self._share * y.size)
            moved = float(np.max(np.abs(coef - before[0]), initial=0.0)) / np.sqrt(variance)
            if (
                max(moved, abs(variance / before[1] - 1.0)) <= BAYES_TUNING.ridge_tolerance
            ):  # it is only where chains begin
                break
        return coef, self._group_errors(spread), noise

    def _step(self, start: Floats, target: Floats, penalty: Floats) -> Floats:
        """As far towards the target as the penalised loss falls; all the way for gaussian."""
        if self._gaussian:
            return target

        def objective(coef: Floats) -> float:
            loss = self._family.loss(self._rows @ coef, self._y)
            return self._share * self._y.size * loss + 0.5 * float(penalty @ coef**2)

        step, before = target - start, objective(start)
        return start + step * halve_until_lower(
            lambda share: objective(start + share * step), before, BAYES_TUNING.ridge_halvings
        )

    def _lay_out(self, sizes: Floats, errors: Floats) -> Prior:
        grids = [
            lay_out_sizes(float(np.min(errors / scale, initial=np.inf)), float(np.max(sizes / scale, initial=0.0)))
            for scale in self._scales
        ]
        return Prior.around(grids, self._scales)

    def _sample(self, quadratic: _Quadratic, prior: Prior, chain: _Chain, n_sweeps: int, rng: Rng) -> _Draws:
        turn = rotate_groups(quadratic.gram, self._starts)
        coef = turn.T @ chain.coef
        burn = n_sweeps // 3
        mean, included, share, some, chain.noise, _ = sweep_columns(
            np.ascontiguousarray(turn.T @ quadratic.gram @ turn),
            turn.T @ quadratic.linear,
            coef,
            self._starts,
            prior.centre,
            prior.precision,
            chain.weights,
            chain.noise,
            self._square if self._draws_noise else 0.0,
            self._share * self._y.size,
            n_sweeps,
            burn,
            max((n_sweeps - burn) // BAYES_TUNING.snapshots, 1),
            True,
            rng,
        )
        chain.coef = turn @ coef
        return _Draws(turn @ mean, included, share, some @ turn.T)


def _invert(gram: Floats) -> Floats:
    """Also where columns are constant or copies of each other."""
    return np.linalg.inv(gram + np.diag(np.where(np.diag(gram) > 0.0, 1e-9 * np.diag(gram), 1.0)))


def rotate_groups(gram: Floats, starts: Ints) -> Floats:
    """Directions in which the columns of one group do not disturb each other."""
    turn = np.eye(gram.shape[0])
    for first, last in pairwise(starts):
        if last - first > 1:
            turn[first:last, first:last] = np.linalg.eigh(gram[first:last, first:last])[1]
    return turn


def lay_out_sizes(error: float, largest: float) -> Floats:
    """A geometric grid from what can just be told from zero to the largest size."""
    least = BAYES_TUNING.smallest_size * error
    most = max(largest, 2.0 * least)
    return np.geomspace(least, most, int(np.ceil(np.log(most / least) / np.log(BAYES_TUNING.size_ratio))) + 1)


def group_scales(features: Features) -> tuple[Floats, Floats]:
    """(G,) a size of one on the scale of standardised columns: per unit of the data, and per standard deviation.

    A group's scale is the root of its columns' summed variances.
    """
    variances = features.values.var(axis=0)
    spread = np.sqrt(np.array([variances[first:last].sum() for first, last in pairwise(features.starts)]))
    return np.where(spread > 0.0, spread, 1.0), np.ones_like(spread)
