"""What a method is given, and what it hands back: the one signature of everything in `experiments.baselines`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula import Synthesizer
from verticopula.data.tables import AlignedTable
from verticopula.privacy.statement import PrivacyStatement
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.units import Unit
from verticopula.stats.marginals import Marginal

Floats = NDArray[np.float64]

FEWEST_COMPLETE = 10  # complete cases; below it there is nothing to rank


class MethodFailure(Exception):
    """A method that has no answer for this data set; the reason is recorded, and the data set is left out for it."""


@dataclass(frozen=True)
class Study:
    """One data set as the parties hold it.

    Attributes
    ----------
    tables : one per party; a subject that a party does not know has no row
    family : `gaussian` or `binomial`
    epsilon : of unit `variable`, half for ranks and half for marginals; other methods say what they take it for
    seed : of everything that the method draws
    rows_per_subject : size of a synthetic table in units of the cohort
    fitted : what was fitted on just these tables, by the synthesizer's method (and variant, if not our own): free and
        aligned rows share a fit
    aligned : the tables checked and in one order, by whether two columns without common subjects are an error: all
        methods share them
    """

    federation: Federation
    tables: Mapping[str, pl.DataFrame]
    family: str
    epsilon: float = 1.0
    seed: int = 0
    rows_per_subject: int = 1
    fitted: dict[str, Synthesizer] = field(default_factory=dict, init=False, repr=False, compare=False)
    aligned: dict[bool, dict[str, AlignedTable]] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Spent:
    """Epsilon at the units that add up, and what a reader must know about it.

    Attributes
    ----------
    client, block, person : at delta = 1e-6 where a delta is needed; the largest over the parties
    note : what the numbers do not say
    """

    client: float = math.inf
    block: float = math.inf
    person: float = math.inf
    note: str = ""

    @classmethod
    def stated(cls, statement: PrivacyStatement, note: str = "") -> Spent:
        """From a ledger's statement, as if the noise had not come from a seed."""
        return cls(*(statement.epsilon(unit) for unit in (Unit.CLIENT, Unit.BLOCK, Unit.PERSON)), note)


NOTHING_PROTECTED = Spent(note="no noise: everything is exchanged as it is")


@dataclass(frozen=True)
class Outcome:
    """Coefficients, or synthetic tables that a regression is still to be fitted on.

    Attributes
    ----------
    tables : complete tables by party, rows belonging together; empty where `coef` is given
    n_subjects : the N of the criterion: real subjects behind the rows, however many rows there are
    coef : (p,), in the order of `covariate_keys`
    stay_apart : the regression is fitted between the parties, without joining their tables
    synthetic : False where the rows are the subjects' own
    margins : as they were fitted; empty where there are none
    """

    spent: Spent
    n_subjects: int
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    coef: Floats | None = None
    stay_apart: bool = False
    synthetic: bool = True
    margins: Mapping[ColumnKey, Marginal] = field(default_factory=dict)


Fit = Callable[[Study], Outcome]


def covariate_keys(federation: Federation) -> tuple[ColumnKey, ...]:
    """All columns but the response, party by party."""
    return tuple(key for key in federation.keys if key != federation.response)


def stack_numbers(federation: Federation, tables: Mapping[str, pl.DataFrame]) -> tuple[Floats, Floats]:
    """(n, p) covariates and (n,) response, as the numbers that stand in the tables."""
    keys = covariate_keys(federation)
    columns = [tables[key.party][key.column].to_numpy() for key in keys]
    response = tables[federation.response.party][federation.response.column].to_numpy()
    return np.column_stack(columns).astype(np.float64), response.astype(np.float64)


def keep_common(federation: Federation, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The rows of subjects with every cell at every party, in the order of the response's table."""
    name = federation.id.name
    whole = {party: table.drop_nulls() for party, table in tables.items()}
    ids = whole[federation.response.party].select(name)
    for table in whole.values():
        ids = ids.join(table.select(name), on=name, how="semi", maintain_order="left")
    return {party: ids.join(table, on=name, how="left", maintain_order="left") for party, table in whole.items()}


def keep_complete_cases(study: Study) -> Study:
    """The same study of its complete cases alone; MethodFailure if they are too few for anything."""
    tables = keep_common(study.federation, study.tables)
    n = tables[study.federation.response.party].height
    if n < FEWEST_COMPLETE:
        raise MethodFailure(f"{n} complete cases, {FEWEST_COMPLETE} are needed")
    return replace(study, tables=tables)
