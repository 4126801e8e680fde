"""Blocks missing at random: whom a party knows depends on what everybody has.

The base is the columns of parties that know (all but) everybody. Who is known to whom is public, so a base party
counts its own people: the means of its columns' features among those whom party k knows, with noise, need no secure
sum. They say how party k selects: by weights exp(lambda_k'f) of base features f, the maximum-entropy ones with these
means. Rows of the model, weighted so, show what selection does to the base's second moments. Products and means of
other columns follow by regression on the base, tables by the weighted rows. Where no party knows everybody, blocks
count as missing completely at random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from verticopula.mpc.sums_plan import selection_sensitivity
from verticopula.stats.tilting.cell_features import CellFeatures, features_mean
from verticopula.stats.tilting.latent_scores import solve_shift
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable, feature_places
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LEAST_GRADIENT = 1e-8
_FARTHEST_SCORE = 4.0  # logarithm of a weight, from the mean


@dataclass(frozen=True)
class SelectionReading:
    """What base parties released about those whom each party knows.

    Attributes
    ----------
    base : (p,) whether a column is everybody's
    selecting : (K,) whether a party knows some people only
    means : (K, f) noisy means of the base columns' features; rows of parties that know everybody are not used
    deviations : (K,) standard deviation of the noise on a mean
    """

    base: Bools
    selecting: Bools
    means: Floats
    deviations: Floats


def find_base_columns(known: Bools, owners: Ints) -> tuple[Bools, Bools]:
    """(p,) columns of parties that know (all but) everybody, and (K,) which parties do not."""
    base = find_base(known.sum(axis=0) / max(len(known), 1))
    return np.asarray(base[owners]), np.asarray(~base)


def find_base(shares: Floats) -> Bools:
    """(K,) which parties or columns have (all but) everybody, from the shares of people that they have."""
    return np.asarray(shares >= 1.0 - TUNING.base_lack)


def selection_noise(features: Sequence[CellFeatures], base: Bools, n_selecting: int, mu: float) -> float:
    """Standard deviation of the noise on a sum of base features, for all selecting parties together."""
    longest = sum(f.largest for f, own in zip(features, base, strict=True) if own)
    return selection_sensitivity(longest, n_selecting) / mu


@dataclass(frozen=True)
class Selection:
    """How every party selects: weights exp(slopes'f) of base features.

    Attributes
    ----------
    slopes : (K, f) 0 for parties that know everybody
    """

    base: Bools
    slopes: Floats

    def weights(self, features: Sequence[CellFeatures], pooled: Ints) -> Floats:
        """(n, K) the weights of rows of pooled cells, of mean 1."""
        scores = base_features(features, self.base, pooled) @ self.slopes.T
        raw = np.exp(np.clip(scores - scores.mean(axis=0), -_FARTHEST_SCORE, _FARTHEST_SCORE))
        return np.asarray(raw / raw.mean(axis=0))


def base_features(features: Sequence[CellFeatures], base: Bools, pooled: Ints) -> Floats:
    """(n, f) features of the base columns."""
    parts = [f.table[pooled[:, j]] for j, f in enumerate(features) if base[j]]
    return np.hstack(parts) if parts else np.zeros((len(pooled), 0))


def fit_selection(reading: SelectionReading, features: Sequence[CellFeatures], pooled: Ints) -> Selection:
    """Slopes for which weighted rows of the model have the released means, as far as these stand out of their noise.

    Parameters
    ----------
    pooled : (n, p) rows of the model
    """
    own = base_features(features, reading.base, pooled)
    centre = own.mean(axis=0)
    spread = np.maximum(own.std(axis=0), 1e-6)
    unit = (own - centre) / spread
    slopes = np.zeros(reading.means.shape)
    for k in np.flatnonzero(reading.selecting):
        shift = (reading.means[k] - centre) / spread
        noise = (reading.deviations[k] / spread) ** 2 + 1.0 / len(own)
        size = max(float(np.mean(shift**2 - noise)), 0.0)
        slopes[k] = _match_means(unit, shift * size / (size + noise)) / spread
    return Selection(reading.base, slopes)


def _match_means(unit: Floats, wanted: Floats) -> Floats:
    """Slopes of exponential weights under which standardised features have these means, but for a ridge.

    They minimise a convex function, log mean exp(unit'slopes) - wanted'slopes and the ridge. It is searched in
    coordinates in which it is nearly round.
    """
    n = len(unit)
    covariance = unit.T @ unit / n
    ridge = _choose_ridge(covariance, wanted)
    root = np.linalg.cholesky(covariance + ridge * np.eye(wanted.size))

    def lost(turned: Floats) -> tuple[float, Floats]:
        slope = solve_triangular(root, turned, lower=True, trans="T")
        score = unit @ slope
        top = float(score.max())
        weight = np.exp(score - top)
        total = float(weight.sum())
        value = top + math.log(total / n) - float(wanted @ slope) + 0.5 * ridge * float(slope @ slope)
        gradient = weight @ unit / total - wanted + ridge * slope
        return value, solve_triangular(root, gradient, lower=True)

    start: Floats = np.zeros(wanted.size)
    limits = {"maxiter": TUNING.selection_steps, "gtol": _LEAST_GRADIENT, "ftol": 0.0}
    found = minimize(lost, start, jac=True, method="L-BFGS-B", options=limits)  # type: ignore[call-overload, unused-ignore]
    return np.asarray(solve_triangular(root, found.x, lower=True, trans="T"))


def _choose_ridge(covariance: Floats, wanted: Floats) -> float:
    """The ridge, twice as large until scores stay in their range: with hundreds of features noise drives them out.

    To first order slopes are (covariance + ridge)^-1 wanted, and two standard deviations of scores are in the range.
    """
    values, vectors = np.linalg.eigh(covariance)
    along, ridge = vectors.T @ wanted, TUNING.selection_ridge
    while float(np.sum(values * (along / (values + ridge)) ** 2)) > (0.5 * _FARTHEST_SCORE) ** 2:
        ridge *= 2.0
    return float(ridge)


@dataclass(frozen=True)
class BaseMoments:
    """Second moments of the base features and a 1: of everybody, and of those whom parties know.

    Attributes
    ----------
    everybody : (f+1, f+1)
    selected : two parties that select -> (f+1, f+1) of those whom both know, by the model's weights
    """

    everybody: Floats
    selected: Mapping[tuple[int, int], Floats]

    @classmethod
    def of(
        cls, features: Sequence[CellFeatures], base: Bools, pooled: Ints, weights: Floats, selecting: Bools
    ) -> BaseMoments:
        """From weighted rows of the model."""
        rows = np.column_stack([base_features(features, base, pooled), np.ones(len(pooled))])
        everybody = rows.T @ rows / len(rows)
        selected = {}
        for a in np.flatnonzero(selecting).tolist():
            for b in np.flatnonzero(selecting[: a + 1]).tolist():
                weight = weights[:, a] if a == b else weights[:, a] * weights[:, b]
                weighted = rows * np.sqrt(weight)[:, None]  # of a matrix with itself half is computed
                selected[a, b] = selected[b, a] = weighted.T @ weighted / weight.sum()
        return cls(everybody, selected)


def correct_gram(
    gram: OpenedGram,
    features: Sequence[CellFeatures],
    columns: Sequence[PooledColumn],
    owners: Ints,
    reading: SelectionReading,
    moments: BaseMoments,
) -> tuple[OpenedGram, Floats, Floats]:
    """Products of everybody's features from those of the observed, (f,) everybody's means and (f,) mean squares.

    Given the base, features are the same for those whom a party knows and for all others (Pearson and Lawley): with W
    the regression of party a's features on the base's among those whom a knows, everybody has W E[base base'], and a
    product of a's and b's features differs between everybody and those whom both know by W_a (difference) W_b'.
    """
    widths = [f.table.shape[1] for f in features]
    owner = np.repeat(owners, widths)
    inside = np.repeat(reading.base, widths)
    means = np.concatenate([features_mean(f, c) for f, c in zip(features, columns, strict=True)])
    size = len(moments.everybody)
    slopes = np.zeros((owner.size, size))
    slopes[np.flatnonzero(inside), np.arange(size - 1)] = 1.0
    totals = gram.totals[np.ix_(owner, owner)]
    average = np.divide(gram.matrix, totals, out=np.zeros_like(totals), where=totals > 0.0)
    everybody, found = means.copy(), average.copy()
    for k in np.flatnonzero(reading.selecting).tolist():
        own = np.flatnonzero(owner == k)
        seen = np.column_stack([average[np.ix_(own, np.flatnonzero(inside))], means[own]])
        chosen = moments.selected[k, k]
        noise = gram.deviation / max(float(np.min(totals[own[0], inside])), 1e-12)
        ridge = min(TUNING.regression_ridge * noise, TUNING.most_ridge) * np.trace(chosen) / size * np.eye(size)
        turned = np.linalg.solve(chosen + ridge, moments.everybody - chosen)
        slopes[own] = np.linalg.solve(chosen + ridge, seen.T).T
        whole = seen + seen @ turned
        everybody[own] = whole[:, -1]
        found[np.ix_(own, np.flatnonzero(inside))] = whole[:, :-1]
        found[np.ix_(np.flatnonzero(inside), own)] = whole[:, :-1].T
    for a in np.flatnonzero(reading.selecting).tolist():
        for b in np.flatnonzero(reading.selecting).tolist():
            left, right = np.flatnonzero(owner == a), np.flatnonzero(owner == b)
            change = moments.everybody - moments.selected[a, b]
            found[np.ix_(left, right)] += slopes[left] @ change @ slopes[right].T
    squares = np.concatenate([c.shares @ f.table**2 for f, c in zip(features, columns, strict=True)])
    for k in np.flatnonzero(reading.selecting).tolist():
        own = np.flatnonzero(owner == k)
        squares[own] += np.sum(slopes[own] @ (moments.everybody - moments.selected[k, k]) * slopes[own], axis=1)
    return replace(gram, matrix=found * totals), everybody, squares


def match_variances(
    gram: OpenedGram,
    features: Sequence[CellFeatures],
    columns: Sequence[PooledColumn],
    owners: Ints,
    squares: Floats,
    means: Floats,
) -> OpenedGram:
    """Products whose covariances go with the variances that everybody's margins have.

    Regression on the base is linear, features are not: covariances and variances go astray alike, and variances are
    known from the margins.

    Parameters
    ----------
    columns : with margins of everybody
    squares, means : of everybody's features by regression
    """
    owner = np.repeat(owners, [f.table.shape[1] for f in features])
    own_means = np.concatenate([features_mean(f, c) for f, c in zip(features, columns, strict=True)])
    own_squares = np.concatenate([c.shares @ f.table**2 for f, c in zip(features, columns, strict=True)])
    ratio = (squares - means**2) / np.maximum(own_squares - own_means**2, 1e-6)
    stretch = np.sqrt(np.clip(ratio, 1.0 / TUNING.most_stretch, TUNING.most_stretch))
    totals = gram.totals[np.ix_(owner, owner)]
    average = np.divide(gram.matrix, totals, out=np.zeros_like(totals), where=totals > 0.0)
    covariance = (average - np.outer(means, means)) / np.outer(stretch, stretch)
    return replace(gram, matrix=(covariance + np.outer(own_means, own_means)) * totals)


def correct_margins(
    columns: Sequence[PooledColumn], features: Sequence[CellFeatures], owners: Ints, selecting: Bools, means: Floats
) -> tuple[PooledColumn, ...]:
    """Margins of everybody from those of the observed and the means of everybody's features.

    An ordered column's latent normal is shifted until its score has the mean; a nominal column's indicators say it all.
    """
    found = []
    places = feature_places([f.table.shape[1] for f in features])
    for j, (column, own) in enumerate(zip(columns, features, strict=True)):
        if not selecting[owners[j]]:
            found.append(column)
            continue
        shares, filled = column.shares, column.n_filled
        if own.score is None:
            whole = np.clip(means[places[j]] / own.table[0, 0], shares / TUNING.most_correction, None)
        elif own.scale > 0.0:
            share = max(float(shares[:filled].sum()), 1e-12)
            wanted = float(means[places[j].start]) / (own.scale * share) + own.offset
            whole = np.append(own.score.shares(solve_shift(own.score, wanted)) * share, shares[filled:])
        else:
            whole = shares
        p = column.probabilities * (whole / np.maximum(shares, 1e-12))[column.groups]
        found.append(replace(column, probabilities=p / p.sum()))
    return tuple(found)


def correct_tables(
    tables: Sequence[OpenedTable], owners: Ints, pooled: Ints, weights: Floats
) -> tuple[OpenedTable, ...]:
    """Tables of everybody from those of the people who have both columns."""
    found = []
    for table in tables:
        (a, b), (rows, columns) = table.pair, table.shares.shape
        k, m = owners[a], owners[b]
        weight = weights[:, k] if k == m else weights[:, k] * weights[:, m]
        cell = pooled[:, a] * columns + pooled[:, b]
        plain = np.bincount(cell, minlength=rows * columns) / len(cell)
        selected = np.bincount(cell, weights=weight, minlength=rows * columns) / weight.sum()
        # As many rows as ten say something about a cell; fewer are shrunk to a ratio of 1.
        few = 10.0 / len(cell)
        ratio = np.clip((plain + few) / (selected + few), 1.0 / TUNING.most_correction, TUNING.most_correction)
        found.append(replace(table, shares=table.shares * ratio.reshape(rows, columns)))
    return tuple(found)
