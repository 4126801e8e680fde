"""VCDS (Algorithm 1): ranks and marginals once from every party, then a copula.

For data missing completely at random, or complete. Everything after the releases is
post-processing at the coordinator.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.copula import FittedCopula, Layout, indicators_to_latents
from verticopula.correlation import (
    GradeShape,
    PairwiseSpearman,
    invert_bridge,
    nearest_correlation,
    shrink,
    spearman_pairwise,
)
from verticopula.errors import ProtocolError
from verticopula.marginals import Marginal, cell_count
from verticopula.nominal import match_pair
from verticopula.privacy.budget import BudgetRequest, ColumnBudget, coins_per_comparison, plan_budget
from verticopula.privacy.coins import flip_probability
from verticopula.protocol.messages import (
    ColumnOrder,
    ColumnRelease,
    PresenceReply,
    PresenceRequest,
    ReleaseReply,
    ReleaseRequest,
    Reply,
    Request,
    ReviewReply,
    ReviewRequest,
)
from verticopula.ranks import debias_ranks, rank_noise_variance
from verticopula.schema import ColumnKey, Federation

Floats = NDArray[np.float64]
Protocol = Generator[dict[str, Request], dict[str, Reply], "VcdsResult"]


@dataclass(frozen=True)
class FitReport:
    """How much every repair changed, for the report and for doubt.

    Attributes
    ----------
    overlap : (q, q) common subjects of each pair of latents
    standard_error : (q, q) of each latent correlation before shrinking
    shrink_rank, shrink_change : rank of the target; mean absolute change of an entry
    psd_change : largest change of an entry by the repair to a correlation matrix
    smallest_eigenvalue : before that repair
    marginal_repairs : per column, total absolute change of the cell probabilities
    """

    overlap: NDArray[np.int64]
    standard_error: Floats
    shrink_rank: int
    shrink_change: float
    psd_change: float
    smallest_eigenvalue: float
    marginal_repairs: Mapping[ColumnKey, float]


@dataclass(frozen=True)
class VcdsResult:
    """What the coordinator knows at the end."""

    copula: FittedCopula
    report: FitReport
    n_subjects: int
    budgets: Mapping[ColumnKey, ColumnBudget]


def vcds(federation: Federation, request: BudgetRequest, study: str) -> Protocol:
    """Three rounds: who is observed where, whether everybody agrees, then every party's releases.

    The second round spends nothing: if one party refuses, no other has released anything yet.
    """
    replies = yield {p.name: PresenceRequest(study, "vcds") for p in federation.parties}
    observed = gather_presence(federation, replies)
    counts = {key: int(mask.sum()) for key, mask in observed.items()}
    budgets = plan_budget(federation, request, counts)
    orders = {
        party.name: ReleaseRequest(
            study,
            "vcds",
            request.sampler,
            tuple(
                ColumnOrder(c.name, budgets[key].epsilon_ranks, budgets[key].epsilon_marginal)
                for c in party.columns
                for key in [ColumnKey(party.name, c.name)]
            ),
        )
        for party in federation.parties
    }
    replies = yield {name: ReviewRequest(order) for name, order in orders.items()}
    for name in orders:
        if not isinstance(replies.get(name), ReviewReply):
            raise ProtocolError(f"party {name!r} did not agree to the releases asked of it")
    replies = yield dict(orders)
    releases = gather_releases(federation, replies, observed, budgets)
    copula, report = fit_copula(federation, releases, observed, budgets, request.sampler)
    n_subjects = next(iter(observed.values())).size
    return VcdsResult(copula, report, n_subjects, budgets)


def gather_presence(federation: Federation, replies: Mapping[str, Reply]) -> dict[ColumnKey, NDArray[np.bool_]]:
    """Masks by column, checked for shape."""
    masks: dict[ColumnKey, NDArray[np.bool_]] = {}
    sizes: set[int] = set()
    for party in federation.parties:
        reply = replies[party.name]
        if not isinstance(reply, PresenceReply) or reply.observed.ndim != 2:
            raise ProtocolError(f"party {party.name!r} did not answer who is observed")
        if reply.observed.shape[1] != len(party.columns):
            raise ProtocolError(f"party {party.name!r} answered for a different number of columns")
        sizes.add(reply.observed.shape[0])
        masks |= {ColumnKey(party.name, c.name): reply.observed[:, i] for i, c in enumerate(party.columns)}
    if len(sizes) != 1:
        raise ProtocolError("the parties answered for cohorts of different sizes")
    return masks


def gather_releases(
    federation: Federation,
    replies: Mapping[str, Reply],
    observed: Mapping[ColumnKey, NDArray[np.bool_]],
    budgets: Mapping[ColumnKey, ColumnBudget],
) -> dict[ColumnKey, ColumnRelease]:
    """Releases by column, checked for shape and range before anything is computed from them."""
    releases: dict[ColumnKey, ColumnRelease] = {}
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    widths = {key: part.stop - part.start for key, part in zip(layout.keys, layout.slices, strict=True)}
    for party in federation.parties:
        reply = replies[party.name]
        if not isinstance(reply, ReleaseReply):
            raise ProtocolError(f"party {party.name!r} did not answer with releases")
        for release in reply.columns:
            releases[ColumnKey(party.name, release.column)] = release
    for key in federation.keys:
        release_or_none = releases.get(key)
        n = int(observed[key].sum())
        cells = cell_count(federation.column(key), n, budgets[key].epsilon_marginal)
        if (
            release_or_none is None
            or release_or_none.ranks.shape != (n, widths[key])
            or release_or_none.cells.shape != (cells,)
            or release_or_none.ranks.min() < 1
            or release_or_none.ranks.max() > n
        ):
            raise ProtocolError(f"{key}: the release is missing or has the wrong shape or range")
    return releases


def fit_copula(
    federation: Federation,
    releases: Mapping[ColumnKey, ColumnRelease],
    observed: Mapping[ColumnKey, NDArray[np.bool_]],
    budgets: Mapping[ColumnKey, ColumnBudget],
    sampler: str,
) -> tuple[FittedCopula, FitReport]:
    """Marginals and correlation from releases alone."""
    columns = {key: federation.column(key) for key in federation.keys}
    layout = Layout.of(columns)
    marginals = {
        key: Marginal.from_release(columns[key], releases[key].cells, int(observed[key].sum())) for key in layout.keys
    }
    spearman = _spearman(layout, marginals, releases, observed, budgets, sampler)
    shapes, flat = _grade_shapes(layout, marginals)
    pairwise = invert_bridge(spearman, shapes, flat)
    blocks = layout.nominal_blocks()
    latent, variance = _to_category_latents(pairwise, layout, marginals, blocks)
    _match_nominal_pairs(latent, spearman.rho, layout, marginals)
    # Pairs with a flat column are unknown, not known to be zero: the others must not learn from them.
    shrunk = shrink(latent, variance, blocks | flat[:, None] | flat[None, :])
    repaired = nearest_correlation(shrunk.correlation)
    report = FitReport(
        overlap=spearman.overlap,
        standard_error=np.sqrt(variance),
        shrink_rank=shrunk.rank,
        shrink_change=shrunk.change,
        psd_change=repaired.change,
        smallest_eigenvalue=repaired.smallest_eigenvalue_before,
        marginal_repairs={key: marginal.repair for key, marginal in marginals.items()},
    )
    return FittedCopula(layout, marginals, repaired.correlation), report


def _spearman(
    layout: Layout,
    marginals: Mapping[ColumnKey, Marginal],
    releases: Mapping[ColumnKey, ColumnRelease],
    observed: Mapping[ColumnKey, NDArray[np.bool_]],
    budgets: Mapping[ColumnKey, ColumnBudget],
    sampler: str,
) -> PairwiseSpearman:
    q = len(layout.labels)
    n_subjects = next(iter(observed.values())).size
    grades = np.zeros((n_subjects, q))
    seen = np.zeros((n_subjects, q), dtype=bool)
    noise = np.zeros(q)
    spread = np.zeros(q)
    for key, part in zip(layout.keys, layout.slices, strict=True):
        mask = observed[key]
        n = int(mask.sum())
        theta = flip_probability(budgets[key].epsilon_ranks / coins_per_comparison(marginals[key].column, sampler))
        for offset, (index, latent) in enumerate(
            zip(range(part.start, part.stop), marginals[key].latents(), strict=True)
        ):
            debiased = debias_ranks(releases[key].ranks[:, offset], theta)
            grades[mask, index] = (debiased - (n + 1) / 2.0) / n
            seen[mask, index] = True
            noise[index] = rank_noise_variance(n, theta, latent.tied_share) / n**2
            spread[index] = latent.grade_variance
    return spearman_pairwise(grades, seen, noise, spread)


def _grade_shapes(
    layout: Layout, marginals: Mapping[ColumnKey, Marginal]
) -> tuple[list[GradeShape], NDArray[np.bool_]]:
    """How every latent's grade steps, and which latents have all mass in one cell."""
    latents = [latent for key in layout.keys for latent in marginals[key].latents()]
    shapes = [GradeShape.from_grade_steps(*latent.grade_steps) for latent in latents]
    flat = [
        latent.column.is_discrete and shape.thresholds.size == 0 for latent, shape in zip(latents, shapes, strict=True)
    ]
    return shapes, np.array(flat)


