"""Which data a study read: a keyed digest of a party's table, for the party's own ledger.

Whoever reads a ledger must not be able to test guesses about the table: of one with few people or few values a plain
hash gives everything away. The key comes from the vault's secret, which never leaves the vault.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping

import numpy as np

from verticopula.data.column_encoding import EncodedColumn

_PURPOSE = b"verticopula: which data a study read"  # the secret has other uses, which it must not be mixed up with


def digest_snapshot(ids: Iterable[str], columns: Mapping[str, EncodedColumn], secret: bytes) -> str:
    """The digest of a table as a study sees it, in hex: the same in whatever order rows and columns stand.

    It is of the columns that the federation file names, as numbers: what the same data are stored as does not count.

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
    named = list(ids)
    rows = np.array(sorted(range(len(named)), key=named.__getitem__), dtype=np.int64)
    digest = hmac.new(hmac.digest(secret, _PURPOSE, "sha256"), digestmod=hashlib.sha256)

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)

    add(len(named).to_bytes(8, "big"))
    for row in rows:
        add(named[row].encode())
    for name in sorted(columns):
        seen = columns[name].observed[rows]
        values = np.where(seen, columns[name].values[rows], 0.0) + 0.0  # minus zero is zero
        add(name.encode())
        add(np.packbits(seen).tobytes())
        add(values.astype("<f8").tobytes())
    return digest.hexdigest()
