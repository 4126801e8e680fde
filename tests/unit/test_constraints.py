"""What parties declare about their rows: how it is read, and that all synthetic rows keep it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.builders import make_tables
from verticopula import Federation, NotPrivateWarning, Synthesizer
from verticopula.errors import SchemaError, SettingsError
from verticopula.schema.columns import ColumnKey
from verticopula.schema.constraints import read_constraints
from verticopula.study.kept_constraints import keep_constraints

COLUMNS: list[dict[str, Any]] = [
    {"name": "paid", "kind": "continuous", "bounds": [0, 100], "decimals": 1},
    {"name": "bill", "kind": "continuous", "bounds": [0, 100]},
    {"name": "calls", "kind": "count", "bounds": [0, 9]},
    {"name": "active", "kind": "binary"},
    {"name": "grade", "kind": "ordinal", "categories": ["low", "mid", "high"]},
    {"name": "sector", "kind": "nominal", "categories": ["farm", "shop", "bank"]},
    {"name": "opened", "kind": "count", "bounds": ["2000-01-01", "2020-12-31"]},
]


def federation(*constraints: str) -> Federation:
    party = {"name": "bank", "constraints": list(constraints), "column": COLUMNS}
    return Federation.from_dict({"response": "bank.active", "party": [party]})


def drawer(seed: int = 0, *, gaps: bool = False) -> Any:
    """Rows of independent uniform columns, some values empty."""
    rng = np.random.default_rng(seed)

    def draw(count: int) -> dict[ColumnKey, np.ndarray]:
        values = {
            "paid": np.round(rng.uniform(0, 100, count), 1),
            "bill": rng.uniform(0, 100, count),
            "calls": rng.integers(0, 10, count).astype(float),
            "active": rng.integers(0, 2, count).astype(float),
            "grade": rng.integers(0, 3, count).astype(float),
            "sector": rng.integers(0, 3, count).astype(float),
            "opened": rng.integers(11_000, 18_000, count).astype(float),
        }
        if gaps:
            values["bill"][rng.random(count) < 0.2] = np.nan
        return {ColumnKey("bank", name): own for name, own in values.items()}

    return draw


def values_in(rows: dict[ColumnKey, np.ndarray], name: str) -> np.ndarray:
    return rows[ColumnKey("bank", name)]


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("redraw", [False, True])
def test_rows_keep_comparisons_and_only_if(gaps: bool, redraw: bool) -> None:
    """Against the meaning of the texts, written out by hand."""
    study = federation("paid <= bill", "calls > 0 only if active", "grade < high only if calls >= 2")
    draw = drawer(gaps=gaps)
    before = draw(4_000)
    rows, kept = keep_constraints(study, before, draw if redraw else None)
    paid, bill, calls, active, grade = (values_in(rows, n) for n in ("paid", "bill", "calls", "active", "grade"))
    assert (np.isnan(bill) | (paid <= bill)).all()
    assert ((calls == 0) | (active == 1)).all()
    assert ((grade == 2) | (calls >= 2)).all()
    assert kept is not None
    assert (kept.redrawn > 1_000) == redraw
    assert (sum(kept.moved.values()) == 0) == redraw
    assert np.isnan(bill).any() == gaps
    for key, own in before.items():  # rows that kept everything stay as they were
        same = (values_in(before, "calls") == 0) & (values_in(before, "grade") == 2)
        same &= values_in(before, "paid") <= values_in(before, "bill")
        np.testing.assert_array_equal(rows[key][same], own[same])


def test_redrawn_rows_are_those_of_rejection() -> None:
    draw = drawer(1)
    rows, _ = keep_constraints(federation("paid <= bill"), draw(20_000), draw)
    # The larger and the smaller of two uniform numbers.
    assert abs(values_in(rows, "bill").mean() - 200 / 3) < 5.0 * np.sqrt(100**2 / 18 / 20_000)
    assert abs(values_in(rows, "paid").mean() - 100 / 3) < 5.0 * np.sqrt(100**2 / 18 / 20_000)


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("bill < paid", lambda r: values_in(r, "bill") < values_in(r, "paid")),
        ("paid > bill", lambda r: values_in(r, "paid") > values_in(r, "bill")),
        ("paid >= bill", lambda r: values_in(r, "paid") >= values_in(r, "bill")),
        ("calls < 3", lambda r: values_in(r, "calls") < 3),
        ("sector = shop", lambda r: values_in(r, "sector") == 1),
        ("sector = shop only if active = 1", lambda r: (values_in(r, "sector") != 1) | (values_in(r, "active") == 1)),
        ("opened >= 2010-01-01", lambda r: values_in(r, "opened") >= 14_610),
    ],
)
def test_every_sign_is_projected_within_bounds(text: str, test: Any) -> None:
    rows, kept = keep_constraints(federation(text), drawer(2)(500), None)
    assert test(rows).all()
    assert kept is not None
    assert kept.moved[text] > 0
    for one in COLUMNS[:3]:
        assert (
            (values_in(rows, one["name"]) >= one["bounds"][0]) & (values_in(rows, one["name"]) <= one["bounds"][1])
        ).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("paid", "expected 'column <= column'"),
        ("piad <= bill", "did you mean 'paid'"),
        ("sector < shop", "no order"),
        ("paid <= grade", "measured differently"),
        ("paid <= 200", "outside its public bounds"),
        ("sector = mine", "not one of its categories"),
        ("paid <= bill only if active only if calls > 0", "at most one"),
    ],
)
def test_what_cannot_be_read_is_a_problem_of_the_file(text: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        federation(text)


def test_constraints_that_contradict_each_other_end_in_an_error() -> None:
    with pytest.raises(SettingsError, match="contradict each other"):
        keep_constraints(federation("calls < 2", "calls > 5"), drawer(3)(10), drawer(4))


def test_files_keep_constraints_and_files_without_them_stay_as_they_are(tmp_path: Any) -> None:
    study = federation("paid <= bill", "calls > 0 only if active")
    study.to_toml(tmp_path / "f.toml")
    assert Federation.from_toml(tmp_path / "f.toml") == study
    own = study.parties[0]
    assert [c.text for c in read_constraints(own.constraints, own.columns)] == [
        "paid <= bill",
        "calls > 0 only if active",
    ]
    assert "constraints" not in federation().to_dict()["party"][0]


def test_the_front_door_keeps_them_with_conditions_or_says_that_they_exclude_each_other() -> None:
    study = federation("paid <= bill", "calls > 0 only if active")
    values = {key.column: own for key, own in drawer(5)(300).items()}
    values |= {"opened": np.datetime64("1970-01-01") + values["opened"].astype(int)}
    values |= {
        n: np.array(c["categories"])[values[n].astype(int)] for c in COLUMNS for n in [c["name"]] if "categories" in c
    }
    with pytest.warns(NotPrivateWarning):
        fitted = Synthesizer(study, method="vcds", epsilon=50.0, random_state=0).fit(make_tables(study, values))
    made = fitted.sample(400, conditions={"bank.calls": (3, 9)})["bank"]
    assert (made["paid"] <= made["bill"]).all()
    assert (made["active"] == 1).all()
    assert fitted.kept_ is not None
    assert fitted.kept_.n_rows == 400
    with pytest.raises(SettingsError, match="contradict the constraints"):
        fitted.sample(50, conditions={"bank.calls": (3, 9), "bank.active": 0})
