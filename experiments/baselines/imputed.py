"""Mean imputation: every empty cell gets its column's mean, then VCDS or EVCDS on the filled tables.

Whole numbers and ordered categories get the legal value nearest to the mean, unordered categories the most frequent
one. What it costs is more than the ledger of the filled table says: when one value is replaced the mean moves, and
every imputed subject with it. At worst each of them passes each observed one, and all of them change their cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from experiments.baselines import copula
from experiments.study import Fit, MethodFailure, Outcome, Spent, Study
from verticopula.privacy.release import Release
from verticopula.privacy.statement import state_privacy
from verticopula.schema.columns import Column
from verticopula.schema.federation import Federation
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT


def fit(study: Study, method: copula.Method = "vcds", *, aligned: bool = False, variant: str = OWN_VARIANT) -> Outcome:
    """Synthetic tables from the filled ones."""
    tables, imputed = fill(study.federation, study.tables)
    outcome, synthesizer = copula.synthesize(replace(study, tables=tables), method, aligned=aligned, variant=variant)
    charged = [charge(entry, imputed[entry.party, entry.column]) for entry in synthesizer.ledger_]
    note = f"imputed subjects move with the mean; {outcome.spent.note}".removesuffix("; ")
    return replace(outcome, spent=Spent.stated(state_privacy(charged), note))


def charge(entry: Release, n_imputed: int) -> Release:
    """A release on a filled column, at what replacing one observed value may touch at worst."""
    n_observed = entry.n_subjects - n_imputed
    if entry.what == "ranks":
        per_comparison = entry.coins_count // (entry.n_subjects - 1)
        return replace(entry, coins_count=entry.coins_count + per_comparison * n_imputed * n_observed)
    return replace(entry, epsilon=(1 + n_imputed) * entry.epsilon, coins_count=(1 + n_imputed) * entry.coins_count)


def fill(
    federation: Federation, tables: Mapping[str, pl.DataFrame]
) -> tuple[dict[str, pl.DataFrame], dict[tuple[str, str], int]]:
    """Complete tables of the whole cohort, and how many cells of each column were imputed."""
    name = federation.id.name
    cohort = tables[federation.response.party].select(name)
    filled, imputed = {}, {}
    for party in federation.parties:
        table = cohort.join(tables[party.name], on=name, how="left", maintain_order="left")
        for column in party.columns:
            values = table[column.name]
            imputed[party.name, column.name] = values.null_count()
            if values.null_count() == values.len():
                raise MethodFailure(f"column {column.name!r} is empty: it has no mean")
            table = table.with_columns(values.fill_null(stand_in(values.drop_nulls(), column)))
        filled[party.name] = table
    return filled, imputed


def stand_in(values: pl.Series, column: Column) -> Any:
    """What an empty cell of this column gets."""
    if column.kind == "nominal":
        shares = [(values.cast(pl.String) == str(category)).sum() for category in column.categories or ()]
        return (column.categories or ())[int(np.argmax(shares))]
    if column.categories is not None:
        places = {str(category): place for place, category in enumerate(column.categories)}
        mean = float(np.mean([places[text] for text in values.cast(pl.String)]))
        return column.categories[int(np.floor(mean + 0.5))]
    mean = float(values.cast(pl.Float64).mean())  # type: ignore[arg-type]
    return int(np.floor(mean + 0.5)) if column.kind == "count" else mean


impute_vcds: Fit = fit
impute_evcds: Fit = partial(fit, method="evcds", aligned=True)
impute_vcds_printed: Fit = partial(fit, variant=PRINTED_VARIANT)
impute_evcds_printed: Fit = partial(impute_evcds, variant=PRINTED_VARIANT)
