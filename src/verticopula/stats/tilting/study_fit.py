"""The choice of tables after the first opening, and what the fit is made from after the second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verticopula.stats.tilting.copula_estimate import CopulaEstimate, estimate_copula
from verticopula.stats.tilting.opening_plan import OpeningPlan
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable
from verticopula.stats.tilting.pair_choice import PairEvidence, has_classes, read_pairs, select_pairs, weigh_pairs
from verticopula.stats.tilting.population_fit import WholePopulation, fit_population
from verticopula.stats.tilting.selection import SelectionReading
from verticopula.stats.tilting.table_prior import TableReading
from verticopula.stats.tilting.table_products import add_tables
from verticopula.stats.tilting.tilted_fit import FitInputs, refine_margins
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING


@dataclass(frozen=True)
class ChosenTables:
    """What the first opening says, and which tables are to be opened.

    Attributes
    ----------
    population : copula and margins of everybody
    readings : what products of features say about every pair's table
    evidence : how much of that the copula leaves unexplained
    pairs : to be opened: those of `classes` first, then the most valuable first
    classes : the response, where it has a few classes whose tables are all opened; None otherwise
    """

    population: WholePopulation
    readings: tuple[TableReading, ...]
    evidence: tuple[PairEvidence, ...]
    pairs: tuple[tuple[int, int], ...]
    classes: int | None = None


def choose_tables(
    plan: OpeningPlan,
    gram: OpenedGram,
    selection: SelectionReading | None,
    rng: np.random.Generator,
    response: int | None = None,
) -> ChosenTables:
    """The population as the first opening shows it, and the pairs whose tables pay for their noise.

    Parameters
    ----------
    selection : base features by presence; None where nothing is to be corrected
    rng : public: the choice depends on it
    response : the column that models will be made for, if there is one: its pairs count more
    """
    population = fit_population(gram, plan.features, plan.columns, plan.owners, selection, rng=rng)
    readings = read_pairs(population.gram, plan.features, population.columns, plan.owners)
    evidence = weigh_pairs(readings, population.columns, population.copula)
    pairs: list[tuple[int, int]] = []
    if plan.split.tables > 0.0:
        pairs = select_pairs(evidence, population.columns, plan.people, plan.split.tables, TUNING.most_tables, response)
    classes = response if pairs and response is not None and has_classes(population.columns[response]) else None
    return ChosenTables(population, tuple(readings), tuple(evidence), tuple(pairs), classes)


def prepare_fit_inputs(plan: OpeningPlan, chosen: ChosenTables, tables: Sequence[OpenedTable]) -> FitInputs:
    """What the fit is made from: everybody's columns and tables.

    Parameters
    ----------
    tables : of the second opening, in the order of `chosen.pairs`
    """
    corrected = chosen.population.correct(tables)
    columns = refine_margins(chosen.population.columns, corrected, plan.deviations)
    copula = sharpen_copula(plan, chosen.population, corrected)
    return FitInputs(columns, copula, corrected, chosen.readings, chosen.classes)


def sharpen_copula(plan: OpeningPlan, population: WholePopulation, tables: Sequence[OpenedTable]) -> CopulaEstimate:
    """The copula of both openings: opened tables contribute to the products that it is estimated from.

    Parameters
    ----------
    tables : everybody's, of the second opening
    """
    if not tables:
        return population.copula
    both = add_tables(population.gram, plan.features, population.columns, plan.owners, tables)
    copula: CopulaEstimate = estimate_copula(both, plan.features, population.columns, plan.owners)
    return copula
