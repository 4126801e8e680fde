"""Slow, obvious versions of the mechanisms: loops over pairs, one coin at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal, getcontext

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ranks = tuple[int, ...]

getcontext().prec = 60


def exact_flip_probability(epsilon: float) -> Decimal:
    """1/(1+exp(epsilon)) to 60 digits."""
    return 1 / (1 + Decimal(epsilon).exp())


def comparison_probabilities(values: Sequence[float], flip_prob: float) -> dict[tuple[int, int], float]:
    """For every pair i < j, the probability that its coin says "i is larger"."""
    probabilities = {}
    for i, j in itertools.combinations(range(len(values)), 2):
        if values[i] == values[j]:
            probabilities[i, j] = 0.5
        else:
            probabilities[i, j] = 1.0 - flip_prob if values[i] > values[j] else flip_prob
    return probabilities


def rank_distribution(probabilities: dict[tuple[int, int], float], n: int) -> dict[Ranks, float]:
    """Exact distribution of the vector of noisy ranks, from all outcomes of all coins."""
    distribution: dict[Ranks, float] = {}
    pairs = list(probabilities)
    for outcome in itertools.product((False, True), repeat=len(pairs)):
        chance = 1.0
        ranks = [1] * n
        for (i, j), first_larger in zip(pairs, outcome, strict=True):
            chance *= probabilities[i, j] if first_larger else 1.0 - probabilities[i, j]
            ranks[i if first_larger else j] += 1
        distribution[tuple(ranks)] = distribution.get(tuple(ranks), 0.0) + chance
    return distribution


def weak_orders(n: int) -> Iterator[tuple[int, ...]]:
    """Every way to order n subjects, ties allowed, as values 0, 1, ... without gaps."""
    for values in itertools.product(range(n), repeat=n):
        if set(values) == set(range(max(values) + 1)):
            yield values


def flip_one_by_one(values: Floats, flip_prob: float, rng: np.random.Generator) -> Ints:
    """Noisy ranks by a double loop, each comparison with a coin of its own."""
    n = values.size
    ranks = np.ones(n, dtype=np.int64)
    for i in range(n):
        for j in range(i + 1, n):
            if values[i] == values[j]:
                first_larger = rng.random() < 0.5
            else:
                first_larger = (values[i] > values[j]) != (rng.random() < flip_prob)
            ranks[i if first_larger else j] += 1
    return ranks


def rank_moments(values: Floats, flip_prob: float) -> tuple[Floats, Floats]:
    """Exact mean and covariance of the noisy ranks: a shared coin makes two ranks move apart."""
    n = values.size
    mean = np.ones(n)
    covariance = np.zeros((n, n))
    for (i, j), first_larger in comparison_probabilities(values.tolist(), flip_prob).items():
        mean[i] += first_larger
        mean[j] += 1.0 - first_larger
        variance = first_larger * (1.0 - first_larger)
        covariance[i, i] += variance
        covariance[j, j] += variance
        covariance[i, j] = covariance[j, i] = -variance
    return mean, covariance


def rank_pmf(below: int, above: int, ties: int, flip_prob: float) -> Floats:
    """Exact distribution of one noisy rank, 1..n: the convolution of its three binomials."""
    stayed = stats.binom.pmf(np.arange(below + 1), below, 1.0 - flip_prob)
    passed = stats.binom.pmf(np.arange(above + 1), above, flip_prob)
    drawn = stats.binom.pmf(np.arange(ties + 1), ties, 0.5)
    return np.convolve(np.convolve(stayed, passed), drawn)


def goodness_of_fit(counts: Floats, probabilities: Floats, smallest: float = 5.0) -> float:
    """p-value of a G test; cells with a small expectation are pooled."""
    expected = counts.sum() * probabilities
    order = np.argsort(expected)
    cumulative = np.cumsum(expected[order])
    pooled = order[: int(np.searchsorted(cumulative, smallest)) + 1]
    kept = np.setdiff1d(np.arange(counts.size), pooled)
    observed = np.append(counts[kept], counts[pooled].sum())
    wanted = np.append(expected[kept], expected[pooled].sum())
    inside = observed > 0
    statistic = 2.0 * float(np.sum(observed[inside] * np.log(observed[inside] / wanted[inside])))
    return float(stats.chi2.sf(statistic, max(observed.size - 1, 1)))


def compose_by_enumeration(epsilons: Sequence[float], at: float) -> float:
    """delta at `at` of touching these coins, from all outcomes of all of them."""
    delta = 0.0
    for outcome in itertools.product((False, True), repeat=len(epsilons)):
        under, over = 1.0, 1.0
        for epsilon, honest in zip(epsilons, outcome, strict=True):
            likely = 1.0 / (1.0 + math.exp(-epsilon))
            under *= likely if honest else 1.0 - likely
            over *= 1.0 - likely if honest else likely
        delta += max(under - math.exp(at) * over, 0.0)
    return delta


def hockey_stick(under: dict[Ranks, float], over: dict[Ranks, float], epsilon: float) -> float:
    """Smallest delta at which the first distribution is within exp(epsilon) of the second."""
    return sum(max(chance - math.exp(epsilon) * over.get(ranks, 0.0), 0.0) for ranks, chance in under.items())


def largest_log_ratio(under: dict[Ranks, float], over: dict[Ranks, float]) -> float:
    return max(math.log(chance / over[ranks]) for ranks, chance in under.items())
