"""Guessing which of two data sets a release came from, learnt from releases of both.

A score is any number computed from a release's features, larger for the second data set. Several are fitted; which
of them is used, and where it is cut, is decided on other releases than those that give the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Score = Callable[[Floats], Floats]


@dataclass(frozen=True)
class GuessTuning:
    """What scores are fitted. Chosen by hand, not tuned: any choice gives a valid bound.

    Attributes
    ----------
    bins : of a feature's histogram
    few_outcomes : up to so many different releases have a likelihood ratio each
    sizes : numbers of features, the most telling first, that a score looks at
    """

    bins: int = 16
    few_outcomes: int = 256
    sizes: tuple[int, ...] = (1, 2, 4, 16, 64)


GUESS_TUNING = GuessTuning()


def fit_scores(first: Floats, second: Floats) -> list[Score]:
    """Candidates, from (trials, features) of either data set."""
    table = _Outcomes.fit(first, second)
    scores: list[Score] = [] if table is None else [table]
    cuts = [_cuts(np.concatenate([first[:, j], second[:, j]])) for j in range(first.shape[1])]
    ratios = [_log_ratios(first[:, j], second[:, j], c) for j, c in enumerate(cuts)]
    divergence = np.array([found.divergence for found in ratios])
    order = np.argsort(-divergence, kind="stable")
    for size in GUESS_TUNING.sizes:
        chosen = order[: min(size, order.size)]
        scores.append(_Histograms(chosen, [cuts[j] for j in chosen], [ratios[j].ratio for j in chosen]))
        scores.append(_Linear.fit(chosen, first, second))
        if size >= order.size:
            break
    return scores


@dataclass(frozen=True)
class _Outcomes:
    """The likelihood ratio itself, where a release has few outcomes."""

    known: dict[bytes, float]

    @classmethod
    def fit(cls, first: Floats, second: Floats) -> _Outcomes | None:
        rows, index = np.unique(np.concatenate([first, second]), axis=0, return_inverse=True)
        if len(rows) > GUESS_TUNING.few_outcomes:
            return None
        flat = index.ravel()
        counts = [np.bincount(part, minlength=len(rows)) + 0.5 for part in (flat[: len(first)], flat[len(first) :])]
        ratio = np.log(counts[1] / counts[0])
        return cls({row.tobytes(): float(value) for row, value in zip(rows, ratio, strict=True)})

    def __call__(self, features: Floats) -> Floats:
        return np.array([self.known.get(row.tobytes(), 0.0) for row in np.ascontiguousarray(features)])


@dataclass(frozen=True)
class _Ratio:
    ratio: Floats
    divergence: float


def _cuts(values: Floats) -> Floats:
    """Inner edges of bins: single values where there are few, quantiles otherwise."""
    distinct = np.unique(values)
    if distinct.size <= GUESS_TUNING.bins:
        return np.asarray((distinct[1:] + distinct[:-1]) / 2.0)
    return np.unique(np.quantile(values, np.arange(1, GUESS_TUNING.bins) / GUESS_TUNING.bins))


def _log_ratios(first: Floats, second: Floats, cuts: Floats) -> _Ratio:
    shares = []
    for values in (first, second):
        counts = np.bincount(np.searchsorted(cuts, values), minlength=cuts.size + 1) + 0.5
        shares.append(counts / counts.sum())
    ratio = np.log(shares[1] / shares[0])
    return _Ratio(ratio, float(np.sum((shares[1] - shares[0]) * ratio)))


@dataclass(frozen=True)
class _Histograms:
    """Sum of the features' own log-likelihood ratios, as if they were independent."""

    columns: NDArray[np.intp]
    cuts: list[Floats]
    ratios: list[Floats]

    def __call__(self, features: Floats) -> Floats:
        total = np.zeros(len(features))
        for j, cuts, ratio in zip(self.columns, self.cuts, self.ratios, strict=True):
            total += ratio[np.searchsorted(cuts, features[:, j])]
        return total


@dataclass(frozen=True)
class _Linear:
    """Sum of the features, each weighted by its difference in means over its variance."""

    columns: NDArray[np.intp]
    weights: Floats

    @classmethod
    def fit(cls, columns: NDArray[np.intp], first: Floats, second: Floats) -> _Linear:
        a, b = first[:, columns], second[:, columns]
        spread = (a.var(axis=0) + b.var(axis=0)) / 2.0
        return cls(columns, (b.mean(axis=0) - a.mean(axis=0)) / (spread + 1e-9))

    def __call__(self, features: Floats) -> Floats:
        return np.asarray(features[:, self.columns] @ self.weights)
