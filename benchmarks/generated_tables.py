"""Generated tables of many kinds, on which constants of the tilted copula are chosen: no real table is among them.

Four families: random Bayesian networks, latent classes, log-linear models of pairs, and factor models whose columns are
steps of latent normals. Each comes with columns of all kinds, and with binary ones of skewed margins alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from verticopula.stats.tilting.opening_plan import CodedColumn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIXED_SIZES = (2, 3, 4, 6, 9, 16)
_GIBBS_SWEEPS = 25


@dataclass(frozen=True)
class GeneratedTable:
    """A table in codes, its columns dealt to two parties by halves."""

    codes: Ints
    sizes: tuple[int, ...]
    nominal: tuple[bool, ...]

    def coded(self) -> list[CodedColumn]:
        """What is public about the columns."""
        half = len(self.sizes) // 2
        return [
            CodedColumn(size, not nominal, int(j >= half))
            for j, (size, nominal) in enumerate(zip(self.sizes, self.nominal, strict=True))
        ]


def draw_kinds(n_columns: int, binary: bool, rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Sizes and kinds of columns: of three that are not binary, one is nominal."""
    if binary:
        return (2,) * n_columns, (False,) * n_columns
    sizes = tuple(int(size) for size in rng.choice(MIXED_SIZES, n_columns))
    return sizes, tuple(bool(size > 2 and rng.random() < 1 / 3) for size in sizes)


def pick(chances: Floats, rng: np.random.Generator) -> Ints:
    """(n,) a cell for every row of chances, which need not sum to 1."""
    ends = np.cumsum(chances, axis=1)
    drawn = rng.random(len(ends))[:, None] * ends[:, -1:]
    return np.minimum((drawn > ends).sum(axis=1), chances.shape[1] - 1).astype(np.int64)


def _skewed(size: int, rng: np.random.Generator) -> Floats:
    """Shares of cells; those of binary columns are often far from a half."""
    if size == 2:
        rare = float(np.exp(rng.uniform(np.log(0.02), np.log(0.5))))
        return np.array([1.0 - rare, rare])
    return np.asarray(rng.dirichlet(np.full(size, 2.0)))


def _effects(size: int, other: int, ordered: tuple[bool, bool], strength: float, rng: np.random.Generator) -> Floats:
    """(other, size) log effects of another column's cells: smooth in ordered ones, of mean 0 in either direction."""

    def basis(cells: int, smooth: bool) -> Floats:
        if not smooth or cells == 2:
            return np.eye(cells)
        grade = (np.arange(cells) + 0.5) / cells
        return np.column_stack([np.cos(np.pi * k * grade) for k in (1, 2, 3)]) * np.array([1.5, 0.7, 0.3])

    left, right = basis(other, ordered[1]), basis(size, ordered[0])
    drawn = left @ rng.normal(0.0, strength, (left.shape[1], right.shape[1])) @ right.T
    return np.asarray(drawn - drawn.mean(axis=0) - drawn.mean(axis=1)[:, None] + drawn.mean())


def _network(n: int, sizes: tuple[int, ...], nominal: tuple[bool, ...], rng: np.random.Generator) -> Ints:
    """Every column depends on up to two earlier ones, with an interaction where there are two."""
    codes = np.zeros((n, len(sizes)), dtype=np.int64)
    order = rng.permutation(len(sizes))
    for place, j in enumerate(order):
        size = sizes[j]
        logits = np.log(_skewed(size, rng))[None, :].repeat(n, axis=0)
        parents = order[rng.choice(place, min(place, int(rng.integers(1, 3))), replace=False)] if place else []
        for parent in parents:
            kinds = not nominal[j], not nominal[parent]
            logits += _effects(size, sizes[parent], kinds, 1.0, rng)[codes[:, parent]]
        if len(parents) == 2:
            together = codes[:, parents[0]] * sizes[parents[1]] + codes[:, parents[1]]
            logits += rng.normal(0.0, 0.3, (sizes[parents[0]] * sizes[parents[1]], size))[together]
        codes[:, j] = pick(np.exp(logits), rng)
    return codes


def _classes(n: int, sizes: tuple[int, ...], nominal: tuple[bool, ...], rng: np.random.Generator) -> Ints:
    """Six classes of people; columns are independent inside of each."""
    group = rng.choice(6, n, p=rng.dirichlet(np.full(6, 3.0)))
    columns = []
    for size, free in zip(sizes, nominal, strict=True):
        logits = np.log(_skewed(size, rng)) + _effects(size, 6, (not free, False), 0.8, rng)
        columns.append(pick(np.exp(logits)[group], rng))
    return np.column_stack(columns)


def _log_linear(n: int, sizes: tuple[int, ...], nominal: tuple[bool, ...], rng: np.random.Generator) -> Ints:
    """A third of all pairs have an effect; rows are Gibbs samples."""
    p = len(sizes)
    fields = [np.log(_skewed(size, rng)) for size in sizes]
    effects = {
        (a, b): _effects(sizes[b], sizes[a], (not nominal[b], not nominal[a]), 0.5, rng)
        for b in range(p)
        for a in range(b)
        if rng.random() < 1 / 3
    }
    codes = np.column_stack([pick(np.exp(field)[None, :].repeat(n, axis=0), rng) for field in fields])
    for _ in range(_GIBBS_SWEEPS):
        for j in range(p):
            logits = fields[j][None, :].repeat(n, axis=0)
            for (a, b), effect in effects.items():
                if b == j:
                    logits += effect[codes[:, a]]
                elif a == j:
                    logits += effect.T[codes[:, b]]
            codes[:, j] = pick(np.exp(logits), rng)
    return codes


def _factors(n: int, sizes: tuple[int, ...], nominal: tuple[bool, ...], rng: np.random.Generator) -> Ints:
    """Steps of latent normals with three factors; a category is the largest of as many latents."""
    factors = rng.standard_normal((n, 3))
    columns = []
    for size, free in zip(sizes, nominal, strict=True):
        shares = _skewed(size, rng)
        width = size if free else 1
        loadings = rng.uniform(-1.0, 1.0, (3, width))
        loadings *= rng.uniform(0.2, 0.8, width) / np.linalg.norm(loadings, axis=0)
        own = np.sqrt(1.0 - np.sum(loadings**2, axis=0))
        latent = factors @ loadings + own * rng.standard_normal((n, width))
        if free:
            columns.append(np.argmax(latent + 0.5 * np.log(shares), axis=1))
        else:
            columns.append(np.searchsorted(np.cumsum(shares)[:-1], ndtr(latent[:, 0])))
    return np.column_stack(columns).astype(np.int64)


_Draw = Callable[[int, tuple[int, ...], tuple[bool, ...], np.random.Generator], Ints]
FAMILIES: Mapping[str, _Draw] = {
    "networks": _network,
    "classes": _classes,
    "log-linear": _log_linear,
    "factors": _factors,
}


def generate_table(family: str, *, binary: bool, seed: int, n: int = 30_000, n_columns: int = 15) -> GeneratedTable:
    """One table of a family.

    Parameters
    ----------
    binary : whether all columns are binary; they have all kinds otherwise
    seed : of the model and of the people
    """
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), int(binary)])
    sizes, nominal = draw_kinds(n_columns, binary, rng)
    return GeneratedTable(FAMILIES[family](n, sizes, nominal, rng), sizes, nominal)
