"""The fit of a copula tilted by tables: theta and synthetic rows together, as persistent chains.

A stage asks what every opened table says beyond the rest of the model: its expected table is the model's own without
that table's theta, and as much of the opened one is used as its noise allows (`table_prior.posterior_table`). Then
rows are swept, and after every sweep each theta moves towards its table by the logarithm of the ratio: iterative
proportional fitting with rows in place of the whole distribution. A step is divided among the tables of a column, and
made smaller, down to a least one, where the rows have moved away from their tables. It ends because the number of
sweeps is fixed, and theta cannot run away because it is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.copula_estimate import CopulaEstimate
from verticopula.stats.tilting.gibbs_kernel import RowSweeper
from verticopula.stats.tilting.moving_columns import MovingColumns, sweep_rows
from verticopula.stats.tilting.openings import OpenedTable
from verticopula.stats.tilting.pair_scan import PairScan
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_prior import (
    ROUNDS,
    ROUNDS_NEARBY,
    SideCache,
    TableReading,
    copula_table,
    fit_margins,
    posterior_table,
    read_deviation_variance,
)
from verticopula.stats.tilting.tilted_model import Pair, TiltedCopula, calibrate_rows, pairs_of, start_rows
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TiltedFit:
    """A fitted model, and rows of it.

    Attributes
    ----------
    model : for more rows
    rows : those that the fit ended with: their tables are the posterior ones, without sampling error
    targets : pair -> its posterior table
    misfit : after every sweep, the mean total variation distance of rows and targets
    """

    model: TiltedCopula
    rows: RowSweeper
    targets: dict[Pair, Floats]
    misfit: tuple[float, ...]


@dataclass(frozen=True)
class FitInputs:
    """All that was opened, as the fit takes it.

    Attributes
    ----------
    columns : pooled cells with margins that the tables have contributed to
    copula : of both openings
    tables : everybody's, of the second opening
    readings : of the first; where the model comes to contradict them without a table, they tilt it, too
    classes : a response with a few classes, all of whose tables were opened: it has no latent in the model
    """

    columns: tuple[PooledColumn, ...]
    copula: CopulaEstimate
    tables: tuple[OpenedTable, ...]
    readings: tuple[TableReading, ...]
    classes: int | None = None


def count_fitted_rows(n_subjects: int, n_columns: int) -> int:
    """How many rows a fit works with."""
    least, most = TUNING.fitted_rows
    return int(np.clip(n_subjects, least, np.clip(TUNING.fitted_cells // n_columns, least, most)))


def refine_margins(
    columns: Sequence[PooledColumn], tables: Sequence[OpenedTable], deviations: Floats
) -> tuple[PooledColumn, ...]:
    """Columns with margins to which the opened tables have contributed, by how little noise their sums have.

    Parameters
    ----------
    deviations : (p,) standard deviation of the noise on the share of a public cell
    """
    refined = []
    for j, column in enumerate(columns):
        members = np.bincount(column.groups, minlength=column.n_cells)
        known = 1.0 / np.maximum(members * deviations[j] ** 2, 1e-18)
        total, weight = known * column.shares, known.copy()
        for table in tables:
            if j in table.pair:
                axis = 1 - table.pair.index(j)
                precision = 1.0 / (table.shares.shape[axis] * table.deviation**2)
                total += precision * table.shares.sum(axis=axis)
                weight += precision
        mixed = np.maximum(total / weight, 1e-6)
        mixed = mixed / mixed.sum()
        ratio = mixed / np.maximum(column.shares, 1e-12)
        p = column.probabilities * ratio[column.groups]
        refined.append(replace(column, probabilities=p / p.sum()))
    return tuple(refined)


def gather_readings(tables: Sequence[OpenedTable], readings: Sequence[TableReading]) -> dict[Pair, TableReading]:
    """One reading for every pair: its opened table, or what products of features say.

    Products of indicators of all cells are a table too, and are averaged with an opened one.
    """
    found = {reading.pair: reading for reading in readings}
    for table in tables:
        rows, columns = table.shares.shape
        shares, precision = table.shares, 1.0 / table.deviation**2
        other = found.get(table.pair)
        if other is not None and other.values.shape == table.shares.shape and _indicators(other):
            scale = float(other.left[0, 0] * other.right[0, 0])
            added = (scale / float(np.max(other.deviation))) ** 2
            shares = (precision * shares + added * other.values / scale) / (precision + added)
            precision += added
        found[table.pair] = TableReading(
            table.pair, shares, np.eye(rows), np.eye(columns), precision**-0.5, table.people, True
        )
    return found


def _indicators(reading: TableReading) -> bool:
    return all(
        f.shape[0] == f.shape[1] and np.array_equal(f, f[0, 0] * np.eye(len(f))) for f in (reading.left, reading.right)
    )


def fit_tilted(
    opened: FitInputs,
    n_rows: int,
    *,
    rng: np.random.Generator,
    threads: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TiltedFit:
    """The tilted copula and synthetic rows.

    Parameters
    ----------
    n_rows : that the fit works with
    progress : called with how many sweeps are done, and how many there are
    """
    columns, (copula, fixed) = opened.columns, split_classes(opened)
    known = gather_readings(opened.tables, opened.readings)
    sides = SideCache(columns)
    thetas: dict[Pair, Floats] = {table.pair: np.zeros(table.shares.shape) for table in opened.tables}
    untilted = [reading for pair, reading in known.items() if pair not in thetas]
    scan = PairScan(untilted, columns, sides)
    tilts = tuple(np.zeros(column.n_cells) for column in columns)
    model = TiltedCopula(columns, copula.latent_of, copula.correlation, tilts, thetas, copula.shifts)
    rows = start_rows(model, n_rows, rng, threads)
    targets: dict[Pair, Floats] = {}
    misfit: list[float] = []
    recent: list[TiltedCopula] = []
    step, done, total = TUNING.first_step, 0, sum(TUNING.sweeps)
    for sweeps in TUNING.sweeps:
        before = thetas
        thetas = thetas | _add_contradicted_pairs(untilted, scan.against_rows(rows.y), columns, thetas, len(known))
        if not thetas:  # the copula says all
            break
        expected = {**_expect_rest(rows, columns, list(thetas), before), **fixed}
        for pair in thetas:
            a, b = pair
            noise = known[pair].noise(columns[a].shares, columns[b].shares, n_rows)
            own = sides.of(known[pair])
            variance = read_deviation_variance(known[pair], expected[pair], own, noise).squared
            targets[pair] = posterior_table(known[pair], expected[pair], own, noise, variance)
        degree = np.bincount(np.concatenate(pairs_of(list(thetas))), minlength=len(columns))
        reach = {pair: min(1.0, TUNING.most_at_once / max(degree[pair[0]], degree[pair[1]])) for pair in thetas}
        step = max(step, TUNING.later_step)
        model = replace(model, tables=thetas)
        moving = MovingColumns.of(model)
        part = moving.take(rows)
        for _ in range(sweeps):
            part.sweep(moving.compile(model))
            moving.put(part, rows)
            counted = _count(rows, columns, list(thetas))
            distance = float(np.mean([0.5 * np.abs(counted[p] / n_rows - targets[p]).sum() for p in thetas]))
            if misfit and distance > TUNING.growing_distance * misfit[-1]:
                step = max(TUNING.smaller_step * step, TUNING.least_step)
            misfit.append(distance)
            thetas = {
                pair: np.clip(
                    theta + step * reach[pair] * _log_ratio(targets[pair] * n_rows, counted[pair]),
                    -TUNING.most_tilt,
                    TUNING.most_tilt,
                )
                for pair, theta in thetas.items()
            }
            tilts = _move_tilts(model, rows, moving)
            model = replace(model, tilts=tilts, tables=thetas)
            recent = [*recent[1 - TUNING.averaged_sweeps :], model]
            done += 1
            progress(done, total)
        if done < total:  # the next stage looks at all columns
            moving.draw_others(model, rows, rng)
    model = _average(recent) if recent else model
    _finish(model, rows, targets, rng)
    return TiltedFit(model, rows, targets, tuple(misfit))


def _move_tilts(model: TiltedCopula, rows: RowSweeper, moving: MovingColumns) -> tuple[Floats, ...]:
    """Tilts of margins one step nearer to the shares that columns have."""
    tilts, most = list(model.tilts), TUNING.most_tilt
    for j in moving.columns.tolist():
        column = model.columns[j]
        counts = np.bincount(rows.y[:, j], minlength=column.n_cells).astype(np.float64)
        tilts[j] = np.clip(tilts[j] + TUNING.margin_step * _log_ratio(column.shares * len(rows.y), counts), -most, most)
    return tuple(tilts)


def split_classes(opened: FitInputs) -> tuple[CopulaEstimate, dict[Pair, Floats]]:
    """The copula without the latent of a response with classes, and the tables that this latent expects.

    Latents go on inside of a cell: where most people share one value of a column, the latents of other columns would
    tell a response's latent which of them is near the next value, and no table says so. Classes depend on the cells
    of other columns alone, by their tables. What is known of each pair's correlation says what its table is expected
    to be.
    """
    copula, response = opened.copula, opened.classes
    if response is None or copula.latent_of[response] < 0:
        return copula, {}
    tables = [table.pair for table in opened.tables if response in table.pair]
    latents = {pair: copula.latent_of[list(pair)] for pair in tables}
    fixed = {
        (a, b): copula_table(opened.columns[a], opened.columns[b], float(copula.correlation[tuple(own)]))
        for (a, b), own in latents.items()
        if own.min() >= 0
    }
    return copula.without(response), fixed


def _average(models: Sequence[TiltedCopula]) -> TiltedCopula:
    """The model with the mean theta of several: single ones follow the rows' sampling error."""
    tables = {pair: np.mean([m.tables[pair] for m in models if pair in m.tables], axis=0) for pair in models[-1].tables}
    tilts = tuple(np.mean(own, axis=0) for own in zip(*(m.tilts for m in models), strict=True))
    return replace(models[-1], tables=tables, tilts=tilts)


