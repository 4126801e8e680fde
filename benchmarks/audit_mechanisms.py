"""Releases for the audit to judge: three that keep what they claim and three that do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula import Federation
from verticopula.auditing import Claim, Neighbours
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import AlignedTable
from verticopula.privacy.accounting import Coins, composed_epsilon
from verticopula.privacy.noise import Noise
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseReply, ReleaseRequest
from verticopula.schema.columns import Column
from verticopula.stats.binomial_ranks import draw_binomial_ranks
from verticopula.stats.margin_cells import cell_count, to_cells
from verticopula.stats.marginals import release_cells
from verticopula.stats.ranks import flip_comparisons

Floats = NDArray[np.float64]

N = 200
DELTA = 1e-6
RANKS = 0.05  # per comparison: about 3 for one person's value
CELLS = 1.0  # per value
COMPARISON = 1.0  # where there is only one comparison
COLUMN = Column(name="y", kind="continuous", bounds=(-8.0, 8.0))
FEDERATION = Federation.from_dict(
    {
        "name": "study",
        "response": "left.y",
        "party": [{"name": "left", "column": [{"name": "y", "kind": "continuous", "bounds": [-8, 8]}]}],
    }
)


@dataclass(frozen=True)
class Case:
    """A release, two data sets and a claim."""

    name: str
    release: Callable[[Floats, Noise], Any]
    neighbours: Neighbours[Floats]
    claim: Claim
    keeps_it: bool


def moved(to: float) -> Floats:
    """Subject 0 at one end, the others spread over the middle."""
    return np.r_[to, np.linspace(-4.0, 4.0, N - 1)]


SWAPPED = Neighbours(np.array([-7.0, 7.0]), np.array([7.0, -7.0]))  # one comparison, and it flips
ENDS = Neighbours(moved(-7.0), moved(7.0))
RANKS_CLAIM = Claim("block", composed_epsilon([Coins(RANKS, N - 1)], DELTA), DELTA, (Coins(RANKS, N - 1),))
TWICE = (Coins(RANKS / 2, 2 * (N - 1)),)


def exact_ranks(values: Floats, noise: Noise) -> Any:
    return flip_comparisons(values, RANKS, noise.stream("ranks"))[:1]


def binomial_ranks(values: Floats, noise: Noise) -> Any:
    return draw_binomial_ranks(values, RANKS / 2, noise.stream)[:1]


def cells(values: Floats, noise: Noise, column: Column = COLUMN) -> Any:
    count = cell_count(column, values.size, CELLS)
    return release_cells(to_cells(values, column, count), count, CELLS, noise, "cells")


def ranks_with_half_the_noise(values: Floats, noise: Noise) -> Any:
    """Broken: coins of twice the epsilon."""
    return flip_comparisons(values, 2 * RANKS, noise.stream("ranks"))[:1]


def cells_of_the_datas_own_range(values: Floats, noise: Noise) -> Any:
    """Broken: the cuts move with the smallest and the largest value."""
    bounds = (float(values.min()), float(values.max()))
    return cells(values, noise, COLUMN.model_copy(update={"bounds": bounds}))


def redrawn_after_a_restart(values: Floats, noise: Noise) -> Any:
    """Broken: a party without a store, asked the same twice, draws twice."""
    looks = []
    table = AlignedTable(FEDERATION.party("left"), {"y": EncodedColumn(values, np.ones(values.size, dtype=bool))})
    for start in ("first", "second"):
        party = LocalParty(ReleaseControl(table, noise))
        # Fresh coins, as a restarted process has: they are keyed by the study's name.
        reply = party.handle(ReleaseRequest(start, "vcds", "exact", (ColumnQuery("y", COMPARISON, CELLS),)))
        assert isinstance(reply, ReleaseReply)
        looks.append(reply.columns[0].ranks[:1, 0])
    return np.concatenate(looks)


CASES = (
    Case("exact ranks", exact_ranks, ENDS, RANKS_CLAIM, True),
    Case("binomial ranks", binomial_ranks, ENDS, Claim("block", composed_epsilon(TWICE, DELTA), DELTA, TWICE), True),
    Case("cells", cells, ENDS, Claim.pure("variable", CELLS), True),
    Case("noise halved", ranks_with_half_the_noise, ENDS, RANKS_CLAIM, False),
    Case("range taken from the data", cells_of_the_datas_own_range, ENDS, Claim.pure("variable", CELLS), False),
    Case("redrawn after a restart", redrawn_after_a_restart, SWAPPED, Claim.pure("variable", COMPARISON), False),
)


def randomized_response(epsilon: float) -> Callable[[int, Noise], list[int]]:
    """One bit, flipped with probability 1/(1+e^ε): its epsilon is known exactly."""
    theta = 1.0 / (1.0 + math.exp(epsilon))

    def release(bit: int, noise: Noise) -> list[int]:
        return [bit ^ int(float(noise.stream("bit").words(1)[0]) < theta * 2.0**64)]

    return release
