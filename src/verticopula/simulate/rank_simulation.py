"""A study simulated on assumed data: the coordinator's own computations, without parties and without coins.

Subjects are drawn from the assumed truth, and the coins' noise on their ranks as normal numbers of
the known variance. A very large study is simulated on fewer subjects, *with the grade noise of the large one*, and
errors are scaled: given that noise, accidents fall like one over the root of the number of subjects. Biases do not
fall; `forecast.py` finds them by simulating every truth twice. What is not linear in the noise (the bridge,
shrinkage, repair) happens at the true scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from verticopula.privacy.budget import ColumnBudget, coins_per_comparison
from verticopula.privacy.coins import flip_probability
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.setting_choices import EXACT_SAMPLER
from verticopula.simulate.assumptions import AssumedMargin, AssumedPresence, Assumptions
from verticopula.stats.copula import Layout
from verticopula.stats.correlation import (
    GradeBlock,
    PairwiseSpearman,
    cut_grades,
    invert_bridge,
    shared_masks,
    spearman_pairwise,
)
from verticopula.stats.margin_cells import cell_count
from verticopula.stats.margin_curves import apply_curves
from verticopula.stats.marginals import CURVE_GRID, Marginal, smooth_cdf
from verticopula.stats.pairwise import PairwiseLatents, assemble, correlate_pairs, grade_shapes, shrink_and_repair
from verticopula.stats.rank_release import RankRelease, spread_out
from verticopula.stats.ranks import rank_noise_variance
from verticopula.stats.refined_method import correlate_latents
from verticopula.stats.refinement import refine

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RankSimulationTuning:
    """Chosen constants that make simulations quick. All were chosen by hand, not tuned.

    Attributes
    ----------
    refine_rounds : of a refinement; a forecast needs no third digit
    largest_rank_noise : variance of the noise on a grade; with more, ranks are mostly noise; that of the grades is 1/12
    count_cells : of a count column
    """

    refine_rounds: int = 12
    largest_rank_noise: float = 0.5
    count_cells: int = 12


RANK_SIMULATION_TUNING = RankSimulationTuning()


@dataclass(frozen=True)
class Cohort:
    """Subjects drawn from an assumed truth, before any noise.

    Attributes
    ----------
    n_subjects : of the study; fewer may be simulated
    observed : (n, q) who has a value, per latent
    values : per column, of the observed
    grades, ties : per latent, mid-grades of the observed around zero, and the share of others with the same value;
        empty where nobody asked for them
    """

    truth: Assumptions
    n_subjects: int
    observed: Bools
    values: Mapping[ColumnKey, Floats]
    grades: tuple[Floats, ...]
    ties: tuple[Floats, ...]

    @cached_property
    def without_noise(self) -> tuple[PairwiseSpearman, Floats]:
        """Spearman's and latent correlations of these very subjects, without coins."""
        margins = {
            key: Marginal(m.column, self.seen_shares(key, cell_count(m.column, self.n_subjects, 1.0)), 0.0)
            for key, m in self.truth.margins.items()
        }
        none = np.zeros(len(self.grades))
        exact = SimulatedRelease(self.truth.layout, margins, tuple(self.observed.T), (), none, self.grades, none)
        return _spearman(exact), correlate_pairs(exact).correlation

    @property
    def reduction(self) -> float:
        """By what the study's errors are smaller than the simulation's."""
        return math.sqrt(self.observed.shape[0] / self.n_subjects)

    @property
    def at_random(self) -> bool:
        """Whether those that a party has differ from the others."""
        return bool(self.truth.selection.any())

    def seen_shares(self, key: ColumnKey, n_cells: int) -> Floats:
        """Shares of a column's cells among the observed, as near to the truth's as the whole study would have them.

        Under data missing at random they are not near it, however many subjects there are: then these subjects' own.
        """
        margin = self.truth.margins[key]
        drawn = np.bincount(margin.cells(self.values[key], n_cells), minlength=n_cells) / self.values[key].size
        true = drawn if self.at_random else margin.cell_probabilities(n_cells)
        return np.asarray(true + self.reduction * (drawn - true))

    def counts(self) -> dict[ColumnKey, int]:
        """Observed subjects per column in the study."""
        shares = self.observed.mean(axis=0)
        return {
            key: max(round(float(shares[part.start]) * self.n_subjects), 2)
            for key, part in zip(self.truth.layout.keys, self.truth.layout.slices, strict=True)
        }


@dataclass(frozen=True)
class SimulatedRelease(RankRelease):
    """Noisy grades that were never ranks."""

    noisy_grades: tuple[Floats, ...] = ()
    noise: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def latent_margins(self) -> list[Marginal]:
        """Counts with a few cells only: with_binomial_sampler, and as good where nothing is tied."""
        return [_coarsen(latent) for latent in super().latent_margins]

    def grades(self) -> Iterator[Floats]:
        return iter(self.noisy_grades)

    def grade_blocks(self) -> Iterator[GradeBlock]:
        return cut_grades(spread_out(self.grades(), self.observed), shared_masks(self.masks))

    def grade_noise(self) -> Floats:
        return self.noise


