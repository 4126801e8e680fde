"""How long the messages of a study may be, from public numbers: a receiver takes no longer ones."""

from __future__ import annotations

from verticopula.schema.federation import Federation
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING

ANY_STUDY = 2**30  # bytes, whatever its size: there may be more synthetic rows than people
_NUMBER = 8  # bytes
_MORE = 8  # numbers that a column has in a message beside those of its cells


def most_message_bytes(federation: Federation, n_subjects: int) -> int:
    """The most bytes that one message of a study can have.

    The longest ones are those of `strict`, where a number stands for every cell of every column of everybody, and of
    regressions on raw columns, where one stands for every category. Ranks, hashes and points are shorter.

    Parameters
    ----------
    federation : with the columns of all parties
    n_subjects : people of the study
    """
    cells = TILTED_TUNING.most_cells + 1 + _MORE
    numbers = sum(max(cells, len(federation.column(key).categories or ())) for key in federation.keys)
    return max(ANY_STUDY, _NUMBER * numbers * n_subjects)
