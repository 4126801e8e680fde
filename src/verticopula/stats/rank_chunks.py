"""Ranks and cells of a column whose rows are in several places: each place counts, the counts are added, each draws.

A rank needs how many values of the whole column are smaller than one, and how many are not larger. Each chunk counts
its different values, and the sum of these counts says both. `ranks.find_places` gives the same for a column in one
place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.data.engine_table import EngineTable
from verticopula.data.row_chunks import ColumnReading, RowChunk
from verticopula.engine.chunk_task import Secret
from verticopula.privacy.noise import Keystream
from verticopula.schema.columns import Column
from verticopula.stats.binomial_ranks import draw_ranks_of_rows, stream_labels
from verticopula.stats.copula import latent_count
from verticopula.stats.margin_cells import to_cells

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ShortInts = NDArray[np.int32]


@dataclass(frozen=True, repr=False)
class ValueCounts:
    """How often each value occurs. It holds a column's values, so it has no repr, and stays where it is made.

    Attributes
    ----------
    values : different ones, in increasing order
    counts : of each of them
    """

    values: Floats
    counts: Ints

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def find_places(self, values: Floats) -> tuple[ShortInts, ShortInts]:
        """For each value, how many of all are smaller, and how many are not larger.

        Parameters
        ----------
        values : (m,) all of them among those that were counted
        """
        different, which = np.unique(values, return_inverse=True)
        ends = np.cumsum(self.counts)
        at = np.searchsorted(self.values, different)
        upper = ends[at]
        lower = upper - self.counts[at]
        return lower.astype(np.int32)[which], upper.astype(np.int32)[which]


def count_values(values: Floats) -> ValueCounts:
    """How often each value occurs.

    Parameters
    ----------
    values : (n,) finite numbers
    """
    return ValueCounts(*np.unique(values, return_counts=True))


def add_counts(parts: Sequence[ValueCounts]) -> ValueCounts:
    """The counts of all parts together.

    Parameters
    ----------
    parts : of chunks
    """
    values = np.concatenate([part.values for part in parts])
    order = np.argsort(values, kind="stable")  # a merge, as every part is sorted
    ordered, counts = values[order], np.concatenate([part.counts for part in parts])[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: ordered.size])
    return ValueCounts(ordered[starts], np.add.reduceat(counts, starts) if starts.size else counts)


def latent_values(values: NDArray[Any], column: Column) -> Iterator[NDArray[Any]]:
    """The column itself, or one indicator per category of a nominal column."""
    count = latent_count(column)
    if count == 1:
        yield values
    else:
        yield from ((values == code).astype(values.dtype) for code in range(count))


# ---- over all chunks ---------------------------------------------------------------------


def release_on_engine(
    table: EngineTable,
    reading: ColumnReading,
    epsilon: float,
    n_cells: int,
    stream_key: Callable[[int, str], bytes],
) -> ChunkRelease:
    """Noisy ranks and numbers in cells of a whole column, in the order of the party's own table.

    Parameters
    ----------
    table : whose workers count and draw
    reading, epsilon, n_cells : as `release_chunk` has them
    stream_key : latent and label -> the key of some rows' random bits

    Privacy
    -------
    As `release_chunk`.
    """
    engine, n_latents = table.engine, latent_count(reading.column)
    totals = engine.submit(add_chunks, [engine.submit(count_chunk, chunk, reading) for chunk in table.chunks])
    drawn = []
    for chunk in table.chunks:
        labels = stream_labels(chunk.start, chunk.stop)
        keys = [[Secret(stream_key(index, label)) for label in labels] for index in range(n_latents)]
        drawn.append(engine.submit(release_chunk, chunk, reading, totals, epsilon, n_cells, keys))
    parts: list[ChunkRelease] = engine.fetch(drawn)
    return ChunkRelease(np.concatenate([part.ranks for part in parts]), np.sum([p.counts for p in parts], axis=0))


# ---- on a worker -------------------------------------------------------------------------


def count_chunk(chunk: RowChunk, reading: ColumnReading) -> list[ValueCounts]:
    """The counts of each latent in some rows.

    Parameters
    ----------
    reading : how the column is read
    """
    cells = reading.encode(chunk)
    return [count_values(latent) for latent in latent_values(cells.values[cells.observed], reading.column)]


def add_chunks(parts: Sequence[list[ValueCounts]]) -> list[ValueCounts]:
    """The counts of each latent in all rows.

    Parameters
    ----------
    parts : of chunks
    """
    return [add_counts(latents) for latents in zip(*parts, strict=True)]


@dataclass(frozen=True)
class ChunkRelease:
    """What some rows of a column give.

    Attributes
    ----------
    ranks : (n, L) noisy ranks of those with a value, in the order of the rows
    counts : (C,) how many of them are in each public cell, without noise
    """

    ranks: ShortInts
    counts: Ints


def release_chunk(
    chunk: RowChunk,
    reading: ColumnReading,
    totals: Sequence[ValueCounts],
    epsilon: float,
    n_cells: int,
    keys: Sequence[Sequence[Secret]],
) -> ChunkRelease:
    """Noisy ranks and numbers in cells of some rows.

    Parameters
    ----------
    reading : how the column is read
    totals : of each latent, over all rows
    epsilon : per coin
    n_cells : public cells of the column
    keys : of each latent's streams for these rows

    Privacy
    -------
    Ranks as `binomial_ranks.draw_binomial_ranks` has them. Counts are exact: they go to the party's own process, which
    adds their noise.
    """
    cells, column = reading.encode(chunk), reading.column
    values = cells.values[cells.observed]
    ranks = np.empty((values.size, len(totals)), dtype=np.int32, order="F")
    for index, latent in enumerate(latent_values(values, column)):
        lower, upper = totals[index].find_places(latent)
        streams = (Keystream(key.value) for key in keys[index])
        n_ranked = totals[index].total
        ranks[:, index] = draw_ranks_of_rows(lower, upper, n_ranked, epsilon, streams, cells.observed)
    counts = np.bincount(to_cells(values, column, n_cells), minlength=n_cells).astype(np.int64)
    return ChunkRelease(ranks, counts)
