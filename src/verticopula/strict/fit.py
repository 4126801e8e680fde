"""From opened sums to a copula: moments, a factor structure, what cutting did undone, then margins and the bridge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from threadpoolctl import threadpool_limits

from verticopula.copula import Layout
from verticopula.correlation import PairwiseSpearman, nearest_correlation
from verticopula.curves import MarginCurve, correct_marginals
from verticopula.marginals import Marginal
from verticopula.missingness import Missingness
from verticopula.pairwise import FitReport, assemble
from verticopula.protocol.messages import SumsPlan
from verticopula.protocol.secure_sums import PatternSums
from verticopula.schema import ColumnKey
from verticopula.strict import bridge
from verticopula.strict.budget import StrictBudget
from verticopula.strict.clipping import DRAWS, ClipGap, Simulator
from verticopula.strict.latent_scores import LatentScore, latent_scores
from verticopula.strict.moments import NoisyMoments, read_sums
from verticopula.strict.report import LARGEST_ERROR, StrictFit, StrictReport, by_parties
from verticopula.strict.structure import Structure, fit_structure, group_pairs, start_structure

__all__ = ["StrictFit", "StrictReport", "fit_strict"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST_ROUNDS = 4
TOLERANCE = 2e-3
_FLOOR = 1e-3
_FARTHEST_SHIFT = 2.0


@threadpool_limits.wrap(limits=1, user_api="blas")
def fit_strict(
    sums: Sequence[PatternSums],
    plan: SumsPlan,
    layout: Layout,
    marginals: Mapping[ColumnKey, Marginal],
    budget: StrictBudget,
    missingness: Missingness,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> StrictFit:
    """The copula of the population, from what was opened.

    Parameters
    ----------
    sums : of every pattern, in the plan's order
    marginals : of the observed, settled from noisy cells
    rng : for the records that show what cutting did
    """
    scores = [score for key in layout.keys for score in latent_scores(marginals[key])]
    owners = np.repeat(np.arange(len(plan.parties)), plan.widths)
    flat = np.array([score.is_flat for score in scores])
    noisy = read_sums(sums, plan, scores)
    groups = group_pairs(owners, layout.nominal_blocks() | flat[:, None] | flat)
    simulator = Simulator(layout, marginals, scores, owners, rng.standard_normal((DRAWS, len(scores))))
    gap = ClipGap.none(len(scores))
    correlation = np.eye(len(scores))
    structure = Structure(np.zeros((len(scores), 1)), np.ones(2), groups)
    for rounds in range(1, MOST_ROUNDS + 1):
        moments, variance = pool([undo_cut(pattern, gap) for pattern in noisy], len(scores))
        means = np.where(flat, 0.0, moments[:-1, -1])
        shifts = np.array([solve_shift(score, m) for score, m in zip(scores, means, strict=True)])
        slopes = np.array([max(score.slope(x), 0.02) for score, x in zip(scores, shifts, strict=True)])
        found = (moments[:-1, :-1] - np.outer(means, means)) / np.outer(slopes, slopes)
        known = variance[:-1, :-1] / np.outer(slopes, slopes) ** 2
        structure = fit_structure(structure if rounds > 1 else start_structure(found, known, groups), found, known)
        fitted = np.where(groups >= 0, structure.blend(found, known), 0.0)
        before = correlation
        pairs = to_latents(fitted, known, slopes, shifts, scores, layout, marginals, flat, noisy)
        repaired = nearest_correlation(pairs[0])
        correlation = repaired.correlation
        change = float(np.max(np.abs(correlation - before)))
        progress(rounds, MOST_ROUNDS)
        if change < TOLERANCE or rounds == MOST_ROUNDS:
            break
        gap = simulator.gap(correlation)
    curves = [margin_curve(score, shift) for score, shift in zip(scores, shifts, strict=True)]
    report = FitReport(
        overlap=pairs[2],
        standard_error=np.sqrt(np.where(np.isfinite(pairs[1]), pairs[1], 0.0)),
        shrink_rank=structure.rank,
        shrink_change=float(np.mean(np.abs(fitted - found)[groups >= 0])) if (groups >= 0).any() else 0.0,
        psd_change=repaired.change,
        smallest_eigenvalue=repaired.smallest_eigenvalue_before,
        marginal_repairs={key: marginal.repair for key, marginal in marginals.items()},
    )
    k = len(plan.parties)
    raw = by_parties(known, groups >= 0, owners, k)
    posterior = 1.0 / (1.0 / structure.variance + 1.0 / np.maximum(known, 1e-12))
    expected = by_parties(posterior, groups >= 0, owners, k)
    strict = StrictReport(
        rank=structure.rank,
        spread_within=float(np.sqrt(structure.spread[0])),
        spread_between=float(np.sqrt(structure.spread[1])),
        iterations=rounds,
        converged=change < TOLERANCE,
        change=change,
        patterns=len(noisy),
        left_out=int((plan.pattern_of < 0).sum()),
        cut={party: float(gap.cut[owners == i].mean()) for i, party in enumerate(plan.parties)},
        parties=plan.parties,
        raw_error=raw,
        expected_error=expected,
        realised_error=by_parties(np.where(np.isfinite(known), (found - fitted) ** 2, 0.0), groups >= 0, owners, k),
        supported=expected <= LARGEST_ERROR,
        flat=tuple(layout.labels[j] for j in np.flatnonzero(flat)),
    )
    return StrictFit(correlation, correct_marginals(layout, marginals, curves), report, strict)


def undo_cut(noisy: NoisyMoments, gap: ClipGap) -> NoisyMoments:
    """The pattern's moments as whole records would have them."""
    scale = np.outer(gap.factor[noisy.seen], gap.factor[noisy.seen])
    rest = gap.rest[np.ix_(noisy.seen, noisy.seen)]
    return replace(noisy, products=noisy.products * scale + rest, noise=noisy.noise * scale)


