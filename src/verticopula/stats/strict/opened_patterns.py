"""Which patterns are opened: public sets of columns, and the people behind each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class OpenedPatterns:
    """Disjoint groups of people.

    Attributes
    ----------
    columns : (P, q) what each pattern's sums are about
    pattern_of : (N,) every subject's pattern; -1 for nobody's
    counts : (P,) how many people
    merged, left_out : subjects whose pattern was too rare to be opened: counted with fewer of their columns in a
        larger one that has no other; or nowhere, where there is no such pattern
    """

    columns: Bools
    pattern_of: Ints
    counts: Ints
    merged: int
    left_out: int


def choose_patterns(observed: Bools, noise_per_column: float, most: int = TUNING.most_patterns) -> OpenedPatterns:
    """The patterns to open, by a rule from public quantities.

    A pattern of c columns has noise of standard deviation `noise_per_column` * (c + 1) on sums over its people. With
    fewer people than that it says next to nothing, and its people say more where they are counted with others: in the
    largest pattern whose columns they all have. The same happens beyond the `most` patterns with the most people.
    """
    columns, labels, counts = np.unique(observed, axis=0, return_inverse=True, return_counts=True)
    labels = labels.reshape(-1)
    widths = columns.sum(axis=1)
    worth_opening = (widths > 0) & (counts >= noise_per_column * (widths + 1))
    if not worth_opening.any():  # everything is noise: open what there is most of
        worth_opening = (widths > 0) & (counts == counts[widths > 0].max(initial=0))
    order = np.flatnonzero(worth_opening)[np.argsort(-counts[worth_opening], kind="stable")][:most]
    kept = columns[order]
    place = np.full(counts.size, -1, dtype=np.int64)
    place[order] = np.arange(order.size)
    merged = left_out = 0
    for index in np.flatnonzero(place < 0):
        inside = np.flatnonzero((kept <= columns[index]).all(axis=1))
        if inside.size:
            # The most columns first, then the most people.
            place[index] = inside[np.lexsort((-counts[order[inside]], -kept[inside].sum(axis=1)))[0]]
            merged += int(counts[index])
        elif widths[index]:
            left_out += int(counts[index])
    pattern_of = place[labels]
    sizes = np.bincount(pattern_of[pattern_of >= 0], minlength=order.size).astype(np.int64)
    return OpenedPatterns(kept, pattern_of, sizes, merged, left_out)
