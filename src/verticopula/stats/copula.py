"""The fitted copula: privatized marginals and one latent correlation matrix. Sampling from it.

Everything here is post-processing of releases; it touches no raw data and costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from verticopula.errors import SettingsError
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.conditions import Condition, Conditions
from verticopula.stats.conditional_draws import LatentRegion, RegionBuilder, draw_given
from verticopula.stats.marginals import Marginal
from verticopula.stats.nominal import choose_category, latent_from_indicator, thresholds_for

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROWS_AT_ONCE = 1 << 16
_NO_MASS = 2e-9  # quantiles of a continuous column give empty stretches 1e-9 in all
NO_CONDITIONS: Conditions = MappingProxyType({})


def latent_count(column: Column) -> int:
    """Number of latents of a column: one, or one per category for three or more unordered ones."""
    categories = len(column.categories or ())
    return categories if column.kind == "nominal" and categories > 2 else 1


@dataclass(frozen=True)
class Layout:
    """Which latents belong to which column."""

    keys: tuple[ColumnKey, ...]
    slices: tuple[slice, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, columns: Mapping[ColumnKey, Column]) -> Layout:
        slices: list[slice] = []
        labels: list[str] = []
        for key, column in columns.items():
            count = latent_count(column)
            slices.append(slice(len(labels), len(labels) + count))
            labels += [str(key)] if count == 1 else [f"{key}={c}" for c in column.categories or ()]
        return cls(tuple(columns), tuple(slices), tuple(labels))

    @property
    def latent_keys(self) -> list[ColumnKey]:
        """The column behind every latent."""
        return [key for key, part in zip(self.keys, self.slices, strict=True) for _ in range(part.start, part.stop)]

    def nominal_blocks(self) -> NDArray[np.bool_]:
        """(q, q) mask of pairs of different latents of one nominal column: independent by convention."""
        mask = np.zeros((len(self.labels), len(self.labels)), dtype=bool)
        for part in self.slices:
            mask[part, part] = part.stop - part.start > 1
        np.fill_diagonal(mask, False)
        return mask


def indicators_to_latents(layout: Layout, margins: Mapping[ColumnKey, Marginal], unknown: Bools) -> Floats:
    """(q, q) block-diagonal map A: correlations with indicators -> correlations with latents.

    `unknown` (q,) marks latents of which nothing is known. Those of categories come out uncorrelated, and the others
    as if the column had no such categories: what cannot be told from an empty category says nothing about the rest.
    """
    transform = np.eye(unknown.size)
    for key, part in zip(layout.keys, layout.slices, strict=True):
        if part.stop - part.start > 1:
            known = np.flatnonzero(~unknown[part])
            transform[part, part] = 0.0
            if known.size > 1:
                places = part.start + known
                transform[np.ix_(places, places)] = latent_from_indicator(known_shares(margins[key], known))
    return transform


def known_shares(margin: Marginal, known: NDArray[np.int64]) -> Floats:
    """The shares of these categories among themselves; equal where none has any mass."""
    kept = margin.probabilities[known]
    total = float(kept.sum())
    return np.asarray(kept / total if total > 0.0 else np.full(known.size, 1.0 / known.size))


def find_rare(layout: Layout, margins: Mapping[ColumnKey, Marginal]) -> Bools:
    """(q,) the latents of categories that are too rare for anything to be learnt of them."""
    rare = np.zeros(len(layout.labels), dtype=np.bool_)
    for key, part in zip(layout.keys, layout.slices, strict=True):
        if part.stop - part.start > 1:
            rare[part] = margins[key].probabilities < margins[key].rarest
    return rare


def find_interval(key: ColumnKey, margin: Marginal, condition: Condition) -> tuple[float, float]:
    """The grades of a condition on a column with an order, both the same for one value of a continuum.

    SettingsError if the fitted margin has no such values.
    """
    low, high = margin.grades_between(condition.low, condition.high)
    if high - low > _NO_MASS:
        return low, high
    if margin.column.is_discrete or not condition.is_single:
        check_mass(key, 0.0)
    middle = (low + high) / 2.0
    return middle, middle


def check_mass(key: ColumnKey, mass: float) -> None:
    """SettingsError if (all but) nobody has what a condition asks for, by the column's fitted margin."""
    if mass <= _NO_MASS:
        raise SettingsError(f"condition on {key}: by its fitted margin nobody has such a value")


