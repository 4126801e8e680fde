"""A tilted copula for each class of the response: dependence that differs between classes goes beyond pairs.

Every class has margins, latent correlations and tables of its own, read from the noisy ranks of its subjects. Each is
shrunk by its known error: margins towards those of everybody, correlations towards their mean over classes, tables
towards the class's own copula. Where classes do not differ they come out (nearly) alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.schema.columns import ColumnKey
from verticopula.schema.conditions import Conditions
from verticopula.stats.bridge import STRONGEST_IN_SERIES, hermite_coefficients, invert_series
from verticopula.stats.copula import NO_CONDITIONS, FittedCopula, Layout
from verticopula.stats.matrix_repair import nearest_correlation
from verticopula.stats.tilted_ranks.rank_tables import ReadColumn, read_rank_tables
from verticopula.stats.tilting.category_shifts import shrink_together, threshold_density
from verticopula.stats.tilting.copula_estimate import plain_copula
from verticopula.stats.tilting.latent_scores import LatentScore
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_prior import (
    ColumnSide,
    TableReading,
    posterior_table,
    read_deviation_variance,
)
from verticopula.stats.tilting.tilted_fit import FitInputs, count_fitted_rows, fit_tilted
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula, usable_threads
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ClassTuning:
    """When classes have models of their own. All were chosen by hand, not tuned.

    Attributes
    ----------
    most_classes : of the response
    fewest_people : read in every class
    surely_read : chance that a class is read rightly, at least
    probes : rows that tell how likely a condition is in a class
    rank_loss : variance of a correlation from cells, where that from normal values is 1
    """

    most_classes: int = 4
    fewest_people: int = 1000
    surely_read: float = 0.95
    probes: int = 4096
    rank_loss: float = 1.5


CLASS_TUNING = ClassTuning()


@dataclass(frozen=True)
class ClassMixture(FittedCopula):
    """A tilted copula for each class of the response, ready to sample.

    Attributes
    ----------
    margins, correlation : of everybody, for readers; rows follow `models`
    response : whose classes they are
    shares : (K,) of the classes, in the order of the response's codes
    models : of all other columns, one for every class
    """

    response: ColumnKey
    shares: Floats
    models: tuple[TiltedStudyCopula, ...]

    def sample(
        self,
        n_rows: int,
        rng: np.random.Generator,
        conditions: Conditions = NO_CONDITIONS,
        *,
        complete: bool = False,
    ) -> dict[ColumnKey, Floats]:
        """Synthetic rows: values, or codes. Without conditions they have next to no sampling error in their tables.

        Parameters
        ----------
        conditions : what rows have in some columns; SettingsError where no class has a chance of it
        complete : whether no value may be empty; here none ever is
        """
        others = {key: own for key, own in conditions.items() if key != self.response}
        shares = self._shares_given(conditions, others, rng)
        ends = np.round(np.cumsum(shares) / shares.sum() * n_rows).astype(np.int64)
        return self._draw(
            np.diff(ends, prepend=0), rng, lambda model, n, own: model.sample(n, own, others, complete=complete)
        )

    def _shares_given(self, conditions: Conditions, others: Conditions, rng: np.random.Generator) -> Floats:
        """(K,) the classes' shares among rows that meet the conditions, up to a factor."""
        shares = self.shares.copy()
        if self.response in conditions:
            codes, own = np.arange(shares.size), conditions[self.response]
            shares[(codes < own.low) | (codes > own.high)] = 0.0
        if others:
            shares *= [_chance(model, others, rng) for model in self.models]
        if shares.sum() <= 0.0:
            raise SettingsError(
                "no row of the fitted model meets these conditions: give ranges in place of values, or wider ones, or "
                "fit with dependence='copula'"
            )
        return shares

    def draw_people(self, n_rows: int, rng: np.random.Generator) -> dict[ColumnKey, Floats]:
        """Rows that are independent of each other, as people are."""
        counts = rng.multinomial(n_rows, self.shares / self.shares.sum())
        return self._draw(counts, rng, TiltedStudyCopula.draw_people)

    def _draw(
        self,
        counts: Ints,
        rng: np.random.Generator,
        draw: Callable[[TiltedStudyCopula, int, np.random.Generator], dict[ColumnKey, Floats]],
    ) -> dict[ColumnKey, Floats]:
        parts = [draw(model, int(n), rng) for model, n in zip(self.models, counts, strict=True) if n > 0]
        order = rng.permutation(int(counts.sum()))
        codes = np.repeat(np.arange(counts.size, dtype=np.float64), counts)
        drawn = {key: np.concatenate([part[key] for part in parts]) for key in self.models[0].layout.keys}
        return {key: (codes if key == self.response else drawn[key])[order] for key in self.layout.keys}


