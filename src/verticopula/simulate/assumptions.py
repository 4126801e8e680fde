"""What a forecast assumes of data nobody has seen: ordinary margins, and correlations of a given size.

Everything here follows from the public schema and a seed. The assumptions, also in docs/how-to/planning.md:

- continuous: around the middle of the public range on its public scale, which is 6 to 12 standard deviations wide;
  normal or skewed, up to a lognormal of shape 0.6
- count: a rounded-down lognormal around the square root of the range
- ordinal and nominal: shares that differ by a factor of two or three
- binary: 10 to 50 % in the second category
- correlations: of the given root mean square, from one to thirteen factors, of which columns share more or less: few
  factors tie all columns together, many leave no structure
- blocks missing at random: presence depends on a mixture of the response party's columns, by one unit of log odds
  per standard deviation unless another number is given

Known shares of a column's categories, among the subjects its party knows, replace what is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation
from verticopula.stats.bridge import STRONGEST
from verticopula.stats.copula import Layout
from verticopula.stats.margin_cells import count_cells
from verticopula.stats.matrix_repair import nearest_correlation
from verticopula.stats.nominal import category_probabilities, choose_category, move_thresholds, solve_thresholds

Floats = NDArray[np.float64]

_LOGISTIC = 1.7  # a logistic's scale in terms of a normal's


@dataclass(frozen=True)
class AssumptionTuning:
    """How assumed data are made as asked for. Chosen by hand, not tuned.

    Attributes
    ----------
    tries : to reach the typical correlation
    close : relative distance from it that is near enough
    people : drawn to find margins under which those whom a party knows have known shares
    """

    tries: int = 4
    close: float = 0.03
    people: int = 20_000


ASSUMPTION_TUNING = AssumptionTuning()


@dataclass(frozen=True)
class OrdinaryData:
    """What ordinary data look like, as ranges to draw from. Chosen by hand, not tuned to any data set.

    Attributes
    ----------
    factors : numbers of factors
    shared : what columns have of the factors: the least of any, relative to the most
    most_shared : share of a column's variance that factors may explain
    smallest_eigenvalue : of the correlations
    middle, widths, skew : of a continuous column: its middle in the public range, how many standard deviations the
        range is wide, the shape of its lognormal
    count_spread : standard deviation of a count's logarithm
    second_share : of a binary column's second category
    category_evenness : concentration of the Dirichlet distribution of the shares of three or more categories
    """

    factors: tuple[int, ...] = (1, 2, 3, 5, 8, 13)
    shared: tuple[float, float] = (0.2, 1.0)
    most_shared: float = 0.9
    smallest_eigenvalue: float = 0.02
    middle: tuple[float, float] = (0.4, 0.6)
    widths: tuple[float, float] = (6.0, 12.0)
    skew: tuple[float, float] = (1e-3, 0.6)
    count_spread: tuple[float, float] = (0.5, 1.0)
    second_share: tuple[float, float] = (0.1, 0.5)
    category_evenness: float = 6.0


ORDINARY = OrdinaryData()


@dataclass(frozen=True)
class AssumedMargin:
    """A column's margin: a location and a spread, or the probabilities of its categories.

    Attributes
    ----------
    column : its kind and public range
    middle, spread : of the position in [0, 1] for a continuous column; of the logarithm for a count
    skew : shape of the lognormal that a continuous column's position follows; about normal where it is small
    shares : of the categories; empty for the others
    """

    column: Column
    middle: float = 0.0
    spread: float = 1.0
    skew: float = 1e-3
    shares: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def draw(cls, column: Column, rng: np.random.Generator) -> AssumedMargin:
        if column.kind == "continuous":
            middle, widths = rng.uniform(*ORDINARY.middle), rng.uniform(*ORDINARY.widths)
            return cls(column, middle, 1.0 / widths, rng.uniform(*ORDINARY.skew))
        if column.kind == "count":
            low, high = column.bounds or (0.0, 1.0)
            return cls(column, 0.5 * math.log(high - low + 1.0) - 0.2, rng.uniform(*ORDINARY.count_spread))
        if column.kind == "binary" or len(column.categories or ()) == 2:
            share = rng.uniform(*ORDINARY.second_share)
            return cls(column, shares=np.array([1.0 - share, share]))
        return cls(column, shares=rng.dirichlet(np.full(len(column.categories or ()), ORDINARY.category_evenness)))

    def values(self, latents: Floats) -> Floats:
        """(n,) positions, counts above the lowest, or category codes from (n, latents) normals."""
        if latents.shape[1] > 1:
            return choose_category(latents, solve_thresholds(self.shares)).astype(np.float64)
        z = latents[:, 0]
        if self.column.kind == "continuous":
            return np.clip(self.middle + self.spread * np.expm1(self.skew * z) / self.skew, 0.0, 1.0)
        if self.column.kind == "count":
            low, high = self.column.bounds or (0.0, 1.0)
            return np.minimum(np.floor(np.exp(self.middle + self.spread * z)), high - low)
        return np.searchsorted(np.cumsum(self.shares)[:-1], ndtr(z)).astype(np.float64)

    def below(self, cuts: Floats) -> Floats:
        """Probability of a value below each cut; positions, or counts above the lowest."""
        if self.column.kind == "count":
            with np.errstate(divide="ignore"):
                return ndtr((np.log(cuts) - self.middle) / self.spread)
        with np.errstate(divide="ignore"):
            inside = np.maximum(1.0 + self.skew * (cuts - self.middle) / self.spread, 0.0)
            return ndtr(np.log(inside) / self.skew)

    def cell_probabilities(self, n_cells: int) -> Floats:
        """Of the column's public cells."""
        if self.shares.size:
            return self.shares
        cumulative = self.below(self.inner_cuts(n_cells))
        return np.diff(cumulative, prepend=0.0, append=1.0)

    def cells(self, values: Floats, n_cells: int) -> NDArray[np.int64]:
        """The margin's cell that each value lies in."""
        if self.shares.size:
            return values.astype(np.int64)
        return np.searchsorted(self.inner_cuts(n_cells), values, side="right")

    def inner_cuts(self, n_cells: int) -> Floats:
        """Where the public cells of a continuous or count column meet."""
        if self.column.kind == "count":
            firsts = count_cells(self.column)
            return np.asarray(firsts[1:-1] - firsts[0], dtype=np.float64)
        return np.arange(1, n_cells) / n_cells


