"""Uncertainty of regressions on synthetic tables, from repetitions of the study: free post-processing.

Intervals by default come from the known errors of the copula (`estimators/copula_errors.py`). The bootstrap repeats the
study itself, and works for every method. There the copula is taken for the population. Subjects are drawn from it,
hidden from parties in the pattern of the real study, ranked and counted with the same noise, fitted and sampled like
the real ones; the regression on each repetition's synthetic tables then varies as the real one would. Patterns are
dealt to subjects at random, so where data are missing depending on others, what that alone adds to the variance is
left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError, VerticopulaError
from verticopula.glm.central_solver import maximise_likelihood
from verticopula.glm.families import find_family
from verticopula.glm.feature_design import Features, join_features
from verticopula.glm.feature_encoding import Coding, encode_table
from verticopula.glm.inference import Inference, infer_from_bootstrap
from verticopula.glm.regression_inputs import keep_complete, read_blocks, take_response
from verticopula.schema.progress import Progress, show_nothing
from verticopula.simulate.repeat_study import repeat_study
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.synthetic_tables import SyntheticTables

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BootstrapTuning:
    """When a bootstrap is believed. Chosen by hand, not tuned.

    Attributes
    ----------
    least_share : of the repetitions that must give an estimate
    """

    least_share: float = 0.8


BOOTSTRAP_TUNING = BootstrapTuning()


@dataclass(frozen=True)
class SelectedModel:
    """A regression that was fitted on synthetic tables, and which of its features were selected.

    Attributes
    ----------
    response : `party.column`
    classes : the response's labels; None where it has none
    codings : party -> how its columns enter
    coef : party -> coefficients of its features, 0 for those that were not selected
    intercept : None where none was fitted
    cuts : (s,) how near to 0 an estimate could have come before its column would have been dropped; None for 0
    """

    family: str
    response: str
    classes: NDArray[Any] | None
    codings: Mapping[str, tuple[Coding, ...]]
    coef: Mapping[str, Floats]
    intercept: float | None
    n_rows: int
    n_effective: float
    cuts: Floats | None = None

    @property
    def estimate(self) -> Floats:
        """The selected coefficients, the intercept first."""
        coef = np.concatenate(list(self.coef.values()))
        return np.append([] if self.intercept is None else self.intercept, coef[coef != 0.0])


def bootstrap_inference(
    fitted: FittedStudy,
    model: SelectedModel,
    *,
    n_repetitions: int,
    seed: int,
    progress: Progress | None = None,
) -> Inference:
    """Spread and bias of the selected coefficients over repetitions of the whole study."""
    if n_repetitions < 10:
        raise SettingsError("fewer than 10 repetitions say nothing about a standard error")
    show = progress or show_nothing
    found: list[Floats] = []
    for repetition in range(n_repetitions):
        show("repeating the study", repetition, n_repetitions)
        tables = repeat_study(
            fitted, seed=int(np.random.SeedSequence([seed, repetition]).generate_state(1)[0]), n_rows=model.n_rows
        )
        estimate = _estimate(tables, model)
        if estimate is not None:
            found.append(estimate)
    show("repeating the study", n_repetitions, n_repetitions)
    if len(found) < BOOTSTRAP_TUNING.least_share * n_repetitions:
        raise VerticopulaError(
            f"only {len(found)} of {n_repetitions} repetitions have a maximum of the likelihood on the selected columns"
        )
    return infer_from_bootstrap(model.estimate, np.array(found), model.n_effective, model.cuts)


def _estimate(tables: SyntheticTables, model: SelectedModel) -> Floats | None:
    """Maximum likelihood on the model's selected columns, the intercept first; None where there is none."""
    features, y = _selected(tables, model)
    family = find_family(model.family)
    if np.ptp(y) == 0.0:
        return None
    coef, intercept, fine = maximise_likelihood(features, y, family, fit_intercept=model.intercept is not None)
    if not fine:
        return None
    return coef if model.intercept is None else np.append(intercept, coef)


def _selected(tables: Any, model: SelectedModel) -> tuple[Features, Floats]:
    """The features that the model selected, each on its own, and the response."""
    frames, federation, n_subjects = read_blocks(tables)
    frames, _ = keep_complete(frames, n_subjects, model.response)
    response, frames = take_response(
        frames, model.response, federation, labelled=model.classes is not None, classes=model.classes
    )
    everything = join_features(
        [encode_table(frames[name], model.codings[name], f"party {name!r}") for name in model.coef]
    )
    kept = np.flatnonzero(np.concatenate(list(model.coef.values())))
    return Features.plain(everything.values[:, kept], [everything.names[j] for j in kept]), response.values
