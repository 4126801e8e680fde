"""Forecasts: what they assume, how they move, and that they are about right."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.builders import CONTINUOUS, Call, fit_seeded, make_federation, make_tables
from tests.unit.forecast_size import resize
from verticopula import Federation
from verticopula.errors import SettingsError
from verticopula.forecasting.advice import ErrorLaw, advise
from verticopula.forecasting.forecast import Expected, forecast, plan_quickly
from verticopula.privacy.budget import StudyBudget, plan_budget
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.units import Unit
from verticopula.simulate.assumptions import AssumedMargin, AssumedPresence, Assumptions
from verticopula.simulate.rank_simulation import Cohort, draw_cohort
from verticopula.study.correlation_errors import population_errors

BINARY = {"kind": "binary"}
NOMINAL = {"kind": "nominal", "categories": ["a", "b", "c"]}
COUNT = {"kind": "count", "bounds": [0, 12]}


@pytest.fixture(autouse=True)
def _few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests are about directions, not digits."""
    resize(monkeypatch, "forecast", truths=(3, 4))
    resize(monkeypatch, "strict_forecast", truths=(2, 2))


@pytest.fixture(scope="module")
def mixed() -> Federation:
    first = {"y": BINARY, "a": CONTINUOUS, "b": CONTINUOUS}
    return make_federation({"bank": first, "agency": {"c": CONTINUOUS, "k": COUNT, "n": NOMINAL}})


@pytest.fixture(scope="module")
def continuous() -> Federation:
    return make_federation({"bank": dict.fromkeys("abcd", CONTINUOUS), "agency": dict.fromkeys("efgh", CONTINUOUS)})


# ---- how it moves ----------------------------------------------------------------------------


def test_more_subjects_and_more_epsilon_help(mixed: Federation) -> None:
    for method in ("vcds", "refined"):
        errors = {
            (n, e): forecast(mixed, n, e, units=("client",), methods=(method,)).rows[0]
            for n in (400, 1_600, 6_400)
            for e in (0.3, 8.0)
        }
        for name in ("before", "after", "between", "margins"):
            found = {key: getattr(row, name) for key, row in errors.items()}
            for e in (0.3, 8.0):
                assert found[400, e] > found[1_600, e] > found[6_400, e]
            for n in (400, 1_600, 6_400):
                assert found[n, 0.3] > found[n, 8.0]


def test_stricter_units_are_worse_and_all_four_are_shown(mixed: Federation) -> None:
    made = forecast(mixed, 2_000, 4.0, methods=("vcds", "refined"))
    assert {row.unit for row in made.rows} == {"variable", "client", "block", "person"}
    before = [made.row("vcds", unit).before for unit in ("variable", "client", "block")]
    assert before == sorted(before)
    # Once everything is shrunk away, what is left is the assumed correlations themselves.
    assert made.row("vcds", "person").after == pytest.approx(0.25, rel=0.15)
    assert "mostly noise" in made.advice
    assert "method strict is made for units block and person" in made.advice


def test_missing_blocks_hurt_and_a_smaller_overlap_hurts_more(continuous: Federation) -> None:
    def between(**settings: object) -> float:
        found = forecast(continuous, 2_000, 4.0, units=("variable",), methods=("vcds",), **settings).rows[0].between  # type: ignore[arg-type]
        assert found is not None
        return found

    three = make_federation({p: {f"{p}{i}": CONTINUOUS for i in range(3)} for p in "xyz"})
    apart, joined = (
        forecast(
            three,
            2_000,
            4.0,
            units=("variable",),
            methods=("vcds",),
            observed={"y": 0.5, "z": 0.5},
            together={("y", "z"): share},
        ).rows[0]
        for share in (0.05, 0.45)
    )
    assert apart.before > 1.2 * joined.before
    assert between(observed={"agency": 0.25}) > 1.5 * between()


def test_the_same_question_gets_the_same_answer(mixed: Federation) -> None:
    settings = {"units": ("client",), "methods": ("refined",), "observed": {"agency": 0.6}, "log_odds": 1.0}
    assert forecast(mixed, 700, 2.0, **settings) == forecast(mixed, 700, 2.0, **settings)  # type: ignore[arg-type]


