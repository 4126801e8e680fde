"""Tables of which next to nothing can be learnt: an error or a warning says so, for every kind of method."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from verticopula import Federation, Synthesizer
from verticopula.errors import SchemaError
from verticopula.study.study_warnings import find_warnings

pytestmark = pytest.mark.usefixtures("few_fitted_rows")
RANKS = {"epsilon": 1.0}
PERSON = {"epsilon": 3.0, "delta": 1e-6, "unit": "person"}
METHODS = [
    pytest.param("vcds", RANKS, id="vcds"),
    pytest.param("refined", {**RANKS, "dependence": "tilted"}, id="refined-tilted"),
    pytest.param("strict", PERSON, id="strict"),
]


def federation(n_categories: int = 3) -> Federation:
    nominal = {"kind": "nominal", "categories": [f"c{i}" for i in range(n_categories)]}
    number = {"kind": "continuous", "bounds": [-4, 4]}
    return Federation.from_dict(
        {
            "response": "a.y",
            "party": [
                {"name": "a", "column": [{"name": "y", "kind": "binary"}, {"name": "x", **number}]},
                {
                    "name": "b",
                    "column": [{"name": "u", **nominal}, {"name": "w", **number}],
                },
                {"name": "c", "column": [{"name": "v", **nominal}]},
            ],
        }
    )


def tables(n: int, codes: np.ndarray | None = None) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 3, n) if codes is None else codes
    ids, labels = [f"p{i}" for i in range(n)], [f"c{i}" for i in codes]
    x, w = rng.normal(size=(2, n)).clip(-4, 4)
    return {
        "a": pl.DataFrame({"subject_id": ids, "y": rng.integers(0, 2, n), "x": x}),
        "b": pl.DataFrame({"subject_id": ids, "u": labels, "w": w}),
        "c": pl.DataFrame({"subject_id": ids, "v": labels}),
    }


def warned(agreed: Federation, frames: dict[str, pl.DataFrame], method: str, settings: dict[str, Any]) -> set[str]:
    """Codes of the study's warnings; it also makes tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = Synthesizer(agreed, method, random_state=2, **settings).fit(frames)
        assert fitted.sample(40)["c"].height == 40
    return {warning.code for warning in find_warnings(fitted.study_)}


@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_one_person(method: str, settings: dict[str, Any]) -> None:
    if method == "vcds":
        with pytest.raises(SchemaError, match="never observed together"):
            warned(federation(), tables(1), method, settings)
    else:
        assert "few-observed" in warned(federation(), tables(1), method, settings)


@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_everybody_has_a_category_of_their_own(method: str, settings: dict[str, Any]) -> None:
    found = warned(federation(300), tables(300, np.arange(300)), method, settings)
    assert found & {"rare-categories", "nothing-learnt", "unsupported"}


@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_a_table_of_a_pair_has_more_cells_than_there_are_people(method: str, settings: dict[str, Any]) -> None:
    codes = np.random.default_rng(1).integers(0, 200, 100)
    found = warned(federation(200), tables(100, codes), method, settings)
    assert found & {"rare-categories", "nothing-learnt", "unsupported"}


@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_two_parties_have_nobody_in_common(method: str, settings: dict[str, Any]) -> None:
    whole = tables(400)
    apart = {"a": whole["a"], "b": whole["b"][:200], "c": whole["c"][200:]}
    if method == "vcds":
        with pytest.raises(SchemaError, match="never observed together"):
            warned(federation(), apart, method, settings)
    else:
        assert warned(federation(), apart, method, settings) & {"unidentified", "nothing-learnt", "unsupported"}


def test_common_categories_are_not_called_rare() -> None:
    assert "rare-categories" not in warned(federation(), tables(400), "vcds", RANKS)
