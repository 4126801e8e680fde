"""Correlations and margins of the built-in study of enterprises, at the sizes that are promised."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.coded_studies import simulate_opening
from verticopula.data.tables import align_tables
from verticopula.datasets import SmeStudy, make_sme
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.margin_cells import to_cells
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count
from verticopula.stats.tilting.opening_plan import CodedColumn

MOST_CELLS = 32
TYPICAL_DEVIATION = 60.0  # of the noise on a count: says how many cells a continuous column has


def encode(study: SmeStudy, *, complete: bool = False) -> tuple[np.ndarray, list[CodedColumn], list[str]]:
    """(N, p) public cells, -1 in missing blocks; the columns; their labels."""
    tables = align_tables(study.federation, study.truth.complete if complete else study.tables)
    codes, coded, labels = [], [], []
    for number, party in enumerate(study.federation.parties):
        own = tables[party.name].columns
        known = np.logical_or.reduce([own[c.name].observed for c in party.columns])
        for column in party.columns:
            values, observed = own[column.name].values, own[column.name].observed
            n_cells = gaussian_cell_count(column, int(observed.sum()), TYPICAL_DEVIATION)
            if column.kind == "continuous":
                n_cells = min(n_cells, MOST_CELLS)
            cells = np.full(known.size, -1, dtype=np.int64)
            cells[observed] = to_cells(values[observed], column, n_cells)
            cells[known & ~observed] = n_cells
            codes.append(cells)
            coded.append(CodedColumn(n_cells, column.kind != "nominal", number, bool((known & ~observed).any())))
            labels.append(f"{party.name}.{column.name}")
    return np.column_stack(codes), coded, labels


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 0.04), (3.0, 0.022)])
def test_latent_correlations_and_margins(epsilon: float, most: float) -> None:
    """Root mean square error over pairs of ordered columns; Kolmogorov distance to the margins of everybody."""
    errors, distances = [], []
    for seed in range(3):
        study = make_sme(71_827, random_state=seed)
        codes, coded, labels = encode(study)
        opened = simulate_opening(codes, coded, mu_of(epsilon, 1e-6), rng=np.random.default_rng(seed))
        held = np.flatnonzero(opened.chosen.population.copula.latent_of >= 0)
        places = [study.truth.labels.index(labels[j]) for j in held]
        truth = study.truth.correlation[np.ix_(places, places)]
        off = ~np.eye(held.size, dtype=bool)
        errors.append(float(np.sqrt(np.mean((opened.chosen.population.copula.correlation - truth)[off] ** 2))))
        whole, _, _ = encode(study, complete=True)
        for j, column in enumerate(opened.settled.columns):
            n_cells = coded[j].n_cells
            real = np.bincount(whole[:, j], minlength=n_cells)[:n_cells] / len(whole)
            found = column.probabilities[:n_cells] / column.probabilities[:n_cells].sum()
            distances.append(float(np.max(np.abs(np.cumsum(real - found)))))
    print(f"epsilon {epsilon:g}: correlations {np.mean(errors):.4f}, margins {np.mean(distances):.4f}")
    assert np.mean(errors) <= most
    assert np.mean(distances) <= 0.02