def draw_rows(
    model: TiltedCopula, targets: Mapping[Pair, Floats], n_rows: int, *, rng: np.random.Generator, threads: int = 1
) -> RowSweeper:
    """New rows of a fitted model, with the posterior tables and otherwise the model's own.

    Parameters
    ----------
    targets : pair -> its posterior table
    """
    rows = start_rows(model, n_rows, rng, threads)
    sweep_rows(model, rows, TUNING.fresh_sweeps - TUNING.averaged_sweeps, rng)
    _finish(model, rows, targets, rng)
    return rows


def _finish(model: TiltedCopula, rows: RowSweeper, targets: Mapping[Pair, Floats], rng: np.random.Generator) -> None:
    """Sweep rows through the final model, and take sampling error out of their tables."""
    moving = MovingColumns.of(model)
    if not moving.columns.size:
        return
    part, restricted, wanted = moving.take(rows), moving.restrict(model), moving.renumber(targets)
    _calibrate(restricted, part, wanted | _own_tables(restricted, part, wanted))
    moving.put(part, rows)
    moving.draw_others(model, rows, rng)


def _calibrate(model: TiltedCopula, rows: RowSweeper, wanted: Mapping[Pair, Floats]) -> None:
    """Rows with next to no sampling error in these tables, and with all of the dependence that the tables have.

    Corrections towards the tables are random, too, and flatten them a little: correlations come out two parts in a
    hundred too small. So it is done twice, the second time towards tables that are further from independence by as
    much as the first time lost.
    """
    calibrate_rows(model, rows, wanted, TUNING.calibration_sweeps, TUNING.calibration_step)
    lost = _lost_dependence(rows, model.columns, wanted)
    beyond = {pair: np.maximum(table + lost * (table - _independent(table)), 0.0) for pair, table in wanted.items()}
    calibrate_rows(model, rows, beyond, TUNING.calibration_sweeps, TUNING.calibration_step)