def test_a_simulation_on_fewer_subjects_says_the_same(continuous: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    resize(monkeypatch, "forecast", truths=(8, 8))
    whole = forecast(continuous, 3_000, 1.0, units=("client",), methods=("vcds", "refined"))
    resize(monkeypatch, "forecast", subjects=600)
    part = forecast(continuous, 3_000, 1.0, units=("client",), methods=("vcds", "refined"))
    for row, other in zip(whole.rows, part.rows, strict=True):
        assert other.before == pytest.approx(row.before, rel=0.12)
        assert other.after == pytest.approx(row.after, rel=0.12)
        assert other.margins == pytest.approx(row.margins, rel=0.12)


def test_a_bias_does_not_fall_with_the_number_of_subjects(mixed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"units": ("client",), "methods": ("vcds",), "observed": {"agency": 0.5}, "log_odds": 3.0}
    whole = forecast(mixed, 6_000, 200.0, **settings).rows[0]  # type: ignore[arg-type]
    resize(monkeypatch, "forecast", subjects=1_500)
    part = forecast(mixed, 6_000, 200.0, **settings).rows[0]  # type: ignore[arg-type]
    accidents = forecast(mixed, 6_000, 200.0, units=("client",), methods=("vcds",), observed={"agency": 0.5}).rows[0]
    assert whole.before > 1.5 * accidents.before  # a bias is what this study has
    assert part.before == pytest.approx(whole.before, rel=0.2)


def test_what_is_said_of_the_correlations_and_of_rare_categories_counts(
    continuous: Federation, mixed: Federation
) -> None:
    def expect(federation: Federation, **said: object) -> Expected:
        return forecast(federation, 1_000, 100.0, units=("client",), methods=("vcds",), **said).rows[0]  # type: ignore[arg-type]

    strong, weak = (expect(continuous, typical_correlation=strength) for strength in (0.6, 0.1))
    assert strong.before < 0.85 * weak.before  # strong correlations vary less: by 1 - r^2
    rare, even = (expect(mixed, shares={ColumnKey("bank", "y"): [share]}) for share in (0.02, 0.5))
    assert rare.before > 1.15 * even.before
    for row in (strong, weak, rare, even):
        assert row.low <= row.before <= row.high


def test_evcds_is_forecast_as_vcds_and_ievcds_pays_for_its_rounds(continuous: Federation) -> None:
    made = forecast(continuous, 1_000, 4.0, units=("client",), methods=("vcds", "evcds", "ievcds"))
    assert made.row("evcds", "client").before == made.row("vcds", "client").before
    assert made.row("ievcds", "client").epsilon_ranks == pytest.approx(made.row("vcds", "client").epsilon_ranks / 10)
    assert made.row("ievcds", "client").before > 2 * made.row("vcds", "client").before


# ---- whether it is right ---------------------------------------------------------------------


@pytest.mark.parametrize(("n", "epsilon", "rho"), [(800, 1.0, 0.3), (400, 4.0, 0.5)])
def test_it_agrees_with_real_studies(
    continuous: Federation, n: int, epsilon: float, rho: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, "forecast", truths=(12, 12))
    truth = rho ** np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    upper = np.triu_indices(8, 1)
    squares, errors = [], []
    for seed in range(12):
        rng = np.random.default_rng([seed, n])
        values = rng.standard_normal((n, 8)) @ np.linalg.cholesky(truth).T
        tables = make_tables(continuous, dict(zip("abcdefgh", values.T, strict=True)))
        study = fit_seeded(continuous, tables, seed, epsilon=epsilon, unit="client").study_
        squares.append(np.mean((study.result.copula.correlation - truth)[upper] ** 2))
        errors.append(np.mean(population_errors(study)[upper] ** 2))
    strength = float(np.sqrt(np.mean(truth[upper] ** 2)))
    expected = forecast(
        continuous, n, epsilon, units=("client",), methods=("vcds",), typical_correlation=strength
    ).rows[0]
    assert expected.after == pytest.approx(math.sqrt(np.mean(squares)), rel=0.2)
    # What a report says afterwards is what the forecast said before.
    assert expected.before == pytest.approx(math.sqrt(np.mean(errors)), rel=0.2)


@pytest.mark.parametrize("unit", ["block", "person"])
def test_the_quick_budget_is_the_exact_one(mixed: Federation, unit: str) -> None:
    truth = Assumptions.draw(mixed, 0.25, np.random.default_rng(0))
    presence = AssumedPresence(np.array([1.0, 0.5]), {}, False)
    cohort: Cohort = draw_cohort(mixed, truth, 900, 900, presence, np.random.default_rng(1))
    request = StudyBudget.build(mixed, unit=unit, epsilon=4.0, delta=1e-6)
    exact = plan_budget(mixed, request, cohort.counts(), 900)
    for key, quick in plan_quickly(mixed, request, cohort).items():
        assert quick.epsilon_ranks == pytest.approx(exact[key].epsilon_ranks, rel=0.01)
        assert quick.epsilon_marginal == exact[key].epsilon_marginal


# ---- what it assumes ------------------------------------------------------------------------


def test_assumed_margins_are_distributions_and_draws_follow_them() -> None:
    rng = np.random.default_rng(3)
    columns = [
        Column(name="c", kind="continuous", bounds=(-1, 1)),
        Column(name="k", kind="count", bounds=(5, 900)),
        Column(name="o", kind="ordinal", categories=("1", "2", "3")),
        Column(name="b", kind="binary"),
    ]
    for column in columns:
        margin = AssumedMargin.draw(column, rng)
        cells = 16 if column.kind == "continuous" else margin.cell_probabilities(0).size
        shares = margin.cell_probabilities(cells)
        values = margin.values(rng.standard_normal((50_000, 1)))
        drawn = np.bincount(margin.cells(values, cells), minlength=cells) / 50_000
        assert shares.min() >= 0.0
        assert shares.sum() == pytest.approx(1.0)
        assert np.max(np.abs(drawn - shares)) < 0.01


def test_assumed_correlations_have_the_size_asked_for(continuous: Federation, mixed: Federation) -> None:
    for federation, strength in ((continuous, 0.1), (continuous, 0.3), (mixed, 0.2)):
        sizes = []
        for seed in range(20):
            truth = Assumptions.draw(federation, strength, np.random.default_rng(seed))
            assert np.linalg.eigvalsh(truth.correlation)[0] > 0.0
            assert np.max(np.abs(truth.correlation[truth.layout.nominal_blocks()]), initial=0.0) < 0.05
            free = np.triu(~truth.layout.nominal_blocks(), 1)
            sizes.append(np.mean(truth.correlation[free] ** 2))
        assert np.sqrt(np.mean(sizes)) == pytest.approx(strength, rel=0.25)


def test_masks_have_the_shares_asked_for() -> None:
    rng = np.random.default_rng(0)
    score = rng.standard_normal(40_000)
    for at_random in (0.0, 1.0):
        presence = AssumedPresence(np.array([1.0, 0.4, 0.3]), {(1, 2): 0.05}, at_random)
        masks = presence.draw(score, rng, presence.selection * np.array([1.0, 1.0, -1.0]))
        assert np.allclose(masks.mean(axis=0), [1.0, 0.4, 0.3], atol=0.01)
        assert float(np.mean(masks[:, 1] & masks[:, 2])) == pytest.approx(0.05, abs=0.02)
        shift = abs(score[masks[:, 1]].mean())
        assert shift > 0.2 if at_random else shift < 0.05


def test_told_shares_are_those_of_the_subjects_that_a_party_has() -> None:
    federation = make_federation({"bank": {"y": BINARY}, "agency": {"b": BINARY, "n": NOMINAL}})
    keys = ColumnKey("agency", "b"), ColumnKey("agency", "n")
    told = {keys[0]: np.array([0.9, 0.1]), keys[1]: np.array([0.2, 0.1, 0.7])}
    presence = AssumedPresence(np.array([1.0, 0.4]), {}, 2.0)
    moved = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        truth = Assumptions.draw(federation, 0.5, rng, presence, told)
        cohort = draw_cohort(federation, truth, 40_000, 40_000, presence, rng)
        for key, shares in told.items():
            found = np.bincount(cohort.values[key].astype(int), minlength=shares.size) / cohort.values[key].size
            assert found == pytest.approx(shares, abs=0.02)  # of 8,000 and 16,000 people: three standard errors
            moved.append(np.max(np.abs(truth.margins[key].shares - shares)))
    assert max(moved) > 0.03  # in the population they are others


def test_the_law_behind_the_advice() -> None:
    law = ErrorLaw(Unit.CLIENT, 1_000, 2.0, 1e-6, np.ones(4), np.full(4, 0.05))
    target = law.error(1_000, 2.0) / 2.0
    assert law.error(law.subjects_for(target), 2.0) == pytest.approx(target, rel=1e-3)
    assert law.error(1_000, law.epsilon_for(target)) == pytest.approx(target, rel=1e-3)
    assert law.epsilon_for(0.01) == math.inf  # below what a thousand subjects can tell
    row = Expected("vcds", "client", 0.2, 0.1, 0.05, 0.1, 0.1, 0.01)
    assert "would halve" in advise([row], {("vcds", "client"): law}, 0.25)


# ---- hostile input ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"n_subjects": 9}, "at least 10"),
        ({"n_subjects": True}, "at least 10"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"units": ("cilent",)}, "cilent"),
        ({"methods": ("magic",)}, "magic"),
        ({"typical_correlation": 0.0}, "typical correlation"),
        ({"typical_correlation": math.nan}, "typical correlation"),
        ({"observed": {"nobody": 0.5}}, "nobody"),
        ({"observed": {"agency": 0.0}}, "(0, 1]"),
        ({"observed": {"agency": 1.5}}, "(0, 1]"),
        ({"observed": {"agency": math.nan}}, "(0, 1]"),
        ({"observed": {"bank": 0.5}}, "response"),
        ({"observed": {"agency": 0.5}, "together": {("bank", "agency"): 0.4}}, "[0.5, 0.5]"),
        ({"together": {("bank", "nobody"): 0.4}}, "nobody"),
        ({"together": {("agency", "agency"): 1.0}}, "two parties"),
        ({"log_odds": -1.0}, "log odds"),
        ({"log_odds": math.inf}, "log odds"),
        ({"shares": {ColumnKey("bank", "z"): [0.1]}}, "bank.z"),
        ({"shares": {ColumnKey("bank", "a"): [0.1]}}, "no categories"),
        ({"shares": {ColumnKey("bank", "y"): [1.5]}}, "positive"),
        ({"shares": {ColumnKey("agency", "n"): [0.5, 0.5]}}, "3 positive"),
        ({"shares": {ColumnKey("agency", "n"): [0.5, 0.5, math.nan]}}, "3 positive"),
    ],
)
def test_nonsense_is_refused_by_name(mixed: Federation, settings: dict[str, object], word: str) -> None:
    asked = {"n_subjects": 500, "epsilon": 1.0, **settings}
    with pytest.raises(SettingsError) as raised:
        forecast(mixed, **asked)  # type: ignore[arg-type]
    assert word in str(raised.value)


