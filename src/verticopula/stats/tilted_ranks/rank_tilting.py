"""The copula of a study by ranks, tilted by tables of pairs that the same ranks tell: free post-processing.

The copula that a method fitted is the start, and tables are believed as far as their known error allows
(`stats/tilting/tilted_fit.py`): where evidence is thin only the copula speaks. Every pair has a reading; a pair is
tilted where it contradicts the model by more than one of so many readings would by chance. Where the response has a few
classes that are read surely, every class has a model of its own (`class_tilting.py`). Where the coins hide some
column's cells, nothing is tilted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import FittedCopula
from verticopula.stats.fit_result import FitResult
from verticopula.stats.rank_release import RankRelease
from verticopula.stats.tilted_ranks.class_tilting import find_classes, fit_classes
from verticopula.stats.tilted_ranks.rank_tables import ReadColumn, read_columns, read_rank_tables
from verticopula.stats.tilting.copula_estimate import CopulaEstimate, plain_copula
from verticopula.stats.tilting.table_prior import TableReading
from verticopula.stats.tilting.tilted_fit import FitInputs, count_fitted_rows, fit_tilted
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula, usable_threads

Floats = NDArray[np.float64]

_SHIFT_ROWS = 50_000


@threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator, unused-ignore]
def tilt_result(
    result: FitResult,
    release: RankRelease,
    response: ColumnKey,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FitResult:
    """The result with its copula tilted by tables; as it was where the coins hide some column's cells.

    Parameters
    ----------
    result : of a method that ranks
    release : noisy ranks of the subjects that have a value
    response : the column that models will be made for
    rng : of the rows that the fit works with
    progress : called with how many sweeps are done, and how many there are
    """
    copula = result.copula
    columns = read_columns(release, copula.margins)
    if len(columns) < 2 or any(column.confusion is None for column in columns):
        return result
    readings = read_rank_tables(columns)
    place = copula.layout.keys.index(response)
    classes = find_classes(columns[place])
    if classes and len(columns) > 2:
        return replace(result, copula=fit_classes(copula, columns, readings, place, classes, rng, progress))
    return replace(result, copula=_tilt_whole(copula, columns, readings, rng, progress))


def _tilt_whole(
    copula: FittedCopula,
    columns: Sequence[ReadColumn],
    readings: Sequence[TableReading],
    rng: np.random.Generator,
    progress: Callable[[int, int], None],
) -> TiltedStudyCopula:
    """One model of everybody."""
    pooled = tuple(column.column for column in columns)
    opened = FitInputs(pooled, _latent_part(copula, columns, rng), (), tuple(readings))
    size = count_fitted_rows(columns[0].cells.size, len(columns))
    fit = fit_tilted(opened, size, rng=rng, threads=usable_threads(), progress=progress)
    return TiltedStudyCopula(copula.layout, copula.margins, copula.correlation, fit.model, fit.targets)


def _latent_part(copula: FittedCopula, columns: Sequence[ReadColumn], rng: np.random.Generator) -> CopulaEstimate:
    """The latents of the ordered columns, and how categories of nominal ones shift them, in rows of the copula."""
    slices = copula.layout.slices
    held = np.array([part.start for part in slices if part.stop - part.start == 1], dtype=np.int64)
    ordered = np.array([part.stop - part.start == 1 for part in slices])
    correlation = copula.correlation[np.ix_(held, held)]
    shifts: dict[int, Floats] = {}
    if held.size and not ordered.all():
        root = np.linalg.cholesky(copula.correlation)
        latents = rng.standard_normal((_SHIFT_ROWS, len(root))) @ root.T
        for j in np.flatnonzero(~ordered).tolist():
            column, part = columns[j].column, slices[j]
            codes = copula.decoder(copula.layout.keys[j], part)(latents[:, part]).astype(np.int64)
            indicators = np.eye(column.n_cells)[column.groups[codes]]
            shifts[j] = (indicators - indicators.mean(axis=0)).T @ latents[:, held] / _SHIFT_ROWS
    return plain_copula(ordered, correlation, shifts)