def _lost_dependence(rows: RowSweeper, columns: Sequence[PooledColumn], wanted: Mapping[Pair, Floats]) -> float:
    """By which part the rows' tables are nearer to independence than those wanted, over all pairs."""
    lost = whole = 0.0
    for pair, counts in _count(rows, columns, list(wanted)).items() if wanted else ():
        table, free = wanted[pair], _independent(wanted[pair])
        weighted = (table - free) / np.maximum(free, 1e-12)
        lost += float(np.sum(weighted * (table - counts / counts.sum())))
        whole += float(np.sum(weighted * (table - free)))
    return min(max(lost / whole, 0.0), TUNING.most_lost) if whole > 0.0 else 0.0


def _independent(table: Floats) -> Floats:
    return np.outer(table.sum(axis=1), table.sum(axis=0))


def _own_tables(model: TiltedCopula, rows: RowSweeper, thetas: Mapping[Pair, Floats]) -> dict[Pair, Floats]:
    """The model's own tables of all pairs without theta, as means over a few sweeps; of none if there are too many.

    Margins are released: chance is taken out of those, too. Rows are swept in any case.
    """
    p = len(model.columns)
    pairs = [(a, b) for b in range(p) for a in range(b) if (a, b) not in thetas]
    if len(pairs) > TUNING.most_calibrated:
        pairs = []
    total = {pair: np.zeros((model.columns[pair[0]].n_cells, model.columns[pair[1]].n_cells)) for pair in pairs}
    compiled = model.compile()
    for _ in range(TUNING.averaged_sweeps):
        rows.sweep(compiled)
        for pair, counts in _count(rows, model.columns, pairs).items() if pairs else ():
            total[pair] += counts
    return {
        pair: fit_margins(counts / counts.sum(), model.columns[pair[0]].shares, model.columns[pair[1]].shares)
        for pair, counts in total.items()
    }


