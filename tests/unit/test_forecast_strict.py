"""Forecasts of strict studies: what is opened, how errors move, what the advice says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sums_plans import PARTIES, complete_plan
from tests.builders import CONTINUOUS, Call, make_federation
from tests.unit.forecast_size import resize
from verticopula import Federation
from verticopula.errors import SettingsError
from verticopula.forecasting.advice import StrictLaw, advise, strict_law_of
from verticopula.forecasting.expected_errors import Expected
from verticopula.forecasting.forecast import forecast
from verticopula.mpc.sums_plan import noise_deviation
from verticopula.schema.units import Unit
from verticopula.simulate.strict_simulation import open_centrally


@pytest.fixture(autouse=True)
def _few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    resize(monkeypatch, "forecast", truths=(2, 2))
    resize(monkeypatch, "strict_forecast", truths=(2, 2))


@pytest.fixture(scope="module")
def small() -> Federation:
    return make_federation({p: {f"{p}{i}": CONTINUOUS for i in range(2)} for p in ("bank", "clinic", "tax")})


def test_sums_opened_centrally_are_the_exact_ones_with_the_noise_of_the_plan() -> None:
    plan, rng = complete_plan(1.0), np.random.default_rng(0)
    coded = {p: rng.integers(-(2**plan.bits), 2**plan.bits, (4, width)) for p, width in PARTIES.items()}
    whole = np.hstack([coded[p] for p in PARTIES]) / 2.0**plan.bits
    off, on = noise_deviation(plan, 0)
    opened = [open_centrally(plan, coded, rng)[0] for _ in range(500)]
    noise = np.array([found.products - whole.T @ whole for found in opened])
    assert np.array_equal(noise, noise.swapaxes(1, 2))
    upper = np.triu_indices(whole.shape[1], 1)
    sums = np.array([found.sums - whole.sum(axis=0) for found in opened]) / off
    for drawn in (noise[:, *upper] / off, np.diagonal(noise, axis1=1, axis2=2) / on, sums):
        # Of 2,000 normals or more: five standard errors of a mean, and of a variance.
        assert abs(drawn.mean()) < 5.0 / math.sqrt(drawn.size)
        assert abs(drawn.var() - 1.0) < 5.0 * math.sqrt(2.0 / drawn.size)


def test_strict_is_what_block_and_person_take(small: Federation) -> None:
    made = forecast(small, 4_000, 1.0, units=("block", "person"))
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
    rows = forecast(alone, 500, 1.0, units=("variable", "person")).rows
    assert {row.method for row in rows} == {"vcds", "refined"}


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
