"""How far a method's tables lead from what the complete data lead to: prediction, selection, coefficients, margins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiments.sme import Fitted, auc
from experiments.study import Outcome
from verticopula.glm.feature_encoding import code_schema_column, encode_response, encode_series, encode_table
from verticopula.schema.columns import Column
from verticopula.schema.federation import Federation

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Utility:
    """One method on one split.

    Attributes
    ----------
    auc : on the cases put aside
    n_selected : columns
    found, invented : columns selected that the complete data select too, and those that they do not
    rmse : of coefficients per standard deviation, against those of the complete data
    signs : share of the complete data's nonzero coefficients that have the same sign here
    margins : largest distance of distribution functions (half the L1 distance for unordered categories), averaged over
        the columns that the method has
    """

    auc: float
    n_selected: int
    found: int
    invented: int
    rmse: float
    signs: float
    margins: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class CompleteDataModel:
    """The model of the complete data, and the data themselves."""

    federation: Federation
    complete: Mapping[str, pl.DataFrame]
    test: Mapping[str, pl.DataFrame]
    fitted: Fitted

    def measure(self, outcome: Outcome, fitted: Fitted) -> Utility:
        response = self.federation.response
        truth = encode_response(self.test[response.party][response.column], self.federation.column(response), "test")
        ours, theirs = self._effects(fitted), self._effects(self.fitted)
        names = list(theirs)
        difference = np.array([ours.get(name, 0.0) - theirs[name] for name in names])
        kept = [name for name in names if theirs[name] != 0.0]
        chosen, wanted = set(fitted.selected), set(self.fitted.selected)
        return Utility(
            auc=auc(fitted.predict(self.test), truth == 1.0),
            n_selected=len(chosen),
            found=len(chosen & wanted),
            invented=len(chosen - wanted),
            rmse=float(np.sqrt(np.mean(difference**2))),
            signs=float(np.mean([ours.get(n, 0.0) * theirs[n] > 0.0 for n in kept])) if kept else 1.0,
            margins=self._margins(outcome.tables),
        )

    def _effects(self, fitted: Fitted) -> dict[str, float]:
        """Coefficients times the complete data's standard deviations, by `party.feature`."""
        effects, start = {}, 0
        for party, codings in fitted.codings.items():
            features = encode_table(self.complete[party], codings, party)
            for name, spread in zip(features.names, features.values.std(axis=0), strict=True):
                effects[f"{party}.{name}"] = float(fitted.coef[start] * spread)
                start += 1
        return effects

    def _margins(self, tables: Mapping[str, pl.DataFrame]) -> float:
        found = [
            margin_distance(self.complete[party.name][column.name], tables[party.name][column.name], column)
            for party in self.federation.parties
            if party.name in tables
            for column in party.columns
        ]
        return float(np.mean(found))


def margin_distance(first: pl.Series, second: pl.Series, column: Column) -> float:
    """Kolmogorov distance; half the L1 distance of frequencies where categories have no order."""
    coding = code_schema_column(column)
    one, two = (encode_series(series, coding, "table") for series in (first, second))
    places = np.union1d(one, two)
    if column.bounds is not None and column.clamp:
        one, two = (np.clip(values, *column.bounds) for values in (one, two))
    at = [np.searchsorted(np.sort(values), places, side="right") / values.size for values in (one, two)]
    if column.kind == "nominal":
        return float(0.5 * np.sum(np.abs(np.diff(at[0], prepend=0.0) - np.diff(at[1], prepend=0.0))))
    return float(np.max(np.abs(at[0] - at[1])))