@dataclass(frozen=True)
class Assumptions:
    """A truth to simulate a study on.

    Attributes
    ----------
    margins : in the population
    correlation : of the latents
    score : (q,) weights of the latents in what presence depends on: of unit variance, the response party's only
    selection : (K,) correlation of each party's presence with the score
    """

    layout: Layout
    margins: Mapping[ColumnKey, AssumedMargin]
    correlation: Floats
    score: Floats
    selection: Floats

    @classmethod
    def draw(
        cls,
        federation: Federation,
        typical_correlation: float,
        rng: np.random.Generator,
        presence: AssumedPresence | None = None,
        known_shares: Mapping[ColumnKey, Floats] | None = None,
    ) -> Assumptions:
        """Margins and correlations for the federation's schema.

        `typical_correlation` is their root mean square; `known_shares` are of categories among those their party has.
        """
        layout = Layout.of({key: federation.column(key) for key in federation.keys})
        columns = {key: federation.column(key).model_copy(update={"atoms": ()}) for key in federation.keys}
        margins = {key: AssumedMargin.draw(column, rng) for key, column in columns.items()}
        correlation = _draw_correlation(layout, typical_correlation, rng)
        presence = presence or AssumedPresence(np.ones(len(federation.parties)), {})
        score = rng.standard_normal(len(layout.labels))
        for key, part in zip(layout.keys, layout.slices, strict=True):
            score[part] *= key.party == federation.response.party
        score /= math.sqrt(float(score @ correlation @ score))
        selection = presence.selection * rng.choice(np.array([-1.0, 1.0]), presence.shares.size)
        for key, shares in (known_shares or {}).items():
            margins[key] = AssumedMargin(federation.column(key), shares=np.asarray(shares, dtype=np.float64))
        truth = cls(layout, margins, correlation, score, selection)
        if known_shares and presence.selection:
            truth = replace(truth, margins=margins | _in_population(federation, truth, presence, known_shares, rng))
        return truth


def _in_population(
    federation: Federation,
    truth: Assumptions,
    presence: AssumedPresence,
    known_shares: Mapping[ColumnKey, Floats],
    rng: np.random.Generator,
) -> dict[ColumnKey, AssumedMargin]:
    """Margins under which the subjects that a party has show the known shares."""
    latents = (
        rng.standard_normal((ASSUMPTION_TUNING.people, truth.score.size)) @ np.linalg.cholesky(truth.correlation).T
    )
    masks = presence.draw(latents @ truth.score, rng, truth.selection)
    parties = [party.name for party in federation.parties]
    found = {}
    for key, part in zip(truth.layout.keys, truth.layout.slices, strict=True):
        party = parties.index(key.party)
        if key not in known_shares or presence.shares[party] >= 1.0:
            continue
        seen = latents[masks[:, party], part]
        if seen.shape[1] > 1:
            thresholds = thresholds_in(seen, known_shares[key])
            shares = category_probabilities(thresholds)
        else:
            cuts = np.quantile(seen[:, 0], np.clip(np.cumsum(known_shares[key])[:-1], 0.0, 1.0))
            shares = np.diff(ndtr(cuts), prepend=0.0, append=1.0)
        found[key] = AssumedMargin(federation.column(key), shares=shares / shares.sum())
    return found


