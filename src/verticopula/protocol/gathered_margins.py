"""All parties' noisy margins, checked before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.mpc.gram_noise import FURTHEST_NOISE
from verticopula.protocol.column_replies import column_parts
from verticopula.protocol.messages import Reply
from verticopula.protocol.strict_messages import GaussianMarginsReply
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.gaussian_margins import estimate_margin, gaussian_cell_count
from verticopula.stats.strict.noise_budget import StrictBudget

Bools = NDArray[np.bool_]


def gather_margins(
    federation: Federation, replies: Mapping[str, Reply], known: Mapping[str, Bools], budget: StrictBudget
) -> dict[ColumnKey, Marginal]:
    """Margins by column, checked for shape and range before anything is computed from them.

    Parameters
    ----------
    known : party -> (N,) whom it knows
    """
    margins: dict[ColumnKey, Marginal] = {}
    what = "the margins of its columns"
    for key, cells in column_parts(federation, replies, GaussianMarginsReply, lambda reply: reply.cells, what):
        column, n, deviation = federation.column(key), int(known[key.party].sum()), budget.deviations[key]
        empty = budget.empties[key]
        size, reach = gaussian_cell_count(column, n, deviation) + empty, FURTHEST_NOISE * (deviation + 3.0)
        fits = cells.dtype == np.int64 and cells.shape == (size,)
        fits = fits and int(cells.min()) >= -reach and int(cells.max()) <= n + reach
        if not fits or (size == 2 and int(cells[0]) + int(cells[1]) != n):
            raise ProtocolError(f"{key}: the noisy cells are missing or have the wrong shape or range")
        margins[key] = estimate_margin(column, cells, n, deviation, may_be_empty=empty)
    return margins
