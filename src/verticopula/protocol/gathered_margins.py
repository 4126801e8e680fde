"""All parties' noisy margins, checked before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verticopula.errors import ProtocolError
from verticopula.protocol.messages import GaussianMarginsReply, Reply
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.stats.marginals import Marginal
from verticopula.stats.rank_release import Masks
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count, settle_margin

_FURTHEST = 50.0  # standard deviations: no noise is ever further off


def gather_margins(
    federation: Federation, replies: Mapping[str, Reply], observed: Masks, deviations: Mapping[ColumnKey, float]
) -> dict[ColumnKey, Marginal]:
    """Margins by column, checked for shape and range before anything is computed from them."""
    marginals: dict[ColumnKey, Marginal] = {}
    for party in federation.parties:
        reply = replies.get(party.name)
        if not isinstance(reply, GaussianMarginsReply) or len(reply.cells) != len(party.columns):
            raise ProtocolError(f"party {party.name!r} did not answer with the margins of its columns")
        for column, cells in zip(party.columns, reply.cells, strict=True):
            key = ColumnKey(party.name, column.name)
            n, deviation = int(observed[key].sum()), deviations[key]
            size, reach = gaussian_cell_count(column, n, deviation), _FURTHEST * (deviation + 3.0)
            fits = cells.dtype == np.int64 and cells.shape == (size,)
            fits = fits and int(cells.min()) >= -reach and int(cells.max()) <= n + reach
            if not fits or (size == 2 and int(cells[0]) + int(cells[1]) != n):
                raise ProtocolError(f"{key}: the noisy cells are missing or have the wrong shape or range")
            marginals[key] = settle_margin(column, cells, n, deviation)
    return marginals
