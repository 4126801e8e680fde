"""From opened sums to a copula.

Every round: what cutting did is undone (`clipping`); the patterns' moments become those of everybody (`selection`);
latent correlations are read off, and moved towards a factor structure as far as the noise says (`structure`). All of
it is computed from released numbers and costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from verticopula.copula import Layout
from verticopula.correlation import nearest_correlation
from verticopula.curves import correct_marginals
from verticopula.em import em_step
from verticopula.marginals import Marginal
from verticopula.missingness import Missingness
from verticopula.pairwise import FitReport
from verticopula.protocol.messages import SumsPlan
from verticopula.protocol.secure_sums import PatternSums
from verticopula.schema import ColumnKey
from verticopula.strict.budget import StrictBudget
from verticopula.strict.clipping import DRAWS, ClipGap, Simulator
from verticopula.strict.latent_scores import latent_scores
from verticopula.strict.mixing import Trail
from verticopula.strict.model import Placed, ScoreModel, build_moments, correlate, margin_curves
from verticopula.strict.moments import NoisyMoments, read_sums
from verticopula.strict.report import LARGEST_ERROR, StrictFit, StrictReport, by_parties
from verticopula.strict.selection import expect, find_base, pool, settle
from verticopula.strict.structure import Structure, fit_structure, group_pairs, start_structure

__all__ = ["StrictFit", "StrictReport", "fit_strict"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_ROUNDS = 20
TOLERANCE = 2e-3
_SIMULATE_AFTER = (1, 2, 4)  # rounds


@dataclass(frozen=True)
class _State:
    """Where the iteration stands.

    Attributes
    ----------
    trail : moments as the patterns have them, round by round
    moments : (q+1, q+1) with the fitted correlations
    raw, variance, fitted : (q, q) latent correlations as the patterns have them; their variance; as fitted
    """

    trail: Trail
    moments: Floats
    placed: Placed
    structure: Structure
    raw: Floats
    variance: Floats
    fitted: Floats


@threadpool_limits.wrap(limits=1, user_api="blas")  # the matrices are small: threads only wait for each other
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
    model = ScoreModel(layout, marginals, scores, owners)
    noisy = read_sums(sums, plan, scores)
    overlap = count_overlap(noisy, len(scores))
    simulator = Simulator(layout, marginals, scores, owners, rng.standard_normal((DRAWS, len(scores))))
    gap = ClipGap.none(len(scores))
    state: _State | None = None
    change = np.inf
    rounds = 0
    while rounds < MOST_ROUNDS and change >= TOLERANCE:
        rounds += 1
        before = state
        state = advance([undo_cut(pattern, gap) for pattern in noisy], model, before)
        change = np.inf if before is None else float(np.max(np.abs(state.fitted - before.fitted)))
        if rounds in _SIMULATE_AFTER:
            pairs = correlate(model, state.placed, state.fitted, state.variance, overlap)
            gap = simulator.gap(nearest_correlation(pairs.correlation).correlation)
            change = np.inf
            state = replace(state, trail=Trail(state.trail.ahead))  # another map from here on
        progress(rounds, MOST_ROUNDS)
    assert state is not None
    pairs = correlate(model, state.placed, state.fitted, state.variance, overlap)
    repaired = nearest_correlation(pairs.correlation)
    counted = state.structure.groups >= 0
    report = FitReport(
        overlap=overlap,
        standard_error=np.sqrt(np.where(np.isfinite(state.variance), pairs.variance, 1.0)),
        shrink_rank=state.structure.rank,
        shrink_change=float(np.mean(np.abs(state.fitted - state.raw)[counted])) if counted.any() else 0.0,
        psd_change=repaired.change,
        smallest_eigenvalue=repaired.smallest_eigenvalue_before,
        marginal_repairs={key: marginal.repair for key, marginal in marginals.items()},
    )
    strict = summarise(state, plan, layout, gap, model, rounds, change)
    corrected = correct_marginals(layout, marginals, margin_curves(model, state.placed))
    return StrictFit(repaired.correlation, corrected, report, strict)


def advance(noisy: Sequence[NoisyMoments], model: ScoreModel, before: _State | None) -> _State:
    """One round; from independence where there is nothing before."""
    q = len(model.scores)
    moments = np.eye(q + 1) if before is None else before.moments
    # Without a model there is nothing to tell a pattern's shift from.
    base = find_base(noisy, q) if before is not None else np.empty(0, dtype=np.int64)
    found, variance = pool(noisy, expect(noisy, moments, base), moments)
    trail = Trail(found) if before is None else before.trail.follow(found)
    found = trail.ahead
    placed = model.place(found)
    raw, noise = placed.correlations(found), variance[:-1, :-1] / placed.links**2
    if before is None:
        apart = model.layout.nominal_blocks() | model.flat[:, None] | model.flat
        structure = start_structure(raw, noise, group_pairs(model.owners, apart))
    else:
        structure = before.structure
    structure = fit_structure(structure, raw, noise)
    fitted = np.where(structure.groups >= 0, structure.blend(raw, noise), 0.0)
    return _State(trail, build_moments(model, placed, fitted), placed, structure, raw, noise, fitted)


def undo_cut(noisy: NoisyMoments, gap: ClipGap) -> NoisyMoments:
    """The pattern's moments as whole records would have them."""
    scale = np.outer(gap.factor[noisy.seen], gap.factor[noisy.seen])
    rest = gap.rest[np.ix_(noisy.seen, noisy.seen)]
    return replace(noisy, products=noisy.products * scale + rest, noise=noisy.noise * scale)


def em_round(noisy: Sequence[NoisyMoments], moments: Floats, base: Ints, prior_subjects: float = 0.0) -> Floats:
    """One step of EM for the augmented moments; without noise that of `em.em_step` on the people's own rows."""
    expected = expect(noisy, moments, base)
    return em_step(moments, [settle(p, e) for p, e in zip(noisy, expected, strict=True)], prior_subjects)


def count_overlap(noisy: Sequence[NoisyMoments], q: int) -> Ints:
    """(q, q) people counted with both."""
    overlap = np.zeros((q, q), dtype=np.int64)
    for pattern in noisy:
        overlap[np.ix_(pattern.seen[:-1], pattern.seen[:-1])] += int(pattern.count)
    return overlap


def summarise(
    state: _State, plan: SumsPlan, layout: Layout, gap: ClipGap, model: ScoreModel, rounds: int, change: float
) -> StrictReport:
    """What can be relied on, party by party."""
    structure, owners, k = state.structure, model.owners, len(plan.parties)
    counted = structure.groups >= 0
    posterior = 1.0 / (1.0 / structure.variance + 1.0 / np.maximum(state.variance, 1e-12))
    expected = by_parties(posterior, counted, owners, k)
    residual = np.where(np.isfinite(state.variance), state.raw - state.fitted, 0.0)
    return StrictReport(
        rank=structure.rank,
        spread_within=float(np.sqrt(structure.spread[0])),
        spread_between=float(np.sqrt(structure.spread[1])),
        iterations=rounds,
        converged=change < TOLERANCE,
        change=change,
        patterns=plan.columns.shape[0],
        left_out=int((plan.pattern_of < 0).sum()),
        cut={party: float(gap.cut[owners == i].mean()) for i, party in enumerate(plan.parties)},
        parties=plan.parties,
        raw_error=by_parties(state.variance, counted, owners, k),
        expected_error=expected,
        realised_error=by_parties(residual**2, counted, owners, k),
        supported=expected <= LARGEST_ERROR,
        flat=tuple(layout.labels[j] for j in np.flatnonzero(model.flat)),
    )
