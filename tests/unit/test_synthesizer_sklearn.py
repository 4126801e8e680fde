"""Synthesizer among scikit-learn's estimators: those of its checks that apply, and the others on tables of parties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted

from tests.builders import fit_seeded, make_federation, make_tables
from verticopula import Synthesizer

FEDERATION = make_federation(
    {"hub": {"y": {"kind": "binary"}}, "side": {"x": {"kind": "continuous", "bounds": [-4.0, 4.0]}}}
)
# These fit one array X with one y. A synthesizer fits one table per party, by the party's name, and has no y: what they
# ask about fitting is asked below, of such tables.
FITS_AN_ARRAY = {
    *("check_fit_score_takes_y", "check_estimators_overwrite_params", "check_dont_overwrite_parameters"),
    *("check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_n_features_in_after_fitting"),
    *("check_positive_only_tag_during_fit", "check_estimators_dtypes", "check_complex_data", "check_dtype_object"),
    *("check_estimators_empty_data_messages", "check_pipeline_consistency", "check_estimators_nan_inf"),
    *("check_estimator_sparse_tag", "check_estimator_sparse_array", "check_estimator_sparse_matrix"),
    *("check_estimators_pickle", "check_f_contiguous_array_estimator", "check_methods_sample_order_invariance"),
    *("check_methods_subset_invariance", "check_fit2d_1sample", "check_fit2d_1feature", "check_dict_unchanged"),
    *("check_fit_idempotent", "check_fit_check_is_fitted", "check_n_features_in", "check_fit1d"),
    *("check_fit2d_predict1d", "check_array_api_input"),
}
APPLICABLE = {
    *("check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types", "check_estimator_repr"),
    *("check_no_attributes_set_in_init", "check_estimators_unfitted", "check_mixin_order", "check_set_params"),
    *("check_do_not_raise_errors_in_init_or_set_params", "check_parameters_default_constructible"),
    "check_get_params_invariance",
}


def checks() -> dict[str, Callable[[Synthesizer], None]]:
    """All that scikit-learn has for an estimator, by name."""
    return {name_of(check): check for _, check in estimator_checks_generator(Synthesizer(FEDERATION))}


def name_of(check: Any) -> str:
    while hasattr(check, "func"):
        check = check.func
    return str(check.__name__)


@pytest.mark.parametrize("name", sorted(APPLICABLE))
def test_scikit_learn_s_checks(name: str) -> None:
    checks()[name](Synthesizer(FEDERATION))


def test_every_check_of_scikit_learn_is_on_one_of_the_lists() -> None:
    assert set(checks()) == APPLICABLE | FITS_AN_ARRAY


def held_tables() -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=80).clip(-3.9, 3.9)
    return make_tables(FEDERATION, {"x": x, "y": (x + rng.normal(size=80) > 0).astype(int)})


def test_fit_returns_the_synthesizer_with_its_parameters_and_its_tables_as_they_were() -> None:
    tables = held_tables()
    before = {name: table.clone() for name, table in tables.items()}
    given = Synthesizer(FEDERATION, "vcds", unit="variable", random_state=3).get_params()
    fitted = fit_seeded(FEDERATION, tables, 3, unit="variable")
    assert isinstance(fitted, Synthesizer)
    assert fitted.get_params() == given
    assert set(tables) == set(before)
    assert all(tables[name].equals(before[name]) for name in tables)


def test_a_second_fit_with_the_same_seed_is_the_same() -> None:
    tables = held_tables()
    fitted = fit_seeded(FEDERATION, tables, 3, unit="variable")
    first = fitted.correlation_.to_numpy().copy()
    with pytest.warns(UserWarning, match="seed"):
        again = fitted.fit(tables)
    assert again is fitted
    np.testing.assert_array_equal(again.correlation_.to_numpy(), first)


def test_drawing_changes_nothing_that_was_fitted_and_a_clone_is_not_fitted() -> None:
    fitted = fit_seeded(FEDERATION, held_tables(), 3, unit="variable")
    check_is_fitted(fitted)
    before = {name: value for name, value in vars(fitted).items() if name not in ("kept_", "_samples")}
    fitted.sample(10)
    assert {name: vars(fitted)[name] for name in before} == before
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(fitted))


def test_what_a_pipeline_would_pass_as_y_is_refused() -> None:
    """`id` used to stand there, so that labels were taken for a column's name."""
    with pytest.raises(TypeError, match="positional"):
        Synthesizer(FEDERATION).fit(held_tables(), np.ones(80))  # type: ignore[misc]
