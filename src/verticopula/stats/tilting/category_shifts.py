"""Where the latents of ordered columns stand in each cell of a nominal column: how categories take part in the copula.

A nominal column has no latent. Products of its indicators with scores say how far the mean of every latent is shifted
in each of its cells. D_ck, the covariance of indicator c and latent k, is divided by the normal density at the
indicator's threshold, as for a binary column; these correlations have a prior of their own, and are moved towards it as
far as noise says. The prior is g L diag(m) L' + tau^2 R over latents: along the factors L of the ordered columns, of
mean squares m, and in any direction that their correlations R leave room for. g and tau^2 are those of the largest
likelihood of all cells of the column. A column in which nothing stands out of the noise has no shifts.

Ordered columns are estimated before, and without nominal ones: no category can hurt them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtri

from verticopula.stats.tilting.cell_features import CellFeatures, features_mean
from verticopula.stats.tilting.factor_structure import FactorStructure
from verticopula.stats.tilting.openings import OpenedGram, feature_places
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def threshold_density(shares: Floats) -> Floats:
    """The normal density at the thresholds of indicators with these shares."""
    threshold = ndtri(np.clip(shares, TUNING.rarest_category, 1.0 - TUNING.rarest_category))
    return np.asarray(np.exp(-0.5 * threshold**2) / math.sqrt(2.0 * math.pi))


@dataclass(frozen=True)
class LatentReading:
    """What products with other columns' features are divided by to become covariances with the latents.

    Attributes
    ----------
    columns : (q,) the column of every latent
    places : (q,) where its score stands among the features
    means : (q,) of the scores as they were shared
    shared_slopes : (q,) slopes of the scores, as they were shared, on the latents
    variances : (q,) of the scores over their squared slopes
    """

    columns: Ints
    places: Ints
    means: Floats
    shared_slopes: Floats
    variances: Floats


def read_latents(
    features: Sequence[CellFeatures], columns: Sequence[PooledColumn], held: Ints, slopes: Floats
) -> LatentReading:
    """Of the ordered columns `held`, whose unit scores have these slopes on their latents."""
    starts = feature_places([f.table.shape[1] for f in features])
    filled = np.array([columns[j].shares[: columns[j].n_filled].sum() for j in held])
    shared = np.maximum(slopes, TUNING.weakest_slope) * filled * np.array([features[j].scale for j in held])
    means = np.array([features_mean(features[j], columns[j])[0] for j in held])
    squares = np.array([columns[j].shares @ features[j].table[:, 0] ** 2 for j in held])
    return LatentReading(
        held, np.array([starts[j].start for j in held], dtype=np.int64), means, shared, (squares - means**2) / shared**2
    )


def estimate_shifts(
    gram: OpenedGram,
    features: Sequence[CellFeatures],
    columns: Sequence[PooledColumn],
    owners: Ints,
    latents: LatentReading,
    structure: FactorStructure,
    correlation: Floats,
) -> dict[int, Floats]:
    """Nominal column -> (c, q) covariances of its indicators with the latents; without columns that show none.

    Parameters
    ----------
    correlation : (q, q) of the latents
    """
    places = feature_places([f.table.shape[1] for f in features])
    loadings = structure.loadings
    along = (loadings * np.mean(loadings**2, axis=0)) @ loadings.T
    found = {}
    for j, (column, own) in enumerate(zip(columns, features, strict=True)):
        totals = gram.totals[owners[j], owners[latents.columns]]
        if own.score is not None or not (totals > 0.0).any():
            continue
        length, shares = float(own.table[0, 0]), column.shares
        met, safe = totals > 0.0, np.where(totals > 0.0, totals, 1.0)
        products = gram.matrix[places[j]][:, latents.places] / (safe * length)
        density = threshold_density(shares)
        noisy = (products - np.outer(shares, latents.means)) / (latents.shared_slopes * density[:, None])
        people = np.maximum(gram.people[owners[j], owners[latents.columns]], 1.0)
        own_places = np.arange(places[j].start, places[j].stop)
        noise = (gram.noise_at(own_places, latents.places) / (safe * length * latents.shared_slopes)) ** 2
        sampling = np.outer(shares * (1.0 - shares), latents.variances / people)
        variance = np.where(met, (noise + sampling) / density[:, None] ** 2, 1e6)
        shifts = shrink_together(np.where(met, noisy, 0.0), variance, along, correlation)
        if shifts is not None:
            covariance = shifts * density[:, None]
            found[j] = covariance - np.outer(shares / shares.sum(), covariance.sum(axis=0))
    return found


def shrink_together(noisy: Floats, variance: Floats, along: Floats, anywhere: Floats) -> Floats | None:
    """(c, q) posterior means of rows with the prior g * along + tau^2 * anywhere; None where none is as likely.

    Parameters
    ----------
    noisy, variance : (c, q)
    """
    best, kept = TUNING.least_evidence, None
    none = float(np.sum(np.log(variance) + noisy**2 / variance))
    for g, squared in itertools.product(TUNING.shifts_along_factors, TUNING.shifts_anywhere):
        prior = g * along + squared * anywhere
        if g + squared == 0.0:
            continue
        total, rows = 0.0, []
        for own, noise in zip(noisy, variance, strict=True):
            factor = cho_factor(prior + np.diag(noise), lower=True)
            weights = cho_solve(factor, own)
            total += 2.0 * float(np.sum(np.log(np.diag(factor[0])))) + float(own @ weights)
            rows.append(prior @ weights)
        if 0.5 * (none - total) > best:
            best, kept = 0.5 * (none - total), np.array(rows)
    return kept


@dataclass(frozen=True)
class Discriminants:
    """The same as a sweep needs it.

    Attributes
    ----------
    precision : (q, q) of the latents given all nominal columns
    discriminants : nominal column -> (c, q) h: a cell counts exp(h'z), and z moves by precision^-1 h
    starts : nominal column -> (c,) what a cell counts beside that, as a logarithm
    """

    precision: Floats
    discriminants: Mapping[int, Floats]
    starts: Mapping[int, Floats]


def solve_discriminants(
    columns: Sequence[PooledColumn], correlation: Floats, shifts: Mapping[int, Floats]
) -> Discriminants:
    """Nominal columns that are independent of each other given the latents, and shift them so.

    For one nominal column with shares p, A = diag(p)^-1/2 D and E = A R^-1 A', this is linear discriminant analysis:
    latents are normal in every cell, with means D_c/p_c and precision R^-1 + R^-1 A'(I - E)^-1 A R^-1, and
    h = diag(p)^-1/2 (I - E)^-1 A R^-1. With several columns these are the blocks of the whole precision matrix.
    """
    inverse = np.asarray(np.linalg.inv(correlation) if correlation.size else np.zeros((0, 0)), dtype=np.float64)
    precision: Floats = inverse.copy()
    discriminants, starts = {}, {}
    for j, covariance in shifts.items():
        root = np.sqrt(np.maximum(columns[j].shares, 1e-9))
        scaled = covariance / root[:, None]
        half = scaled @ inverse
        values, vectors = np.linalg.eigh(half @ scaled.T)
        values = np.maximum(values, 1e-12)
        explained = np.minimum(values, TUNING.most_explained)
        scaled = (vectors * np.sqrt(explained / values)) @ vectors.T @ scaled
        half = scaled @ inverse
        inner = (vectors / (1.0 - explained)) @ vectors.T
        precision = precision + half.T @ inner @ half
        discriminants[j] = inner @ half / root[:, None]
        starts[j] = -0.5 * np.sum(discriminants[j] * scaled / root[:, None], axis=1)
    return Discriminants(precision, discriminants, starts)
