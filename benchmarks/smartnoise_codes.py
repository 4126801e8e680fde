"""Tables as whole numbers with public domains, which is all that SmartNoise's marginal methods take, and back.

A continuous column is cut into equal pieces of its public range on its public scale: the cells that our own marginals
have. A count has our cells too. A synthetic code becomes a value that is uniform within its cell.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.column_encoding import decode_column, encode_column
from verticopula.schema.columns import Column
from verticopula.schema.federation import Federation
from verticopula.stats.margin_cells import cell_count, count_cells, from_unit, to_cells

Floats = NDArray[np.float64]


def cells_of(column: Column, bins: int) -> int:
    """How many codes a column has."""
    return bins if column.kind == "continuous" else cell_count(column, 1, 1.0)


def code_tables(
    federation: Federation, tables: Mapping[str, pl.DataFrame], bins: int
) -> tuple[pl.DataFrame, list[int]]:
    """One table of codes, `party.column`, and the number of codes of each; `tables` are complete, rows side by side."""
    codes, cards = {}, []
    for key in federation.keys:
        column = federation.column(key)
        encoded, problems = encode_column(tables[key.party][key.column], column, str(key))
        if problems or not encoded.observed.all():
            raise ValueError(f"{key}: only complete columns can be coded")
        cards.append(cells_of(column, bins))
        codes[f"{key.party}.{key.column}"] = to_cells(encoded.values, column, cards[-1])
    return pl.DataFrame(codes), cards


def decode_codes(
    federation: Federation, codes: pl.DataFrame, bins: int, rng: np.random.Generator
) -> dict[str, pl.DataFrame]:
    """Tables by party."""
    return {
        party.name: pl.DataFrame(
            [decode_column(_decode(codes[f"{party.name}.{c.name}"].to_numpy(), c, bins, rng), c) for c in party.columns]
        )
        for party in federation.parties
    }


def _decode(codes: NDArray[np.int64], column: Column, bins: int, rng: np.random.Generator) -> Floats:
    inside = rng.random(codes.size)
    if column.kind == "continuous":
        return from_unit((codes + inside) / bins, column)
    if column.kind == "count":
        firsts = count_cells(column).astype(np.float64)
        return np.asarray(firsts[codes] + np.floor(inside * np.diff(firsts)[codes]))
    return codes.astype(np.float64)
