"""Who is observed where: patterns, rates, overlaps, and what was never observed together.

All of it is public in this setting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import Problem
from verticopula.schema.columns import ColumnKey
from verticopula.schema.methods import METHODS

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

FEWEST_IN_COMMON = 2  # with fewer common subjects nothing can be said about two columns' association


@dataclass(frozen=True)
class Missingness:
    """A summary of missing blocks and cells.

    Attributes
    ----------
    n_subjects : size of the cohort
    parties : their names, in the federation's order
    patterns : which parties know a subject (any value at all), and how many subjects that is; most frequent first
    observed : per column, the number of subjects with a value
    overlap : (K, K) subjects known to both parties
    empty_cells : per party, cells without a value inside its observed blocks
    never_together : pairs of columns with fewer than two common subjects
    """

    n_subjects: int
    parties: tuple[str, ...]
    patterns: tuple[tuple[tuple[bool, ...], int], ...]
    observed: Mapping[ColumnKey, int]
    overlap: NDArray[np.int64]
    empty_cells: Mapping[str, int]
    never_together: tuple[tuple[ColumnKey, ColumnKey], ...]

    @property
    def complete_cases(self) -> int:
        """Subjects known to every party."""
        return sum(count for pattern, count in self.patterns if all(pattern))

    def rate(self, party: str) -> float:
        """Share of the cohort that the party has nothing about.

        Parameters
        ----------
        party : its name
        """
        return 1.0 - float(self.overlap[self.parties.index(party), self.parties.index(party)]) / self.n_subjects

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for files and reports."""
        return {
            "n_subjects": self.n_subjects,
            "parties": list(self.parties),
            "patterns": [
                {"observed": [p for p, seen in zip(self.parties, pattern, strict=True) if seen], "subjects": count}
                for pattern, count in self.patterns
            ],
            "complete_cases": self.complete_cases,
            "missing_rates": {party: self.rate(party) for party in self.parties},
            "observed": {str(key): count for key, count in self.observed.items()},
            "overlap": self.overlap.tolist(),
            "empty_cells": dict(self.empty_cells),
            "never_together": [[str(a), str(b)] for a, b in self.never_together],
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Missingness:
        """What `to_dict` wrote.

        Parameters
        ----------
        raw : the plain values
        """
        parties = tuple(raw["parties"])
        return cls(
            n_subjects=int(raw["n_subjects"]),
            parties=parties,
            patterns=tuple(
                (tuple(party in entry["observed"] for party in parties), int(entry["subjects"]))
                for entry in raw["patterns"]
            ),
            observed={ColumnKey.parse(key): int(count) for key, count in raw["observed"].items()},
            overlap=np.array(raw["overlap"], dtype=np.int64),
            empty_cells={party: int(count) for party, count in raw["empty_cells"].items()},
            never_together=tuple((ColumnKey.parse(a), ColumnKey.parse(b)) for a, b in raw["never_together"]),
        )


def count_common(masks: Iterable[Bools]) -> Ints:
    """(q, q) how many subjects every two of the masks have in common.

    The columns of one party mostly have one mask: each is counted once, in words of 64 subjects.
    """
    different: dict[bytes, int] = {}
    packed: list[NDArray[np.uint64]] = []
    which = []
    for mask in masks:
        bits = np.packbits(mask)
        which.append(different.setdefault(hashlib.sha256(bits.data).digest(), len(different)))
        if len(different) > len(packed):
            packed.append(np.pad(bits, (0, -bits.size % 8)).view(np.uint64))
    common = np.zeros((len(packed), len(packed)), dtype=np.int64)
    for j, k in combinations_with_replacement(range(len(packed)), 2):
        common[j, k] = common[k, j] = np.bitwise_count(packed[j] & packed[k]).sum(dtype=np.int64)
    return np.asarray(common[np.ix_(which, which)])


def unique_masks(masks: Bools) -> tuple[Bools, Ints, Ints]:
    """((P, q) different rows in the order that `np.unique` has, (N,) each row's number among them, (P,) how often).

    Rows are read as binary numbers, 32 columns at a time: `np.unique(axis=0)` compares them byte by byte, and takes
    thirty times as long on a million rows.

    Parameters
    ----------
    masks : (N, q)
    """
    packed = np.packbits(np.ascontiguousarray(masks), axis=1)
    if packed.shape[1] <= 2:
        return _unique_narrow(masks, packed)
    words = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 4))).view(">u4")
    numbers = np.zeros(masks.shape[0], dtype=np.int64)
    for k in range(words.shape[1]):
        numbers = np.unique((numbers << 32) | words[:, k], return_inverse=True)[1].reshape(-1)
    _, first, numbers, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    return masks[first], numbers.reshape(-1).astype(np.int64), counts.astype(np.int64)


