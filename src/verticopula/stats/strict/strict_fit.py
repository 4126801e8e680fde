"""What a strict study found, from all that was opened: the tilted copula in the terms of a `FitResult`.

All of it is computed from released numbers and costs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from verticopula.schema.columns import ColumnKey
from verticopula.stats.bridge import STRONGEST
from verticopula.stats.copula import Layout, indicators_to_latents
from verticopula.stats.marginals import Marginal
from verticopula.stats.matrix_repair import Repair, nearest_correlation
from verticopula.stats.pairwise import FitReport
from verticopula.stats.strict.tuning_strict import STRICT_TUNING as TUNING
from verticopula.stats.strict_report import StrictReport, TiltedPair, by_parties
from verticopula.stats.tilting.category_shifts import threshold_density
from verticopula.stats.tilting.cell_features import features_mean
from verticopula.stats.tilting.copula_estimate import CopulaEstimate
from verticopula.stats.tilting.factor_structure import posterior_variance
from verticopula.stats.tilting.opening_plan import OpeningPlan
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable
from verticopula.stats.tilting.pair_choice import expected_table
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.study_fit import ChosenTables, prepare_fit_inputs
from verticopula.stats.tilting.tilted_fit import TiltedFit, count_fitted_rows, fit_tilted
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula, usable_threads
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_RAREST_INDICATOR = 1e-3


@dataclass(frozen=True)
class StrictFit:
    """What a strict study found.

    Attributes
    ----------
    copula : of the population
    report : repairs
    strict : which pairs were tilted, and what can be relied on
    """

    copula: TiltedStudyCopula
    report: FitReport
    strict: StrictReport


@threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator, unused-ignore]
def fit_strict(
    plan: OpeningPlan,
    chosen: ChosenTables,
    tables: Sequence[OpenedTable],
    layout: Layout,
    margins: Mapping[ColumnKey, Marginal],
    parties: Sequence[str],
    rng: np.random.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    n_rows: int | None = None,
) -> StrictFit:
    """The copula of the population, from what was opened.

    Parameters
    ----------
    tables : of the second opening, in the order of `chosen.pairs`
    layout : of the plan's columns
    margins : of the observed, from noisy cells
    parties : their names, in the order of the plan's numbers
    rng : of the rows that the fit works with
    n_rows : how many those are; None for as many as there are people, within limits
    """
    size = count_fitted_rows(int(plan.counts.sum()), len(plan.columns)) if n_rows is None else n_rows
    opened = prepare_fit_inputs(plan, chosen, tables)
    fit = fit_tilted(opened, size, rng=rng, threads=usable_threads(), progress=progress)
    found = {
        key: population_margin(column, margins[key]) for key, column in zip(layout.keys, fit.model.columns, strict=True)
    }
    repaired = imply_correlations(fit, opened.copula, layout, found)
    copula = TiltedStudyCopula(layout, found, repaired.correlation, fit.model, fit.targets)
    return StrictFit(
        copula,
        _report(plan, opened.copula, chosen.population.gram, layout, margins, repaired),
        summarise(plan, chosen, opened.copula, fit, layout, parties, repaired.correlation),
    )


def population_margin(column: PooledColumn, observed: Marginal) -> Marginal:
    """A column's margin in the population: values, and how many are empty."""
    n_cells = observed.probabilities.size
    values = np.maximum(column.probabilities[:n_cells], 0.0)
    total = float(values.sum())
    shares = values / total if total > 0.0 else np.full(n_cells, 1.0 / n_cells)
    empty = float(column.probabilities[n_cells:].sum()) / float(column.probabilities.sum())
    return replace(observed, probabilities=shares, empty=empty)


