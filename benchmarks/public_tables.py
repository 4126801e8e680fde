"""Coded public tables, as papers on private synthesis use them, cut among parties.

A folder holds NAME.csv or NAME_codes.csv (every value a number from 0), NAME_domain.json (column -> how many values it
has), and NAME_int_to_str.json where codes have meanings that numbers must be sorted by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula import Federation
from verticopula.errors import SettingsError

Ints = NDArray[np.int64]

# Columns whose codes have no order; all others are ordered.
NOMINAL: Mapping[str, frozenset[int]] = {"adult": frozenset({1, 3, 5, 6, 7, 8, 13}), "br2000": frozenset({1, 3, 9})}
_COUNTED = 500_000  # cells of a marginal
PARTY_NAMES = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class CodedTable:
    """One table.

    Attributes
    ----------
    codes : (n, p) values from 0
    sizes : (p,) how many values a column has by its public list, used or not
    nominal : (p,) whether a column is without order
    """

    name: str
    codes: Ints
    sizes: tuple[int, ...]
    nominal: tuple[bool, ...]

    def federation(self, parties: int = 2) -> Federation:
        """Parties with as many columns each as can be; the last column is the response."""
        columns, owners = [self._column(j) for j in range(len(self.sizes))], cut_columns(len(self.sizes), parties)
        held = [
            {"name": name, "column": [column for column, owner in zip(columns, owners, strict=True) if owner == k]}
            for k, name in enumerate(PARTY_NAMES[:parties])
        ]
        response = f"{PARTY_NAMES[parties - 1]}.{columns[-1]['name']}"
        raw = {"name": self.name, "id": "id", "response": response, "party": held}
        return Federation.from_dict({**raw, "network": {"operator": "office"}})

    def tables(self, federation: Federation, held: Ints | None = None) -> dict[str, pl.DataFrame]:
        """What each party holds: everybody, or those whose codes in `held` are not -1."""
        codes = self.codes if held is None else held
        ids = np.array([f"{i:06d}" for i in range(len(codes))])
        found = {}
        for party in federation.parties:
            own = [int(c.name[1:]) for c in party.columns]
            known = (codes[:, own] >= 0).all(axis=1)
            columns = [pl.Series(f"c{j}", codes[known, j]).cast(pl.String) for j in own]
            found[party.name] = pl.DataFrame([pl.Series("id", ids[known]), *columns])
        return found

    def _column(self, j: int) -> dict[str, Any]:
        kind = "binary" if self.sizes[j] == 2 else "nominal" if self.nominal[j] else "ordinal"
        codes = [str(i) for i in range(self.sizes[j])]
        return {"name": f"c{j}", "kind": kind, "categories": codes, "required": True}


def cut_columns(n_columns: int, parties: int) -> list[int]:
    """The party of every column: neighbours together, as many each as can be."""
    starts = [k * n_columns // parties for k in range(1, parties)]
    return [sum(j >= start for start in starts) for j in range(n_columns)]


def read_coded(folder: Path, name: str) -> CodedTable:
    """The table of this name; SettingsError where the folder has none."""
    found = [path for path in (folder / f"{name}.csv", folder / f"{name}_codes.csv") if path.is_file()]
    domain = folder / f"{name}_domain.json"
    if not found or not domain.is_file():
        raise SettingsError(f"{folder} has no table {name!r}: {name}.csv and {name}_domain.json are needed")
    codes = pl.read_csv(found[0]).to_numpy().astype(np.int64)
    listed = json.loads(domain.read_text(encoding="utf-8"))
    sizes = tuple(int(listed[str(j)]["domain"]) for j in range(codes.shape[1]))
    nominal = tuple(j in NOMINAL.get(name, ()) for j in range(codes.shape[1]))
    meanings = folder / f"{name}_int_to_str.json"
    if meanings.is_file():
        labels = json.loads(meanings.read_text(encoding="utf-8"))
        for j in range(codes.shape[1]):
            if not nominal[j]:
                codes[:, j] = _sorted_codes(labels[j] if isinstance(labels, list) else labels[str(j)])[codes[:, j]]
    return CodedTable(name, codes, sizes, nominal)


def _sorted_codes(labels: Mapping[str, str]) -> Ints:
    """For every code its place among the labels: numbers in their order, then words."""

    def place(label: str) -> tuple[int, float, str]:
        try:
            return 0, float(label), ""
        except ValueError:
            return 1, 0.0, label

    ranks = {label: rank for rank, label in enumerate(sorted(set(labels.values()), key=place))}
    found = np.zeros(max(map(int, labels)) + 1, dtype=np.int64)
    for code, label in labels.items():
        found[int(code)] = ranks[label]
    return found


def total_variation(real: Ints, other: Ints, sizes: Sequence[int], ways: int, margins: int = 200) -> float:
    """Mean total variation distance of random marginals of so many columns, the same ones at every call."""
    rng = np.random.default_rng(0)
    distances = []
    for _ in range(margins):
        chosen = np.sort(rng.choice(len(sizes), ways, replace=False))
        shape = [sizes[j] for j in chosen]
        cells = [np.ravel_multi_index(tuple(rows[:, chosen].T), shape) for rows in (real, other)]
        if (size := math.prod(shape)) > _COUNTED:  # most cells are empty: only those that occur are counted
            _, where = np.unique(np.concatenate(cells), return_inverse=True)
            cells, size = np.split(where, [len(real)]), int(where.max()) + 1
        shares = [np.bincount(part, minlength=size) / part.size for part in cells]
        distances.append(0.5 * float(np.abs(shares[0] - shares[1]).sum()))
    return float(np.mean(distances))