def _chance(model: TiltedStudyCopula, conditions: Conditions, rng: np.random.Generator) -> float:
    """How many people of the model meet the conditions."""
    drawn = model.draw_people(CLASS_TUNING.probes, rng)
    met = [(own.low <= drawn[key]) & (drawn[key] <= own.high) for key, own in conditions.items()]
    return float(np.all(met, axis=0).mean())


def find_classes(response: ReadColumn) -> list[Ints]:
    """Subjects of every class, where the response has a few classes that are read surely; none otherwise."""
    cells, n_cells = response.cells, response.column.n_cells
    tuning = CLASS_TUNING
    if response.confusion is None or n_cells != response.column.probabilities.size or n_cells > tuning.most_classes:
        return []
    members = [np.flatnonzero(cells == cell) for cell in range(n_cells)]
    surely = float(np.diag(response.confusion).min()) >= tuning.surely_read
    return members if surely and min(m.size for m in members) >= tuning.fewest_people else []


def fit_classes(
    copula: FittedCopula,
    columns: Sequence[ReadColumn],
    readings: Sequence[TableReading],
    place: int,
    classes: Sequence[Ints],
    rng: np.random.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ClassMixture:
    """A model for every class.

    Parameters
    ----------
    copula : of everybody
    columns, readings : all of them, and what is read about every pair
    place : of the response among the columns
    classes : the subjects of each class
    """
    own_margins = _class_margins(columns, readings, place)
    kept = [j for j in range(len(columns)) if j != place]
    within = [
        [replace(columns[j], column=own_margins[j][c], cells=columns[j].cells[rows]) for j in kept]
        for c, rows in enumerate(classes)
    ]
    tables = [read_rank_tables(own) for own in within]
    latent = _shrink_classes([correlate_tables(*pair) for pair in zip(within, tables, strict=True)])
    keys = [copula.layout.keys[j] for j in kept]
    layout = Layout.of({key: copula.margins[key].column for key in keys})
    size = count_fitted_rows(columns[0].cells.size, len(columns))
    models = []
    for c, (own, readings_c, correlation) in enumerate(zip(within, tables, latent, strict=True)):
        shifts = _shifts(own, readings_c, correlation)
        estimate = plain_copula(np.array([column.column.ordered for column in own]), correlation, shifts)
        opened = FitInputs(tuple(column.column for column in own), estimate, (), tuple(readings_c))
        fit = fit_tilted(
            opened,
            size,
            rng=rng,
            threads=usable_threads(),
            progress=lambda done, total, c=c: progress(c * total + done, len(classes) * total),  # type: ignore[misc]
        )
        margins = {
            key: replace(copula.margins[key], probabilities=column.column.probabilities)
            for key, column in zip(keys, own, strict=True)
        }
        models.append(TiltedStudyCopula(layout, margins, np.eye(len(layout.labels)), fit.model, fit.targets))
    return ClassMixture(
        copula.layout,
        copula.margins,
        copula.correlation,
        copula.layout.keys[place],
        columns[place].column.shares,
        tuple(models),
    )


def _class_margins(
    columns: Sequence[ReadColumn], readings: Sequence[TableReading], place: int
) -> dict[int, list[PooledColumn]]:
    """Column -> its pooled cells with the margin of every class, shrunk towards that of everybody."""
    classes = columns[place].column.shares
    found = {j: [column.column] * classes.size for j, column in enumerate(columns)}
    for reading in readings:
        if place not in reading.pair:
            continue
        first, second = (columns[j].column for j in reading.pair)
        sides = ColumnSide.of(first, reading.left), ColumnSide.of(second, reading.right)
        expected, noise = np.outer(first.shares, second.shares), reading.noise(first.shares, second.shares)
        spread = read_deviation_variance(reading, expected, sides, noise).squared
        table = posterior_table(reading, expected, sides, noise, spread)
        j, table = (reading.pair[0], table) if reading.pair[1] == place else (reading.pair[1], table.T)
        found[j] = [_with_margin(columns[j].column, table[:, c]) for c in range(classes.size)]
    return found


def _with_margin(column: PooledColumn, shares: Floats) -> PooledColumn:
    """The column with these shares of its pooled cells; inside of them as before."""
    p = column.probabilities * (shares / np.maximum(column.shares, 1e-12))[column.groups]
    return replace(column, probabilities=p / p.sum())


def correlate_tables(columns: Sequence[ReadColumn], readings: Sequence[TableReading]) -> tuple[Floats, Floats]:
    """(correlations, variances) of the ordered columns' latents, from their tables; infinite without one."""
    latent_of = np.cumsum([column.column.ordered for column in columns]) - 1
    scores = {j: LatentScore.of(column.column.shares) for j, column in enumerate(columns) if column.column.ordered}
    q = len(scores)
    covariance, variance = np.zeros((q, q)), np.full((q, q), np.inf)
    for reading in readings:
        a, b = reading.pair
        if a in scores and b in scores:
            j, k = latent_of[a], latent_of[b]
            covariance[j, k] = covariance[k, j] = _covary(reading.values, scores[a].scores, scores[b].scores)
            noise = scores[a].scores ** 2 @ np.square(reading.deviation) @ scores[b].scores ** 2
            variance[j, k] = variance[k, j] = float(noise) + CLASS_TUNING.rank_loss / reading.people
    coefficients = [hermite_coefficients(score.thresholds, np.diff(score.scores)) for score in scores.values()]
    latent, slope = invert_series(coefficients, covariance) if q else (covariance, covariance)
    np.fill_diagonal(latent, 1.0)
    return latent, variance * slope**2


def _covary(table: Floats, first: Floats, second: Floats) -> float:
    """Covariance of two scores in a table, whatever its total is."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    return float(first @ table @ second - (first @ rows) * (second @ columns))


def _shrink_classes(found: Sequence[tuple[Floats, Floats]]) -> list[Floats]:
    """Every class's correlations, moved towards the mean over classes as far as their variance says, and repaired."""
    noisy, variance = np.array([r for r, _ in found]), np.array([v for _, v in found])
    known = np.isfinite(variance)
    weights = np.where(known, 1.0 / np.maximum(variance, 1e-12), 0.0)
    mean = (weights * noisy).sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-12)
    apart = np.where(known, (noisy - mean) ** 2 - variance * (1.0 - 1.0 / len(found)), 0.0)
    off = known & ~np.eye(noisy.shape[1], dtype=bool)
    spread = max(float(apart[off].mean()), 0.0) / (1.0 - 1.0 / len(found)) if off.any() else 0.0
    kept = np.where(known, spread / np.maximum(spread + variance, 1e-12), 0.0)
    moved = []
    for own in np.clip(mean + kept * (noisy - mean), -STRONGEST_IN_SERIES, STRONGEST_IN_SERIES):
        np.fill_diagonal(own, 1.0)
        moved.append(nearest_correlation(own, floor=TILTED_TUNING.smallest_eigenvalue, projections=20).correlation)
    return moved