def imply_correlations(
    fit: TiltedFit, copula: CopulaEstimate, layout: Layout, margins: Mapping[ColumnKey, Marginal]
) -> Repair:
    """Latent correlations of the layout's latents that go with the model.

    Pairs with an ordered column have the copula's; where a table tilts the pair, or both are nominal, that of the rows.
    Categories have what their indicators say, to first order. A response with classes has no latent in the rows, so it
    has the copula's.

    Parameters
    ----------
    copula : of both openings
    """
    rows, columns, latent_of = fit.rows, fit.model.columns, copula.latent_of
    tilted = {
        (a, b) for a, b in fit.model.tables if np.array_equal(latent_of[[a, b]] < 0, fit.model.latent_of[[a, b]] < 0)
    }
    q = len(layout.labels)
    correlation = _scores_correlation(copula, layout)
    unknown = np.zeros(q, dtype=np.bool_)
    for j, part in enumerate(layout.slices):
        if part.stop - part.start > 1:
            unknown[part] = _unlearnt(columns[j], part.stop - part.start)
        for k, other in enumerate(layout.slices[:j]):
            sizes = part.stop - part.start, other.stop - other.start
            if sizes == (1, 1) and (k, j) not in tilted:
                continue
            if (k, j) in tilted or min(sizes) > 1:
                block = _rows_correlation(rows.y, rows.z, columns, fit.model.latent_of, (j, k), (part, other))
            elif sizes[1] == 1 and latent_of[k] >= 0:
                block = _copula_correlation(copula, columns[j], j, sizes[0])[:, latent_of[k], None]
            elif sizes[0] == 1 and latent_of[j] >= 0:
                block = _copula_correlation(copula, columns[k], k, sizes[1])[None, :, latent_of[j]]
            else:
                continue
            correlation[part, other], correlation[other, part] = block, block.T
    transform = indicators_to_latents(layout, margins, unknown)
    inside = layout.nominal_blocks() | np.eye(q, dtype=np.bool_)
    latent = transform @ np.where(inside, 0.0, correlation) @ transform.T
    latent = np.clip(np.where(inside, 0.0, latent), -STRONGEST, STRONGEST)
    np.fill_diagonal(latent, 1.0)
    return nearest_correlation(latent)


def _scores_correlation(copula: CopulaEstimate, layout: Layout) -> Floats:
    """(latents of the layout) of all pairs of columns with one latent each, as the copula has it; 0 for others."""
    correlation = np.eye(len(layout.labels))
    single = [j for j, part in enumerate(layout.slices) if part.stop - part.start == 1 and copula.latent_of[j] >= 0]
    places = np.array([layout.slices[j].start for j in single], dtype=np.int64)
    latents = copula.latent_of[single]
    correlation[np.ix_(places, places)] = copula.correlation[np.ix_(latents, latents)]
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _copula_correlation(copula: CopulaEstimate, column: PooledColumn, j: int, size: int) -> Floats:
    """(latents of the layout, q) correlations of column j with the copula's latents, indicators as binary columns."""
    q, own = len(copula.correlation), int(copula.latent_of[j])
    if size == 1:
        return copula.correlation[own][None] if own >= 0 else np.zeros((1, q))
    groups = column.groups[:size]
    if own >= 0:  # categories that are pooled to two cells
        return np.outer(np.where(groups == 1, 1.0, -1.0), copula.correlation[own])
    shifts = copula.shifts.get(j, np.zeros((column.n_cells, q)))
    return np.asarray(shifts / threshold_density(column.shares)[:, None])[groups]


def _unlearnt(column: PooledColumn, size: int) -> Bools:
    """(categories,) those that share a pooled cell with others, or have next to no mass."""
    groups = column.groups[:size]
    sizes = np.bincount(groups, minlength=column.n_cells)
    return np.asarray((sizes[groups] > 1) | (column.probabilities[:size] < _RAREST_INDICATOR))


