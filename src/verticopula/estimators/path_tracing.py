"""A regression's path as it was traced and judged, and how it is traced over a transport on parties' raw columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.estimators.glm_predictions import CLASSIFIED
from verticopula.estimators.strength_selection import StrengthSelection
from verticopula.glm.feature_design import Features
from verticopula.glm.feature_encoding import code_schema_column, features_of
from verticopula.glm.regression_inputs import Response, schema_classes
from verticopula.glm.strength_path import DevianceScale, PathPoint, Refit, choose_point
from verticopula.protocol.moments_path import GatheredMoments, gather_second_moments
from verticopula.protocol.raw_regression import agree_on_subjects, ask_response
from verticopula.protocol.regression_path import FederatedPath
from verticopula.protocol.shared_rounds import Rounds
from verticopula.protocol.study_proposal import StudyContext
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import MOMENTS_VARIANT
from verticopula.schema.progress import Progress
from verticopula.schema.study_settings import check_moments_roles
from verticopula.transport.delivery import Transport, drive

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TracedPath:
    """Every strength's fit, and which of them is the regression.

    Attributes
    ----------
    scores : the criterion at every strength; empty where none was compared
    response : what was explained; without values where they are not here
    selection : how the path was judged
    yardstick : what deviances are compared with, and
    n_rows : how many rows there are, where the values are not here
    """

    path: FederatedPath
    scores: list[float]
    response: Response
    selection: StrengthSelection
    yardstick: DevianceScale | None = None
    n_rows: int | None = None

    @property
    def chosen(self) -> int:
        """Which point of the path is the regression."""
        return choose_point(self.scores) if self.scores else len(self.path.points) - 1

    @property
    def point(self) -> PathPoint:
        return self.path.points[self.chosen]

    @property
    def fitted(self) -> PathPoint | Refit:
        """The point, or maximum likelihood on its columns where a criterion compared that."""
        compared = self.scores and self.selection.by_criterion
        return self.point.refit or self.point if compared else self.point

    @property
    def is_refitted(self) -> bool:
        return self.fitted is not self.point

    @property
    def explained(self) -> float:
        """Share of the deviance explained."""
        scale = self.yardstick or DevianceScale.of_response(self.selection.family, self.response.values)
        return scale.explained(self.fitted.loss)


@dataclass(frozen=True)
class RawColumns:
    """A regression on columns that parties hold; complete cases only.

    Attributes
    ----------
    response : the column that is explained
    study : name of the study in the parties' ledgers
    context : what the parties agreed on before
    select : numbers of rows and of features -> how the path is to be judged
    """

    federation: Federation
    response: ColumnKey
    study: str
    context: StudyContext
    select: Callable[[int, int], StrengthSelection]

    def trace_columns(self, transport: Transport, progress: Progress | None) -> TracedPath:
        """By rounds in which parties send the columns that models on the path want."""
        key, parties = self.response, self.federation.parties

        def protocol() -> Rounds[tuple[FederatedPath, list[float], Floats, StrengthSelection]]:
            subjects = yield from agree_on_subjects(self.federation, key, self.study, self.context)
            values = yield from ask_response(key, self.study, subjects)
            selection = self._selection(values.size)
            selection.check_response(values)
            settings = replace(selection.settings(subjects=subjects, response=key), layouts=self._layouts())
            # A party with nothing but the response has no column to send.
            names = tuple(party.name for party in parties if {c.name for c in party.columns} != {key.column})
            path, scores = yield from selection.trace(names, values, settings, self.study, progress)
            return path, scores, values, selection

        path, scores, values, selection = drive(protocol(), transport)
        labelled = selection.family.name == CLASSIFIED
        classes = schema_classes(self.federation.column(key)) if labelled else None
        return TracedPath(path, scores, Response(values, classes, str(key)), selection)

    def trace_moments(self, transport: Transport) -> TracedPath:
        """From sums and products of all columns, which say all about a gaussian regression."""
        check_moments_roles(self.federation)
        key, names = self.response, tuple(party.name for party in self.federation.parties)

        def protocol() -> Rounds[tuple[GatheredMoments, StrengthSelection]]:
            subjects = yield from agree_on_subjects(self.federation, key, self.study, self.context, MOMENTS_VARIANT)
            selection = self._selection(int(subjects.sum()))
            folds = selection.fold_numbers(int(subjects.sum()))
            return (yield from gather_second_moments(names, key, subjects, folds, self.study)), selection

        gathered, selection = drive(protocol(), transport)
        path, scores = selection.judge_moments(gathered, selection.settings(response=key))
        yardstick = gathered.moments.problem(fit_intercept=True).yardstick
        n_rows = int(gathered.moments.counts.sum())
        return TracedPath(path, scores, Response(np.zeros(0), None, str(key)), selection, yardstick, n_rows)

    def _layouts(self) -> dict[str, Features]:
        """Every party's features, without rows."""
        codings = {
            party.name: [code_schema_column(c) for c in party.columns if ColumnKey(party.name, c.name) != self.response]
            for party in self.federation.parties
        }
        return {name: features_of([np.zeros(0)] * len(own), own, 0) for name, own in codings.items()}

    def _selection(self, n_rows: int) -> StrengthSelection:
        codings = [code_schema_column(self.federation.column(k)) for k in self.federation.keys if k != self.response]
        return self.select(n_rows, sum(len(coding.names) for coding in codings))