def pool(noisy: Sequence[NoisyMoments], q: int) -> tuple[Floats, Floats]:
    """(q+1, q+1) mean products of all patterns together, weighted by how well each knows them, and their variance."""
    total, weight = np.zeros((q + 1, q + 1)), np.zeros((q + 1, q + 1))
    for pattern in noisy:
        own = 1.0 / (pattern.noise**2 + 1.0 / pattern.count)
        inside = np.ix_(pattern.seen, pattern.seen)
        total[inside] += own * pattern.products
        weight[inside] += own
    seen = weight > 0.0
    return total / np.where(seen, weight, 1.0), np.where(seen, 1.0 / np.where(seen, weight, 1.0), np.inf)


def solve_shift(score: LatentScore, mean: float) -> float:
    """Where a latent of variance 1 must be for its score to have that mean; within two standard deviations."""
    if score.is_flat:
        return 0.0
    low, high = (score.moments(x)[0] - mean for x in (-_FARTHEST_SHIFT, _FARTHEST_SHIFT))
    if low >= 0.0 or high <= 0.0:
        return -_FARTHEST_SHIFT if low >= 0.0 else _FARTHEST_SHIFT
    return float(brentq(lambda x: score.moments(x)[0] - mean, -_FARTHEST_SHIFT, _FARTHEST_SHIFT, xtol=1e-6))


def margin_curve(score: LatentScore, shift: float) -> MarginCurve:
    """From grades among the observed to grades in the population, whose latent is shifted by that much."""
    return MarginCurve(np.cumsum(score.shares())[:-1], np.cumsum(score.shares(shift))[:-1])


def to_latents(
    fitted: Floats,
    variance: Floats,
    slopes: Floats,
    shifts: Floats,
    scores: Sequence[LatentScore],
    layout: Layout,
    marginals: Mapping[ColumnKey, Marginal],
    flat: Bools,
    noisy: Sequence[NoisyMoments],
) -> tuple[Floats, Floats, Ints]:
    """Latent correlations, their variance, and how many people have both."""
    q = len(scores)
    covariance = fitted * np.outer(slopes, slopes)
    coefficients = [
        bridge.expand(score.thresholds - shift, np.diff(score.scores))
        for score, shift in zip(scores, shifts, strict=True)
    ]
    latent, _ = bridge.invert(coefficients, covariance)
    np.fill_diagonal(latent, 1.0)
    overlap = np.zeros((q, q), dtype=np.int64)
    for pattern in noisy:
        inside = pattern.seen[:-1]
        overlap[np.ix_(inside, inside)] += int(pattern.count)
    curves = [margin_curve(score, shift) for score, shift in zip(scores, shifts, strict=True)]
    corrected = correct_marginals(layout, marginals, curves)
    # A two-valued score steps by this much where its indicator steps by 1.
    steps = np.array([1.0 / max(float(s.scores[1] - s.scores[0]), 1e-9) if s.scores.size == 2 else 0.0 for s in scores])
    finite = np.where(np.isfinite(variance), variance, 1.0)
    pairs = assemble(
        PairwiseSpearman(latent, finite, overlap), covariance * np.outer(steps, steps), layout, corrected, flat
    )
    return pairs.correlation, pairs.variance, overlap