def _rows_correlation(
    y: NDArray[np.uint8],
    z: NDArray[np.float32],
    columns: Sequence[PooledColumn],
    latent_of: Ints,
    pair: tuple[int, int],
    parts: tuple[slice, slice],
) -> Floats:
    """(latents of the first, of the second) correlations in the rows, indicators taken as binary columns."""
    filled = np.ones(len(y), dtype=np.bool_)
    for j in pair:
        filled &= y[:, j] < columns[j].n_filled
    if filled.sum() < 2:
        return np.zeros((parts[0].stop - parts[0].start, parts[1].stop - parts[1].start))
    units = []
    for j, part in zip(pair, parts, strict=True):
        size = part.stop - part.start
        if size == 1 and latent_of[j] >= 0:
            own = z[filled, latent_of[j]].astype(np.float64)
            units.append(((own - own.mean()) / max(float(own.std()), 1e-9))[:, None])
        elif size == 1:  # nothing is learnt of it
            units.append(np.zeros((int(filled.sum()), 1)))
        else:
            units.append(_unit_indicators(y[filled, j], columns[j], size))
    return np.asarray(np.clip(units[0].T @ units[1] / filled.sum(), -STRONGEST, STRONGEST))


def _unit_indicators(y: NDArray[np.uint8], column: PooledColumn, size: int) -> Floats:
    """(n, categories) centred indicators over the density at their threshold: covariances are then latent ones."""
    hit = (y[:, None] == np.arange(column.n_cells)).astype(np.float64)
    share = hit.mean(axis=0)
    return np.asarray(((hit - share) / threshold_density(share))[:, column.groups[:size]])


def _report(
    plan: OpeningPlan,
    copula: CopulaEstimate,
    gram: OpenedGram,
    layout: Layout,
    margins: Mapping[ColumnKey, Marginal],
    repaired: Repair,
) -> FitReport:
    """Repairs, and the error of every latent correlation before anything is shrunk."""
    widths = [part.stop - part.start for part in layout.slices]
    column_of = np.repeat(np.arange(len(layout.keys)), widths)
    owners = plan.owners[column_of]
    spread = np.concatenate([_feature_spreads(plan, j, width) for j, width in enumerate(widths)])
    totals, people = gram.totals[np.ix_(owners, owners)], gram.people[np.ix_(owners, owners)]
    noise = gram.deviation / np.maximum(totals * np.outer(spread, spread), 1e-12)
    error = np.sqrt(np.minimum(noise**2 + 1.0 / np.maximum(people, 1.0), 1.0))
    latent = np.where(np.array(widths)[column_of] == 1, copula.latent_of[column_of], -1)
    held = np.flatnonzero(latent >= 0)
    own = copula.variance[np.ix_(latent[held], latent[held])]
    error[np.ix_(held, held)] = np.sqrt(np.where(np.isfinite(own), own, 1.0))
    error[layout.nominal_blocks()] = 0.0
    np.fill_diagonal(error, 0.0)
    off = ~np.eye(len(copula.correlation), dtype=bool) & np.isfinite(copula.variance)
    change = np.abs(copula.correlation - copula.noisy)[off]
    return FitReport(
        overlap=plan.people[np.ix_(column_of, column_of)].astype(np.int64),
        standard_error=error,
        shrink_rank=copula.structure.rank,
        shrink_change=float(change.mean()) if change.size else 0.0,
        psd_change=repaired.change,
        smallest_eigenvalue=repaired.smallest_eigenvalue_before,
        margin_repairs={key: margin.repair for key, margin in margins.items()},
    )


def _feature_spreads(plan: OpeningPlan, j: int, width: int) -> Floats:
    """(latents,) standard deviation of what stands for each of a column's latents in the first opening."""
    features, column = plan.features[j], plan.columns[j]
    squares = column.shares @ features.table**2 - features_mean(features, column) ** 2
    deviations = np.sqrt(np.maximum(squares, 1e-9))
    if features.score is not None:  # also where a nominal column's categories are pooled to two cells
        return np.full(width, deviations[0])
    return np.asarray(deviations[column.groups[:width]])


