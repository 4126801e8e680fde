"""What a party shares of its values, and the public plan of the sums over it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticopula.data.tables import AlignedTable
from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.sums_plan import (
    SumsPlan,
    block_factor,
    check_plan,
    choose_compute,
    own_mask,
    own_rows,
    person_mu,
)
from verticopula.mpc.verified_cells import COMPUTE
from verticopula.mpc.verified_sums import choose_field_bits
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.schema.study_settings import COORDINATOR
from verticopula.schema.units import Unit
from verticopula.stats.copula import Layout, latent_count
from verticopula.stats.marginals import Marginal, to_cells
from verticopula.stats.strict.latent_scores import choose_cap, share_column
from verticopula.stats.strict.noise_budget import StrictBudget
from verticopula.stats.strict.opened_patterns import choose_patterns
from verticopula.stats.strict.pattern_weights import choose_weights

Ints = NDArray[np.int64]
Masks = Mapping[ColumnKey, NDArray[np.bool_]]

_ROUNDING = 1.01  # rounded to whole numbers, scores may be a little longer


def share_cells(plan: SumsPlan, party: str, table: AlignedTable, marginals: Mapping[str, Marginal]) -> Ints:
    """(n_k, columns) the pooled cells that a party shares, in the plan's rows; 0 where a column has no part in a row.

    `marginals` : by column name, as `settle_margin` makes them of what the party released
    """
    rows, mask = own_rows(plan, party), own_mask(plan, party)
    codes = np.zeros(mask.shape, dtype=np.int64)
    for index, column in enumerate(table.party.columns):
        encoded, marginal = table.columns[column.name], marginals[column.name]
        here = mask[:, index]
        if rows.size != encoded.observed.size or not encoded.observed[rows][here].all():
            raise ProtocolError(f"party {party!r}: the plan counts on values that it does not have")
        cells = to_cells(encoded.values[rows][here], column, marginal.probabilities.size)
        codes[here, index] = share_column(marginal, plan.cap).groups[cells]
    return codes


def sums_roles(federation: Federation) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, str, str]]:
    """Who has columns, how many scores of them each, and the three that compute: from the federation file alone."""
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
    """Which sums are opened and what cells stand for in them: from masks, noisy margins and the budget, all public.

    For unit `block` the sums' mu is the largest that leaves no party's part in them above what it may spend. Unless the
    parties agree on whose rows are the same person's, one person may stand in several rows, and the sums' mu for a
    person is what all blocks move together (`person_mu`).
    """
    parties, widths, compute = sums_roles(federation)
    seen = np.column_stack([observed[key] for key, s in zip(layout.keys, layout.slices, strict=True) for _ in _each(s)])
    mu = budget.moments_mu() if budget.unit is Unit.PERSON else min(map(budget.moments_mu, budget.totals))
    cap = choose_cap(mu, max(int(seen.any(axis=1).sum()), 1), len(layout.keys))
    shared = [share_column(marginals[key], cap) for key in layout.keys]
    squares = np.array([column.largest for column in shared])
    opened = choose_patterns(seen, math.sqrt(COMPUTE / 2.0) / mu)
    if not opened.counts.size:
        raise SettingsError("nobody has a value in any column")
    present = opened.columns[:, [part.start for part in layout.slices]]
    owners = np.array([parties.index(key.party) for key in layout.keys])
    longest = np.column_stack([(present * squares)[:, owners == k].sum(axis=1) for k in range(len(parties))])
    weights = choose_weights(opened.counts, longest, math.sqrt(COMPUTE / 2.0) / mu)
    lengths = weights * longest
    bits = min(
        choose_field_bits(int(n), _ROUNDING * (float(row.sum()) + 1.0), mu)
        for n, row in zip(opened.counts, lengths, strict=True)
    )
    tables = tuple(
        np.rint((present[:, j] * np.sqrt(weights[:, owners[j]]))[:, None, None] * column.shared * 2.0**bits).astype(
            np.int64
        )
        for j, column in enumerate(shared)
    )
    plan = SumsPlan(parties, widths, compute, opened.pattern_of, opened.columns, tables, bits, cap, mu)
    if budget.unit is Unit.BLOCK:
        factors = {party: block_factor(plan, party) for party in parties}
        # A party in no opened pattern has no part in the sums, and does not limit them. Nor has one whose noisy margins
        # have pooled each of its columns to one cell; where that is all of them, the sums are of nothing but noise.
        limits = [budget.moments_mu(party) / own for party, own in factors.items() if own > 0.0]
        plan = replace(plan, mu=min(limits, default=mu) * (1.0 - 2.0**-50))
    elif not rows_agreed:
        plan = replace(plan, mu=mu * mu / person_mu(plan, rows_agreed=False) * (1.0 - 2.0**-50))
    check_plan(plan)
    return plan


def _each(part: slice) -> range:
    return range(part.stop - part.start)
