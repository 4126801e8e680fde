"""The setting `dependence`: what it changes, what it leaves alone, and where it goes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.builders import Call
from tests.unit.test_cli_methods import arguments, write
from verticopula import Federation, Synthesizer
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.schema.methods import EVCDS, IEVCDS, REFINED, STRICT, VCDS
from verticopula.schema.study_settings import StudySettings
from verticopula.stats.copula import FittedCopula
from verticopula.stats.tilted_ranks.class_tilting import CLASS_TUNING, ClassMixture
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula

pytestmark = [
    pytest.mark.filterwarnings("ignore::verticopula.errors.NotPrivateWarning"),
    pytest.mark.filterwarnings("ignore::verticopula.errors.WeakPrivacyWarning"),
]

COLUMNS = {
    "a": [
        {"name": "x", "kind": "continuous", "bounds": [-4.0, 4.0]},
        {"name": "colour", "kind": "nominal", "categories": ["red", "green", "blue"]},
    ],
    "b": [{"name": "y", "kind": "binary", "categories": ["no", "yes"]}],
}


def u_shaped(n: int, seed: int = 0) -> tuple[Federation, dict[str, pl.DataFrame]]:
    """y is true where x is far from 0 on either side: no correlation, and all of the dependence."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.standard_normal(n), -4.0, 4.0)
    y = np.abs(x) + 0.2 * rng.standard_normal(n) > 0.7
    colour = np.where(y, rng.choice(["red", "green"], n), rng.choice(["green", "blue"], n))
    ids = [f"{i:05d}" for i in range(n)]
    parties = [{"name": name, "column": columns} for name, columns in COLUMNS.items()]
    federation = Federation.from_dict({"name": "u", "id": "id", "response": "b.y", "party": parties})
    known = rng.random(n) < 0.8
    tables = {
        "a": pl.DataFrame({"id": ids, "x": x, "colour": colour}).filter(pl.Series(known)),
        "b": pl.DataFrame({"id": ids, "y": np.where(y, "yes", "no")}),
    }
    return federation, tables


def fit(n: int, method: str = VCDS.name, epsilon: float = 8.0, **settings: object) -> Synthesizer:
    federation, tables = u_shaped(n)
    rounds = {"rounds": 2} if method == IEVCDS.name else {}
    return Synthesizer(federation, method, epsilon, unit="variable", random_state=1, **rounds, **settings).fit(tables)


def spread_by_class(synthesizer: Synthesizer) -> float:
    """Mean |x| of those with y, less that of the others: 1.1 in truth."""
    drawn = synthesizer.sample(4_000)
    far = np.abs(drawn["a"]["x"].to_numpy())
    yes = (drawn["b"]["y"] == "yes").to_numpy()
    return float(far[yes].mean() - far[~yes].mean())


@pytest.mark.parametrize("method", [VCDS.name, EVCDS.name, IEVCDS.name, REFINED.name])
def test_tables_say_what_no_correlation_can(method: str) -> None:
    plain, tilted = fit(1_200, method), fit(1_200, method, dependence="tilted")
    assert isinstance(tilted.result_.copula, TiltedStudyCopula)
    assert spread_by_class(plain) < 0.2
    assert spread_by_class(tilted) > 0.6


def test_classes_of_the_response_have_models_of_their_own() -> None:
    tilted = fit(3_200, dependence="tilted")
    mixture = tilted.result_.copula
    assert isinstance(mixture, ClassMixture)
    assert len(mixture.models) == 2
    assert spread_by_class(tilted) > 0.6
    people = mixture.draw_people(1_000, np.random.default_rng(3))
    assert set(people) == set(mixture.layout.keys)
    assert {values.size for values in people.values()} == {1_000}


def test_rare_classes_have_none() -> None:
    _, tables = u_shaped(1_200)
    assert min(tables["b"]["y"].value_counts()["count"]) < CLASS_TUNING.fewest_people
    assert isinstance(fit(1_200, dependence="tilted").result_.copula, TiltedStudyCopula)


def test_copula_is_what_it_was_and_parties_do_the_same() -> None:
    default, plain, tilted = fit(400), fit(400, dependence="copula"), fit(400, dependence="tilted")
    assert type(plain.result_.copula) is FittedCopula
    for party in ("a", "b"):
        assert default.sample(50)[party].equals(plain.sample(50)[party])
    entries = [[replace(one, time="", previous="", hash="") for one in study.ledger_] for study in (plain, tilted)]
    assert entries[0] == entries[1]
    np.testing.assert_array_equal(plain.result_.copula.correlation, tilted.result_.copula.correlation)


