"""The numbers that the paper prints, copied from its tables; nothing here is computed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

FOLDER = Path(__file__).parent
COMPLETE = "complete"  # what the tables without missing blocks have for a mechanism


class PrintedKey(NamedTuple):
    """Where a number stands in Tables 1 to 7."""

    table: str
    model: str
    mechanism: str
    n_subjects: int
    epsilon: float
    method: str
    metric: str


# The share of complete cases that the heads of Tables 4 to 7 state.
COMPLETE_SHARES = {"MCAR": 0.7732, "MAR-simple": 0.4438, "MAR-complex": 0.2379}


class Printed(NamedTuple):
    """A printed number, and what stands in parentheses below it.

    The paper calls the latter a standard error; it behaves like a standard deviation (RMSE) or a variance (the others).
    """

    mean: float
    spread: float


def read_tables() -> dict[PrintedKey, Printed]:
    """Tables 1 to 7."""
    complete = pl.read_csv(FOLDER / "tables1-3_complete_data.csv").with_columns(mechanism=pl.lit(COMPLETE))
    missing = pl.read_csv(FOLDER / "tables4-7_missing_data.csv")
    columns = ["table", "model", "mechanism", "N", "epsilon", "method", "metric", "mean", "se"]
    rows = pl.concat([complete.select(columns), missing.select(columns)]).rows()
    return {PrintedKey(*row[:4], float(row[4]), *row[5:7]): Printed(*row[7:]) for row in rows}


def read_complete() -> dict[tuple[str, int, float, str, str], float]:
    """The means of Tables 1 to 3 by model, N, epsilon, method and metric."""
    return {
        (k.model, k.n_subjects, k.epsilon, k.method, k.metric): printed.mean
        for k, printed in read_tables().items()
        if k.mechanism == COMPLETE
    }


def read_sme() -> dict[str, dict[str, float]]:
    """Table 8: method -> recall, auc, their spreads, and the number of selected variables."""
    return {row.pop("method"): row for row in pl.read_csv(FOLDER / "table8_sme.csv").to_dicts()}