def test_odd_but_possible_studies() -> None:
    alone = make_federation({"bank": {"y": BINARY}})
    assert forecast(alone, 10, 1.0, units=("client",), methods=("vcds",)).rows[0].within is None
    own = make_federation({"bank": {"y": BINARY}, "agency": {"a": CONTINUOUS}}, agency=0.5)
    made = forecast(own, 50, 1.0, methods=("vcds", "strict"))
    assert {row.unit for row in made.rows} == {"variable", "client", "block"}
    assert [row.unit for row in made.rows if row.method == "strict"] == ["block"]
    few = forecast(own, 10, 1.0, units=("client",), methods=("vcds", "refined"), observed={"agency": 0.01})
    assert all(math.isfinite(row.after) for row in few.rows)


# ---- the command -----------------------------------------------------------------------------


@pytest.fixture
def file(mixed: Federation, tmp_path: Path) -> Path:
    mixed.to_toml(tmp_path / "federation.toml")
    return tmp_path / "federation.toml"


def test_command_shows_a_table_and_advice(call: Call, file: Path) -> None:
    said = call(
        *("forecast", file, "--subjects", 500, "--epsilon", 4, "--observed", "agency=0.5"),
        *("--method", "vcds", "--method", "refined", "--method", "strict"),
        *("--together", "bank+agency=0.5", "--at-random", "--log-odds", 1.5, "--share", "bank.y=0.1"),
    )
    assert said.code == 0, said.err
    for word in (
        "variable",
        "client",
        "block",
        "person",
        "vcds",
        "refined",
        "strict",
        "Assumed",
        "usable from",
        "a person",
    ):
        assert word in said.out


