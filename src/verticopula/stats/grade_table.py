"""All subjects' noisy grades, from which readings are computed whenever somebody asks for them.

A reading is a function of a noisy grade, and the refinement changes the function many times, the grade never. So grades
are what is kept: in a scratch file where there are many people. Subjects with the same latents observed stand together,
because everything that is added up is added up for them. Nothing as large as all readings is ever held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.data.missingness import unique_masks
from verticopula.data.scratch_file import ROWS_IN_MEMORY, ScratchFile, forget_pages
from verticopula.stats.correlation import shared_masks
from verticopula.stats.em import SUBJECTS_AT_ONCE, Pattern, group_subjects

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BLOCKS_IN_MEMORY = ROWS_IN_MEMORY // 4 // SUBJECTS_AT_ONCE  # grades take eight bytes each


@dataclass(frozen=True, repr=False)
class GradeTable:
    """Noisy grades by pattern, and the readings that they stand for.

    Attributes
    ----------
    patterns : subjects with the same latents observed
    numbers : (N,) each subject's pattern
    starts : (P, q) where a pattern's grades of a latent begin in `grades`
    grades : of all latents, one after the other; each has those of its observed subjects, pattern by pattern
    grids : (q, g) noisy grades, at even distances
    heights, slopes : (q, g), (q, g-1) readings at the grid and how they rise from each point to the next
    """

    patterns: Sequence[Pattern]
    numbers: NDArray[np.integer]
    starts: Ints
    grades: Floats
    grids: Floats
    heights: Floats
    slopes: Floats

    @classmethod
    def of(
        cls,
        grades: Iterable[Floats],
        masks: Sequence[Bools],
        grids: Floats,
        informative: Bools,
        *,
        forget: Callable[[], None] = lambda: None,
    ) -> GradeTable:
        """The table with readings of zero, until `set_heights` says what they are.

        Parameters
        ----------
        grades : per latent, of its observed subjects in the order of the cohort
        masks : per latent (N,), who these are
        grids : (q, g)
        informative : (q,) the latents that are used; others count as missing
        forget : called after each latent, to take what its grades came from out of memory
        """
        observed, numbers = _number_patterns(masks, informative)
        patterns = group_subjects(observed, numbers)
        counts = observed * np.array([[pattern.rows.size] for pattern in patterns])
        before = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
        starts = np.cumsum(counts, axis=0) - counts + before[:-1]
        file = ScratchFile() if numbers.size > ROWS_IN_MEMORY else None
        kept = np.empty(before[-1] if file is None else 0)
        for j, own in enumerate(grades):
            if informative[j]:
                ordered = np.empty(own.size)
                _order_by_pattern(numbers, masks[j], own, starts[:, j] - before[j], ordered)
                if file is None:
                    kept[before[j] : before[j + 1]] = ordered
                else:
                    file.append(ordered)
            forget()
        if file is not None:
            kept = file.map().view(np.float64)
        return cls(patterns, numbers, starts, kept, grids, np.zeros(grids.shape), np.zeros(grids[:, 1:].shape))

    def set_heights(self, latent: int, heights: Floats) -> None:
        """Give a latent other readings.

        Parameters
        ----------
        latent : its number
        heights : (g,) readings at the grid
        """
        self.heights[latent], self.slopes[latent] = heights, np.diff(heights) / np.diff(self.grids[latent])

    @property
    def shape(self) -> tuple[int, int]:
        """Subjects, and latents."""
        return self.numbers.size, self.grids.shape[0]

    @cached_property
    def _seen(self) -> Bools:
        """(P, q) the latents that each pattern has."""
        seen = np.zeros(self.starts.shape, dtype=np.bool_)
        for pattern in self.patterns:
            seen[pattern.number, pattern.observed] = True
        return seen

    def blocks(self, pattern: Pattern) -> Iterator[Floats]:
        """(o, n) readings of some of a pattern's subjects at a time.

        Parameters
        ----------
        pattern : one of the table's
        """
        begin, size = self.starts[pattern.number, pattern.observed], pattern.rows.size
        for index, start in enumerate(range(0, size, SUBJECTS_AT_ONCE)):
            block = np.empty((pattern.observed.size, min(SUBJECTS_AT_ONCE, size - start)))
            _read_block(self.grades, begin + start, pattern.observed, self.grids, self.heights, self.slopes, block)
            if index % _BLOCKS_IN_MEMORY == _BLOCKS_IN_MEMORY - 1:
                forget_pages(self.grades)
            yield block
        forget_pages(self.grades)

    def fill_latent(self, latent: int) -> Floats:
        """(N,) a latent's readings in the order of the cohort; zero where it was not observed.

        Parameters
        ----------
        latent : its number
        """
        out, next_ones = np.zeros(self.numbers.size), self.starts[:, latent].copy()
        line = self.grids[latent], self.heights[latent], self.slopes[latent]
        _fill_latent(self.grades, self.numbers, self._seen[:, latent], next_ones, line, out)
        forget_pages(self.grades)
        return out

    def fill(self) -> Floats:
        """(N, q) all readings, in Fortran's order. As large as a table: not where N may be any number."""
        full = np.empty(self.shape, order="F")
        for latent in range(self.shape[1]):
            full[:, latent] = self.fill_latent(latent)
        return full


