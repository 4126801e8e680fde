"""Blocks of people that a party does not know, and what a curator who needs whole rows makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.opening_plan import CodedColumn

Ints = NDArray[np.int64]


def lose_blocks(codes: Ints, coded: Sequence[CodedColumn], share: float, rng: np.random.Generator) -> Ints:
    """Codes with a share of every party's people missing but the last's, given the ranks of its first two columns."""
    held, parties = codes.copy(), max(c.party for c in coded) + 1
    last = [j for j, c in enumerate(coded) if c.party == parties - 1][:2]
    ranks = np.mean([np.argsort(np.argsort(codes[:, j] + rng.random(len(codes)) / 2)) for j in last], axis=0) / len(
        codes
    )
    for party in range(parties - 1):
        score = 2.0 * (ranks - 0.5) * (1.0 if party % 2 else -1.0)
        offset = math.log(share / (1.0 - share))
        missing = rng.random(len(codes)) < 1.0 / (1.0 + np.exp(-(offset + score)))
        own = np.array([j for j, c in enumerate(coded) if c.party == party])
        held[np.ix_(missing, own)] = -1
    return held


def fill_blocks(codes: Ints, coded: Sequence[CodedColumn]) -> Ints:
    """Mean-imputed codes: the mean's nearest cell of an ordered column, the most frequent cell of any other."""
    filled = codes.copy()
    for j, column in enumerate(coded):
        known = codes[codes[:, j] >= 0, j]
        usual = round(float(known.mean())) if column.ordered else int(np.bincount(known).argmax())
        filled[codes[:, j] < 0, j] = usual
    return filled


def keep_complete(codes: Ints) -> Ints:
    """The rows that every party knows."""
    return codes[(codes >= 0).all(axis=1)]
