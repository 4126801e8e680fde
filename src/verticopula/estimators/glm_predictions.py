"""What a fitted regression predicts, and how well: the part of VerticalGLM that scikit-learn's scorers call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from verticopula.errors import SettingsError
from verticopula.glm.families import find_family
from verticopula.glm.feature_encoding import Coding, encode_table
from verticopula.glm.regression_inputs import read_blocks, take_response

Floats = NDArray[np.float64]

CLASSIFIED = "binomial"  # the family whose responses are labels


def _is_classifier(model: GLMPredictions) -> bool:
    """Whether `predict_proba` and its like are there; an AttributeError says why they are not."""
    if model.family != CLASSIFIED:
        raise AttributeError(f"only the family 'binomial' has classes, not {model.family!r}")
    return True


class GLMPredictions:
    """Predictions and scores of an estimator that has been fitted.

    Attributes
    ----------
    family : as `VerticalGLM` has it
    coef_, intercept_, classes_ : what was fitted
    codings_ : party -> how its columns become features; None where the columns are not here
    """

    family: str
    coef_: dict[str, Floats]
    intercept_: float
    classes_: NDArray[Any]
    codings_: dict[str, tuple[Coding, ...]] | None

    def linear_predictor(self, X: Any) -> Floats:
        """(n,) intercept + X beta: log odds for `binomial`, logarithms of rates for `poisson`.

        Parameters
        ----------
        X : tables like those of `fit`, with or without the response
        """
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

    def predict_mean(self, X: Any) -> Floats:
        """(n,) expected responses: probabilities of the second class for `binomial`, rates for `poisson`.

        Parameters
        ----------
        X : tables like those of `fit`, with or without the response
        """
        return find_family(self.family).mean(self.linear_predictor(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the more probable label for `binomial`, the expected response otherwise.

        Parameters
        ----------
        X : tables like those of `fit`, with or without the response
        """
        if self.family != CLASSIFIED:
            return self.predict_mean(X)
        likely = self.linear_predictor(X) > 0.0
        return np.asarray(self.classes_[likely.astype(np.int64)])

    @available_if(_is_classifier)
    def predict_proba(self, X: Any) -> Floats:
        """(n, 2) probabilities of the labels in `classes_`; only for `binomial`.

        Parameters
        ----------
        X : tables like those of `fit`, with or without the response
        """
        eta, family = self.linear_predictor(X), find_family(self.family)
        return np.column_stack([family.mean(-eta), family.mean(eta)])

    @available_if(_is_classifier)
    def predict_log_proba(self, X: Any) -> Floats:
        """(n, 2) logarithms of the probabilities, exact where these are next to 0; only for `binomial`.

        Parameters
        ----------
        X : tables like those of `fit`, with or without the response
        """
        eta = self.linear_predictor(X)
        return -np.column_stack([np.logaddexp(0.0, eta), np.logaddexp(0.0, -eta)])

    @available_if(_is_classifier)
    def decision_function(self, X: Any) -> Floats:
        """(n,) log odds of the second label in `classes_`; only for `binomial`.

        Parameters
        ----------
        X : tables like those of `fit`, with or without the response
        """
        return self.linear_predictor(X)

    def score(self, X: Any, y: ArrayLike | str, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy for `binomial`; otherwise the share of the deviance explained, which is R^2 for `gaussian`.

        Parameters
        ----------
        X : tables like those of `fit`
        y : (n,) responses, or `party.column`
        sample_weight : (n,) weights of the rows; None for equal ones
        """
        if self.family != CLASSIFIED:
            return self.deviance_explained(X, y, sample_weight)
        y_true, eta = self._read_scored(X, y)
        return float(np.average(y_true == (eta > 0.0), weights=_as_weights(sample_weight)))

    def deviance_explained(self, X: Any, y: ArrayLike | str, sample_weight: ArrayLike | None = None) -> float:
        """Share of the deviance explained (D^2): 0 for a constant prediction, 1 for a perfect one.

        Parameters
        ----------
        X : tables like those of `fit`
        y : (n,) responses, or `party.column`
        sample_weight : (n,) weights of the rows; None for equal ones
        """
        y_true, eta = self._read_scored(X, y)
        family, weights = find_family(self.family), _as_weights(sample_weight)
        family.check(y_true)
        null = np.full(y_true.size, family.link(float(np.average(y_true, weights=weights))))
        left, whole = (
            np.average(family.losses(at, y_true) - family.saturated(y_true), weights=weights) for at in (eta, null)
        )
        return float(1.0 - left / whole)

    def _read_scored(self, X: Any, y: ArrayLike | str) -> tuple[Floats, Floats]:
        """The response as numbers, and the linear predictor."""
        check_is_fitted(self, "coef_")
        tables, federation, _ = read_blocks(X)
        labelled = self.family == CLASSIFIED
        response, _ = take_response(
            tables, y, federation, labelled=labelled, classes=self.classes_ if labelled else None
        )
        eta = self.linear_predictor(X)
        if eta.size != response.values.size:
            raise SettingsError(f"the response has {response.values.size} rows, but the tables have {eta.size}")
        return response.values, eta


def _as_weights(sample_weight: ArrayLike | None) -> Floats | None:
    return None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
