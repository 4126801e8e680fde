"""Which data a study read: a keyed digest of a party's table, for the party's own ledger.

Whoever reads a ledger must not be able to test guesses about the table: of one with few people or few values a plain
hash gives everything away. The key comes from the vault's secret, which never leaves the vault.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.scratch_file import ROWS_IN_MEMORY

_PURPOSE = b"verticopula: which data a study read"  # the secret has other uses, which it must not be mixed up with


def digest_snapshot(ids: pl.Series, columns: Mapping[str, EncodedColumn], secret: bytes) -> str:
    """The digest of a table as a study sees it, in hex: the same in whatever order rows and columns stand.

    It is of the columns that the federation file names, as numbers: what the same data are stored as does not count.
    One column at a time is looked at, and what is hashed of it is made for some rows at a time.

    Privacy
    -------
    It stays in the party's ledger. To whoever lacks the secret it is 256 uniform bits (HMAC-SHA256 as a pseudorandom
    function), which are the same again where the table is: a reader of two entries learns whether it had changed.

    Parameters
    ----------
    ids : every row's subject id, none twice
    columns : every column's values, in the rows' order
    secret : the vault's
    """
    rows = ids.arg_sort().to_numpy()  # by their UTF-8 bytes, whose order is that of the characters
    digest = hmac.new(hmac.digest(secret, _PURPOSE, "sha256"), digestmod=hashlib.sha256)
    digest.update(_field(rows.size.to_bytes(8, "big")))
    for some in _parts(rows):
        digest.update(b"".join(_field(text.encode()) for text in ids.gather(some).to_list()))
    for name in sorted(columns):
        seen, values = columns[name].observed, columns[name].values
        digest.update(_field(name.encode()) + _field(np.packbits(seen[rows]).tobytes()))
        digest.update((8 * rows.size).to_bytes(8, "big"))
        for some in _parts(rows):
            own = np.where(seen[some], values[some], 0.0) + 0.0  # minus zero is zero
            digest.update(own.astype("<f8").tobytes())
    return digest.hexdigest()


def _field(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big") + part


def _parts(rows: NDArray[np.uint32]) -> Iterator[NDArray[np.uint32]]:
    return (rows[start : start + ROWS_IN_MEMORY] for start in range(0, rows.size, ROWS_IN_MEMORY))
