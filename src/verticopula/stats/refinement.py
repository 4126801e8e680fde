"""Server-side refinement: what missing blocks did to correlations and margins, undone from one release.

Everything here is computed from noisy ranks and noisy cell counts that the coordinator already
holds, so it costs no budget, however long it iterates. `docs/explanation/refinement.md` derives it.

Conventions: N subjects, q latents; cells, curves, scores and readings as in `readings.py`. Readings
are taken for normal with covariance K in the population. The steps:

1. `heights_on_grid` noisy grades -> readings and their reliability, under the current curves
2. `em_step`         one step of EM for K over the missing patterns
3. `locate_missing`  where the model puts the subjects without a value, hence the next curves
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr
from threadpoolctl import threadpool_limits

from verticopula.stats.correlation import prior_variance
from verticopula.stats.em import (
    PackedMoments,
    Pattern,
    PatternMoments,
    ReadingTable,
    by_column,
    count_together,
    em_step,
    gather_moments,
    iterate_blocks,
    log_likelihood,
    regress,
    start_covariance,
)
from verticopula.stats.latent_draws import CellEvidence, ReadingEvidence
from verticopula.stats.margin_curves import MarginCurve
from verticopula.stats.matrix_repair import keep_definite, to_correlation
from verticopula.stats.mixing import extrapolate_geometric
from verticopula.stats.rank_release import RankRelease
from verticopula.stats.readings import (
    LatentCells,
    Readings,
    ScoreScale,
    cells_of,
    heights_on_grid,
    iterate_grades,
    make_readers,
    place_grades,
    reading_noise,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RefinementTuning:
    """Chosen constants of the refinement. All were chosen by hand, not tuned.

    Attributes
    ----------
    prior_subjects_per_latent : imaginary subjects without any correlation, per latent and per share missing at the
        least observed latent. A block that few subjects have leaves more regression coefficients than subjects; this
        is the ridge that keeps EM from believing them. Nothing missing, no ridge
    least_variance : of a latent given the others: less is noise, not knowledge
    em_steps : in every round
    stride : share of the missing that a curve is taken to move along, in one round
    most_ratio : of steady moves, where they are extrapolated
    most_rounds : of readings, EM and curves
    tolerance : they end where neither a correlation nor a curve moves by as much
    least_share : of its observed share that every cell keeps: curves stay strictly increasing
    least_prior : imaginary subjects at least
    """

    prior_subjects_per_latent: float = 0.5
    least_variance: float = 0.05
    em_steps: int = 4
    stride: float = 0.6
    most_ratio: float = 0.9
    most_rounds: int = 60
    tolerance: float = 1e-3
    least_share: float = 1e-6
    least_prior: float = 1e-3


REFINEMENT_TUNING = RefinementTuning()
_LATENT_GRID = np.linspace(-5.0, 5.0, 101)
_DEVIATIONS = np.linspace(math.sqrt(REFINEMENT_TUNING.least_variance), 1.0, 17)


# ---- margins -----------------------------------------------------------------------------


def locate_missing(
    readings: Floats | ReadingTable, patterns: Sequence[Pattern], covariance: Floats, links: Floats
) -> Floats:
    """(q, grid) expected number of subjects without a value whose latent is at most each grid point.

    Parameters
    ----------
    covariance : (q, q) of the readings
    links : (q,) correlation of each latent with its reading

    Notes
    -----
    Predictions are counted on a grid of means and standard deviations first, so that what follows
    costs the same however many patterns there are.
    """
    counts = np.zeros((links.size, _DEVIATIONS.size, _LATENT_GRID.size))
    columns = by_column(readings)
    for pattern in patterns:
        if pattern.missing.size == 0:
            continue
        weights, deviations = predict_latents(covariance, links, pattern)
        for block in iterate_blocks(columns, pattern):
            _count_on_grid(weights @ block, deviations, pattern.missing, _LATENT_GRID, _DEVIATIONS, counts)
    return np.asarray(np.einsum("jdg,dgt->jt", counts, _normal_kernels(), optimize=True))


@lru_cache(maxsize=1)
def _normal_kernels() -> Floats:
    """(deviations, grid, grid): P(latent <= third | mean = second)."""
    return np.asarray(ndtr((_LATENT_GRID[None, None, :] - _LATENT_GRID[None, :, None]) / _DEVIATIONS[:, None, None]))


def predict_latents(covariance: Floats, links: Floats, pattern: Pattern) -> tuple[Floats, Floats]:
    """(weights, standard deviations) of the missing latents given the observed readings.

    Cov(latent_j, reading_k) is K_jk / link_j. With little data more than everything can seem
    explained; the weights are then scaled back.
    """
    weights = regress(covariance, pattern.observed, pattern.missing)
    loading = covariance[np.ix_(pattern.missing, pattern.observed)]
    own = np.maximum(links[pattern.missing], 1e-6)
    explained = np.sum(weights * loading, axis=1) / own**2
    kept = np.sqrt(np.minimum(1.0, (1.0 - REFINEMENT_TUNING.least_variance) / np.maximum(explained, 1e-12)))
    return weights * (kept / own)[:, None], np.sqrt(1.0 - kept**2 * explained)


def correction_errors(moments: Sequence[PatternMoments], covariance: Floats, links: Floats, overlap: Floats) -> Floats:
    """(q,) standard error of each latent's mean margin correction, in grades.

    The prediction's mean over the group without a value has the sampling variance of a regression
    fitted to the n others, (residual variance / n) * (squared distance of the two groups' mean readings),
    with the latents that most of the group has as predictors.

    Parameters
    ----------
    overlap : (q, q) number of subjects with both readings
    """
    n_subjects = sum(pattern.count for pattern in moments)
    counts = np.diag(overlap)
    lacking = n_subjects - counts
    among_them = counts[:, None] - overlap  # [k, j]: subjects with k and without j
    with_it, without = _sum_where_seen(moments, links.size)
    apart = without / np.maximum(among_them, 1.0) - with_it / np.maximum(overlap, 1.0)
    errors = np.zeros(links.size)
    factors: dict[bytes, tuple[Ints, Any]] = {}
    for j in np.flatnonzero(lacking > 0.0).tolist():
        predictors = np.flatnonzero(among_them[:, j] > 0.5 * lacking[j])
        if predictors.size == 0:
            continue
        key = predictors.tobytes()
        if key not in factors:
            inner = covariance[np.ix_(predictors, predictors)]
            factors[key] = predictors, cho_factor(inner, lower=True, check_finite=False)
        both = np.column_stack([covariance[predictors, j], apart[predictors, j]])
        solved = cho_solve(factors[key][1], both, check_finite=False)
        left = max(1.0 - float(both[:, 0] @ solved[:, 0]), 0.0)
        errors[j] = lacking[j] / n_subjects * math.sqrt(left * float(both[:, 1] @ solved[:, 1]) / max(counts[j], 1.0))
    # A normal margin that moves by d moves its grades by d / (2 sqrt(pi)) on average.
    return np.asarray(errors / np.maximum(links, 1e-6) / (2.0 * math.sqrt(math.pi)))


def _sum_where_seen(moments: Sequence[PatternMoments], q: int) -> tuple[Floats, Floats]:
    """(q, q) twice: sums of k's readings over the subjects with j, and over those without it."""
    sums, seen = np.zeros((len(moments), q)), np.zeros((len(moments), q))
    for index, pattern in enumerate(moments):
        sums[index, pattern.observed] = pattern.count * pattern.means
        seen[index, pattern.observed] = 1.0
    return sums.T @ seen, sums.T @ (1.0 - seen)


@njit(cache=True, nogil=True)
def _count_on_grid(
    means: Floats, deviations: Floats, latents: Ints, grid: Floats, levels: Floats, counts: Floats
) -> None:
    """Add every prediction to `counts` (latent, deviation, mean), shared between the four nearest points.

    Parameters
    ----------
    means : (latents, subjects)
    """
    step, width = grid[1] - grid[0], levels[1] - levels[0]
    for j in range(latents.size):
        found = np.zeros(grid.size)
        for i in range(means.shape[1]):
            place = min(max((means[j, i] - grid[0]) / step, 0.0), grid.size - 1.000000001)
            g = int(place)
            found[g] += 1.0 - (place - g)
            found[g + 1] += place - g
        level = min(max((deviations[j] - levels[0]) / width, 0.0), levels.size - 1.000000001)
        d = int(level)
        counts[latents[j], d] += (1.0 - (level - d)) * found
        counts[latents[j], d + 1] += (level - d) * found


# ---- the whole refinement ----------------------------------------------------------------


@dataclass(frozen=True)
class RefineReport:
    """How the iteration went.

    Attributes
    ----------
    rounds, converged : rounds made; whether neither correlations nor curves moved any more
    correlation_change, curve_change : largest move in the last round
    log_likelihood : of the readings, after each round; within a round EM raises it (with the ridge's part), but
        readings move with the curves, so between rounds it may fall
    patterns : number of missing patterns
    prior_subjects : weight of the ridge
    """

    rounds: int
    converged: bool
    correlation_change: float
    curve_change: float
    log_likelihood: tuple[float, ...]
    patterns: int
    prior_subjects: float


@dataclass(frozen=True)
class Refinement:
    """What the refinement found.

    Attributes
    ----------
    readings : under the population's curves
    covariance : (q, q) correlation matrix of the readings in the population
    curves : per latent, from grades among the observed to grades in the population
    """

    readings: Readings
    covariance: Floats
    curves: tuple[MarginCurve, ...]
    report: RefineReport


@threadpool_limits.wrap(limits=1, user_api="blas")  # the matrices are small: threads only wait for each other
def refine(
    release: RankRelease,
    *,
    rounds: int = REFINEMENT_TUNING.most_rounds,
    tolerance: float = REFINEMENT_TUNING.tolerance,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Refinement:
    """Iterate readings, EM and curves until nothing moves, for at most `rounds` rounds."""
    latents = cells_of(release)
    flat = np.array([latent.shares.size < 2 for latent in latents])
    readers = make_readers(latents)
    table = place_grades(release, latents, readers)
    patterns = table.patterns
    overlap = count_together(patterns, flat.size)
    shares = np.diag(overlap) / release.n_subjects
    moving = (shares < 1.0) & ~flat
    curves = [latent.start for latent in latents]
    scales = [ScoreScale.of(curve) if curve.size else ScoreScale.flat() for curve in curves]
    reliability = np.zeros(flat.size)
    lacking_alike = _group_alike(patterns, moving)
    missing_share = 1.0 - float(shares[~flat].min(initial=1.0))
    # Never quite none: the indicators of one nominal column depend on each other.
    prior = max(REFINEMENT_TUNING.prior_subjects_per_latent * flat.size * missing_share, REFINEMENT_TUNING.least_prior)
    covariance = np.empty(0)
    history: list[float] = []
    change = curve_change = math.inf
    last_curves, last_move = np.concatenate(curves), np.zeros(sum(curve.size for curve in curves) + flat.size**2)
    for round_number in range(rounds):
        for j in np.flatnonzero(~flat & (moving | (round_number == 0))).tolist():
            heights, reliability[j], scales[j] = heights_on_grid(latents[j], readers[j], curves[j])
            table.set_heights(j, heights)
        moments = gather_moments(table, patterns)
        before = start_covariance(moments, flat.size) if round_number == 0 else covariance
        covariance = to_correlation(
            _em_steps(before, moments, prior, REFINEMENT_TUNING.em_steps if moving.any() else 1)
        )
        history.append(log_likelihood(covariance, moments))
        change = float(np.max(np.abs(covariance - before))) if moving.any() else 0.0
        links = reliability * np.array([scale.strength for scale in scales])
        damped = damp_noise(covariance, reading_noise(reliability, overlap, release.n_subjects))
        located = locate_missing(table, patterns, damped, links)
        errors = correction_errors(moments, damped, links, overlap)
        curve_change = _update_curves(
            curves, latents, scales, lacking_alike, located / release.n_subjects, errors, shares
        )
        progress(round_number + 1, rounds)
        if max(change, curve_change) < tolerance:
            break
        move = np.concatenate([*curves, covariance.ravel()]) - np.concatenate([last_curves, before.ravel()])
        ahead = extrapolate_geometric(move, last_move, REFINEMENT_TUNING.most_ratio)
        if round_number % 3 == 2 and ahead > 0.0:
            _extrapolate(curves, latents, ahead * move[: last_curves.size])
            covariance = keep_definite(to_correlation(covariance + ahead * (covariance - before)))
            last_move = np.zeros_like(move)
        else:
            last_move = move
        last_curves = np.concatenate(curves)
    report = RefineReport(
        rounds=len(history),
        converged=max(change, curve_change) < tolerance,
        correlation_change=change,
        curve_change=curve_change,
        log_likelihood=tuple(history),
        patterns=len(patterns),
        prior_subjects=prior,
    )
    knots = tuple(MarginCurve(latent.start, curve) for latent, curve in zip(latents, curves, strict=True))
    return Refinement(Readings(table, reliability, tuple(scales)), covariance, knots, report)


def _group_alike(patterns: Sequence[Pattern], moving: Bools) -> list[list[int]]:
    """The latents whose curves move, those with the same subjects missing together."""
    groups: dict[bytes, list[int]] = {}
    seen = np.zeros((moving.size, len(patterns)), dtype=np.bool_)
    for index, pattern in enumerate(patterns):
        seen[pattern.observed, index] = True
    for j in np.flatnonzero(moving).tolist():
        groups.setdefault(seen[j].tobytes(), []).append(j)
    return list(groups.values())


def _update_curves(
    curves: list[Floats],
    latents: Sequence[LatentCells],
    scales: Sequence[ScoreScale],
    groups: Sequence[Sequence[int]],
    located: Floats,
    errors: Floats,
    shares: Floats,
) -> float:
    """A(u) = s u + sum over missing of P(latent <= threshold at A(u)) / N, once; returns the largest move.

    The corrections of latents with the same subjects missing are estimated from the same subjects, so
    they are judged together: none if their mean square is below that of their standard errors, all
    of it if it is twice that. Few subjects and little bias, no correction.

    Parameters
    ----------
    groups : latents with the same subjects missing
    located : (q, grid) as `locate_missing` counts them, over N
    shares : (q,) s, of the subjects that have a value
    """
    largest = 0.0
    for group in groups:
        found = {}
        for j in group:
            below = np.interp(scales[j].thresholds, _LATENT_GRID, located[j])
            found[j] = shares[j] * latents[j].start + below - latents[j].start
        # A curve that moves takes part of the missing along, at most all of them. That part is known well
        # enough to step further than the plain iteration would, which crawls where much is missing.
        missing = 1.0 - float(shares[group[0]])
        shifts = {j: found[j] - missing * (curves[j] - latents[j].start) for j in group}
        size = sum(_mean_shift(latents[j].start, shift) ** 2 for j, shift in shifts.items())
        kept = min(1.0, max(0.0, size / max(float(np.sum(errors[group] ** 2)), 1e-300) - 1.0))
        along = REFINEMENT_TUNING.stride * missing
        for j in group:
            start = latents[j].start
            shift = (found[j] - along * (curves[j] - start)) / (1.0 - along)
            updated = _increasing(start + kept * shift, start)
            largest = max(largest, float(np.max(np.abs(updated - curves[j]))))
            curves[j] = updated
    return largest


def _extrapolate(curves: list[Floats], latents: Sequence[LatentCells], further: Floats) -> None:
    """Move all curves further, in place."""
    ends = np.cumsum([curve.size for curve in curves])[:-1]
    for j, part in enumerate(np.split(further, ends)):
        if curves[j].size:
            curves[j] = _increasing(curves[j] + part, latents[j].start)


def _em_steps(covariance: Floats, moments: Sequence[PatternMoments], prior: float, steps: int) -> Floats:
    packed = PackedMoments.of(moments)
    for _ in range(steps):
        covariance = em_step(covariance, packed, prior)
    return covariance


def _increasing(curve: Floats, start: Floats) -> Floats:
    """The curve with every cell left a little of its observed share."""
    shares = np.diff(curve, prepend=0.0, append=1.0)
    least = REFINEMENT_TUNING.least_share * np.diff(start, prepend=0.0, append=1.0)
    shares = np.maximum(shares, least)
    return np.asarray(np.cumsum(shares / shares.sum())[:-1])


def _mean_shift(grades: Floats, shift: Floats) -> float:
    """Mean of a curve's shift over all grades."""
    return float(np.trapezoid(np.concatenate([[0.0], shift, [0.0]]), np.concatenate([[0.0], grades, [1.0]])))


def damp_noise(covariance: Floats, noise: Floats) -> Floats:
    """The matrix with every entry shrunk as far as the coins' noise says.

    Predicting latents divides by reliabilities; at strong privacy it would divide noise by little.
    """
    off = ~np.eye(noise.shape[0], dtype=bool)
    if not off.any():
        return covariance
    spread = prior_variance(covariance[off], noise[off])
    return keep_definite(np.where(off, covariance * spread / (spread + noise), covariance))


# ---- what was seen of each latent, for draws of the subjects themselves ----------------------------


def gather_evidence(release: RankRelease, refinement: Refinement) -> dict[int, CellEvidence | ReadingEvidence]:
    """Per latent what its noisy grades say, for `latent_draws.sweep_latents`.

    Category latents of nominal columns are left out: their indicators do not say where they are one by one.
    """
    single = {part.start for part in release.layout.slices if part.stop - part.start == 1}
    evidence: dict[int, CellEvidence | ReadingEvidence] = {}
    readings, latents = refinement.readings, cells_of(release)
    for j, (latent, grades, scale) in enumerate(zip(latents, iterate_grades(release), readings.scales, strict=True)):
        rows = np.flatnonzero(release.masks[j])
        if j not in single or scale.thresholds.size == 0:
            continue
        if latent.is_continuous:
            evidence[j] = ReadingEvidence(rows, readings.table.fill_latent(j)[rows], float(readings.links[j]))
        else:
            bounds = np.concatenate([[-np.inf], scale.thresholds, [np.inf]])
            evidence[j] = CellEvidence(rows, grades, latent.middles, latent.width, bounds)
    return evidence
