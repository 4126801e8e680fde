"""Strict mode's releases made in one place: the same distribution as the protocol's, without sharing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import AlignedTable
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.simulate.strict_openings import SimulatedOpenings, simulate_openings
from verticopula.stats.copula import Layout
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.gaussian_margins import (
    code_values,
    estimate_margin,
    gaussian_cell_count,
    release_gaussian_cells,
)
from verticopula.stats.strict.noise_budget import StrictBudget, plan_strict_budget
from verticopula.stats.strict.strict_fit import StrictFit, fit_strict
from verticopula.stats.strict.strict_plan import StrictPlan, place_of_response, plan_strict_sums

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

KINDS = {
    "c": {"kind": "continuous", "bounds": [-8, 8]},
    "o": {"kind": "ordinal", "categories": [1, 2, 3, 4]},
    "b": {"kind": "binary"},
    "n": {"kind": "count", "bounds": [0, 12]},
    "m": {"kind": "nominal", "categories": ["u", "v", "w"]},
}
CUTS = {
    "m": ndtri([0.3, 0.8]),
    "o": ndtri([0.4, 0.7, 0.9]),
    "b": ndtri([0.8]),
    "n": ndtri(1.0 - 0.6 ** np.arange(1, 12)),
}


@dataclass(frozen=True)
class Made:
    """Tables drawn from a known latent correlation, and who has which value."""

    federation: Federation
    tables: dict[str, AlignedTable]

    @property
    def layout(self) -> Layout:
        return Layout.of({key: self.federation.column(key) for key in self.federation.keys})

    @property
    def known(self) -> dict[str, Bools]:
        """Whom every party knows."""
        return {name: table.observed().any(axis=1) for name, table in self.tables.items()}

    def column(self, key: ColumnKey) -> EncodedColumn:
        return self.tables[key.party].columns[key.column]


def make(kinds: Mapping[str, str], latent: Floats, seen: Mapping[str, Bools]) -> Made:
    """Tables of latents.

    Parameters
    ----------
    kinds : party -> one letter of KINDS per column; the response is the first party's first column
    seen : party or column -> who has a value; everybody where it is not named
    """
    parties = [
        {
            "name": party,
            "column": [
                {"name": f"{party}{i}", **KINDS[k], "required": f"{party}{i}" not in seen}
                for i, k in enumerate(letters)
            ],
        }
        for party, letters in kinds.items()
    ]
    response = f"{parties[0]['name']}.{parties[0]['name']}0"
    federation = Federation.from_dict({"name": "study", "response": response, "party": parties})
    tables = {}
    position = 0
    for party in federation.parties:
        encoded = {}
        for column, letter in zip(party.columns, kinds[party.name], strict=True):
            z = latent[:, position]
            own = np.clip(z, -8.0, 8.0) if letter == "c" else np.searchsorted(CUTS[letter], z).astype(np.float64)
            mask = seen.get(column.name, seen.get(party.name, np.ones(z.size, dtype=bool)))
            encoded[column.name] = EncodedColumn(own, mask)
            position += 1
        tables[party.name] = AlignedTable(party, encoded)
    return Made(federation, tables)


@dataclass(frozen=True)
class OpenedStudy:
    """Everything that a study has released."""

    budget: StrictBudget
    margins: dict[ColumnKey, Marginal]
    plan: StrictPlan
    openings: SimulatedOpenings


def open_all(made: Made, epsilon: float, *, unit: str = "person", seed: int = 0) -> OpenedStudy:
    """Margins and both openings, with all their noise."""
    keys, known = made.federation.keys, made.known
    request = StudyBudget.build(made.federation, unit=unit, epsilon=epsilon, delta=1e-6)
    counts = {key: int(known[key.party].sum()) for key in keys}
    budget = plan_strict_budget(made.federation, request, counts, len(next(iter(known.values()))))
    cells = {key: gaussian_cell_count(made.federation.column(key), counts[key], budget.deviations[key]) for key in keys}
    codes = np.full((len(next(iter(known.values()))), len(keys)), -1, dtype=np.int64)
    margins = {}
    for j, key in enumerate(keys):
        column, whom = made.federation.column(key), known[key.party]
        deviation, empty = budget.deviations[key], budget.empties[key]
        codes[whom, j] = code_values(made.column(key), column, whom, cells[key], may_be_empty=empty)
        noisy = release_gaussian_cells(codes[whom, j], cells[key] + empty, deviation, SeededNoise(seed), *key)
        margins[key] = estimate_margin(column, noisy, counts[key], deviation, may_be_empty=empty)
    plan = plan_strict_sums(made.federation, known, margins, budget)
    sums = plan.sums
    split = replace(plan.openings.split, gram=sums.mu, tables=sums.mu_tables, selection=sums.mu_selection)
    rng, response = np.random.default_rng([seed, 1]), place_of_response(made.federation)
    openings = simulate_openings(replace(plan.openings, split=split), codes, rng, response)
    return OpenedStudy(budget, margins, plan, openings)


def fit(made: Made, opened: OpenedStudy, *, n_rows: int | None = None) -> StrictFit:
    """What the coordinator makes of it."""
    found, names = opened.openings, opened.plan.sums.parties
    rng = np.random.default_rng(2)
    return fit_strict(found.plan, found.chosen, found.tables, made.layout, opened.margins, names, rng, n_rows=n_rows)


def factor_correlation(q: int, factors: int = 2, seed: int = 3) -> Floats:
    loadings = np.random.default_rng(seed).uniform(-0.8, 0.8, (q, factors)) / np.sqrt(factors)
    correlation = loadings @ loadings.T
    np.fill_diagonal(correlation, 1.0)
    return correlation


def draw(correlation: Floats, n: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((n, len(correlation))) @ np.linalg.cholesky(correlation).T
