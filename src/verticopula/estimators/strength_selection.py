"""How a path of strengths is traced and judged: by an information criterion, by cross-validation, or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.estimators.regression_checks import RandomState
from verticopula.glm.families import Family
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import (
    PathPoint,
    RefitRule,
    geometric_strengths,
    information_criterion,
    strengths_down_to,
)
from verticopula.privacy.policy import FEWEST_IN_SUMS, ROWS_PER_COLUMN
from verticopula.protocol.moments_path import GatheredMoments, moments_path
from verticopula.protocol.regression_path import FederatedPath, RegressionSettings, SentColumns, federated_path
from verticopula.protocol.shared_rounds import Rounds
from verticopula.schema.columns import ColumnKey, is_number
from verticopula.schema.progress import Progress, show_nothing
from verticopula.schema.setting_choices import BY_BIC, BY_CROSS_VALIDATION, BY_POSTERIOR

Floats = NDArray[np.float64]


def draw_seed(random_state: RandomState) -> int:
    """A seed from any of scikit-learn's and NumPy's forms; a number is its own seed, None gives a new one."""
    if random_state is None:
        return secrets.randbits(32)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    return int(random_state)


@dataclass(frozen=True)
class StrengthSelection:
    """The settings of one fit, once its rows and columns are known.

    Attributes
    ----------
    select : `bic`, `bayes`, `cv`, or a strength
    refit : with `bic` and `bayes`, whether maximum likelihood fits on the selected columns are compared
    n_effective : subjects that the rows stand for
    n_features : of all parties
    """

    family: Family
    penalty: Penalty
    fit_intercept: bool
    select: str | float
    refit: bool
    tolerance: float
    n_strengths: int
    strength_ratio: float
    folds: int
    seed: int
    n_effective: float
    n_features: int

    @property
    def charge(self) -> float:
        """What a column costs in the information criterion."""
        # With more columns than subjects the best of many noise columns passes BIC's bar; twice the logarithm of their
        # number is what the largest of them may reach (Foster and George 1994).
        crowded = self.n_features >= self.n_effective
        return float(np.log(max(self.n_effective, self.n_features**2 if crowded else 1.0)))

    @property
    def by_criterion(self) -> bool:
        """Whether the path is judged by an information criterion."""
        return self.select in (BY_BIC, BY_POSTERIOR)

    def settings(
        self, *, subjects: NDArray[np.bool_] | None = None, response: ColumnKey | None = None
    ) -> RegressionSettings:
        """What the protocol has to know.

        Parameters
        ----------
        subjects : the cohort's subjects that the regression is about; None for all
        response : the column at a party that is the response; None where it is here
        """
        refits = self.refit and self.by_criterion and self.penalty.name != "none"
        return RegressionSettings(
            self.family,
            self.penalty,
            self.fit_intercept,
            self.tolerance,
            response=response,
            refit=RefitRule(self.charge, self.n_effective) if refits else None,
            subjects=subjects,
            # The lasso has a solution at every strength, however well the classes separate.
            end_early=self.by_criterion or self.penalty.name != "lasso",
        )

    def check_response(self, y: Floats) -> None:
        """SettingsError for a response that the family does not have, or that the folds leave constant."""
        self.family.check(y)
        if self.select != BY_CROSS_VALIDATION:
            return
        if self.folds > y.size:
            raise SettingsError(f"folds must lie between 2 and the {y.size} rows")
        folds = self._folds(y.size)
        if any(np.ptp(y[folds != fold]) == 0.0 for fold in range(self.folds)):
            raise SettingsError("the responses outside a fold are all alike: too few rows for a cross-validation")

    def trace(
        self,
        parties: Sequence[str],
        y: Floats,
        settings: RegressionSettings,
        study: str,
        progress: Progress | None,
    ) -> Rounds[tuple[FederatedPath, list[float]]]:
        """The path on all rows, and every strength's score: the smallest is the best; none for a given strength."""
        show, sent = progress or show_nothing, SentColumns()
        path = yield from federated_path(
            parties,
            y,
            settings,
            self._strengths,
            study=study,
            sent=sent,
            on_strength=lambda done, n: show("regression", done, n),
        )
        if self.penalty.name == "none" or is_number(self.select):
            return path, []
        if self.by_criterion:
            return path, [self._criterion(point, settings) for point in path.points]
        strengths = np.array([point.strength for point in path.points])
        totals, counts = np.zeros(strengths.size), np.zeros(strengths.size)
        folds = self._folds(y.size)
        for fold in range(self.folds):
            learn = folds != fold
            part = yield from federated_path(
                parties,
                y,
                settings,
                lambda _: strengths,
                study=study,
                fit=f"fold {fold}",
                rows=learn,
                sent=sent,
                on_strength=partial(show, f"fold {fold + 1} of {self.folds}"),
            )
            for i, eta in enumerate(part.predictions):
                totals[i] += self.family.deviance(eta[~learn], y[~learn]) * int((~learn).sum())
                counts[i] += int((~learn).sum())
        return path, _mean_scores(totals, counts, y.size)

    def fold_numbers(self, n_rows: int) -> NDArray[np.int64] | None:
        """Every row's fold where sums by fold are wanted; SettingsError where parties would send no such sums."""
        by_fold = self.select == "cv" and self.penalty.name != "none"
        columns, count = self.n_features + 1, self.folds if by_fold else 1
        fewest = max(FEWEST_IN_SUMS, ROWS_PER_COLUMN * columns)
        if n_rows // count < fewest:
            what = (
                f"{count} folds of {n_rows} subjects are" if by_fold else f"a cohort of {n_rows} complete subjects is"
            )
            raise SettingsError(
                f"{what} too small: exact sums of {columns} columns are over at least {fewest} subjects, because fewer "
                "would tell their values"
            )
        return self._folds(n_rows) if by_fold else None

    def judge_moments(
        self, gathered: GatheredMoments, settings: RegressionSettings
    ) -> tuple[FederatedPath, list[float]]:
        """The path from second moments, and every strength's score, as `trace` has them."""
        moments = gathered.moments
        if not moments.response_variance > 0.0:
            raise SettingsError("the response is constant: there is nothing to explain")
        path = moments_path(gathered, settings, self._strengths)
        if self.penalty.name == "none" or is_number(self.select):
            return path, []
        if self.by_criterion:
            return path, [self._criterion(point, settings) for point in path.points]
        strengths = np.array([point.strength for point in path.points])
        totals, counts = np.zeros(strengths.size), np.zeros(strengths.size)
        for fold, count in enumerate(moments.counts):
            part = moments_path(gathered, settings, lambda _: strengths, without=fold)
            reached = len(part.points)
            totals[:reached] += count * moments.deviance(part.points, fold)
            counts[:reached] += count
        return path, _mean_scores(totals, counts, int(moments.counts.sum()))

    def _folds(self, n_rows: int) -> NDArray[np.int64]:
        return np.random.default_rng(self.seed).permutation(n_rows) % self.folds

    def _strengths(self, largest: float) -> Floats:
        if self.penalty.name == "none":
            return np.zeros(1)
        if is_number(self.select):
            return strengths_down_to(largest, float(self.select))
        return geometric_strengths(largest, self.n_strengths, self.strength_ratio)

    def _criterion(self, point: PathPoint, settings: RegressionSettings) -> float:
        """The refit's, where there is one.

        A logistic refit that is all but perfect is not kept. The penalised fit on the same columns has a larger
        criterion than it would have had; where even that is the smallest, the columns belong to the model.
        """
        fitted = point.refit if settings.refit is not None else point
        if fitted is None and self.family.name != "binomial":
            return float(np.inf)
        loss = (fitted or point).loss
        return information_criterion(self.family, loss, point.degrees_of_freedom, self.n_effective, self.charge)


def _mean_scores(totals: Floats, counts: Floats, n_rows: int) -> list[float]:
    """Mean scores. A strength that some fold did not reach, being all but perfect before, is not compared."""
    found: list[float] = np.where(counts == n_rows, totals / np.maximum(counts, 1.0), np.inf).tolist()
    return found
