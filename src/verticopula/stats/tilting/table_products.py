"""Products of features to which opened tables have contributed.

A table of two columns says what the products of all their features are, too. Its noise on them is often far less than
the first opening's, which grows with the length of whole records. Both are averaged by how little noise they have, so
that the copula of both openings is estimated as that of the first is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.cell_features import CellFeatures
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable, feature_places
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_prior import remove_margins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def add_tables(
    gram: OpenedGram,
    features: Sequence[CellFeatures],
    columns: Sequence[PooledColumn],
    owners: Ints,
    tables: Sequence[OpenedTable],
) -> OpenedGram:
    """The first opening, with the products of tables' columns averaged with what the tables say.

    Margins are known better than a table's sums, so only what a table has beyond them counts.

    Parameters
    ----------
    columns : with the margins that products are compared with
    tables : of the same people as the products
    """
    places = feature_places([f.table.shape[1] for f in features])
    matrix, deviations = gram.matrix.copy(), np.full(gram.matrix.shape, gram.deviation)
    for table in tables:
        a, b = table.pair
        total = float(gram.totals[owners[a], owners[b]])
        if total <= 0.0:
            continue
        left, right = features[a].table, features[b].table
        free = np.outer(columns[a].shares, columns[b].shares)
        products = left.T @ (free + remove_margins(table.shares - free)) @ right
        own = (gram.deviation / total) ** 2
        theirs = table.deviation**2 * np.outer(_squares(left), _squares(right))
        part = np.divide(own, own + theirs, out=np.zeros_like(theirs), where=(theirs > 0.0) & np.isfinite(own + theirs))
        here, there = (places[a], places[b]), (places[b], places[a])
        matrix[here] += part * (total * products - matrix[here])
        deviations[here] = total * np.sqrt(part * theirs)
        matrix[there], deviations[there] = matrix[here].T, deviations[here].T
    return replace(gram, matrix=matrix, deviations=deviations)


def _squares(table: Floats) -> Floats:
    """(k,) sums of squares of features around their plain mean over cells: what noise on cells is multiplied by."""
    return np.asarray(np.sum((table - table.mean(axis=0)) ** 2, axis=0))
