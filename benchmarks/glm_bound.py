"""What is reachable: the posterior of someone who knows that every coefficient is 0, +c or -c, c itself, and how often.

Nobody who looks at the data alone can know that. Among all rules, means of this posterior have the least expected
squared error on data drawn in this way, and its inclusion probabilities the best trade between false and missed
columns; so its figures bound what a selection can be asked for (up to the design's fixed number of non-zero
coefficients).

The posterior has many modes: a chain with these three values alone stays near where it starts, and one that starts at
the truth flatters itself. So chains of several temperatures run side by side and change places (Geyer 1991), in one run
from the truth, in another from nothing; how far their inclusion probabilities are apart says whether that was enough.
The likelihood is exact: a column's next value is proposed from the quadratic at the current state, and accepted as
Metropolis and Hastings say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]

INVERSE_TEMPERATURES = np.array([1.0, 0.75, 0.55, 0.4, 0.28, 0.2])


@dataclass(frozen=True)
class KnownPrior:
    """Each coefficient is 0 with probability `share`, otherwise plus or minus `size`; normal errors have variance 1."""

    size: float
    share: float


@dataclass(frozen=True)
class Bound:
    """Posterior means and probabilities, and the mean distance of the probabilities of the two runs."""

    mean: Floats
    inclusion: Floats
    unrest: float

    def select(self, threshold: float) -> Floats:
        return np.where(self.inclusion > threshold, self.mean, 0.0)


def sample_known(x: Floats, y: Floats, truth: Floats, prior: KnownPrior, *, linear: bool, sweeps: int) -> Bound:
    """Both runs, averaged; the first quarter of each is left out."""
    columns = np.ascontiguousarray(x.T)
    values = np.array([0.0, prior.size, -prior.size])
    weights = np.log([prior.share, (1.0 - prior.share) / 2.0, (1.0 - prior.share) / 2.0])
    runs = []
    for seed, start in enumerate((truth, np.zeros_like(truth))):
        state = np.array([np.argmin(np.abs(values - b)) for b in start])
        rng = np.random.default_rng(seed)
        runs.append(_temper(columns, y, state, values, weights, INVERSE_TEMPERATURES, linear, sweeps, rng))
    shares = np.array(runs)  # (run, column, value)
    mean = shares.mean(axis=0)
    return Bound(mean @ values, 1.0 - mean[:, 0], float(np.mean(np.abs(shares[0, :, 0] - shares[1, :, 0]))))


@njit(cache=True, nogil=True)
def _evaluate(eta: Floats, y: Floats, linear: bool, mean: Floats) -> float:
    """The log-likelihood; fills in the means."""
    total = 0.0
    for i in range(y.size):
        if linear:
            mean[i] = eta[i]
            total -= 0.5 * (y[i] - eta[i]) ** 2
        else:
            small = np.exp(-abs(eta[i]))
            mean[i] = 1.0 / (1.0 + small) if eta[i] >= 0.0 else small / (1.0 + small)
            total += y[i] * eta[i] - max(eta[i], 0.0) - np.log1p(small)
    return total


@njit(cache=True, nogil=True)
def _propose(pull: float, bend: float, now: int, values: Floats, weights: Floats, heat: float, odds: Floats) -> None:
    """Probabilities of a column's values under the quadratic at its current one."""
    for k in range(values.size):
        step = values[k] - values[now]
        odds[k] = weights[k] + heat * (pull * step - 0.5 * bend * step * step)
    odds -= odds.max()
    odds[:] = np.exp(odds)
    odds /= odds.sum()


@njit(cache=True, nogil=True)
def _temper(
    columns: Floats,
    y: Floats,
    start: NDArray[np.int64],
    values: Floats,
    weights: Floats,
    heats: Floats,
    linear: bool,
    sweeps: int,
    rng: np.random.Generator,
) -> Floats:
    """(p, 3) how often each column has each value, at temperature 1."""
    p, n = columns.shape
    n_chains = heats.size
    state, eta, mean = np.zeros((n_chains, p), np.int64), np.zeros((n_chains, n)), np.zeros((n_chains, n))
    level, bends, place = np.zeros(n_chains), np.zeros(p), np.arange(n_chains)  # place: which chain has which heat
    for t in range(n_chains):
        state[t] = start
        for j in range(p):
            eta[t] += columns[j] * values[start[j]]
        level[t] = _evaluate(eta[t], y, linear, mean[t])
    counts, tried, tried_mean = np.zeros((p, values.size)), np.zeros(n), np.zeros(n)
    odds, back = np.zeros(values.size), np.zeros(values.size)
    for sweep in range(sweeps):
        for j in range(p):
            bends[j] = 0.0
            for i in range(n):
                curve = 1.0 if linear else mean[place[0], i] * (1.0 - mean[place[0], i])
                bends[j] += columns[j, i] ** 2 * curve
        for h in range(n_chains):
            t = place[h]
            for j in range(p):
                now = state[t, j]
                _propose(columns[j] @ (y - mean[t]), bends[j], now, values, weights, heats[h], odds)
                drawn, new, total = rng.random(), values.size - 1, 0.0
                for k in range(values.size):
                    total += odds[k]
                    if drawn < total:
                        new = k
                        break
                if new == now:
                    continue
                tried[:] = eta[t] + (values[new] - values[now]) * columns[j]
                other = _evaluate(tried, y, linear, tried_mean)
                _propose(columns[j] @ (y - tried_mean), bends[j], new, values, weights, heats[h], back)
                gain = heats[h] * (other - level[t]) + weights[new] - weights[now]
                if np.log(rng.random()) < gain + np.log(back[now]) - np.log(odds[new]):
                    state[t, j], level[t] = new, other
                    eta[t], mean[t] = tried, tried_mean
        for h in range(n_chains - 1):
            a, b = place[h], place[h + 1]
            if np.log(rng.random()) < (heats[h] - heats[h + 1]) * (level[b] - level[a]):
                place[h], place[h + 1] = b, a
        if sweep >= sweeps // 4:
            for j in range(p):
                counts[j, state[place[0], j]] += 1.0
    return counts / (sweeps - sweeps // 4)
