"""Strict mode's releases made in one place: the same distribution as the protocol's, without sharing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.data.missingness import summarise_missingness
from verticopula.data.tables import AlignedTable, EncodedColumn
from verticopula.mpc.opened_sums import PatternSums
from verticopula.mpc.sums_plan import SumsPlan, score_cells
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.simulate.strict_simulation import open_centrally
from verticopula.stats.copula import Layout
from verticopula.stats.marginals import Marginal, to_cells
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count, release_gaussian_cells, settle_margin
from verticopula.stats.strict.noise_budget import StrictBudget, plan_strict
from verticopula.stats.strict.score_plan import plan_sums, share_cells
from verticopula.stats.strict.strict_fit import StrictFit, fit_strict

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
    """Tables drawn from a known latent correlation, and who is observed where."""

    federation: Federation
    tables: dict[str, AlignedTable]
    observed: dict[ColumnKey, Bools]
    values: dict[ColumnKey, Floats]

    @property
    def layout(self) -> Layout:
        return Layout.of({key: self.federation.column(key) for key in self.federation.keys})


def make(kinds: Mapping[str, str], latent: Floats, seen: Mapping[str, Bools]) -> Made:
    """`kinds` : party -> one letter of KINDS per column; the response is the first party's first column."""
    parties = [
        {"name": party, "column": [{"name": f"{party}{i}", **KINDS[k]} for i, k in enumerate(letters)]}
        for party, letters in kinds.items()
    ]
    response = f"{parties[0]['name']}.{parties[0]['name']}0"
    federation = Federation.from_dict({"name": "study", "response": response, "party": parties})
    values: dict[ColumnKey, Floats] = {}
    observed: dict[ColumnKey, Bools] = {}
    tables = {}
    position = 0
    for party in federation.parties:
        encoded = {}
        for column, letter in zip(party.columns, kinds[party.name], strict=True):
            z = latent[:, position]
            own = np.clip(z, -8.0, 8.0) if letter == "c" else np.searchsorted(CUTS[letter], z).astype(np.float64)
            key = ColumnKey(party.name, column.name)
            mask = seen.get(column.name, seen.get(party.name, np.ones(z.size, dtype=bool)))
            values[key], observed[key] = own, mask
            encoded[column.name] = EncodedColumn(own, mask)
            position += 1
        tables[party.name] = AlignedTable(party, encoded)
    return Made(federation, tables, observed, values)


@dataclass(frozen=True)
class OpenedStudy:
    budget: StrictBudget
    marginals: dict[ColumnKey, Marginal]
    plan: SumsPlan
    sums: tuple[PatternSums, ...]


def open_all(made: Made, epsilon: float, *, unit: str = "person", seed: int = 0) -> OpenedStudy:
    """Margins and sums, with all their noise."""
    request = StudyBudget.build(made.federation, unit=unit, epsilon=epsilon, delta=1e-6)
    budget = plan_strict(made.federation, request, {key: int(mask.sum()) for key, mask in made.observed.items()})
    marginals = {key: release(made, key, budget.deviations[key], seed) for key in made.federation.keys}
    plan = plan_sums(made.federation, made.layout, made.observed, marginals, budget)
    return OpenedStudy(budget, marginals, plan, add_up(made, plan, marginals, seed))


def release(made: Made, key: ColumnKey, deviation: float, seed: int) -> Marginal:
    column, mask = made.federation.column(key), made.observed[key]
    count = gaussian_cell_count(column, int(mask.sum()), deviation)
    cells = to_cells(made.values[key][mask], column, count)
    noisy = release_gaussian_cells(cells, count, deviation, SeededNoise(seed), *key)
    return settle_margin(column, noisy, int(mask.sum()), deviation)


def add_up(made: Made, plan: SumsPlan, marginals: Mapping[ColumnKey, Marginal], seed: int) -> tuple[PatternSums, ...]:
    """Exact sums over what the parties would share, and Gaussian noise as all three compute parties add it."""
    coded = {}
    for party in made.federation.parties:
        own = {column.name: marginals[ColumnKey(party.name, column.name)] for column in party.columns}
        cells = share_cells(plan, party.name, made.tables[party.name], own)
        coded[party.name] = score_cells(plan, party.name, cells)
    return open_centrally(plan, coded, np.random.default_rng([seed, 1]))


def fit(made: Made, opened: OpenedStudy) -> StrictFit:
    return fit_strict(
        opened.sums,
        opened.plan,
        made.layout,
        opened.marginals,
        opened.budget,
        summarise_missingness(made.observed),
    )


def factor_correlation(q: int, factors: int = 2, seed: int = 3) -> Floats:
    loadings = np.random.default_rng(seed).uniform(-0.8, 0.8, (q, factors)) / np.sqrt(factors)
    correlation = loadings @ loadings.T
    np.fill_diagonal(correlation, 1.0)
    return correlation


def draw(correlation: Floats, n: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((n, len(correlation))) @ np.linalg.cholesky(correlation).T