def _number_patterns(masks: Sequence[Bools], informative: Bools) -> tuple[Bools, Ints]:
    """((P, q) different patterns, (N,) each subject's) from the masks of the latents that are used."""
    used = np.flatnonzero(informative)
    people = shared_masks([masks[j] for j in used.tolist()])
    if not used.size:
        return np.zeros((1, len(masks)), dtype=np.bool_), np.zeros(masks[0].size, dtype=np.int64)
    different, numbers, _ = unique_masks(np.stack(people.masks).T)
    observed = np.zeros((len(different), len(masks)), dtype=np.bool_)
    observed[:, used] = different[:, people.which]
    return observed, numbers


@njit(cache=True, nogil=True)
def _order_by_pattern(numbers: Ints, mask: Bools, grades: Floats, next_ones: Ints, out: Floats) -> None:
    """Put the grades of a latent's observed subjects where their patterns are."""
    used = 0
    for i in range(numbers.size):
        if mask[i]:
            out[next_ones[numbers[i]]] = grades[used]
            next_ones[numbers[i]] += 1
            used += 1


@njit(cache=True, nogil=True)
def _fill_latent(
    grades: Floats, numbers: Ints, seen: Bools, next_ones: Ints, line: tuple[Floats, Floats, Floats], out: Floats
) -> None:
    """Write a latent's readings in the order of the cohort."""
    grid, heights, slopes = line
    per_length = (grid.size - 1) / (grid[-1] - grid[0])
    for i in range(numbers.size):
        if seen[numbers[i]]:
            out[i] = _height_at(grades[next_ones[numbers[i]]], grid, heights, slopes, per_length)
            next_ones[numbers[i]] += 1


@njit(cache=True, nogil=True)
def _read_block(
    grades: Floats, begin: Ints, latents: Ints, grids: Floats, heights: Floats, slopes: Floats, block: Floats
) -> None:
    """Fill a block with the readings of the subjects from `begin` on, one row for each of these latents."""
    for row in range(latents.size):
        j, start = latents[row], begin[row]
        per_length = (grids.shape[1] - 1) / (grids[j, -1] - grids[j, 0])
        for i in range(block.shape[1]):
            block[row, i] = _height_at(grades[start + i], grids[j], heights[j], slopes[j], per_length)


@njit(cache=True, nogil=True, inline="always")
def _height_at(grade: float, grid: Floats, heights: Floats, slopes: Floats, per_length: float) -> float:
    """What `np.interp` has for a grid of even distances: without a search, and so without a branch."""
    inside = min(max(grade, grid[0]), grid[grid.size - 1])
    place = min(int((inside - grid[0]) * per_length), grid.size - 2)
    return float(slopes[place] * (inside - grid[place]) + heights[place])
