"""Noise on tables of counts in the second opening: how far a person moves them, and room for it in 61 bits.

A person is in one cell of each of m tables. Replaced, the person moves from one cell to another: a distance of sqrt(2)
in every table, sqrt(2 m) in all, whatever the pairs are. With noise of sqrt(2 m)/mu on every count that is mu. What a
party holds about the person moves the m_k tables that have a column of it: sqrt(2 m_k). Where one person's blocks may
stand in different rows, replacing the person moves the tables by the sum over parties of sqrt(2 m_k) at most.

Counts are multiplied by a power of two before noise is added, so that whole numbers take next to nothing from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.fixed_point import FEWEST_BITS, MOST_BITS, TAIL
from verticopula.mpc.gram_noise import share_scale
from verticopula.mpc.prime_field import HALF
from verticopula.mpc.verified_cells import N_COMPUTE

Ints = NDArray[np.int64]

MOST_PAIRS = 1000  # tables that any plan may allow
_MOST_SENSITIVITY = 4096.0  # no person moves so many tables further, in any number of rows, among a thousand parties


def check_pairs(pairs: Ints, n_columns: int, most: int) -> None:
    """ProtocolError unless these are different pairs of different columns, the first one first, and not too many."""
    if pairs.dtype != np.int64 or pairs.ndim != 2 or pairs.shape[1] != 2 or not 1 <= len(pairs) <= most:
        raise ProtocolError(f"the second opening has 1 to {most} tables of two columns each")
    if int(pairs.min()) < 0 or int(pairs.max()) >= n_columns or bool((pairs[:, 0] >= pairs[:, 1]).any()):
        raise ProtocolError("the second opening names a column that there is not, or a pair in the wrong order")
    if len(np.unique(pairs, axis=0)) != len(pairs):
        raise ProtocolError("the second opening names a pair twice")


def row_sensitivity(n_tables: int) -> float:
    """How far replacing one row moves so many tables."""
    return math.sqrt(2.0 * n_tables)


def tables_sensitivity(pairs: Ints, owners: Ints, *, several_rows: bool) -> float:
    """How far replacing a person moves all tables, rounded up."""
    if not several_rows:
        return row_sensitivity(len(pairs)) * (1.0 + 2.0**-50)
    return math.fsum(block_sensitivities(pairs, owners, int(owners.max()) + 1)) * (1.0 + 2.0**-50)


def block_sensitivities(pairs: Ints, owners: Ints, n_parties: int) -> list[float]:
    """(K,) how far replacing one party's part of a record moves all tables."""
    touched = owners[pairs] if len(pairs) else np.zeros((0, 2), dtype=np.int64)
    return [row_sensitivity(int((touched == party).any(axis=1).sum())) for party in range(n_parties)]


def table_bits(n_subjects: int, mu: float) -> int:
    """By which power of two counts are multiplied: the most for which tables fit, at most 20."""
    for bits in range(MOST_BITS, FEWEST_BITS - 1, -1):
        noise = TAIL * math.sqrt(N_COMPUTE) * share_scale(_MOST_SENSITIVITY / mu * 2.0**bits)
        if (n_subjects << bits) + math.ceil(noise) < HALF:
            return bits
    raise SettingsError("the tables of counts do not fit in 61 bits with this noise: mu is too small")


def check_table_room(n_subjects: int, mu: float) -> None:
    """SettingsError unless every noised count is below p/2 in absolute value."""
    if not (math.isfinite(mu) and mu > 0.0):
        raise SettingsError("mu must be positive")
    table_bits(n_subjects, mu)


def table_scale(n_subjects: int, mu: float, sensitivity: float) -> float:
    """The standard deviation that a multiplied count needs, where a person moves the tables by `sensitivity`."""
    return sensitivity / mu * 2.0 ** table_bits(n_subjects, mu)


def table_deviation(n_subjects: int, mu: float, sensitivity: float) -> float:
    """Standard deviation of the noise on a count once all three compute parties have added their shares."""
    shares = math.sqrt(N_COMPUTE) * share_scale(table_scale(n_subjects, mu, sensitivity))
    return shares / 2.0 ** table_bits(n_subjects, mu)


def table_sizes(cells: Sequence[int], pairs: Ints) -> list[int]:
    """How many counts each table has."""
    return [cells[first] * cells[second] for first, second in pairs.tolist()]