def thresholds_in(latents: Floats, shares: Floats) -> Floats:
    """Thresholds under which these subjects' categories have the shares, to about their Monte-Carlo error."""
    return move_thresholds(solve_thresholds(shares), latents, shares, tolerance=1.0 / latents.shape[0], steps=20)


def _draw_correlation(layout: Layout, typical_correlation: float, rng: np.random.Generator) -> Floats:
    """Factors in random directions, with so much of every column's variance that correlations have that size."""
    q = len(layout.labels)
    free = ~layout.nominal_blocks() & ~np.eye(q, dtype=bool)
    if not free.any():
        return np.eye(q)
    mean = sum(ORDINARY.shared) / 2.0
    possible = [
        m for m in ORDINARY.factors if m == 1 or ORDINARY.most_shared * mean / math.sqrt(m) > typical_correlation
    ]
    loadings = rng.standard_normal((q, int(rng.choice(possible))))
    loadings *= (np.sqrt(rng.uniform(*ORDINARY.shared, q)) / np.linalg.norm(loadings, axis=1))[:, None]
    products = loadings @ loadings.T
    wanted = typical_correlation
    for _ in range(ASSUMPTION_TUNING.tries):
        matrix = np.clip(products * wanted / math.sqrt(float(np.mean(products[free] ** 2))), -0.95, 0.95)
        matrix = respect_nominal(matrix, layout)
        got = math.sqrt(float(np.mean(matrix[free] ** 2)))
        if abs(got / typical_correlation - 1.0) < ASSUMPTION_TUNING.close:
            break
        wanted = min(wanted * typical_correlation / got, 0.95)  # the repair took some back
    return matrix


def respect_nominal(matrix: Floats, layout: Layout) -> Floats:
    """A correlation matrix in which categories' latents are independent, and only their differences matter."""
    centre = np.eye(matrix.shape[0])
    for part in layout.slices:
        width = part.stop - part.start
        if width > 1:
            centre[part, part] -= 1.0 / width
    centred = centre @ matrix @ centre.T
    centred[layout.nominal_blocks()] = 0.0
    np.fill_diagonal(centred, 1.0)
    return nearest_correlation(centred, floor=ORDINARY.smallest_eigenvalue).correlation


# ---- who is known to whom ------------------------------------------------------------------


@dataclass(frozen=True)
class AssumedPresence:
    """How blocks are assumed to be missing.

    Attributes
    ----------
    shares : (K,) of the cohort that each party knows
    together : two parties' numbers -> share that both know; others are independent given the score
    at_random : log odds of presence per standard deviation of a score of the response party's columns; 0: on nothing
    """

    shares: Floats
    together: Mapping[tuple[int, int], float]
    at_random: float = 0.0

    @property
    def selection(self) -> float:
        """Correlation of a party's presence, as a normal that is cut, with the score."""
        slope = float(self.at_random) / _LOGISTIC
        return slope / math.sqrt(1.0 + slope**2)

    def draw(self, score: Floats, rng: np.random.Generator, selection: Floats) -> NDArray[np.bool_]:
        """(n, K) masks; `score` (n,) is of unit variance, `selection` (K,) each party's correlation with it."""
        thresholds = ndtri(np.clip(self.shares, 1e-12, 1.0 - 1e-12))
        link = np.eye(self.shares.size)
        for (j, k), both in self.together.items():
            if max(self.shares[j], self.shares[k]) < 1.0:
                wanted = _link(float(thresholds[j]), float(thresholds[k]), both) - selection[j] * selection[k]
                link[j, k] = link[k, j] = wanted / math.sqrt((1.0 - selection[j] ** 2) * (1.0 - selection[k] ** 2))
        root = np.linalg.cholesky(nearest_correlation(np.clip(link, -1.0, 1.0), floor=1e-6).correlation)
        own = rng.standard_normal((score.size, self.shares.size)) @ root.T
        masks = (selection * score[:, None] + np.sqrt(1.0 - selection**2) * own <= thresholds) | (self.shares >= 1.0)
        for lonely in np.flatnonzero(masks.sum(axis=0) < 2):  # a study needs somebody
            masks[rng.permutation(score.size)[:2], lonely] = True
        return np.asarray(masks)


def _link(first: float, second: float, both: float) -> float:
    """Correlation of two normals that are both below their thresholds with that probability."""

    def miss(r: float) -> float:
        return float(multivariate_normal.cdf([first, second], cov=[[1.0, r], [r, 1.0]])) - both

    if miss(-STRONGEST) >= 0.0 or miss(STRONGEST) <= 0.0:
        return -STRONGEST if miss(-STRONGEST) >= 0.0 else STRONGEST
    return float(brentq(miss, -STRONGEST, STRONGEST, xtol=1e-4))
