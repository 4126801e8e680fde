"""Synthetic tables, with what a regression on them must know."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.column_encoding import decode_column
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.frames import from_polars, to_polars
from verticopula.stats.fit_result import FindPosteriorDraws, FitResult
from verticopula.study.fitted_study import FittedStudy


class SyntheticTables(dict[str, Any]):
    """Party -> table, with what a regression on them must know.

    Parameters
    ----------
    tables : party name -> its synthetic rows

    Attributes
    ----------
    federation : kinds and categories of the columns
    n_subjects : real subjects behind the rows, however many rows there are
    study : what they were drawn from, and so what their errors are; None where nobody knows, and after a pickle
    posterior_draws : how surely the correlations behind them are known; None where nobody knows. It holds what parties
        released, so it stays behind when the tables are pickled
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        federation: Federation,
        n_subjects: int,
        posterior_draws: FindPosteriorDraws | None = None,
        study: FittedStudy | None = None,
    ) -> None:
        super().__init__(tables)
        self.federation = federation
        self.n_subjects = n_subjects
        self.posterior_draws = posterior_draws
        self.study = study
        self._drawn = {} if study is None and posterior_draws is None else self._fingerprints()

    def changed_columns(self) -> set[str]:
        """Columns, as `party.column`, that are not what was drawn: changed, reordered or added since."""
        return {name for name, found in self._fingerprints().items() if self._drawn.get(name) != found}

    def _fingerprints(self) -> dict[str, bytes]:
        return {
            f"{party}.{series.name}": hashlib.blake2b(series.hash().to_numpy().tobytes(), digest_size=16).digest()
            for party, table in self.items()
            for series in to_polars(table, party)
        }

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"posterior_draws": None, "study": None}


def decode_tables(
    values: Mapping[ColumnKey, NDArray[np.float64]],
    federation: Federation,
    result: FitResult,
    backends: Mapping[str, str] | None = None,
    study: FittedStudy | None = None,
) -> SyntheticTables:
    """Drawn numbers as tables.

    Parameters
    ----------
    values : column -> its rows; category codes where a column has categories
    backends : party -> the library its table is to be of; polars by default
    study : that `result` belongs to, where regressions on the tables are to have intervals
    """
    frames = decode_frames(values, federation)
    tables = {name: from_polars(frame, (backends or {}).get(name, "polars")) for name, frame in frames.items()}
    return SyntheticTables(tables, federation, result.n_subjects, result.posterior_draws, study)


def decode_frames(values: Mapping[ColumnKey, NDArray[np.float64]], federation: Federation) -> dict[str, pl.DataFrame]:
    """Party -> drawn numbers in the columns' own types.

    Parameters
    ----------
    values : column -> its rows; category codes where a column has categories
    """
    return {
        party.name: pl.DataFrame(
            [decode_column(values[key], party.written(key.column)) for key in values if key.party == party.name]
        )
        for party in federation.parties
    }