def _unique_narrow(masks: Bools, packed: NDArray[np.uint8]) -> tuple[Bools, Ints, Ints]:
    """The same of at most 16 columns: rows are counted, and nothing is sorted."""
    numbers = np.pad(packed, ((0, 0), (0, 2 - packed.shape[1]))).view(">u2")[:, 0].astype(np.uint16)
    counts = np.bincount(numbers)
    found = np.flatnonzero(counts)
    rows = np.unpackbits(found.astype(">u2").view(np.uint8).reshape(-1, 2), axis=1, count=masks.shape[1])
    places = np.zeros(counts.size, dtype=np.int64)
    places[found] = np.arange(found.size)
    return rows.view(np.bool_), places[numbers], counts[found].astype(np.int64)


def summarise_missingness(observed: Mapping[ColumnKey, Bools]) -> Missingness:
    """From one public mask per column."""
    parties = tuple(dict.fromkeys(key.party for key in observed))
    columns = {party: [key for key in observed if key.party == party] for party in parties}
    known = {party: np.logical_or.reduce([observed[key] for key in columns[party]]) for party in parties}
    rows, _, counts = unique_masks(np.stack(list(known.values())).T)
    order = np.argsort(-counts, kind="stable")
    keys, together = list(observed), count_common(observed.values())
    overlap = count_common(known.values())
    filled = {key: int(together[j, j]) for j, key in enumerate(keys)}
    return Missingness(
        n_subjects=int(next(iter(known.values())).size),
        parties=parties,
        patterns=tuple((tuple(bool(seen) for seen in rows[i]), int(counts[i])) for i in order),
        observed=filled,
        overlap=overlap,
        empty_cells={
            party: len(columns[party]) * int(overlap[index, index]) - sum(filled[key] for key in columns[party])
            for index, party in enumerate(parties)
        },
        never_together=tuple(
            (keys[j], keys[k]) for j, k in combinations(range(len(keys)), 2) if together[j, k] < FEWEST_IN_COMMON
        ),
    )


def overlap_problems(never_together: Iterable[tuple[ColumnKey, ColumnKey]]) -> list[Problem]:
    """What to say about pairs of columns without two common subjects; one problem per pair of parties."""
    apart: dict[tuple[str, str], list[tuple[ColumnKey, ColumnKey]]] = {}
    for first, second in never_together:
        apart.setdefault((first.party, second.party), []).append((first, second))
    able = " and ".join(repr(method.name) for method in METHODS.values() if not method.needs_overlap)
    problems = []
    for parties, pairs in apart.items():
        more = f" and {len(pairs) - 1} more pair(s)" if len(pairs) > 1 else ""
        problems.append(
            Problem(
                " and ".join(f"party {name!r}" for name in dict.fromkeys(parties)),
                f"{pairs[0][0]} and {pairs[0][1]}{more} are never observed together (fewer than {FEWEST_IN_COMMON} "
                f"common subjects); methods {able} work without them, and say what they then cannot know",
            )
        )
    return problems