def summarise(
    plan: OpeningPlan,
    chosen: ChosenTables,
    copula: CopulaEstimate,
    fit: TiltedFit,
    layout: Layout,
    parties: Sequence[str],
    correlation: Floats,
) -> StrictReport:
    """Which pairs were tilted, and what can be relied on, party by party."""
    k = len(parties)
    structure, variance = copula.structure, copula.variance
    held = np.flatnonzero(copula.latent_of >= 0)
    owners = plan.owners[held]
    counted, known = structure.groups >= 0, np.isfinite(variance)
    expected = by_parties(posterior_variance(structure, variance), counted, owners, k)
    met = by_parties(known.astype(np.float64), counted, owners, k) > 0.0
    residual = np.where(known, copula.noisy - copula.correlation, 0.0)
    pairs = _tilted_pairs(chosen, fit, layout)
    tied = np.zeros((k, k), dtype=np.bool_)
    for a, b in fit.model.tables:
        tied[plan.owners[a], plan.owners[b]] = tied[plan.owners[b], plan.owners[a]] = True
    alone = np.diag(np.bincount(plan.owners, minlength=k) < 2)  # a single column has nobody to be associated with
    ordered = by_parties(np.ones(variance.shape), counted, owners, k) > 0.0
    blocks = layout.nominal_blocks() | np.eye(len(layout.labels), dtype=np.bool_)
    largest = float(np.max(np.abs(correlation[~blocks]), initial=0.0))
    return StrictReport(
        rank=structure.rank,
        spread_within=float(np.sqrt(structure.spread[0])),
        spread_between=float(np.sqrt(structure.spread[1])),
        patterns=len(plan.patterns),
        parties=tuple(parties),
        raw_error=np.where(met, by_parties(variance, counted & known, owners, k), np.where(ordered, np.inf, 0.0)),
        expected_error=expected,
        realised_error=by_parties(residual**2, counted, owners, k),
        supported=np.where(ordered, met & (expected <= TUNING.largest_error), tied | alone),
        flat=tuple(str(layout.keys[j]) for j in range(len(layout.keys)) if _is_flat(plan, j)),
        pairs=pairs,
        learnt=_adds_something(pairs, chosen, layout) or largest > TUNING.largest_error,
        misfit=fit.misfit[-1] if fit.misfit else 0.0,
    )


def _adds_something(pairs: Sequence[TiltedPair], chosen: ChosenTables, layout: Layout) -> bool:
    """Whether tables say anything: one that was opened without evidence, for the response's sake, need not."""
    response = None if chosen.classes is None else str(layout.keys[chosen.classes])
    return any(response not in (pair.first, pair.second) or pair.added > TUNING.largest_error for pair in pairs)


def _is_flat(plan: OpeningPlan, j: int) -> bool:
    """Whether a column's noisy margin has (all but) all mass in one cell."""
    score = plan.features[j].score
    if score is not None:
        return plan.features[j].scale == 0.0
    return bool(plan.columns[j].shares.max() >= TUNING.nearly_all)


def _tilted_pairs(chosen: ChosenTables, fit: TiltedFit, layout: Layout) -> tuple[TiltedPair, ...]:
    """The pairs that tables tilt, those that add most first."""
    spreads = {e.pair: e.spread.squared for e in chosen.evidence}
    found = []
    for (a, b), target in fit.targets.items():
        alone = expected_table(fit.model.columns, chosen.population.copula, (a, b))
        found.append(
            TiltedPair(
                first=str(layout.keys[a]),
                second=str(layout.keys[b]),
                opened=(a, b) in chosen.pairs,
                missed=min(TILTED_TUNING.distance_factor * math.sqrt(spreads.get((a, b), 0.0)), 1.0),
                added=0.5 * float(np.abs(target - alone).sum()),
            )
        )
    return tuple(sorted(found, key=lambda pair: -pair.added))