def _to_category_latents(
    pairwise: PairwiseSpearman,
    layout: Layout,
    marginals: Mapping[ColumnKey, Marginal],
    fixed: NDArray[np.bool_],
) -> tuple[Floats, Floats]:
    """Correlations with category indicators turned into correlations with category latents."""
    transform = indicators_to_latents(pairwise.rho, layout, marginals)
    outside = pairwise.rho * ~fixed
    latent = transform @ outside @ transform.T
    variance = transform**2 @ (pairwise.variance * ~fixed) @ (transform**2).T
    latent[fixed] = 0.0
    variance[fixed] = 0.0
    np.fill_diagonal(latent, 1.0)
    np.fill_diagonal(variance, 0.0)
    return np.clip(latent, -0.999, 0.999) + np.eye(latent.shape[0]) * 0.001, variance


def _match_nominal_pairs(latent: Floats, rho: Floats, layout: Layout, marginals: Mapping[ColumnKey, Marginal]) -> None:
    """Scale the block of every two nominal columns to the association that was observed, in place."""
    nominal = [(k, s) for k, s in zip(layout.keys, layout.slices, strict=True) if s.stop - s.start > 1]
    for index, (first, rows) in enumerate(nominal):
        for second, columns in nominal[:index]:
            # An indicator's mid-grade jumps by 1/2, so rho = 12 Cov(mid-grades) is 3 Cov(indicators).
            probabilities = (marginals[first].probabilities, marginals[second].probabilities)
            latent[rows, columns] = match_pair(latent[rows, columns], rho[rows, columns] / 3.0, probabilities)
            latent[columns, rows] = latent[rows, columns].T
