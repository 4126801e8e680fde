"""Columns that are modelled as their difference from another one: how they are read, drawn and written."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from verticopula import Federation, NotPrivateWarning, Synthesizer
from verticopula.data.tables import align_tables
from verticopula.errors import SchemaError, SettingsError
from verticopula.schema.columns import Column, ColumnKey
from verticopula.study.relation_sums import add_related

PAID, BILL = ColumnKey("bank", "paid"), ColumnKey("bank", "bill")


def federation(*constraints: str, paid: dict[str, Any] | None = None) -> Federation:
    columns = [
        {"name": "bill", "kind": "continuous", "bounds": [0, 1000], "decimals": 2},
        {"name": "paid", "kind": "continuous", "bounds": [-1000, 200], "decimals": 2, "relation": "bill"},
        {"name": "default", "kind": "binary"},
    ]
    columns[1] |= paid or {}
    clinic = {"name": "clinic", "column": [{"name": "bmi", "kind": "continuous", "bounds": [10, 60]}]}
    bank = {"name": "bank", "column": columns, "constraints": list(constraints)}
    third = {"name": "agency", "column": [{"name": "age", "kind": "count", "bounds": [18, 99]}]}
    return Federation.from_dict({"response": "bank.default", "party": [bank, clinic, third]})


def tables(n: int = 3000, seed: int = 5) -> dict[str, pl.DataFrame]:
    """A bill is paid in full by 30 %, and in part by the others."""
    rng = np.random.default_rng(seed)
    bill = np.round(rng.gamma(2.0, 100.0, n).clip(0, 1000), 2)
    paid = np.where(rng.random(n) < 0.3, bill, np.round(bill * rng.random(n), 2))
    default = (rng.random(n) < 0.1 + 0.3 * (paid < 0.3 * bill)).astype(int)
    ids = [f"p{i}" for i in range(n)]
    return {
        "bank": pl.DataFrame({"subject_id": ids, "bill": bill, "paid": paid, "default": default}),
        "clinic": pl.DataFrame({"subject_id": ids, "bmi": rng.normal(27, 4, n)}),
        "agency": pl.DataFrame({"subject_id": ids, "age": rng.integers(18, 90, n)}),
    }


def test_the_difference_is_what_is_modelled() -> None:
    found = align_tables(federation(), tables())["bank"]
    raw = tables()["bank"]
    np.testing.assert_allclose(found.columns["paid"].values, (raw["paid"] - raw["bill"]).to_numpy(), atol=1e-12)
    np.testing.assert_allclose(found.written("paid"), raw["paid"].to_numpy(), atol=1e-9)
    assert (found.written("bill") == raw["bill"].to_numpy()).all()
    assert federation().column(PAID).atoms == (0.0,)


def test_equal_values_outside_the_bounds_stay_equal_and_empty_ones_have_no_difference() -> None:
    frames = tables(6)
    frames["bank"] = frames["bank"].with_columns(
        bill=pl.Series(["5000", "", "10", "inf", "20", "x"]), paid=pl.Series(["5000", "7", "", "inf", "5", "1"])
    )
    column = align_tables(federation(), frames)["bank"].columns["paid"]
    assert column.observed.tolist() == [True, False, False, False, True, False]
    assert column.values[[0, 4]].tolist() == [0.0, -15.0]


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "vcds", "epsilon": 4.0},
        {"method": "refined", "epsilon": 4.0, "dependence": "tilted"},
        {"method": "strict", "epsilon": 3.0, "delta": 1e-6, "unit": "person"},
    ],
)
def test_equal_values_come_out_equal_as_often_as_they_are(settings: dict[str, Any]) -> None:
    real = tables()["bank"]
    with pytest.warns(NotPrivateWarning):
        drawn = Synthesizer(federation(), random_state=3, **settings).fit(tables()).sample(3000)["bank"]
    known = drawn.drop_nulls(["bill", "paid"])
    share, truth = (known["paid"] == known["bill"]).mean(), (real["paid"] == real["bill"]).mean()
    assert share == pytest.approx(truth, abs=0.06)  # four standard errors of a share and its noise
    assert (known["paid"] * 100 - (known["paid"] * 100).round()).abs().max() < 1e-6


def test_constraints_are_about_values_and_not_about_differences() -> None:
    agreed = federation("paid >= 0", "paid <= bill")
    with pytest.warns(NotPrivateWarning):
        rows = Synthesizer(agreed, "vcds", 4.0, random_state=1).fit(tables()).sample(2000)["bank"]
    assert (rows["paid"] >= 0).all()
    assert (rows["paid"] <= rows["bill"]).all()


def test_sums_are_equal_to_the_last_digit_where_the_difference_is_zero() -> None:
    values = {BILL: np.array([0.1 + 0.2, 5.0, np.nan, 7.0]), PAID: np.array([0.0, -1.234, 0.0, np.nan])}
    found = add_related(federation(), values)
    assert found[PAID][0] == found[BILL][0]
    assert found[PAID][1] == 3.77
    assert np.isnan(found[PAID][2:]).all()


def test_dates_have_a_difference_in_days() -> None:
    columns = [
        {"name": "begun", "kind": "count", "bounds": ["2020-01-01", "2024-12-31"]},
        {"name": "ended", "kind": "count", "bounds": [0, 90], "relation": "begun"},
        {"name": "healed", "kind": "binary"},
    ]
    agreed = Federation.from_dict({"response": "ward.healed", "party": [{"name": "ward", "column": columns}]})
    rng = np.random.default_rng(2)
    begun = [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(d)) for d in rng.integers(0, 1500, 400)]
    stay = np.where(rng.random(400) < 0.4, 0, rng.integers(1, 60, 400))
    ended = [day + datetime.timedelta(days=int(d)) for day, d in zip(begun, stay, strict=True)]
    frame = pl.DataFrame({"subject_id": range(400), "begun": begun, "ended": ended, "healed": rng.integers(0, 2, 400)})
    assert align_tables(agreed, {"ward": frame})["ward"].columns["ended"].values.tolist() == stay.tolist()
    with pytest.warns(NotPrivateWarning):
        rows = Synthesizer(agreed, "vcds", 50.0, random_state=1).fit({"ward": frame}).sample(400)["ward"]
    assert rows.schema["ended"] == pl.Date
    assert (rows["ended"] >= rows["begun"]).all()
    assert (rows["ended"] == rows["begun"]).mean() == pytest.approx(0.4, abs=0.12)


def test_a_condition_on_a_difference_says_what_to_do() -> None:
    with pytest.warns(NotPrivateWarning):
        fitted = Synthesizer(federation(), "vcds", 4.0, random_state=1).fit(tables(500))
    with pytest.raises(SettingsError, match=r"bank\.bill"):
        fitted.sample(10, conditions={"bank.paid": 5})
    assert (fitted.sample(10, conditions={"bank.bill": (100, 200)})["bank"]["bill"] >= 100).all()


def test_the_file_keeps_relations() -> None:
    again = Federation.from_dict(federation().to_dict())
    assert again == federation()
    without = federation(paid={"atoms": []})
    assert without.column(PAID).atoms == ()
    assert Federation.from_dict(without.to_dict()) == without


@pytest.mark.parametrize(
    ("paid", "message"),
    [
        ({"relation": "bil"}, "did you mean 'bill'"),
        ({"relation": "paid"}, "not another column"),
        ({"relation": "default"}, "of kind binary"),
        ({"kind": "binary", "bounds": None, "decimals": None}, "relation is for continuous and count"),
    ],
)
def test_a_relation_that_cannot_be(paid: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        federation(paid=paid)


def test_neither_chains_nor_a_response() -> None:
    raw = federation().to_dict()
    raw["party"][0]["column"].append({"name": "late", "kind": "continuous", "bounds": [-5, 5], "relation": "paid"})
    with pytest.raises(SchemaError, match="has a relation itself"):
        Federation.from_dict(raw)
    with pytest.raises(SchemaError, match="cannot be the response"):
        Federation.from_dict({**federation().to_dict(), "response": "bank.paid"})


def test_a_column_as_written_has_the_range_of_the_sum() -> None:
    other = Column(name="bill", kind="count", bounds=(10, 20))
    own = Column(name="paid", kind="count", bounds=(-3, 4), relation="bill")
    written = own.as_written(other)
    assert (written.bounds, written.atoms, written.relation) == ((7, 24), (), None)
    assert own.heading == "paid minus bill"
