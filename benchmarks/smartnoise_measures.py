"""What the synthetic tables of both sides are judged by: pairs of columns against the truth, and a regression.

*Association.* Spearman's correlation of two ordered columns (ties get mid-ranks); Cramer's V where one is nominal, an
ordered one cut at the population's deciles. The mean absolute difference to the same measure of the whole population,
over all pairs, without any gap.

*AUC.* A logistic regression with SCAD and BIC (`experiments.sme`, the judge of the paper's Table 8) is fitted to the
synthetic table and predicts people of the same population who were in no study, all of whose columns are known.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from experiments.sme import auc, fit_tables
from experiments.study import Outcome, Spent
from verticopula.data.column_encoding import encode_column
from verticopula.datasets import SmeStudy, make_sme
from verticopula.glm.feature_encoding import encode_response
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation

Floats = NDArray[np.float64]
Tables = Mapping[str, pl.DataFrame]
Key = TypeVar("Key", bound=Hashable)

_DECILES = np.arange(1, 10) / 10.0
HELD_OUT_SEED = 20_260_101  # of people who are in none of the studies


def encode_all(federation: Federation, tables: Tables) -> dict[ColumnKey, Floats]:
    """Complete columns as numbers."""
    values = {}
    for key in federation.keys:
        encoded, problems = encode_column(tables[key.party][key.column], federation.column(key), str(key))
        if problems or not encoded.observed.all():
            raise ValueError(f"{key}: only complete columns can be compared")
        values[key] = encoded.values
    return values


@dataclass(frozen=True)
class ComparedPopulation:
    """The population that both sides are compared with.

    Attributes
    ----------
    cuts : deciles of the ordered columns
    pairs : association of every pair
    test : tables of held-out people, and `risky` among them
    """

    federation: Federation
    cuts: Mapping[ColumnKey, Floats]
    pairs: Mapping[tuple[ColumnKey, ColumnKey], float]
    test: Mapping[str, pl.DataFrame]
    risky: NDArray[np.bool_]
    n_subjects: int

    @classmethod
    def of(cls, study: SmeStudy, held_out: int) -> ComparedPopulation:
        federation = study.federation
        values = encode_all(federation, study.truth.complete)
        cuts = {
            key: np.unique(np.quantile(column, _DECILES))
            for key, column in values.items()
            if federation.column(key).kind != "nominal"
        }
        fresh = make_sme(held_out, random_state=HELD_OUT_SEED).truth.complete
        response = federation.response
        outcome = encode_response(fresh[response.party][response.column], federation.column(response), response.party)
        n_subjects = len(study.truth.complete[response.party])
        return cls(federation, cuts, associations(values, cuts), fresh, outcome == 1.0, n_subjects)

    def compare(self, tables: Tables) -> Quality:
        """A synthetic table against the population."""
        found = associations(encode_all(self.federation, tables), self.cuts)
        errors = {pair: abs(found[pair] - value) for pair, value in self.pairs.items()}
        across = [error for (a, b), error in errors.items() if a.party != b.party]
        within = [error for (a, b), error in errors.items() if a.party == b.party]
        with threadpool_limits(1):
            model = fit_tables(self.federation, Outcome(Spent(), self.n_subjects, dict(tables)))
        return Quality(
            float(np.mean(list(errors.values()))),
            float(np.mean(across)),
            float(np.mean(within)),
            auc(model.predict(self.test), self.risky),
            model.selected,
        )


@dataclass(frozen=True)
class Quality:
    """`association` over all pairs, and over those across and within parties; `selected` variables."""

    association: float
    across: float
    within: float
    auc: float
    selected: tuple[str, ...]


def associations(values: Mapping[Key, Floats], cuts: Mapping[Key, Floats]) -> dict[tuple[Key, Key], float]:
    """Of every pair; a column is nominal if it has no cuts. A constant column goes with nothing: 0."""
    ordered = [key for key in values if key in cuts]
    ranks = np.column_stack([rankdata(values[key]) for key in ordered])
    ranks -= ranks.mean(axis=0)
    lengths = np.sqrt((ranks**2).sum(axis=0))
    ranks /= np.where(lengths > 0.0, lengths, 1.0)
    spearman, place = ranks.T @ ranks, {key: k for k, key in enumerate(ordered)}
    codes = {
        key: np.searchsorted(cuts[key], column, side="left") if key in cuts else column.astype(np.int64)
        for key, column in values.items()
    }
    return {
        (a, b): float(spearman[place[a], place[b]]) if a in place and b in place else cramers_v(codes[a], codes[b])
        for a, b in combinations(values, 2)
    }


def cramers_v(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """sqrt(chi^2 / (n (min(rows, columns) - 1))) of the values that occur; 0 where one of the two is constant."""
    width = int(second.max()) + 1
    table = np.bincount(first * width + second, minlength=(int(first.max()) + 1) * width).reshape(-1, width)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(np.float64)
    if min(table.shape) < 2:
        return 0.0
    n = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    return float(np.sqrt((((table - expected) ** 2) / expected).sum() / (n * (min(table.shape) - 1))))
