"""Noisy grades to readings: what a subject's noisy rank says about its latent normal.

Conventions: a latent's values fall in cells: the categories or counts of a discrete column, 128
equal parts of the observed grades of a continuous one. `curve` holds the *population's* cumulative
shares at the cells' upper ends; among the observed they are known, and the difference is what
missingness hides. A cell's score is the mean of the latent normal in it, brought to variance 1 in
the population; a subject's reading is the expected score given its noisy grade, brought to variance
1 as well:

    score = strength * latent + rest,   reading = reliability * score + error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.stats.grade_table import GradeTable
from verticopula.stats.rank_release import RankRelease

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ReadingTuning:
    """Chosen constants of readings. All were chosen by hand, not tuned.

    Attributes
    ----------
    continuous_cells : equal parts of the grades of a continuous column
    grid : noisy grades at which the posterior of the cells is computed
    narrowest : standard deviation of a noisy grade around its cell's middle, at least
    """

    continuous_cells: int = 128
    grid: int = 513
    narrowest: float = 1e-3


READING_TUNING = ReadingTuning()


@dataclass(frozen=True)
class LatentCells:
    """What is known of one latent before any refinement.

    Attributes
    ----------
    shares : (C,) share of the observed subjects in each cell, all positive
    noise : variance that the coins added to a grade
    is_continuous : cells are then only a grid
    """

    shares: Floats
    noise: float
    is_continuous: bool

    @property
    def start(self) -> Floats:
        """(C-1,) cumulative shares among the observed."""
        return np.cumsum(self.shares)[:-1]

    @property
    def middles(self) -> Floats:
        """(C,) mid-grades of the cells among the observed."""
        return np.asarray(np.cumsum(self.shares) - 0.5 * self.shares)

    @property
    def width(self) -> float:
        """Standard deviation of a noisy grade around its cell's middle."""
        # A cell of a continuum stands for all grades inside it.
        within = self.shares[0] ** 2 / 12.0 if self.is_continuous else 0.0
        return max(math.sqrt(self.noise + within), READING_TUNING.narrowest)


def cells_of(release: RankRelease) -> list[LatentCells]:
    """Cells and noise of every latent."""
    found = []
    for latent, noise in zip(release.latent_margins, release.grade_noise(), strict=True):
        continuous = not latent.column.has_ties
        cells = READING_TUNING.continuous_cells
        shares = np.full(cells, 1.0 / cells) if continuous else latent.fine_probabilities()
        found.append(LatentCells(shares, float(noise), continuous))
    return found


@dataclass(frozen=True)
class GradeReader:
    """How noisy grades are read, whatever the scores.

    Attributes
    ----------
    grid : (g,) noisy grades
    posterior : (g, C) chance of each cell given a noisy grade
    likelihood : (C, g) chance of each noisy grade given a cell
    """

    grid: Floats
    posterior: Floats
    likelihood: Floats

    @classmethod
    def of(cls, latent: LatentCells) -> GradeReader:
        middle, width = latent.middles, latent.width
        grid = np.linspace(-4.0 * width, 1.0 + 4.0 * width, READING_TUNING.grid)
        width = max(width, float(grid[1] - grid[0]))  # narrower noise needs no resolving
        exponent = -0.5 * ((grid[:, None] - middle) / width) ** 2
        weighted = np.exp(exponent - exponent.max(axis=1)[:, None]) * latent.shares
        density = np.exp(exponent)
        return cls(grid, weighted / weighted.sum(axis=1)[:, None], (density / density.sum(axis=0)).T)


def make_readers(latents: Sequence[LatentCells]) -> list[GradeReader]:
    """One per latent; latents with the same cells and noise, as a party's continuous columns are, share one."""
    made: dict[tuple[bytes, float], GradeReader] = {}
    readers = []
    for latent in latents:
        key = latent.shares.tobytes(), latent.width
        if key not in made:
            made[key] = GradeReader.of(latent)
        readers.append(made[key])
    return readers


