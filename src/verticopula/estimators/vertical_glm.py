"""VerticalGLM: the regression's front door, in the manner of scikit-learn, over local tables or any transport."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from verticopula.errors import SettingsError
from verticopula.estimators.bootstrap import bootstrap_inference, copies_inference
from verticopula.estimators.regression_checks import (
    Doubt,
    check_settings,
    doubt_coefficients,
    doubt_path,
    doubt_posterior,
    is_number,
)
from verticopula.estimators.score_errors import ScoreErrors
from verticopula.glm.bayes import KNOWING_BAR, Posterior, default_bar, sample_posterior
from verticopula.glm.design import Features, join_features
from verticopula.glm.families import Family, find_family
from verticopula.glm.feature_encoding import Coding, code_schema_column, code_table, encode_table
from verticopula.glm.inference import Inference, infer_from_likelihood
from verticopula.glm.path_plot import plot_path
from verticopula.glm.penalties import Penalty
from verticopula.glm.regression_inputs import check_rows, read_blocks, take_response
from verticopula.glm.regression_summary import RegressionSummary, summarise_regression, tabulate
from verticopula.glm.strength_path import (
    N_STRENGTHS,
    STRENGTH_RATIO,
    PathPoint,
    RefitRule,
    Yardstick,
    choose_point,
    geometric_strengths,
    information_criterion,
    strengths_down_to,
)
from verticopula.protocol.party.regression_handler import RegressionHandler
from verticopula.protocol.raw_regression import complete_responses
from verticopula.protocol.regression_path import FederatedPath, RegressionSettings, federated_path
from verticopula.protocol.shared_rounds import Rounds
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.transport.base import Transport, drive
from verticopula.transport.inprocess import InProcessTransport

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from verticopula.estimators.synthesizer import Synthesizer

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]


class VerticalGLM(BaseEstimator):  # type: ignore[misc]
    """A generalised linear model with variable selection over columns that parties hold.

    Parameters
    ----------
    family : `gaussian`, `binomial` (response 0 or 1) or `poisson` (counts), with their canonical links
    penalty : `scad`, `mcp`, `lasso` or `none`
    fit_intercept : the intercept is not penalised
    select : how the strength is chosen: `bic`, `cv`, or a number for a strength of one's own. `bayes` traces the path
        as `bic` does, but takes columns and coefficients from a posterior over all columns (`glm.bayes`)
    n_effective : subjects that the rows stand for; None for what the synthesizer says that made the tables,
        otherwise their number of rows
    refit : with `bic`, compare and return maximum likelihood fits on the selected columns
    concavity : a of SCAD (3.7) and MCP (3)
    tolerance : the paper's eps_abs = eps_rel
    n_strengths, strength_ratio : the path is geometric from the largest strength to this share of it
    folds : of the cross-validation
    max_rounds : of one weighted lasso
    random_state : of the folds, and of the posterior's draws
    inclusion : with `bayes`, the posterior probability above which a column is selected; None for one that grows
        with the number of subjects (`glm.bayes.default_bar`: 0.78 for 1,000, 0.89 for 5,000), or 0.6 on tables of the
        method `refined`, which say themselves how sure they are

    Attributes
    ----------
    coef_ : party -> (q_k,) coefficients on the scale of the data
    intercept_ : 0 if none was fitted
    feature_names_ : party -> names, `column` or `column=category`
    strength_ : the chosen strength, for columns with standard deviation 1
    converged_ : whether the chosen fit came to rest
    path_ : every strength's fit, rounds and bytes exchanged
    scores_ : the criterion at every strength; empty for a strength of one's own
    inclusion_ : with `bayes`, party -> posterior probability that a column has an effect, one for each of its columns
    bar_ : with `bayes`, the probability above which columns were selected
    explained_ : share of the deviance explained
    inference_ : standard errors of the selected coefficients; None where the columns are not here
    warnings_ : what a reader must know first
    n_effective_, n_features_in_, n_rows_

    Notes
    -----
    `fit` has the tables in this process: synthetic ones are the normal input. `fit_transport` runs over raw
    columns of parties that allow it; the coordinator then sees exact linear predictors.
    """

    def __init__(
        self,
        family: str = "gaussian",
        penalty: str = "scad",
        fit_intercept: bool = True,
        select: str | float = "bic",
        n_effective: float | None = None,
        *,
        refit: bool = True,
        concavity: float | None = None,
        tolerance: float = 1e-3,
        n_strengths: int = N_STRENGTHS,
        strength_ratio: float = STRENGTH_RATIO,
        folds: int = 5,
        max_rounds: int = 2000,
        random_state: int = 0,
        inclusion: float | None = None,
    ) -> None:
        self.family = family
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.select = select
        self.n_effective = n_effective
        self.refit = refit
        self.concavity = concavity
        self.tolerance = tolerance
        self.n_strengths = n_strengths
        self.strength_ratio = strength_ratio
        self.folds = folds
        self.max_rounds = max_rounds
        self.random_state = random_state
        self.inclusion = inclusion

    # ---- fitting -------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike | str, *, progress: Progress | None = None) -> VerticalGLM:
        """Fit on tables in this process.

        Parameters
        ----------
        X : party -> pandas or polars DataFrame or array, rows belonging together; or one table
        y : (n,) responses; or `party.column`, which is then taken out of that party's table
        progress : called with (what, done, total)
        """
        check_settings(self)
        tables, federation, n_subjects = read_blocks(X)
        response, tables, self.response_ = take_response(tables, y, federation)
        schema = {} if federation is None else {party.name: party.columns for party in federation.parties}
        self.codings_: dict[str, tuple[Coding, ...]] | None = {
            name: code_table(table, schema.get(name)) for name, table in tables.items()
        }
        features = {name: encode_table(t, self.codings_[name], f"party {name!r}") for name, t in tables.items()}
        check_rows({name: f.values.shape[0] for name, f in features.items()}, response.size)
        handlers = {name: RegressionHandler.holding(name, own) for name, own in features.items()}
        self._set_effective(response.size, n_subjects, sum(f.values.shape[1] for f in features.values()))
        settings = self._settings(response)
        path, scores = drive(
            self._protocol(tuple(features), response, settings, "local", progress), InProcessTransport(handlers)
        )
        self._finish(path, scores, response, settings.family)
        everything = join_features(list(features.values()))
        if self.select == "bayes":
            self._average(everything, response, settings.family, self._score_errors(X, federation))
        self.inference_: Inference | None = self._infer(everything, response, settings.family)
        self._add_doubts(doubt_coefficients(self, everything, response))
        return self._warned()

    def fit_transport(
        self,
        transport: Transport,
        federation: Federation,
        *,
        response: str | None = None,
        study: str | None = None,
        progress: Progress | None = None,
    ) -> VerticalGLM:
        """Fit on the parties' raw columns, over any transport; complete cases only.

        Privacy
        -------
        The response and exact linear predictors leave the parties: epsilon is infinite, every party's policy must
        name `raw-glm`, and every party's ledger says so.

        Parameters
        ----------
        response : `party.column`; None for the federation's own
        """
        check_settings(self)
        if self.select == "bayes":
            raise SettingsError(
                "select='bayes' needs the parties' columns side by side, and raw ones stay where they are"
            )
        key = federation.response if response is None else ColumnKey.parse(response)
        name = study or f"{federation.name}-glm-{secrets.token_hex(8)}"

        def protocol() -> Rounds[tuple[FederatedPath, list[float], Floats, Family]]:
            values, subjects = yield from complete_responses(federation, key, name)
            codings = [code_schema_column(federation.column(k)) for k in federation.keys if k != key]
            self._set_effective(values.size, None, sum(len(coding.names) for coding in codings))
            settings = self._settings(values, subjects=subjects, response=key)
            # A party with nothing but the response has no part in the iteration.
            names = tuple(p.name for p in federation.parties if {c.name for c in p.columns} != {key.column})
            path, scores = yield from self._protocol(names, values, settings, name, progress)
            return path, scores, values, settings.family

        path, scores, values, family = drive(protocol(), transport)
        self.codings_ = None
        self.response_ = str(key)
        self._finish(path, scores, values, family)
        self.inference_ = None
        return self._warned()

    def _set_effective(self, n_rows: int, n_subjects: int | None, n_features: int) -> None:
        given = self.n_effective if self.n_effective is not None else n_subjects
        self.n_effective_ = float(n_rows if given is None else given)
        # With more columns than subjects the best of many noise columns passes BIC's bar; twice the logarithm of their
        # number is what the largest of them may reach (Foster and George 1994).
        crowded = n_features >= self.n_effective_
        self._charge = float(np.log(max(self.n_effective_, n_features**2 if crowded else 1.0)))

    def _settings(
        self, y: Floats, *, subjects: NDArray[np.bool_] | None = None, response: ColumnKey | None = None
    ) -> RegressionSettings:
        family = find_family(self.family)
        family.check(y)
        if self.select == "cv":
            self._check_folds(y)
        refits = self.refit and self._by_criterion and self.penalty != "none"
        return RegressionSettings(
            family,
            Penalty.build(self.penalty, self.concavity),
            self.fit_intercept,
            self.tolerance,
            self.max_rounds,
            response=response,
            refit=RefitRule(self._charge, self.n_effective_) if refits else None,
            subjects=subjects,
            # The lasso has a solution at every strength, however well the classes separate.
            end_early=self._by_criterion or self.penalty != "lasso",
        )

    @property
    def _by_criterion(self) -> bool:
        return self.select in ("bic", "bayes")

    def _folds(self, n_rows: int) -> NDArray[np.int64]:
        return np.random.default_rng(self.random_state).permutation(n_rows) % self.folds

    def _check_folds(self, y: Floats) -> None:
        if self.folds > y.size:
            raise SettingsError(f"folds must lie between 2 and the {y.size} rows")
        folds = self._folds(y.size)
        if any(np.ptp(y[folds != fold]) == 0.0 for fold in range(self.folds)):
            raise SettingsError("the responses outside a fold are all alike: too few rows for a cross-validation")

    def _strengths(self, largest: float) -> Floats:
        if self.penalty == "none":
            return np.zeros(1)
        if is_number(self.select):
            return strengths_down_to(largest, float(self.select))
        return geometric_strengths(largest, self.n_strengths, self.strength_ratio)

    def _protocol(
        self,
        names: tuple[str, ...],
        y: Floats,
        settings: RegressionSettings,
        study: str,
        progress: Progress | None,
    ) -> Rounds[tuple[FederatedPath, list[float]]]:
        """The path on all rows, then what the choice needs."""
        show = progress or (lambda what, done, total: None)
        path = yield from federated_path(
            names, y, settings, self._strengths, study=study, on_strength=lambda done, n: show("regression", done, n)
        )
        if self.select != "cv" or self.penalty == "none":
            return path, self._criteria(path.points, settings)
        strengths = np.array([point.strength for point in path.points])
        totals, counts = np.zeros(strengths.size), np.zeros(strengths.size)
        folds = self._folds(y.size)
        for fold in range(self.folds):
            learn = folds != fold
            part = yield from federated_path(
                names,
                y,
                settings,
                lambda _: strengths,
                study=study,
                fit=f"fold {fold}",
                rows=learn,
                on_strength=partial(show, f"fold {fold + 1} of {self.folds}"),
            )
            for i, eta in enumerate(part.predictions):
                totals[i] += settings.family.deviance(eta[~learn], y[~learn]) * int((~learn).sum())
                counts[i] += int((~learn).sum())
        # A strength that some fold did not reach, being all but perfect before, is not compared.
        return path, np.where(counts == y.size, totals / np.maximum(counts, 1.0), np.inf).tolist()

    def _criteria(self, points: tuple[PathPoint, ...], settings: RegressionSettings) -> list[float]:
        if not self._by_criterion or self.penalty == "none":
            return []
        scores = []
        for point in points:
            fitted = point.refit if settings.refit is not None else point
            df = point.degrees_of_freedom
            scores.append(
                np.inf
                if fitted is None
                else information_criterion(settings.family, fitted.loss, df, self.n_effective_, self._charge)
            )
        return scores

    def _finish(self, path: FederatedPath, scores: list[float], y: Floats, family: Family) -> None:
        """Choose, keep, and warn."""
        self.path_, self.scores_ = path, scores
        self.n_rows_ = y.size
        if not path.points:
            raise SettingsError(
                "already at the largest strength the fit is all but perfect: a column separates or copies the response"
            )
        chosen = choose_point(scores) if scores else len(path.points) - 1
        point = path.points[chosen]
        fitted = point.refit or point if scores and self._by_criterion else point
        self.coef_ = self._by_party(fitted.coef)
        self.intercept_ = fitted.intercept
        self.feature_names_ = {name: design.names for name, design in path.designs.items()}
        self.n_features_in_ = sum(len(design.sources) for design in path.designs.values())
        self.strength_ = point.strength
        self.explained_ = Yardstick(family, y).explained(fitted.loss)
        self.converged_ = bool(fitted.converged and point.converged)
        self.warnings_: tuple[str, ...] = ()
        self._add_doubts(doubt_path(self, scores, chosen, y))

    def _by_party(self, coef: Floats) -> dict[str, Floats]:
        ends = np.cumsum([len(design.names) for design in self.path_.designs.values()])[:-1]
        return dict(zip(self.path_.designs, np.split(coef, ends), strict=True))

    def _score_errors(self, tables: Any, federation: Federation | None) -> ScoreErrors | None:
        """What the tables' maker knows of their errors; None where it said nothing, or the response is not theirs."""
        if federation is None or not self.response_ or self.codings_ is None:
            return None
        codings = [(ColumnKey(name, c.name), c) for name, codes in self.codings_.items() for c in codes]
        return ScoreErrors.of_tables(tables, codings, ColumnKey.parse(self.response_))

    def _average(self, features: Features, y: Floats, family: Family, errors: ScoreErrors | None) -> None:
        """Replace what the path chose by the posterior's columns and means."""
        found: Posterior = sample_posterior(
            features,
            y,
            family,
            n_effective=self.n_effective_,
            fit_intercept=self.fit_intercept,
            random_state=self.random_state,
            score_errors=None if errors is None else errors.draw,
        )
        usual = default_bar(self.n_effective_) if errors is None else KNOWING_BAR
        self.bar_ = usual if self.inclusion is None else float(self.inclusion)
        coef = found.select(features.starts, self.bar_)
        offset = features.values @ coef
        self.coef_ = self._by_party(coef)
        self.intercept_ = family.best_intercept(offset, y) if self.fit_intercept else 0.0
        self.explained_ = Yardstick(family, y).explained(family.loss(offset + self.intercept_, y))
        ends = np.cumsum([len(design.sources) for design in self.path_.designs.values()])[:-1]
        self.inclusion_ = dict(zip(self.path_.designs, np.split(found.inclusion, ends), strict=True))
        self._add_doubts(doubt_posterior(found))

    def _add_doubts(self, doubts: list[Doubt]) -> None:
        self.warnings_ += tuple(doubt.line for doubt in doubts)
        self.converged_ = self.converged_ and not any(doubt.spoils for doubt in doubts)

    def _warned(self) -> VerticalGLM:
        for line in self.warnings_:
            warnings.warn(line, ConvergenceWarning, stacklevel=3)
        return self

    # ---- results -------------------------------------------------------------------------

    def _infer(self, features: Features, y: Floats, family: Family) -> Inference:
        coef = np.concatenate(list(self.coef_.values()))
        kept = coef != 0.0
        intercept = self.intercept_ if self.fit_intercept else None
        return infer_from_likelihood(features.values[:, kept], coef[kept], intercept, y, family, self.n_effective_)

    def linear_predictor(self, X: Any) -> Floats:
        """(n,) intercept + X beta for tables like those of `fit`."""
        check_is_fitted(self, "coef_")
        if self.codings_ is None:
            raise SettingsError("a fit on raw columns of other parties cannot predict here: the columns are theirs")
        tables, _, _ = read_blocks(X)
        absent = [name for name in self.coef_ if name not in tables]
        if absent:
            raise SettingsError(f"no table of party {absent[0]!r}")
        for name in self.coef_:  # an array's columns have no names to be told apart by
            given = X[name] if isinstance(X, Mapping) else X
            if not hasattr(given, "columns") and tables[name].width != len(self.codings_[name]):
                raise SettingsError(
                    f"party {name!r}: X has {tables[name].width} features, but VerticalGLM is expecting "
                    f"{len(self.codings_[name])} features as input"
                )
        parts = {
            name: encode_table(tables[name], self.codings_[name], f"party {name!r}").values @ coef
            for name, coef in self.coef_.items()
        }
        n_rows = next(iter(parts.values())).size
        wrong = [name for name, part in parts.items() if part.size != n_rows]
        if wrong:
            raise SettingsError(f"party {wrong[0]!r} has a different number of rows")
        return np.asarray(self.intercept_ + np.sum(list(parts.values()), axis=0))

    def predict(self, X: Any) -> Floats:
        """(n,) expected responses: probabilities of a 1 for `binomial`, rates for `poisson`."""
        eta = self.linear_predictor(X)
        return find_family(self.family).mean(eta)

    def score(self, X: Any, y: ArrayLike | str) -> float:
        """Share of the deviance explained, R^2 for `gaussian`: 0 for a constant prediction, 1 for a perfect one."""
        check_is_fitted(self, "coef_")
        tables, federation, _ = read_blocks(X)
        response, _, _ = take_response(tables, y, federation)
        family, eta = find_family(self.family), self.linear_predictor(X)
        check_rows({"the tables": eta.size}, response.size)
        family.check(response)
        null = np.full(response.size, family.link(float(response.mean())))
        return 1.0 - family.deviance(eta, response) / family.deviance(null, response)

    def coefficient_table(self, level: float = 0.95) -> pd.DataFrame:
        """Every selected feature with its party and column, standard error, interval and p-value."""
        check_is_fitted(self, "coef_")
        return tabulate(self, level)

    def summary(self, level: float = 0.95) -> RegressionSummary:
        """Text, DataFrame (`.frame`) and HTML (`.to_html()`) of the fit."""
        check_is_fitted(self, "coef_")
        return summarise_regression(self, level)

    def plot_path(self) -> go.Figure:
        """Coefficients along the path of strengths, the chosen one marked; an interactive figure."""
        check_is_fitted(self, "coef_")
        return plot_path(self.path_, self.strength_)

    def _repr_html_(self) -> str:
        from verticopula.report.notebook import regression_html  # stands above this file

        return regression_html(self)

    def bootstrap(
        self,
        synthesizer: Synthesizer,
        n_repetitions: int = 100,
        *,
        random_state: int = 0,
        progress: Progress | None = None,
    ) -> VerticalGLM:
        """Standard errors and intervals that know of missing blocks and privacy noise.

        The study is repeated on data drawn from the fitted copula, with the same missing pattern and the same budget,
        and the selected columns are fitted on each repetition's synthetic tables. It touches no real data and
        costs no budget. Replaces `inference_`.
        """
        check_is_fitted(self, "coef_")
        self.inference_ = bootstrap_inference(
            synthesizer, self, n_repetitions=n_repetitions, seed=random_state, progress=progress
        )
        return self

    def combine(self, synthesizer: Synthesizer, copies: int = 5) -> VerticalGLM:
        """The cheap alternative: the selected columns on several synthetic copies. Replaces `inference_`."""
        check_is_fitted(self, "coef_")
        self.inference_ = copies_inference(synthesizer, self, copies)
        return self