@dataclass(frozen=True)
class FittedCopula:
    """Marginals and correlation, ready to sample."""

    layout: Layout
    margins: Mapping[ColumnKey, Marginal]
    correlation: Floats

    def sample(
        self,
        n_rows: int,
        rng: np.random.Generator,
        conditions: Conditions = NO_CONDITIONS,
        *,
        complete: bool = False,
    ) -> dict[ColumnKey, Floats]:
        """Independent synthetic rows: values, or codes for categories.

        Parameters
        ----------
        conditions : what rows have in some columns
        complete : whether no value may be empty; here none ever is
        """
        if conditions:
            return self._sample_given(conditions, n_rows, rng)
        root = np.linalg.cholesky(self.correlation)
        parts = (
            rng.standard_normal((min(ROWS_AT_ONCE, n_rows - start), root.shape[0])) @ root.T
            for start in range(0, n_rows, ROWS_AT_ONCE)
        )
        return self.decode(parts, n_rows)

    def _sample_given(self, conditions: Conditions, n_rows: int, rng: np.random.Generator) -> dict[ColumnKey, Floats]:
        region = self._region(conditions)
        parts = (
            draw_given(self.correlation, region, min(ROWS_AT_ONCE, n_rows - start), rng)
            for start in range(0, n_rows, ROWS_AT_ONCE)
        )
        found = self.decode(parts, n_rows)
        return found | {key: np.clip(found[key], own.low, own.high) for key, own in conditions.items()}

    def _region(self, conditions: Conditions) -> LatentRegion:
        """Where latents have to be for these conditions; SettingsError if the fitted margins do not allow them."""
        region = RegionBuilder()
        for key, part in zip(self.layout.keys, self.layout.slices, strict=True):
            if key not in conditions:
                continue
            margin = self.margins[key]
            if part.stop - part.start > 1:
                category = int(conditions[key].low)
                check_mass(key, float(margin.probabilities[category]))
                thresholds = thresholds_for(margin.probabilities, self.correlation[part, part])
                region.win(part.start, thresholds, category)
            else:
                low, high = find_interval(key, margin, conditions[key])
                region.bound_or_fix(part.start, float(ndtri(low)), float(ndtri(high)))
        return region.build()

    def draw_people(self, n_rows: int, rng: np.random.Generator) -> dict[ColumnKey, Floats]:
        """Rows that are independent of each other, as people are: here those of `sample`."""
        return self.sample(n_rows, rng)

    def decode(self, latents: Iterable[Floats], n_rows: int) -> dict[ColumnKey, Floats]:
        """Values from latents that come in parts of (rows, q), `n_rows` in all."""
        decoders = [self.decoder(key, part) for key, part in zip(self.layout.keys, self.layout.slices, strict=True)]
        out = {key: np.empty(n_rows) for key in self.layout.keys}
        start = 0
        for latent in latents:
            stop = start + latent.shape[0]
            for key, part, decode in zip(self.layout.keys, self.layout.slices, decoders, strict=True):
                out[key][start:stop] = decode(latent[:, part])
            start = stop
        return out

    def decoder(self, key: ColumnKey, part: slice) -> Callable[[Floats], Floats]:
        """How a column's latents become its values."""
        margin = self.margins[key]
        if part.stop - part.start == 1:
            return lambda latent: margin.quantile(ndtr(latent[:, 0]))
        thresholds = thresholds_for(margin.probabilities, self.correlation[part, part])
        return lambda latent: choose_category(latent, thresholds).astype(np.float64)