def _shifts(columns: Sequence[ReadColumn], readings: Sequence[TableReading], correlation: Floats) -> dict[int, Floats]:
    """Nominal column -> (c, q) covariances of its indicators with the latents, shrunk by their error."""
    latent_of = np.cumsum([column.column.ordered for column in columns]) - 1
    scores = {j: LatentScore.of(column.column.shares) for j, column in enumerate(columns) if column.column.ordered}
    found = {}
    for j, column in enumerate(columns):
        if column.column.ordered or not scores:
            continue
        shares = column.column.shares
        density = threshold_density(shares)[:, None]
        noisy, variance = np.zeros((shares.size, len(scores))), np.full((shares.size, len(scores)), 1e6)
        for reading in readings:
            other = sum(reading.pair) - j
            if j in reading.pair and other in scores:
                table = reading.values if reading.pair[0] == j else reading.values.T
                score, slope = scores[other].scores, max(scores[other].slope(), TILTED_TUNING.weakest_slope)
                centred = table - np.outer(table.sum(axis=1), table.sum(axis=0))
                noisy[:, latent_of[other]] = centred @ score / slope
                variance[:, latent_of[other]] = shares * (1.0 - shares) / (reading.people * slope**2)
        shifts = shrink_together(noisy / density, variance / density**2, np.zeros_like(correlation), correlation)
        if shifts is not None:
            covariance = shifts * density
            found[j] = covariance - np.outer(shares / shares.sum(), covariance.sum(axis=0))
    return found