def test_command_prints_json(call: Call, file: Path) -> None:
    said = call("forecast", file, "-n", 300, "--unit", "client", "--method", "vcds", "--json")
    found = json.loads(said.out)
    assert [(row["method"], row["unit"]) for row in found["rows"]] == [("vcds", "client")]
    assert found["advice"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--observed", "nobody=0.5"), "nobody"),
        (("--observed", "agency"), "agency"),
        (("--observed", "agency=much"), "no number"),
        (("--observed", "agency=1.2"), "(0, 1]"),
        (("--together", "agency=0.2"), "two parties"),
        (("--share", "agency=0.2"), "name a column"),
        (("--share", "bank.y=few"), "no numbers"),
        (("--share", "bank.y=1.2"), "positive"),
        (("--at-random", "--log-odds", "-2"), "log odds"),
        (("--unit", "house"), "house"),
        (("--epsilon", "-1"), "epsilon"),
    ],
)
def test_command_refuses_nonsense(call: Call, file: Path, options: tuple[str, ...], word: str) -> None:
    said = call("forecast", file, "-n", 300, *options)
    assert said.code == 1
    assert word in said.err


def test_command_refuses_a_tiny_cohort(call: Call, file: Path) -> None:
    said = call("forecast", file, "-n", 9)
    assert said.code == 1
    assert "at least 10" in said.err
