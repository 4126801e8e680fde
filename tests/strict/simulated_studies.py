"""Strict studies with simulated openings: everything after the last round, without the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.coded_studies import CodedStudy, simulate_opening
from verticopula import Federation
from verticopula.data.missingness import summarise_missingness
from verticopula.data.tables import AlignedTable, align_tables
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.copula import Layout
from verticopula.stats.fit_result import FitResult, find_unidentified
from verticopula.stats.margin_cells import to_cells
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count
from verticopula.stats.strict.strict_fit import StrictFit, fit_strict
from verticopula.stats.tilting.opening_plan import CodedColumn

TYPICAL_DEVIATION = 60.0  # of the noise on a count: says how many cells a continuous column has


def code_tables(federation: Federation, tables: Mapping[str, AlignedTable]) -> tuple[np.ndarray, list[CodedColumn]]:
    """(N, p) public cells, -1 in missing blocks, and the columns."""
    codes, coded = [], []
    for number, party in enumerate(federation.parties):
        own = tables[party.name].columns
        known = np.logical_or.reduce([own[c.name].observed for c in party.columns])
        for column in party.columns:
            values, observed = own[column.name].values, own[column.name].observed
            n_cells = gaussian_cell_count(column, max(int(observed.sum()), 1), TYPICAL_DEVIATION)
            cells = np.full(known.size, -1, dtype=np.int64)
            cells[observed] = to_cells(values[observed], column, n_cells)
            cells[known & ~observed] = n_cells
            codes.append(cells)
            coded.append(CodedColumn(n_cells, column.kind != "nominal", number, bool((known & ~observed).any())))
    return np.column_stack(codes), coded


def fit_simulated(
    federation: Federation, tables: Mapping[str, Any], epsilon: float, *, delta: float = 1e-6, seed: int = 0
) -> tuple[StrictFit, CodedStudy]:
    """A study at (epsilon, delta) per person."""
    aligned = align_tables(federation, tables, need_overlap=False)
    codes, coded = code_tables(federation, aligned)
    rng = np.random.default_rng(seed)
    opened = simulate_opening(codes, coded, mu_of(epsilon, delta), rng=rng)
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    margins = {
        key: observed_margin(federation, key, opened.plan.columns[j].probabilities, coded[j].n_cells)
        for j, key in enumerate(layout.keys)
    }
    names = [party.name for party in federation.parties]
    return fit_strict(opened.plan, opened.chosen, opened.tables, layout, margins, names, rng), opened


def observed_margin(federation: Federation, key: Any, shares: np.ndarray, n_cells: int) -> Marginal:
    values = shares[:n_cells]
    return Marginal(federation.column(key), values / values.sum(), 0.0, empty=float(shares[n_cells:].sum()))


def result_of(fit: StrictFit, opened: CodedStudy, federation: Federation) -> FitResult:
    known = opened.plan.patterns[opened.plan.pattern_of]
    observed = {key: known[:, opened.plan.owners[j]] for j, key in enumerate(federation.keys)}
    return FitResult(
        fit.copula,
        fit.copula.margins,
        fit.report,
        summarise_missingness(observed),
        {},
        unidentified=find_unidentified(fit.copula.correlation, fit.copula.layout, fit.report.overlap),
        strict=fit.strict,
    )
