"""Forecasts of strict studies: what is opened, how errors move, what the advice says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.strict_central import draw, factor_correlation, make, open_all
from tests.builders import CONTINUOUS, Call, make_federation
from tests.unit.forecast_size import resize
from verticopula import Federation
from verticopula.errors import SettingsError
from verticopula.forecasting.advice import StrictLaw, advise, strict_law_of
from verticopula.forecasting.expected_errors import Expected
from verticopula.forecasting.forecast import forecast
from verticopula.mpc.sums_plan import noise_deviation
from verticopula.mpc.table_noise import table_deviation, tables_sensitivity
from verticopula.schema.federation import Network
from verticopula.schema.units import Unit


@pytest.fixture(autouse=True)
def _few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    resize(monkeypatch, "forecast", truths=(2, 2))
    resize(monkeypatch, "strict_forecast", truths=(2, 2))


@pytest.fixture(scope="module")
def small() -> Federation:
    return make_federation({p: {f"{p}{i}": CONTINUOUS for i in range(2)} for p in ("bank", "clinic", "tax")})


@pytest.mark.parametrize("unit", ["person", "block"])
def test_simulated_openings_have_the_noise_of_the_plan(unit: str) -> None:
    made = make({"a": "cob", "b": "mn"}, draw(factor_correlation(5), 2_000), {"a": np.arange(2_000) < 1_500})
    opened = open_all(made, 5.0, unit=unit)
    plan, found = opened.plan.sums, opened.openings
    off = noise_deviation(plan)
    assert found.chosen.population.gram.deviation == pytest.approx(off, rel=0.01)
    assert found.tables
    pairs = np.array(found.chosen.pairs)
    sensitivity = tables_sensitivity(pairs, plan.owners, several_rows=False)
    expected = table_deviation(2_000, plan.mu_tables, sensitivity)
    for table in found.tables:
        assert table.deviation * table.people == pytest.approx(expected, rel=0.01)


def test_strict_is_what_block_and_person_take(small: Federation) -> None:
    made = forecast(small, 4_000, 1.0, units=("block", "person"), methods=("refined", "strict"))
    for unit in ("block", "person"):
        row = made.row("strict", unit)
        assert row.epsilon_ranks is None
        assert row.after < 0.5 * made.row("refined", unit).after
        assert row.low <= row.after <= row.high
        assert 0.0 < row.margins < 0.2
    assert "method strict" in made.advice
    assert "unit person" in made.advice


def test_more_subjects_and_more_epsilon_help(small: Federation) -> None:
    rows = {
        (n, e): forecast(small, n, e, units=("person",), methods=("strict",)).rows[0]
        for n, e in ((1_000, 1.0), (8_000, 1.0), (1_000, 10.0))
    }
    for name in ("after", "before", "between", "margins"):
        found = {key: getattr(row, name) for key, row in rows.items()}
        assert found[1_000, 1.0] > found[8_000, 1.0], name
        assert found[1_000, 1.0] > found[1_000, 10.0], name


def test_fewer_subjects_are_simulated_with_the_noise_of_all(small: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    def expect() -> Expected:
        return forecast(small, 12_000, 1.0, units=("person",), methods=("strict",)).rows[0]

    whole = expect()
    resize(monkeypatch, "strict_forecast", subjects=6_000)
    part = expect()
    # Two truths of 15 pairs: their root mean squares have standard errors of about an eighth each.
    assert part.after == pytest.approx(whole.after, rel=0.5)
    assert part.before == pytest.approx(whole.before, rel=0.25)  # records are cut a little shorter
    assert part.margins == pytest.approx(whole.margins, rel=0.3)


def test_the_law_behind_the_advice() -> None:
    law = strict_law_of("person", 0.2, 0.2, {"a": 1.0, "b": 0.5}, 2_000, 1.0, 1e-6)
    assert isinstance(law, StrictLaw)
    assert law.error(2_000, 1.0) == pytest.approx(0.2)
    target = 0.1
    assert law.error(law.subjects_for(target), 1.0) == pytest.approx(target, rel=1e-3)
    assert law.error(2_000, law.epsilon_for(target)) == pytest.approx(target, rel=1e-3)
    assert law.epsilon_for(0.01) == math.inf  # below what so many subjects can tell


def test_advice_prefers_a_stricter_unit_that_works() -> None:
    law = StrictLaw(Unit.PERSON, 20_000, 1.0, 1e-6, 1.0, 0.01, 0.2)
    rough = Expected("vcds", "client", 0.01, 0.3, 0.2, 0.3, 0.3, 0.01)
    good = Expected("strict", "person", None, 0.01, 0.01, 0.01, 0.01, 0.01)
    said = advise([rough, good], {("vcds", "client"): law, ("strict", "person"): law}, 0.25, strict_possible=True)
    assert said.startswith("At unit person with method strict")
    assert "client" not in said
    assert "would halve" in said


def test_strict_is_refused_where_it_makes_no_sense(small: Federation) -> None:
    with pytest.raises(SettingsError, match="'block' and 'person' only"):
        forecast(small, 500, 1.0, units=("client",), methods=("strict",))
    alone = make_federation({"bank": dict.fromkeys("ab", CONTINUOUS)})
    with pytest.raises(SettingsError, match="at least 2 parties"):
        forecast(alone, 500, 1.0, methods=("strict",))
    with pytest.raises(SettingsError, match="at least 2 parties"):
        forecast(alone, 500)  # what nobody named is not replaced


def test_it_is_what_is_forecast_where_nobody_names_a_method(small: Federation) -> None:
    made = forecast(small, 1_000)
    assert (made.epsilon, made.delta) == (3.0, 1e-6)
    assert [(row.method, row.unit) for row in made.rows] == [("strict", "block"), ("strict", "person")]
    with pytest.raises(SettingsError, match="different defaults of epsilon"):
        forecast(small, 1_000, methods=("strict", "vcds"))


def test_the_command_has_strict_alone(call: Call, small: Federation, tmp_path: Path) -> None:
    small.to_toml(tmp_path / "federation.toml")
    options = ("forecast", tmp_path / "federation.toml", "-n", 1_000, "--method", "strict")
    said = call(*options, "--json")
    assert said.code == 0, said.err
    rows = json.loads(said.out)["rows"]
    assert [(row["method"], row["unit"], row["epsilon_ranks"]) for row in rows] == [
        ("strict", "block", None),
        ("strict", "person", None),
    ]
    said = call(*options, "--unit", "person")
    assert "what noise and sample alone leave" in said.out


def test_a_forecast_says_what_the_federation_file_lacks_before_the_study_can_run() -> None:
    named = make_federation({"bank": dict.fromkeys("abc", CONTINUOUS), "agency": dict.fromkeys("de", CONTINUOUS)})
    unnamed = named.model_copy(update={"network": Network()})
    lacking, complete = (
        forecast(file, 2_000, 3.0, units=("person",), methods=("strict",)) for file in (unnamed, named)
    )
    assert "Before it can run: method 'strict' needs three that compute" in lacking.advice
    assert "Before it can run" not in complete.advice
    assert lacking.rows == complete.rows
    assert "Before it can run" not in forecast(unnamed, 2_000, 3.0, methods=("vcds",)).advice
