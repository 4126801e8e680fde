"""What is reachable: the posterior of someone who knows that every coefficient is 0, +c or -c, c itself, and how often.

Nobody who looks at the data alone can know that. Among all rules, means of this posterior have the least expected
squared error on data drawn in this way, and its inclusion probabilities the best trade between false and missed
columns; so its figures bound what a selection can be asked for (up to the design's fixed number of non-zero
coefficients).

The posterior has many modes: a chain that changes one column at a time stays near where it starts, and one that starts
at the truth flatters itself. So

- columns are drawn in pairs, partners by their correlation, many pairs in a row from the quadratic around a fixed
  centre, where a draw costs nothing per row; the last state is then accepted or refused by the exact likelihood (the
  surrogate transition of Liu 2001, section 9.4.3). The pairs are drawn forth and back, which makes the walk reversible;
- walks at several temperatures run side by side and change places (Geyer 1991);
- one run starts at the truth and another at a guess made without it. How far their inclusion probabilities are apart
  says whether that was enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.glm_bound_walks import temper

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INVERSE_TEMPERATURES = np.array([1.0, 0.8, 0.64, 0.5, 0.39, 0.3])
REFITS = 5  # of the quadratics


@dataclass(frozen=True)
class KnownPrior:
    """Each coefficient is 0 with probability `share`, otherwise plus or minus `size`."""

    size: float
    share: float

    @property
    def values(self) -> Floats:
        return np.array([0.0, self.size, -self.size])

    @property
    def log_weights(self) -> Floats:
        return np.log([self.share, (1.0 - self.share) / 2.0, (1.0 - self.share) / 2.0])


@dataclass(frozen=True)
class Bound:
    """What the runs say together.

    Attributes
    ----------
    mean, inclusion : posterior means and probabilities of being another than 0, averaged over the runs
    chain_difference : mean distance of the inclusion probabilities of the runs
    accepted : share of the walks at temperature 1 whose end the exact likelihood accepts
    changed : (T - 1,) how often neighbouring temperatures change places
    """

    mean: Floats
    inclusion: Floats
    chain_difference: float
    accepted: float
    changed: Floats

    def select(self, threshold: float) -> Floats:
        return np.where(self.inclusion > threshold, self.mean, 0.0)


def sample_known(
    x: Floats, y: Floats, starts: Sequence[Floats], centre: Floats, prior: KnownPrior, *, sweeps: int
) -> Bound:
    """A run from each start, averaged; the first quarter of each is left out.

    Parameters
    ----------
    y : 0 or 1
    starts : coefficients, taken to the nearest values of the prior
    centre : coefficients around which the first quadratic is taken; no matter for what is found, only for how fast
    """
    values = prior.values
    runs = [
        _run(x, y, np.argmin(np.abs(values[None] - start[:, None]), axis=1), centre, prior, sweeps, seed)
        for seed, start in enumerate(starts)
    ]
    shares = np.array([run[0] for run in runs])  # (run, column, value)
    mean = shares.mean(axis=0)
    return Bound(
        mean @ values,
        1.0 - mean[:, 0],
        float(np.mean(np.ptp(shares[:, :, 0], axis=0))),
        float(np.mean([run[1] for run in runs])),
        np.mean([run[2] for run in runs], axis=0),
    )


def _run(
    x: Floats, y: Floats, start: Ints, centre: Floats, prior: KnownPrior, sweeps: int, seed: int
) -> tuple[Floats, float, Floats]:
    """Every temperature's quadratic is fitted to its own draws during the first quarter, and fixed from then on."""
    rng, heats, values = np.random.default_rng(seed), INVERSE_TEMPERATURES, prior.values
    up = np.exp(prior.size * x.T)
    factors = np.ascontiguousarray([up, 1.0 / up])
    state, coef = np.tile(start, (heats.size, 1)), np.tile(centre, (heats.size, 1))
    means = expit(coef @ x.T)
    bends = means * (1.0 - means)
    for length in (*[sweeps // (4 * REFITS)] * REFITS, sweeps - sweeps // 4):
        grams = np.array([x.T @ (x * row[:, None]) for row in bends])
        slopes = (y - means) @ x + np.einsum("tij,tj->ti", grams, coef)
        odds = np.exp(values[state] @ x.T)
        shares, accepted, changed, coef, means, bends = temper(
            *(factors, y @ x, grams, slopes, _choose_partners(grams[0]), state, odds),
            *(values, prior.log_weights, heats, length, rng),
        )
    return shares, accepted, changed


def _choose_partners(gram: Floats) -> Floats:
    """(p, p) cumulated probabilities of a column's partners: by their squared correlation, and a little for all."""
    p = len(gram)
    scale = np.sqrt(np.diag(gram))
    odds = (gram / np.outer(scale, scale)) ** 2 + 0.2 / p
    np.fill_diagonal(odds, 0.0)
    return np.asarray(np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1))