@dataclass(frozen=True)
class ScoreScale:
    """One latent's cells under a population curve.

    Attributes
    ----------
    thresholds : (C-1,) latent values where the cells meet
    scores : (C,) mean latent of each cell over `strength`: variance 1 in the population
    strength : correlation of score and latent; 1 for a continuum
    """

    thresholds: Floats
    scores: Floats
    strength: float

    @classmethod
    def of(cls, curve: Floats) -> ScoreScale:
        thresholds = ndtri(curve)
        density = np.concatenate([[0.0], np.exp(-0.5 * thresholds**2) / math.sqrt(2.0 * math.pi), [0.0]])
        shares = np.diff(curve, prepend=0.0, append=1.0)
        means = (density[:-1] - density[1:]) / shares
        strength = math.sqrt(float(np.sum(shares * means**2)))
        return cls(thresholds, means / strength, strength)

    @classmethod
    def flat(cls) -> ScoreScale:
        """One cell, which says nothing about the latent."""
        return cls(np.empty(0), np.zeros(1), 0.0)


def iterate_grades(release: RankRelease) -> Iterator[Floats]:
    """Per latent, the debiased noisy grades of those with a value, in cohort order; about (0, 1)."""
    for grades in release.grades():
        yield grades + 0.5


def heights_on_grid(latent: LatentCells, reader: GradeReader, curve: Floats) -> tuple[Floats, float, ScoreScale]:
    """Readings at the reader's grid of grades under a population curve, their reliability, and the scale of scores.

    A reading is E[score | noisy grade], with the mean and variance that the population would have
    taken out; `reliability` is the correlation of reading and score there.
    """
    scale = ScoreScale.of(curve)
    shares = np.diff(curve, prepend=0.0, append=1.0)
    expected = reader.posterior @ scale.scores
    in_cell, squared_in_cell = reader.likelihood @ expected, reader.likelihood @ expected**2
    mean = float(shares @ in_cell)
    deviation = math.sqrt(max(float(shares @ squared_in_cell) - mean**2, 1e-300))
    reliability = float(shares @ (in_cell * scale.scores)) / deviation
    return (expected - mean) / deviation, min(reliability, 1.0), scale


@dataclass(frozen=True)
class Readings:
    """All readings of a release.

    Attributes
    ----------
    table : they are computed whenever they are asked for
    reliability : (q,) correlation of reading and score; 0 for a latent with all mass in one cell
    scales : per latent, its cells
    """

    table: GradeTable
    reliability: Floats
    scales: tuple[ScoreScale, ...]

    @property
    def values(self) -> Floats:
        """(N, q) zero where nothing was observed; in Fortran's order. Made anew each time, and as large as a table."""
        return self.table.fill()

    @property
    def links(self) -> Floats:
        """(q,) correlation of reading and latent."""
        return np.asarray(self.reliability * np.array([scale.strength for scale in self.scales]))


def place_grades(release: RankRelease, latents: Sequence[LatentCells], readers: Sequence[GradeReader]) -> GradeTable:
    """The grades of a release in the order of its missing patterns, with no readings yet.

    A latent with all mass in one cell says nothing: it counts as missing.
    """
    grids = np.stack([reader.grid for reader in readers])
    informative = np.array([latent.shares.size > 1 for latent in latents])
    return GradeTable.of(iterate_grades(release), release.masks, grids, informative, forget=release.forget)


def read_release(release: RankRelease) -> Readings:
    """Readings under the margins as they were released, as if the ranked subjects were the population."""
    latents = cells_of(release)
    readers = make_readers(latents)
    table, reliability, scales = place_grades(release, latents, readers), np.zeros(len(latents)), []
    for j, (latent, reader) in enumerate(zip(latents, readers, strict=True)):
        if latent.shares.size < 2:
            scales.append(ScoreScale.flat())
            continue
        heights, reliability[j], scale = heights_on_grid(latent, reader, latent.start)
        table.set_heights(j, heights)
        scales.append(scale)
    return Readings(table, reliability, tuple(scales))


def reading_noise(reliability: Floats, overlap: Floats, n_subjects: int) -> Floats:
    """(q, q) variance that the coins add to each correlation of readings.

    Parameters
    ----------
    overlap : (q, q) number of subjects with both readings, of `n_subjects` in all
    """
    counts = np.diag(overlap)
    # EM also learns of a pair from subjects that have only one of the two.
    size = np.maximum(overlap, np.outer(counts, counts) / n_subjects)
    return np.asarray((1.0 - np.outer(reliability, reliability) ** 2) / np.maximum(size, 1.0))