def test_where_coins_hide_the_cells_only_the_copula_speaks_and_the_summary_says_so() -> None:
    tilted = fit(300, epsilon=0.05, dependence="tilted")
    assert type(tilted.result_.copula) is FittedCopula
    said = "No table could be read from the noisy ranks"
    assert said in tilted.summary()
    assert said not in fit(300, epsilon=0.05).summary()


@pytest.mark.parametrize("n", [1_200, 3_200])
def test_a_saved_study_draws_the_same_rows(tmp_path: Path, n: int) -> None:
    tilted = fit(n, dependence="tilted")
    tilted.save(tmp_path / "study.json")
    read = Synthesizer.load(tmp_path / "study.json")
    assert read.dependence == "tilted"
    assert type(read.result_.copula) is type(tilted.result_.copula)
    said = tilted.summary()
    assert read.summary() == said
    assert ("A model for each of 2 classes of b.y" in said) == (n > 2_000)
    assert ("a.x and b.y: 0." in said) == (n < 2_000)  # in classes of b.y there is no such pair
    page = read.report(tmp_path / "report.html").read_text("utf-8")
    assert ("at no further cost" in page) == (" tilt " in said)
    again, once = (s.result_.copula.sample(200, np.random.default_rng(7)) for s in (read, tilted))
    for key, values in once.items():
        np.testing.assert_array_equal(values, again[key])


def test_a_saved_study_with_a_class_too_few_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    fit(3_200, dependence="tilted").save(path)
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw["fit"]["classes"]["models"].pop()
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(VerticopulaError, match="classes"):
        Synthesizer.load(path)


def test_settings_leave_the_default_out_and_refuse_what_makes_no_sense() -> None:
    federation, _ = u_shaped(10)
    assert "dependence" not in StudySettings(VCDS.name).to_dict()
    asked = StudySettings(VCDS.name, dependence="tilted")
    assert StudySettings.from_dict(asked.to_dict()) == asked
    for settings, words in (
        (StudySettings(VCDS.name, dependence="vine"), "dependence is 'copula' or 'tilted'"),
        (StudySettings(STRICT.name, delta=1e-6, dependence="tilted"), "dependence is for method"),
        (StudySettings(VCDS.name, variant="as-printed", dependence="tilted"), "dependence is for method"),
    ):
        with pytest.raises(SettingsError, match=words):
            settings.checked(federation)


def test_the_command_line_asks_for_it(tmp_path: Path, call: Call) -> None:
    write(tmp_path)
    said = call(*arguments(tmp_path, "--method", VCDS.name, "--epsilon", 20, "--dependence", "tilted"))
    assert said.code == 0, said.err
    saved = json.loads((tmp_path / "out" / "study.json").read_text("utf-8"))
    assert saved["settings"]["dependence"] == "tilted"
    assert "tilted" in saved["fit"]
    assert call("report", tmp_path / "out").code == 0  # from the saved study


def test_rows_under_conditions_are_those_of_the_classes_that_have_them() -> None:
    """Against rows that are drawn without a condition, and kept where they meet it."""
    found = fit(4 * CLASS_TUNING.fewest_people, dependence="tilted")
    assert isinstance(found.result_.copula, ClassMixture)
    given = found.sample(400, conditions={"b.y": "yes", "a.x": (0.5, 4.0)})
    assert set(given["b"]["y"]) == {"yes"}
    assert given["a"]["x"].is_between(0.5, 4.0).all()
    free = found.sample(20_000)
    near = free["a"]["x"].is_between(-0.3, 0.3).to_numpy()
    kept = (free["b"]["y"].to_numpy()[near] == "yes").mean()
    drawn = found.sample(4_000, conditions={"a.x": (-0.3, 0.3)})
    assert drawn["a"]["x"].is_between(-0.3, 0.3).all()
    error = np.sqrt(kept * (1.0 - kept) * (1.0 / near.sum() + 1.0 / 4_000 + 1.0 / 1_000))
    assert abs((drawn["b"]["y"] == "yes").mean() - kept) < 4.0 * error + 0.01
    with pytest.raises(SettingsError, match="no row of the fitted model meets these conditions"):
        found.sample(10, conditions={"a.x": 0.123456})
