"""What a party shares of its scores, and the public plan of the sums over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticopula.data.tables import AlignedTable
from verticopula.errors import SettingsError
from verticopula.mpc.fixed_point import bound_of, choose_bits
from verticopula.mpc.secret_sharing import COMPUTE
from verticopula.mpc.sums_plan import (
    SumsPlan,
    block_factor,
    check_plan,
    choose_compute,
    code_scores,
    own_columns,
    person_mu,
)
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.schema.study_settings import COORDINATOR
from verticopula.schema.units import Unit
from verticopula.stats.copula import Layout, latent_count
from verticopula.stats.marginals import Marginal, to_cells
from verticopula.stats.strict.latent_scores import LatentScore, latent_scores, score_table
from verticopula.stats.strict.noise_budget import StrictBudget
from verticopula.stats.strict.opened_patterns import choose_patterns
from verticopula.stats.strict.pattern_weights import choose_weights
from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

__all__ = ["party_scores", "plan_sums", "score_table", "share_scores", "share_weights"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Masks = Mapping[ColumnKey, NDArray[np.bool_]]


def party_scores(table: AlignedTable, marginals: Mapping[str, Marginal]) -> Floats:
    """(N, q_k) scores of one party's latents, NaN where there is no value.

    `marginals` : by column name, as `settle_margin` makes them of what the party released
    """
    parts = []
    for column in table.party.columns:
        encoded, marginal = table.columns[column.name], marginals[column.name]
        scores = np.full((encoded.observed.size, latent_count(column)), np.nan)
        cells = to_cells(encoded.values[encoded.observed], column, marginal.probabilities.size)
        scores[encoded.observed] = score_table(marginal)[cells]
        parts.append(scores)
    return np.hstack(parts)


def share_scores(plan: SumsPlan, party: str, table: AlignedTable, marginals: Mapping[str, Marginal]) -> Ints:
    """A party's scores as the integers that it shares: weighted, rounded, clipped, in the plan's rows."""
    own = [score for column in table.party.columns for score in latent_scores(marginals[column.name])]
    weights = share_weights(plan, party, own)
    scores = party_scores(table, marginals)
    by_row = np.where(plan.pattern_of[:, None] >= 0, weights[plan.pattern_of], 0.0)
    return code_scores(plan, party, scores * by_row)


def clip_factor(mu: float, n_subjects: int) -> float:
    """A party's part of a record is cut to this times its expected squared norm: from public quantities.

    Noise grows with it, and what cutting leaves of a bias shrinks. Noise on a mean is in proportion to 1/(mu n).
    """
    factor = TUNING.clip_scale * math.sqrt(mu * n_subjects / TUNING.clip_people)
    return min(max(factor, TUNING.clip_tightest), TUNING.clip_loosest)


def plan_clip(plan: SumsPlan) -> float:
    """The same, for a plan."""
    return clip_factor(plan.mu, int((plan.pattern_of >= 0).sum()))


def share_weights(plan: SumsPlan, party: str, own: Sequence[LatentScore]) -> Floats:
    """(P, q_k) what a party's scores are multiplied by, pattern by pattern; 0 where they have no part.

    They follow from the plan: its bound is `plan_clip` times the expected squared norm of the weighted scores.
    """
    columns = plan.columns[:, own_columns(plan, party)]
    expected = columns @ expected_squares(own)
    bounds = plan.bounds[:, plan.parties.index(party)] / 4.0**plan.bits
    block = np.sqrt(bounds / np.where(expected > 0.0, plan_clip(plan) * expected, np.inf))
    return np.asarray(columns * block[:, None] * np.array([score.length for score in own]))


def expected_squares(scores: Sequence[LatentScore]) -> Floats:
    """(q,) expected squares of scores at their lengths; never quite 0, so that every column has a bound."""
    return np.array([max(score.length**2 * score.moments()[1], 1e-3) for score in scores])


def sums_roles(federation: Federation) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, str, str]]:
    """Who has scores, how many columns of them each, and the three that compute: from the federation file alone."""
    parties = tuple(party.name for party in federation.parties)
    widths = tuple(sum(latent_count(column) for column in party.columns) for party in federation.parties)
    return parties, widths, choose_compute(parties, federation.network.compute or COORDINATOR)


def plan_sums(
    federation: Federation,
    layout: Layout,
    observed: Masks,
    marginals: Mapping[ColumnKey, Marginal],
    budget: StrictBudget,
    *,
    rows_agreed: bool = True,
) -> SumsPlan:
    """Which sums are opened and how long a record may be: from masks, noisy margins and the budget, all public.

    For unit `block` the sums' mu is the largest that leaves no party's part in them above what it may spend. Unless the
    parties agree on whose rows are the same person's, one person may stand in several rows, and the sums' mu for a
    person is what all blocks move together (`person_mu`).
    """
    parties, widths, compute = sums_roles(federation)
    seen = np.column_stack([observed[key] for key, s in zip(layout.keys, layout.slices, strict=True) for _ in _each(s)])
    scores = [score for key in layout.keys for score in latent_scores(marginals[key])]
    squares = expected_squares(scores)
    mu = budget.moments_mu() if budget.unit is Unit.PERSON else min(map(budget.moments_mu, budget.totals))
    clip = clip_factor(mu, int(seen.any(axis=1).sum()))
    opened = choose_patterns(seen, math.sqrt(COMPUTE / 2.0) / mu)
    if not opened.counts.size:
        raise SettingsError("nobody has a value in any column")
    ends = np.cumsum(widths)
    expected = np.column_stack(
        [
            opened.columns[:, end - width : end] @ squares[end - width : end]
            for end, width in zip(ends, widths, strict=True)
        ]
    )
    weights = choose_weights(opened.counts, expected, clip, math.sqrt(COMPUTE / 2.0) / mu)
    lengths = clip * weights * expected
    bits = min(
        choose_bits(int(n), float(row.sum()) + 1.0, mu, int(columns.sum()) + 1)
        for n, row, columns in zip(opened.counts, lengths, opened.columns, strict=True)
    )
    bounds = np.array([[bound_of(float(length), bits) for length in row] for row in lengths], dtype=np.int64)
    plan = SumsPlan(parties, widths, compute, opened.pattern_of, opened.columns, bounds, bits, mu)
    if budget.unit is Unit.BLOCK:
        factors = {party: block_factor(plan, party) for party in parties}
        # A party in no opened pattern has no part in the sums, and does not limit them.
        mu = min(budget.moments_mu(party) / own for party, own in factors.items() if own > 0.0) * (1.0 - 2.0**-50)
        plan = replace(plan, mu=mu)
    elif not rows_agreed:
        plan = replace(plan, mu=mu * mu / person_mu(plan, rows_agreed=False) * (1.0 - 2.0**-50))
    check_plan(plan)
    return plan


def _each(part: slice) -> range:
    return range(part.stop - part.start)
