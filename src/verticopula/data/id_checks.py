"""Subject ids of some rows at a time: normalised, looked through for what cannot be, and as keyed hashes."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.cell_facts import MarkedRows
from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.errors import Problem
from verticopula.schema.federation import IdRule
from verticopula.schema.id_rules import apply_id_rules

HASH_BYTES = 16

_SPREADSHEET_FLOAT = r"^[0-9]([.,][0-9]+)?[eE]\+[0-9]+$"


def normalise_ids(series: pl.Series, rule: IdRule) -> pl.Series:
    """Ids as text, with the federation's rules applied in order."""
    return apply_id_rules(series, rule.rules)


def hash_ids(ids: pl.Series, key: bytes) -> NDArray[np.uint8]:
    """(n, 16) HMAC-SHA256 of each normalised id, cut to 128 bits.

    Parameters
    ----------
    ids : normalised, none empty
    key : whoever has it can find out the ids by trying

    Privacy
    -------
    To the coordinator, which does not hold the key: pseudorandom, so only that two parties' subjects are the same
    one. To anyone with the key: the ids, by trying them all.
    """
    hashes, row = np.empty((len(ids), HASH_BYTES), dtype=np.uint8), 0
    for part in texts_in_parts(ids):
        digests = b"".join(hmac.digest(key, text.encode(), "sha256")[:HASH_BYTES] for text in part)
        hashes[row : row + len(part)] = np.frombuffer(digests, dtype=np.uint8).reshape(-1, HASH_BYTES)
        row += len(part)
    return hashes


def texts_in_parts(ids: pl.Series) -> Iterator[list[Any]]:
    """Ids as Python's texts, some rows at a time: there they take many times the room that they take here.

    Parameters
    ----------
    ids : in the order of the rows
    """
    return (ids.slice(start, ROWS_IN_MEMORY).to_list() for start in range(0, len(ids), ROWS_IN_MEMORY))


@dataclass(frozen=True)
class IdFacts:
    """What is wrong with ids of some rows; facts of rows that follow each other are added.

    Attributes
    ----------
    rows : how many there are
    blank : without an id
    rounded : with one that a spreadsheet has rounded
    """

    rows: int
    blank: MarkedRows
    rounded: MarkedRows

    @classmethod
    def of(cls, ids: pl.Series, start: int = 0) -> IdFacts:
        """Of normalised ids.

        Parameters
        ----------
        ids : of some rows
        start : the first of these rows in the whole table
        """
        blank = (ids.is_null() | (ids == "")).fill_null(True).to_numpy()
        rounded = ids.str.contains(_SPREADSHEET_FLOAT).fill_null(False).to_numpy()
        return cls(len(ids), MarkedRows.of(blank, start), MarkedRows.of(rounded, start))

    def __add__(self, later: IdFacts) -> IdFacts:
        return IdFacts(self.rows + later.rows, self.blank + later.blank, self.rounded + later.rounded)


def describe_ids(facts: IdFacts, repeated: MarkedRows, where: str) -> list[Problem]:
    """What is wrong with a table's ids.

    Parameters
    ----------
    facts : of all rows
    repeated : rows whose id an earlier row has
    where : the party
    """
    found, blank, rounded = [], facts.blank, facts.rounded
    if facts.rows == 0:
        found.append("has no rows")
    if blank.count:
        found.append(f"{blank.count} row(s) without a subject id{blank.named()}")
    if repeated.count and not blank.count:
        found.append(f"{repeated.count} row(s) repeat a subject id{repeated.named()}: keep one a person")
    if rounded.count:
        what = (
            f"{rounded.count} subject id(s) are written like 1.2E+09{rounded.named()}: a spreadsheet has rounded them"
        )
        found.append(f"{what}; save the column as text")
    return [Problem(where, what) for what in found]