@dataclass(frozen=True)
class SimulatedErrors:
    """What one simulation found.

    Attributes
    ----------
    before, after : (pairs,) errors of the latent correlations before and after shrinking and repair
    within : (pairs,) whether both columns are one party's
    margins : (columns,) Kolmogorov distances
    """

    before: Floats
    after: Floats
    within: Bools
    margins: Floats


def draw_cohort(
    federation: Federation,
    truth: Assumptions,
    n_subjects: int,
    n_simulated: int,
    presence: AssumedPresence,
    rng: np.random.Generator,
    *,
    graded: bool = True,
) -> Cohort:
    """Subjects of the assumed truth; `graded` for methods that rank them."""
    root = np.linalg.cholesky(truth.correlation)
    latents = rng.standard_normal((n_simulated, root.shape[0])) @ root.T
    masks = presence.draw(latents @ truth.score, rng, truth.selection)
    party_index = {party.name: k for k, party in enumerate(federation.parties)}
    values: dict[ColumnKey, Floats] = {}
    seen_by_latent, grades, ties = [], [], []
    for key, part in zip(truth.layout.keys, truth.layout.slices, strict=True):
        seen = masks[:, party_index[key.party]]
        values[key] = truth.margins[key].values(latents[seen, part])
        width = part.stop - part.start
        for offset in range(width):
            of_latent = (values[key] == offset).astype(np.float64) if width > 1 else values[key]
            seen_by_latent.append(seen)
            if not graded:
                continue
            grade, tied = grade_values(of_latent, federation.column(key).is_discrete)
            grades.append(grade)
            ties.append(tied)
    return Cohort(truth, n_subjects, np.column_stack(seen_by_latent), values, tuple(grades), tuple(ties))


def grade_values(values: Floats, discrete: bool) -> tuple[Floats, Floats]:
    """Mid-grades around zero, and each subject's share of ties."""
    n = values.size
    grade = (rankdata(values) - (n + 1) / 2.0) / n
    if not discrete:
        return grade, np.zeros(n)
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return grade, (counts[index] - 1.0) / max(n - 1, 1)


# ---- releases ----------------------------------------------------------------------------


def simulate_release(
    cohort: Cohort, budgets: Mapping[ColumnKey, ColumnBudget], rng: np.random.Generator
) -> SimulatedRelease:
    """What the coordinator would hold, had the parties released at these budgets."""
    truth, counts = cohort.truth, cohort.counts()
    margins: dict[ColumnKey, Marginal] = {}
    grades, noise = [], []
    for key, part in zip(truth.layout.keys, truth.layout.slices, strict=True):
        margin, n = truth.margins[key], counts[key]
        margins[key] = _release_margin(cohort, key, budgets[key].epsilon_marginal, n, rng)
        flip = flip_probability(budgets[key].epsilon_ranks / coins_per_comparison(margin.column, EXACT_SAMPLER))
        for index, latent in zip(range(part.start, part.stop), margins[key].latents(), strict=True):
            grades.append(cohort.grades[index] + draw_coin_noise(cohort.ties[index], n, flip, rng))
            noise.append(rank_noise_variance(n, flip, latent.tied_share) / n**2)
    masks = tuple(cohort.observed.T)
    return SimulatedRelease(truth.layout, margins, masks, (), np.empty(0), tuple(grades), np.array(noise))


def _release_margin(cohort: Cohort, key: ColumnKey, epsilon: float, n: int, rng: np.random.Generator) -> Marginal:
    margin = cohort.truth.margins[key]
    return release_counts(
        margin.column, n * cohort.seen_shares(key, cell_count(margin.column, n, epsilon)), n, epsilon, rng
    )


def draw_coin_noise(ties: Floats, n: int, flip: float, rng: np.random.Generator) -> Floats:
    """What coins add to grades among n subjects, as normal numbers.

    Parameters
    ----------
    ties : of every subject, the share of others with the same value
    flip : probability that a comparison is flipped
    """
    own = np.sqrt((1.0 - ties) * flip * (1.0 - flip) + 0.25 * ties) * math.sqrt(n - 1) / (1.0 - 2.0 * flip) / n
    drawn = own * rng.standard_normal(ties.size)
    return np.asarray(drawn - drawn.mean())


def release_counts(column: Column, counts: Floats, n: int, epsilon: float, rng: np.random.Generator) -> Marginal:
    """A margin from noisy cell counts of n subjects."""
    if counts.size == 2:
        first = counts[0] + rng.laplace(scale=1.0 / epsilon)
        noisy = np.array([first, n - first])
    else:
        noisy = counts + rng.laplace(scale=2.0 / epsilon, size=counts.size)
    return Marginal.from_release(column, np.round(noisy).astype(np.int64), n, epsilon)


# ---- what the coordinator makes of them ----------------------------------------------------


