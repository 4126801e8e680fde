"""Generated tables that look like those of a web shop or of a lender: a rare response, and columns that decide it.

One or two columns are 0 for most people, and being above 0 decides most of the response. The others are amounts with
heavy tails, times, rates, grades and categories, and depend on each other through three latents. Effects on the
response rise and fall, have thresholds and go together. Every seed has other columns, effects and people.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.public_mixed import MixedColumn, MixedTable, code_numbers

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CATEGORIES = (3, 5, 8, 12, 20, 50)


@dataclass(frozen=True)
class _Person:
    """Latents of people, and a generator for one column after the other."""

    latents: Floats
    rng: np.random.Generator

    def score(self, least: float = 0.3, most: float = 0.9) -> Floats:
        """(n,) a standard normal that the latents say a part of."""
        loading = self.rng.normal(size=self.latents.shape[1])
        loading *= self.rng.uniform(least, most) / np.linalg.norm(loading)
        own = np.sqrt(1.0 - loading @ loading)
        return np.asarray(self.latents @ loading + own * self.rng.standard_normal(len(self.latents)))

    def amount(self) -> Floats:
        """A heavy-tailed amount in whole numbers, of ten thousands or of hundreds, some of it in round numbers."""
        raw = np.exp(self.rng.uniform(3.0, 11.0) + self.rng.uniform(0.6, 1.6) * self.score())
        round_ones = self.rng.random(raw.size) < self.rng.uniform(0.0, 0.5)
        unit = 10.0 ** np.floor(np.log10(np.maximum(raw, 10.0)))
        return np.asarray(np.where(round_ones, np.rint(raw / unit) * unit, np.rint(raw)))

    def visits(self) -> Floats:
        """A count of few values, 0 for many."""
        return np.asarray(np.floor(np.exp(self.rng.uniform(-0.5, 1.5) + self.rng.uniform(0.5, 1.2) * self.score())))

    def rate(self) -> Floats:
        """Between 0 and 0.2, heaped at either end."""
        return np.asarray(np.clip(np.rint(5e3 * np.exp(-3.5 + 1.3 * self.score())) / 5e3, 0.0, 0.2))

    def spiked(self) -> Floats:
        """0 for most people, a heavy-tailed amount for the others."""
        score, share = self.score(0.2, 0.6), self.rng.uniform(0.12, 0.3)
        cut = np.quantile(score, 1.0 - share)
        raw = np.exp(self.rng.uniform(1.0, 6.0) + self.rng.uniform(0.7, 1.4) * self.rng.standard_normal(score.size))
        return np.asarray(np.where(score > cut, np.rint(100.0 * raw) / 100.0 + 0.01, 0.0))

    def category(self) -> Ints:
        """One of a few to many, of very different frequency."""
        size = int(self.rng.choice(_CATEGORIES))
        loadings = self.rng.normal(0.0, self.rng.uniform(0.1, 0.6), (self.latents.shape[1], size))
        base = np.log(self.rng.dirichlet(np.full(size, 0.8)) + 1e-4)
        drawn = base + self.latents @ loadings + self.rng.gumbel(size=(len(self.latents), size))
        return np.asarray(np.argmax(drawn, axis=1))


def _effect(values: Floats, kind: str, rng: np.random.Generator) -> Floats:
    """(n,) what a column adds to the response's log odds."""
    if kind == "category":
        return np.asarray(rng.normal(0.0, rng.uniform(0.1, 0.6), int(values.max()) + 1)[values.astype(np.int64)])
    grade = np.argsort(np.argsort(values + 1e-9 * rng.random(values.size))) / values.size
    shape = rng.integers(3)
    if shape == 0:
        return np.asarray(rng.normal(0.0, 1.2) * (grade - 0.5))
    if shape == 1:
        return np.asarray(rng.normal(0.0, 0.9) * (grade > rng.uniform(0.2, 0.8)))
    return np.asarray(rng.normal(0.0, 0.8) * np.cos(2.0 * np.pi * grade))


def generate_responses(seed: int, n: int) -> MixedTable:
    """A table of 11 to 20 columns, the last of which is a response of two values that a tenth to a fifth have.

    Parameters
    ----------
    n : people, those who will be held out among them
    """
    rng = np.random.default_rng([seed, 61])
    people = _Person(rng.standard_normal((n, 3)), rng)
    kinds = ["spiked"] * int(rng.integers(1, 3))
    kinds += list(rng.choice(["amount", "visits", "rate", "category", "category"], int(rng.integers(9, 18))))
    order = rng.permutation(len(kinds))
    values: list[Floats] = [getattr(people, kinds[k])().astype(np.float64) for k in order]
    odds = np.zeros(n)
    for place, k in enumerate(order):
        if kinds[k] == "spiked":
            above = values[place] > 0.0
            grade = np.where(above, np.argsort(np.argsort(values[place])) / n, 0.0)
            odds += above * rng.uniform(2.0, 4.5) + rng.normal(0.0, 4.0) * np.maximum(grade - 0.9, 0.0) / 0.1
        else:
            odds += _effect(values[place], kinds[k], rng)
    for _ in range(int(rng.integers(1, 4))):
        a, b = rng.choice(len(order), 2, replace=False)
        odds += rng.normal(0.0, 0.8) * (values[a] > np.median(values[a])) * (values[b] > np.median(values[b]))
    odds *= rng.uniform(0.9, 1.3)
    rare = rng.uniform(0.1, 0.2)
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if expit(odds + middle).mean() < rare else (low, middle)
    response = (rng.random(n) < expit(odds + low)).astype(np.float64)
    columns = [_as_column(v, kinds[k] == "category") for v, k in zip(values, order, strict=True)]
    columns.append((response.astype(np.int64), response, MixedColumn(None, np.arange(2.0), True)))
    return MixedTable(
        f"generated {seed}",
        np.column_stack([codes for codes, _, _ in columns]),
        np.column_stack([numbers for _, numbers, _ in columns]),
        tuple(column for _, _, column in columns),
    )


def _as_column(values: Floats, is_category: bool) -> tuple[Ints, Floats, MixedColumn]:
    if not is_category:
        return code_numbers(values)
    labels, codes = np.unique(values, return_inverse=True)
    column = MixedColumn(None, np.arange(labels.size, dtype=np.float64), labels.size <= 2)
    return codes.astype(np.int64), codes.astype(np.float64), column
