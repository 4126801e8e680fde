"""VerticalGLM: a scikit-learn estimator over local tables, or over any transport."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import ClassifierTags, RegressorTags, Tags
from sklearn.utils.validation import check_is_fitted

from verticopula.errors import SettingsError, StudyWarning
from verticopula.estimators.bootstrap import SelectedModel, bootstrap_inference
from verticopula.estimators.copula_errors import infer_from_copula
from verticopula.estimators.glm_predictions import CLASSIFIED, GLMPredictions
from verticopula.estimators.interval_reasons import why_no_intervals
from verticopula.estimators.path_tracing import RawColumns, TracedPath
from verticopula.estimators.printed_regression import trace_as_printed
from verticopula.estimators.regression_checks import (
    RandomState,
    check_settings,
    coefficient_warnings,
    path_warnings,
    posterior_warnings,
)
from verticopula.estimators.score_errors import ScoreErrors
from verticopula.estimators.strength_selection import StrengthSelection, draw_seed
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.glm.bayes import BAYES_TUNING, Posterior, default_bar, sample_posterior
from verticopula.glm.families import Family, find_family
from verticopula.glm.feature_design import Features, join_features
from verticopula.glm.feature_encoding import Coding, code_table, encode_table
from verticopula.glm.inference import Inference, infer_from_likelihood
from verticopula.glm.path_plot import plot_path
from verticopula.glm.penalties import Penalty
from verticopula.glm.regression_inputs import (
    SINGLE_PARTY,
    check_rows,
    keep_complete,
    read_blocks,
    take_response,
)
from verticopula.glm.regression_summary import (
    NO_PENALTY,
    FittedRegression,
    RegressionSummary,
    describe_regression,
    regression_html,
    summarise_regression,
    tabulate,
)
from verticopula.glm.selection_intervals import selection_cuts
from verticopula.glm.strength_path import PATH_TUNING, DevianceScale
from verticopula.notebook import live_progress
from verticopula.protocol.party.regression_handler import RegressionHandler
from verticopula.protocol.regression_path import FederatedPath
from verticopula.protocol.study_lifecycle import BegunStudy
from verticopula.protocol.study_proposal import MOST_ROUNDS, NO_CONTEXT
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT
from verticopula.schema.progress import Progress
from verticopula.study.synthetic_tables import SyntheticTables
from verticopula.transport.delivery import Transport, drive
from verticopula.transport.in_process_transport import InProcessTransport

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Floats = NDArray[np.float64]


class VerticalGLM(GLMPredictions, BaseEstimator):  # type: ignore[misc]
    """A generalised linear model with variable selection over columns that parties hold.

    It is a scikit-learn classifier for `family="binomial"` and a regressor otherwise.

    Parameters
    ----------
    family : `gaussian`, `binomial` (two labels) or `poisson` (counts or rates), with their canonical links
    penalty : `scad`, `mcp`, `lasso` or `none`
    fit_intercept : the intercept is not penalised
    select : how the strength is chosen: `bic`, `cv`, or a number for a strength of one's own. `bayes` traces the path
        as `bic` does, but takes columns and coefficients from a posterior over all columns (`glm.bayes`)
    n_effective : subjects that the rows stand for; None for what the synthesizer says that made the tables,
        otherwise their number of rows
    refit : with `bic`, compare and return maximum likelihood fits on the selected columns
    concavity : a of SCAD (3.7) and MCP (3)
    tolerance : optimality conditions hold to this share of the strength; with `as-printed`, the paper's eps_abs and
        eps_rel
    n_strengths, strength_ratio : the path is geometric from the largest strength to this share of it
    folds : of the cross-validation
    random_state : of the folds, and of the posterior's draws: a number, a generator of NumPy's, or None for other
        ones in every fit
    inclusion : with `bayes`, the posterior probability above which a column is selected; None for one that grows
        with the number of subjects (`glm.bayes.default_bar`: 0.78 for 1,000, 0.89 for 5,000), or 0.6 on tables of the
        method `refined`, which say themselves how sure they are
    variant : `verticopula` for our solver; `as-printed` runs the paper's Algorithm 4 as it stands, on tables in this
        process: without an intercept, on unscaled columns, never refitted. `select` is then `bic` (2N f + df log N of
        the penalised fit), `bic-as-printed` (f + df log N, which selects the sparsest model) or a strength
    rho : with `as-printed`, φ of Algorithm 4; small ones diverge where parties' columns are correlated
    max_rounds : with `as-printed`, the most iterations at one strength

    Attributes
    ----------
    coef_ : party -> (q_k,) coefficients on the scale of the data
    intercept_ : 0 if none was fitted
    classes_ : with `binomial`, the two labels; coefficients are about the second one
    feature_names_ : party -> names, `column` or `column=category`
    strength_ : the chosen strength, for columns with standard deviation 1
    converged_ : whether the chosen fit came to rest
    path_ : every strength's fit, rounds and bytes exchanged
    scores_ : the criterion at every strength; empty for a strength of one's own
    inclusion_ : with `bayes`, party -> posterior probability that a column has an effect, one for each of its columns
    bar_ : with `bayes`, the probability above which columns were selected
    explained_ : share of the deviance explained
    inference_ : standard errors and intervals of the selected coefficients; None where no honest ones are known
    no_intervals_ : why there are none; empty where there are some
    naive_inference_ : those of maximum likelihood, which ignore privacy noise, missing blocks and the selection of
        columns; None where the columns are not here
    warnings_ : what a reader must know first
    n_features_in_ : columns of all tables, the response aside
    feature_names_in_ : their names, after a fit on one DataFrame
    n_effective_, n_rows_ : subjects that the rows stand for, and rows

    Notes
    -----
    `fit` has the tables in this process: synthetic ones are the normal input. `fit_transport` runs over raw
    columns of parties that allow it. The coordinator then sees exact second moments (`gaussian`), or the response and
    the columns that models on the path want (the other families).
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
        n_strengths: int = PATH_TUNING.strengths,
        strength_ratio: float = PATH_TUNING.strength_ratio,
        folds: int = 5,
        max_rounds: int = 2000,
        random_state: RandomState = 0,
        inclusion: float | None = None,
        variant: str = OWN_VARIANT,
        rho: float = 1.0,
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
        self.variant = variant
        self.rho = rho

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn may expect: a classifier or a regressor, by the family."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.categorical = True
        if self.family == CLASSIFIED:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=False)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
            tags.target_tags.positive_only = self.family == "poisson"
        return tags

    # ---- fitting -------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike | str, *, progress: Progress | None = None) -> VerticalGLM:
        """The model itself, fitted on tables in this process.

        Parameters
        ----------
        X : party -> pandas or polars DataFrame or array, rows belonging together; or one table
        y : (n,) responses, any two labels for `binomial`; or `party.column`, which is then taken out of that party's
            table
        progress : called with (what, done, total)
        """
        check_settings(self.get_params())
        tables, federation, n_subjects = read_blocks(X)
        tables, n_subjects = keep_complete(tables, n_subjects, y)
        response, tables = take_response(tables, y, federation, labelled=self.family == CLASSIFIED)
        schema = {} if federation is None else {party.name: party.columns for party in federation.parties}
        codings = {name: code_table(table, schema.get(name)) for name, table in tables.items()}
        features = {name: encode_table(t, codings[name], f"party {name!r}") for name, t in tables.items()}
        check_rows({name: f.values.shape[0] for name, f in features.items()}, response.values.size)
        selection = self._selection(response.values.size, n_subjects, sum(f.values.shape[1] for f in features.values()))
        selection.check_response(response.values)
        if self.variant == PRINTED_VARIANT:
            path, scores = self._trace_as_printed(features, response.values, selection, progress)
        else:
            handlers = {name: RegressionHandler.holding(name, own) for name, own in features.items()}
            rounds = selection.trace(tuple(features), response.values, selection.settings(), "local", progress)
            path, scores = drive(rounds, InProcessTransport(handlers))
        traced = TracedPath(path, scores, response, selection)
        self._finish(traced, codings)
        self._name_columns(X, codings)
        everything = join_features(list(features.values()))
        if self.select == "bayes":
            self._average(everything, response.values, selection, self._score_errors(X, federation))
        naive = self._infer(everything, response.values, selection.family)
        refitted = traced.is_refitted
        maximised = (self.penalty == "none" and self.variant == OWN_VARIANT) or (self.select == "bic" and refitted)
        self.naive_inference_: Inference | None = naive
        self._cuts: Floats | None = self._find_cuts(everything, naive, selection) if refitted else None
        self.no_intervals_ = why_no_intervals(
            X,
            self.response_,
            self.coef_,
            path.designs,
            counted=self.n_effective is not None,
            maximised=maximised,
            identified=naive.identified,
        )
        if not self.no_intervals_:
            self._find_intervals(X, everything, response.values)
        self._add_warnings(
            coefficient_warnings(
                everything,
                response.values,
                self._coef,
                self._intercept,
                family=selection.family,
                identified=naive.identified,
                maximised=maximised,
            )
        )
        return self._warned()

    def fit_transport(
        self,
        transport: Transport,
        federation: Federation,
        *,
        response: str | None = None,
        study: str | None = None,
        begun: BegunStudy | None = None,
        progress: Progress | None = None,
    ) -> VerticalGLM:
        """The model itself, fitted on the parties' raw columns over any transport; complete cases only.

        Parameters
        ----------
        transport : carries the messages to the parties
        federation : the parties and their columns
        response : `party.column`; None for the federation's own
        study : name of the study in the parties' ledgers; None for a new one
        begun : what `begin_study` gave, where the parties are members of a study that has begun
        progress : called with (what, done, total)

        Privacy
        -------
        Epsilon is infinite, every party's policy must name `raw-glm`, and every party's ledger says so. With
        `gaussian`, exact sums and products of all columns and the response leave, and no row of anybody. With
        other families the response leaves, and every column that a model on the path wants, as they are. Parties that
        have columns left are told residuals, from which the response follows.
        """
        check_settings(self.get_params())
        if self.variant == PRINTED_VARIANT:
            raise SettingsError(f"variant {self.variant!r} is for tables in this process")
        if self.select == "bayes":
            raise SettingsError("select='bayes' needs all parties' columns side by side, which raw ones are not")
        if self.select == "cv" and self.folds > MOST_ROUNDS:
            raise SettingsError(f"between organisations a cross-validation has at most {MOST_ROUNDS} folds")
        key = federation.response if response is None else ColumnKey.parse(response)
        name = study or (begun.study if begun is not None else f"{federation.name}-glm-{secrets.token_hex(8)}")

        context = NO_CONTEXT if begun is None else begun.context
        raw = RawColumns(federation, key, name, context, lambda rows, features: self._selection(rows, None, features))
        by_moments = self.family == "gaussian"
        self._finish(raw.trace_moments(transport) if by_moments else raw.trace_columns(transport, progress), None)
        return self._warned()

    def _selection(self, n_rows: int, n_subjects: int | None, n_features: int) -> StrengthSelection:
        given = self.n_effective if self.n_effective is not None else n_subjects
        return StrengthSelection(
            find_family(self.family),
            Penalty.build(self.penalty, self.concavity),
            self.fit_intercept,
            self.select,
            self.refit and self.variant == OWN_VARIANT,
            self.tolerance,
            self.n_strengths,
            self.strength_ratio,
            self.folds,
            draw_seed(self.random_state),
            float(n_rows if given is None else given),
            n_features,
        )

    def _trace_as_printed(
        self, features: Mapping[str, Features], y: Floats, selection: StrengthSelection, progress: Progress | None
    ) -> tuple[FederatedPath, list[float]]:
        return trace_as_printed(
            features,
            y,
            selection.family,
            selection.penalty,
            self.select,
            selection.n_effective,
            rho=self.rho,
            tolerance=self.tolerance,
            max_rounds=self.max_rounds,
            n_strengths=self.n_strengths,
            strength_ratio=self.strength_ratio,
            progress=progress,
        )

    def _finish(self, traced: TracedPath, codings: dict[str, tuple[Coding, ...]] | None) -> None:
        """Keep what the chosen point of the path says, in place of an earlier fit."""
        path, response, selection = traced.path, traced.response, traced.selection
        if not path.points:
            raise SettingsError(
                "already at the largest strength the fit is all but perfect: a column separates or copies the response"
            )
        for name in ("classes_", "inclusion_", "bar_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        if response.classes is not None:
            self.classes_ = response.classes
        self.path_, self.scores_ = path, traced.scores
        self.response_, self.codings_ = response.name, codings
        self.n_rows_, self.n_effective_ = traced.n_rows or response.values.size, selection.n_effective
        point, fitted = traced.point, traced.fitted
        self.coef_ = self._by_party(fitted.coef)
        self.intercept_ = fitted.intercept
        self.feature_names_ = {name: design.names for name, design in path.designs.items()}
        self.n_features_in_ = sum(len(design.sources) for design in path.designs.values())
        self.strength_ = point.strength
        self.explained_ = traced.explained
        self.converged_ = bool(fitted.converged and point.converged)
        self.inference_: Inference | None = None
        self.naive_inference_ = None
        self._cuts = None
        self.no_intervals_ = "there are none for a regression on raw columns"
        self.warnings_: tuple[str, ...] = ()
        self._add_warnings(
            path_warnings(
                path,
                traced.scores,
                traced.chosen,
                response.values,
                family=self.family,
                penalty=self.penalty,
                refits=selection.settings().refit is not None,
                averaged=self.select == "bayes",
                converged=self.converged_,
            )
        )

    def _name_columns(self, X: Any, codings: Mapping[str, tuple[Coding, ...]]) -> None:
        """Set scikit-learn's `feature_names_in_` where one DataFrame was given whose columns have names."""
        names = getattr(X, "columns", None)
        if not isinstance(X, Mapping) and names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array([coding.name for coding in codings[SINGLE_PARTY]], dtype=object)

    @property
    def _coef(self) -> Floats:
        return np.concatenate(list(self.coef_.values()))

    @property
    def _intercept(self) -> float | None:
        return self.intercept_ if self.fit_intercept else None

    def _by_party(self, coef: Floats) -> dict[str, Floats]:
        ends = np.cumsum([len(design.names) for design in self.path_.designs.values()])[:-1]
        return dict(zip(self.path_.designs, np.split(coef, ends), strict=True))

    def _score_errors(self, tables: Any, federation: Federation | None) -> ScoreErrors | None:
        """What the tables' maker knows of their errors; None where it said nothing, or the response is not theirs."""
        if federation is None or not self.response_ or self.codings_ is None:
            return None
        codings = [(ColumnKey(name, c.name), c) for name, codes in self.codings_.items() for c in codes]
        return ScoreErrors.of_tables(tables, codings, ColumnKey.parse(self.response_))

    def _average(self, features: Features, y: Floats, selection: StrengthSelection, errors: ScoreErrors | None) -> None:
        """Replace what the path chose by the posterior's columns and means."""
        family = selection.family
        found: Posterior = sample_posterior(
            features,
            y,
            family,
            n_effective=self.n_effective_,
            fit_intercept=self.fit_intercept,
            seed=selection.seed,
            score_errors=None if errors is None else errors.draw,
        )
        usual = default_bar(self.n_effective_) if errors is None else BAYES_TUNING.known_errors_bar
        self.bar_ = usual if self.inclusion is None else float(self.inclusion)
        coef = found.select(features.starts, self.bar_)
        offset = features.values @ coef
        self.coef_ = self._by_party(coef)
        self.intercept_ = family.best_intercept(offset, y) if self.fit_intercept else 0.0
        self.explained_ = DevianceScale.of_response(family, y).explained(family.loss(offset + self.intercept_, y))
        ends = np.cumsum([len(design.sources) for design in self.path_.designs.values()])[:-1]
        self.inclusion_ = dict(zip(self.path_.designs, np.split(found.inclusion, ends), strict=True))
        self._add_warnings(posterior_warnings(found))

    def _infer(self, features: Features, y: Floats, family: Family) -> Inference:
        kept = self._coef != 0.0
        return infer_from_likelihood(
            features.values[:, kept], self._coef[kept], self._intercept, y, family, self.n_effective_
        )

    def _find_cuts(self, features: Features, naive: Inference, selection: StrengthSelection) -> Floats:
        """How near to 0 each selected coefficient could have come before BIC would have dropped its column."""
        groups = np.repeat(np.arange(features.starts.size - 1), np.diff(features.starts))[self._coef != 0.0]
        first = int(self.fit_intercept)
        assert naive.covariance is not None
        cuts = selection_cuts(naive.estimate[first:], naive.covariance[first:, first:], groups, selection.charge)
        return np.append(np.zeros(first), cuts)

    def _find_intervals(self, tables: SyntheticTables, features: Features, y: Floats) -> None:
        """Intervals from the known errors of the copula behind the tables."""
        columns, model = features.values[:, self._coef != 0.0], self._selected_model()
        self.inference_ = infer_from_copula(tables.study, tables.posterior_draws, model, columns, y)
        if self.inference_ is None:
            self.no_intervals_ = "the errors of the selected columns are not finite"

    def _add_warnings(self, found: list[StudyWarning]) -> None:
        """Those that coefficients cannot be relied on with say that the fit did not converge, too."""
        self.warnings_ += tuple(map(str, found))
        self.converged_ = self.converged_ and all(warning.level == "note" for warning in found)

    def _warned(self) -> VerticalGLM:
        for line in self.warnings_:
            warnings.warn(line, ConvergenceWarning, stacklevel=3)
        return self

    # ---- reading the result --------------------------------------------------------------

    def coefficient_table(self, confidence: float = 0.95) -> pd.DataFrame:
        """Every selected feature with its party and column; standard error and interval where they are known.

        Parameters
        ----------
        confidence : confidence level of the intervals
        """
        return tabulate(self._described(), confidence)

    def summary(self, confidence: float = 0.95) -> RegressionSummary:
        """Text, DataFrame (`.frame`) and HTML (`.to_html()`) of the fit.

        Parameters
        ----------
        confidence : confidence level of the intervals
        """
        return summarise_regression(self._described(), confidence)

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """The summary as values that JSON can hold.

        Parameters
        ----------
        confidence : confidence level of the intervals
        """
        return describe_regression(self._described(), confidence)

    def plot_path(self) -> go.Figure:
        """Coefficients along the path of strengths, the chosen one marked; an interactive figure."""
        check_is_fitted(self, "coef_")
        return plot_path(self.path_.points, self.feature_names_, self.strength_)

    def _described(self) -> FittedRegression:
        check_is_fitted(self, "coef_")
        return FittedRegression(
            family=self.family,
            rule=self._rule(),
            response=self.response_,
            coef=self.coef_,
            intercept=self._intercept,
            features=self.path_.designs,
            inference=self.inference_,
            no_intervals=self.no_intervals_,
            n_rows=self.n_rows_,
            n_effective=self.n_effective_,
            explained=self.explained_,
            converged=self.converged_,
            warnings=self.warnings_,
            rounds=self.path_.traffic.rounds,
            bytes=self.path_.traffic.bytes,
        )

    def _rule(self) -> str:
        """How columns were selected, in words."""
        if self.select == "bayes":
            return f"posterior means of columns with a probability above {self.bar_:.2g}"
        if self.penalty == "none":
            return NO_PENALTY
        chosen = {"bic": "BIC", "cv": f"{self.folds}-fold cross-validation"}.get(str(self.select), "hand")
        return f"{self.penalty} penalty, strength {self.strength_:.4g} chosen by {chosen}"

    def _repr_html_(self) -> str:
        return regression_html(repr(self), self.summary() if hasattr(self, "coef_") else None)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """In notebooks the table of coefficients, not scikit-learn's diagram of an estimator."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    # ---- standard errors of synthetic tables ---------------------------------------------

    def bootstrap(
        self,
        synthesizer: Synthesizer,
        n_repetitions: int = 100,
        *,
        random_state: int = 0,
        progress: Progress | None = None,
    ) -> VerticalGLM:
        """The model itself, with intervals from repetitions of the whole study: slow, and possible for every method.

        The study is repeated on data drawn from the fitted copula, with the same missing pattern and the same budget,
        and the selected columns are fitted on each repetition's synthetic tables. It touches no real data and
        costs no budget. Replaces `inference_`.

        Parameters
        ----------
        synthesizer : fitted; the model was fitted on tables that it sampled
        n_repetitions : at least 10
        random_state : of the repetitions
        progress : called with (what, done, total); None shows a bar in notebooks, and nothing elsewhere
        """
        check_is_fitted(self, "coef_")
        self.inference_ = bootstrap_inference(
            synthesizer.study_,
            self._selected_model(),
            n_repetitions=n_repetitions,
            seed=random_state,
            progress=progress or live_progress(),
        )
        return self

    def ignore_noise_and_selection(self) -> VerticalGLM:
        """The model itself, with the intervals of maximum likelihood on the selected columns.

        They ignore privacy noise, missing blocks and the selection of columns: right only if every row is a person
        and the columns were chosen beforehand. Replaces `inference_`.
        """
        check_is_fitted(self, "coef_")
        if self.naive_inference_ is None:
            raise SettingsError(f"there are none either: {self.no_intervals_}")
        self.inference_ = self.naive_inference_
        return self

    def _selected_model(self) -> SelectedModel:
        check_is_fitted(self, "coef_")
        if self.codings_ is None:
            raise SettingsError("a bootstrap is for fits on synthetic tables")
        if not self.response_:
            raise SettingsError("fit with the response named party.column, on tables of the synthesizer")
        return SelectedModel(
            self.family,
            self.response_,
            self.classes_ if self.family == CLASSIFIED else None,
            self.codings_,
            self.coef_,
            self._intercept,
            self.n_rows_,
            self.n_effective_,
            self._cuts,
        )
