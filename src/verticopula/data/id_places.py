"""In which row of a party's table each subject of the cohort stands.

Ids are found by 64-bit hashes of them, which are sorted: that takes a few bytes a person, where a table of hashed
texts takes many times as many. Then the texts are compared. So nobody is ever taken for somebody else, and where two
ids have the same hash, texts are joined.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.schema.id_rules import count_unknown

_NOBODY = -1


def mark_repeated(ids: pl.Series) -> NDArray[np.bool_]:
    """(n,) which ids an earlier row has.

    Parameters
    ----------
    ids : normalised
    """
    ordered = np.sort(ids.hash().to_numpy())
    if not (ordered[1:] == ordered[:-1]).any():
        return np.zeros(len(ids), dtype=np.bool_)
    return (~ids.is_first_distinct()).to_numpy()


def find_rows(own: pl.Series, cohort: pl.Series) -> NDArray[np.int32]:
    """(N,) each subject's row in a table, -1 where the table does not have it.

    Parameters
    ----------
    own : the table's ids, each once
    cohort : ids of all subjects, in the order of the cohort
    """
    if own.equals(cohort):
        return np.arange(len(own), dtype=np.int32)
    hashes = own.hash().to_numpy()
    order = np.argsort(hashes).astype(np.int32)
    hashes, rows = hashes[order], np.full(len(cohort), _NOBODY, dtype=np.int32)
    for start in range(0, len(cohort) if len(own) else 0, ROWS_IN_MEMORY):
        asked = cohort.slice(start, ROWS_IN_MEMORY)
        wanted = asked.hash().to_numpy()
        in_order = np.argsort(wanted)  # neighbours are found near each other, which is ten times as fast
        places = np.empty(wanted.size, dtype=np.int64)
        places[in_order] = np.searchsorted(hashes, wanted[in_order])
        places = np.minimum(places, hashes.size - 1)
        alike, found = hashes[places] == wanted, order[places]
        same = (own.gather(found) == asked).fill_null(False).to_numpy()
        if (alike & ~same).any():
            return _join_texts(own, cohort)
        rows[start : start + wanted.size] = np.where(same, found, _NOBODY)
    return rows


def _join_texts(own: pl.Series, cohort: pl.Series) -> NDArray[np.int32]:
    """The same without hashes."""
    numbered = pl.DataFrame({"id": own, "row": np.arange(len(own), dtype=np.int32)})
    index = pl.DataFrame({"id": cohort}).join(numbered, on="id", how="left", maintain_order="left")["row"]
    return np.asarray(index.fill_null(_NOBODY).to_numpy().astype(np.int32))


def count_unmatched(own: pl.Series, cohort: pl.Series, rows: NDArray[np.int32] | None) -> int:
    """How many ids of a table are of nobody in the cohort.

    Parameters
    ----------
    own, cohort : ids
    rows : as `find_rows` has them; None where it cannot be asked, because ids are empty or stand twice
    """
    if rows is None:
        return count_unknown(own, cohort)
    met = np.zeros(len(own), dtype=np.bool_)
    met[rows[rows >= 0]] = True
    return int(np.count_nonzero(~met))