def has_large_rank_noise(release: SimulatedRelease) -> bool:
    """Whether the ranks are mostly noise: the refinement then finds what the pairs do, at many times the cost."""
    return bool(np.median(release.noise) > RANK_SIMULATION_TUNING.largest_rank_noise)


def simulate_ranking(cohort: Cohort, release: SimulatedRelease, *, refines: bool) -> SimulatedErrors:
    """Errors of correlations and margins, from pairs or by the refinement."""
    margins: Mapping[ColumnKey, Marginal] = release.margins
    if refines:
        refinement = refine(release, rounds=RANK_SIMULATION_TUNING.refine_rounds)
        corrected = apply_curves(release.layout, release.margins, refinement.curves)
        pairs = _scale(correlate_latents(release, refinement, corrected), cohort)
        margins = {key: scale_margin(cohort, release.margins[key], corrected[key], key) for key in corrected}
    else:
        pairs = _correlate_pairs(cohort, release)
    truth = cohort.truth.correlation
    finished, _ = shrink_and_repair(pairs, margins)
    upper = np.triu(~release.layout.nominal_blocks(), 1)
    return SimulatedErrors(
        before=(pairs.correlation - truth)[upper],
        after=(finished - truth)[upper],
        within=same_party(release.layout)[upper],
        margins=np.array([kolmogorov(cohort.truth.margins[key], margin) for key, margin in margins.items()]),
    )


def _scale(pairs: PairwiseLatents, cohort: Cohort) -> PairwiseLatents:
    """The pairs as the whole study would have them."""
    truth, reduction = cohort.truth.correlation, cohort.reduction
    correlation = truth + reduction * (pairs.correlation - truth)
    return replace(pairs, correlation=correlation, variance=reduction**2 * pairs.variance)


def _correlate_pairs(cohort: Cohort, release: SimulatedRelease) -> PairwiseLatents:
    """VCDS's pairs as the whole study would have them: the coins' part is scaled before the bridge is inverted."""
    if cohort.reduction == 1.0:
        return correlate_pairs(release)
    noisy, (exact, sampled) = _spearman(release), cohort.without_noise
    rho = exact.rho + cohort.reduction * (noisy.rho - exact.rho)
    spearman = PairwiseSpearman(rho, cohort.reduction**2 * noisy.variance, noisy.overlap)
    shapes, flat = grade_shapes(release.latent_margins)
    inverted = invert_bridge(spearman, shapes, flat)
    pairs = assemble(inverted, rho / 3.0, release.layout, release.margins, flat)
    sampling = (1.0 - cohort.reduction) * (sampled - cohort.truth.correlation)
    return replace(pairs, correlation=np.clip(pairs.correlation - sampling, -1.0, 1.0))


def _spearman(release: SimulatedRelease) -> PairwiseSpearman:
    spread = np.array([latent.grade_variance for latent in release.latent_margins])
    grades = spread_out(release.grades(), release.observed)
    return spearman_pairwise(grades, release.observed, release.grade_noise(), spread)


def _coarsen(latent: Marginal) -> Marginal:
    """A margin with neighbouring cells of counts put together until about a dozen are left."""
    if latent.column.kind != "count":
        return latent
    cells = RANK_SIMULATION_TUNING.count_cells
    place = np.minimum((np.cumsum(latent.probabilities) - latent.probabilities / 2.0) * cells, cells - 1)
    shares = np.bincount(place.astype(np.int64), weights=latent.probabilities, minlength=cells)
    kept = shares[shares > 0.0]
    if kept.size < 2:
        return latent
    column = Column(name=latent.column.name, kind="ordinal", categories=tuple(range(kept.size)))
    return Marginal(column, kept / kept.sum(), latent.repair)


def scale_margin(cohort: Cohort, observed: Marginal, corrected: Marginal, key: ColumnKey) -> Marginal:
    """A corrected margin as the whole study would have it: what the correction gets wrong falls with its size."""
    found = corrected.probabilities
    start = cohort.truth.margins[key].cell_probabilities(found.size) if cohort.at_random else observed.probabilities
    return Marginal(observed.column, start + cohort.reduction * (found - start), observed.repair)


def same_party(layout: Layout) -> Bools:
    """(q, q) whether two latents are of one party."""
    widths = [part.stop - part.start for part in layout.slices]
    names = np.repeat([key.party for key in layout.keys], widths)
    return np.asarray(names[:, None] == names)


def kolmogorov(margin: AssumedMargin, found: Marginal) -> float:
    """Largest distance of the two distribution functions; of two shares for a nominal column."""
    if margin.column.kind == "continuous":
        true = margin.below(CURVE_GRID)
        true[-1] = 1.0  # what lies beyond the bounds is moved to them
        return float(np.max(np.abs(smooth_cdf(found.probabilities).values - true)))
    difference = found.probabilities - margin.cell_probabilities(found.probabilities.size)
    return float(np.max(np.abs(difference if margin.column.kind == "nominal" else np.cumsum(difference))))