def _expect_rest(
    rows: RowSweeper, columns: Sequence[PooledColumn], pairs: Sequence[Pair], thetas: Mapping[Pair, Floats]
) -> dict[Pair, Floats]:
    """Every pair's table as the model has it without that pair's theta: the rows' margins are nearly right with it."""
    found = {}
    for pair, counts in _count(rows, columns, pairs).items():
        first, second = columns[pair[0]].shares, columns[pair[1]].shares
        table = counts + 0.5 * np.outer(first, second) * counts.size
        if pair in thetas:
            table = table * np.exp(-thetas[pair])
        found[pair] = fit_margins(table, first, second, ROUNDS if pair in thetas else ROUNDS_NEARBY)
    return found


def _add_contradicted_pairs(
    untilted: Sequence[TableReading],
    evidence: Floats,
    columns: Sequence[PooledColumn],
    thetas: Mapping[Pair, Floats],
    n_pairs: int,
) -> dict[Pair, Floats]:
    """Tables of 0 for pairs whose products of features contradict the model: by more than one of so many would.

    Parameters
    ----------
    untilted : readings of pairs that had no theta when the fit began
    evidence : of each of them against the model
    """
    doubtful = np.flatnonzero(evidence >= math.log(max(n_pairs, 2))).tolist()
    found = [(float(evidence[k]), untilted[k].pair) for k in doubtful if untilted[k].pair not in thetas]
    tilted = sum(reading.pair in thetas and not reading.opened for reading in untilted)
    chosen = sorted(found, reverse=True)[: max(TUNING.most_readings - tilted, 0)]
    return {(a, b): np.zeros((columns[a].n_cells, columns[b].n_cells)) for _, (a, b) in chosen}


def _log_ratio(wanted: Floats, counted: Floats) -> Floats:
    return np.clip(np.log((wanted + 0.5) / (counted + 0.5)), -1.0, 1.0)


def _count(rows: RowSweeper, columns: Sequence[PooledColumn], pairs: Sequence[Pair]) -> dict[Pair, Floats]:
    first, second = pairs_of(pairs)
    shapes = [(columns[a].n_cells, columns[b].n_cells) for a, b in pairs]
    places = np.cumsum([0, *(a * b for a, b in shapes)]).astype(np.int64)
    width = np.array([b for _, b in shapes], dtype=np.int64)
    counts = rows.count(first, second, width, places[:-1], int(places[-1])).astype(np.float64)
    return {
        pair: counts[start:stop].reshape(shape)
        for pair, start, stop, shape in zip(pairs, places[:-1], places[1:], shapes, strict=True)
    }
