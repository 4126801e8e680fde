"""Public tables of numbers and categories, cut into four parties, for models trained on synthetic rows.

A folder, or its parent, holds NAME.csv; the last column, or the one named in RESPONSES, is a response of two values.
Numbers have public cells: one a value where there are few whole numbers, otherwise equal cells on a scale that is
logarithmic on both sides of 0, and one for 0 alone. The public range is that of the file, rounded outwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from verticopula.errors import SettingsError
from verticopula.stats.tilting.opening_plan import CodedColumn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FILES = {"adult": "adult", "shoppers": "shoppers", "sba": "sba_sme_loans", "magic": "magic"}
MORE_FILES = {"adult_raw": "adult", "bean": "bean"}
RESPONSES = {"sba": "default"}
IDS = {"sba": "id"}
PARTIES = 4
_CELLS = 64
_FEW_VALUES = 64


@dataclass(frozen=True)
class MixedColumn:
    """A column's public cells.

    Attributes
    ----------
    ends : for a number, (cells + 1,) ends on its stretched scale; None for one cell a value
    values : for one cell a value, the values; empty otherwise
    ordered : whether it is a number
    may_be_empty : whether some have none; their code is `n_cells`
    """

    ends: Floats | None
    values: Floats
    ordered: bool
    may_be_empty: bool = False

    @property
    def n_cells(self) -> int:
        return self.values.size if self.ends is None else self.ends.size - 1

    def encode(self, numbers: Floats) -> Ints:
        """The cell of every number; outside of the public range the nearest one."""
        empty = np.isnan(numbers)
        if self.ends is None:
            middles = 0.5 * (self.values[1:] + self.values[:-1])
            codes = np.searchsorted(middles, np.nan_to_num(numbers))
        else:
            filled = np.nan_to_num(numbers)
            stretched = np.sign(filled) * np.log1p(np.abs(filled))
            codes = np.clip(np.searchsorted(self.ends, stretched, side="right") - 1, 0, self.n_cells - 1)
            if self.ends[0] == 0.0:
                codes = np.where(filled == 0.0, 0, np.maximum(codes, 1))
        return np.where(empty & self.may_be_empty, self.n_cells, codes).astype(np.int64)

    def decode(self, cells: Ints, inside: Floats) -> Floats:
        """Numbers of cells and positions inside of them; not a number for an empty value."""
        filled = np.minimum(cells, self.n_cells - 1)
        if self.ends is None:
            found = self.values[filled]
        else:
            low, high = self.ends[filled], self.ends[filled + 1]
            stretched = low + inside * (high - low)
            if low.min(initial=1.0) >= 0.0 and self.ends[1] >= 0.0:
                stretched = np.where(filled == 0, 0.0, stretched)  # the cell of 0 alone
            found = np.sign(stretched) * np.expm1(np.abs(stretched))
        return np.where(cells < self.n_cells, found, np.nan)


@dataclass(frozen=True)
class MixedTable:
    """A table in codes, its columns, and the two values of its response, which is the last column."""

    name: str
    codes: Ints
    numbers: Floats
    columns: tuple[MixedColumn, ...]

    def coded(self) -> list[CodedColumn]:
        """Four parties with a quarter of the columns each."""
        p = len(self.columns)
        return [
            CodedColumn(c.n_cells, c.ordered or c.n_cells <= 2, PARTIES * j // p, c.may_be_empty)
            for j, c in enumerate(self.columns)
        ]


def read_mixed(folder: Path, name: str) -> MixedTable:
    """The table of this name; SettingsError where the folder has none."""
    file = (FILES | MORE_FILES)[name] + ".csv"
    found = [path for path in (folder / file, folder.parent / file) if path.is_file()]
    if not found:
        raise SettingsError(f"{folder} has no table {file}")
    table = pl.read_csv(found[0], infer_schema_length=None)
    response = RESPONSES.get(name, table.columns[-1])
    names = [c for c in table.columns if c not in (response, IDS.get(name))] + [response]
    parts = [_code(table[c]) for c in names]
    codes = np.column_stack([codes for codes, _, _ in parts])
    numbers = np.column_stack([numbers for _, numbers, _ in parts])
    return MixedTable(name, codes, numbers, tuple(column for _, _, column in parts))


def _code(series: pl.Series) -> tuple[Ints, Floats, MixedColumn]:
    if not series.dtype.is_numeric():
        text = series.cast(pl.String).fill_null("").str.strip_chars().to_numpy()
        labels, codes = np.unique(text, return_inverse=True)
        column = MixedColumn(None, np.arange(labels.size, dtype=np.float64), labels.size <= 2)
        return codes.astype(np.int64), codes.astype(np.float64), column
    return code_numbers(series.cast(pl.Float64).fill_null(float("nan")).to_numpy())


def code_numbers(values: Floats) -> tuple[Ints, Floats, MixedColumn]:
    """Public cells of numbers, the numbers themselves, and the column: not a number stands for an empty value."""
    empty = np.isnan(values)
    unique = np.unique(values[~empty])
    if unique.size <= _FEW_VALUES:
        column = MixedColumn(None, unique, True, bool(empty.any()))
        return np.where(empty, column.n_cells, np.searchsorted(unique, values)), values, column
    stretched = np.sign(values) * np.log1p(np.abs(values))
    low = math.floor(10.0 * float(np.nanmin(stretched))) / 10.0
    high = math.ceil(10.0 * float(np.nanmax(stretched))) / 10.0
    if low >= 0.0:
        ends = np.concatenate([[0.0], np.linspace(low, high, _CELLS)])
        codes = np.where(values == 0.0, 0, np.clip(np.searchsorted(ends[1:], stretched, side="right"), 1, _CELLS - 1))
    else:
        ends = np.linspace(low, high, _CELLS + 1)
        codes = np.clip(np.searchsorted(ends, stretched, side="right") - 1, 0, _CELLS - 1)
    column = MixedColumn(ends, np.zeros(0), True, bool(empty.any()))
    return np.where(empty, column.n_cells, codes).astype(np.int64), values, column


def model_areas(table: MixedTable, train: Floats, test: Floats) -> tuple[float, float]:
    """Areas under the curve of logistic regression and gradient boosting, tested on rows that were not used.

    Of a response of more than two classes: the mean over classes of each against the others.
    """
    nominal = [j for j, c in enumerate(table.columns[:-1]) if not c.ordered and c.n_cells > 2]
    if np.unique(train[:, -1]).size < 2:
        return 0.5, 0.5
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    linear.fit(_wide(table, train, nominal), train[:, -1])
    mask = [j in nominal and table.columns[j].n_cells <= 255 for j in range(train.shape[1] - 1)]
    boosted = HistGradientBoostingClassifier(categorical_features=mask, random_state=0)
    boosted.fit(train[:, :-1], train[:, -1])
    chances = linear.predict_proba(_wide(table, test, nominal)), boosted.predict_proba(test[:, :-1])
    classes = np.unique(train[:, -1])
    return _mean_area(classes, chances[0], test[:, -1]), _mean_area(classes, chances[1], test[:, -1])


def _mean_area(classes: Floats, chances: Floats, truth: Floats) -> float:
    """Over the classes that the test rows have; one that no training row has is told from none."""
    known, tested = list(classes), np.unique(truth)
    asked = tested[-1:] if tested.size == 2 else tested
    areas = [roc_auc_score(truth == c, chances[:, known.index(c)]) if c in known else 0.5 for c in asked]
    return float(np.mean(areas))


def _wide(table: MixedTable, rows: Floats, nominal: list[int]) -> Floats:
    """Numbers, stretched, and indicators of categories."""
    parts = []
    for j in range(rows.shape[1] - 1):
        if j in nominal:
            parts.append((rows[:, j][:, None] == np.arange(table.columns[j].n_cells)).astype(np.float64))
        else:
            own = np.nan_to_num(rows[:, j])
            parts.append((np.sign(own) * np.log1p(np.abs(own)))[:, None])
            parts.append(np.isnan(rows[:, j])[:, None].astype(np.float64))
    return np.hstack(parts)
