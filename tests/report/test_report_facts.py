"""What the report's figures and tables are made from."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import spearmanr
from sklearn.exceptions import ConvergenceWarning

from tests.builders import make_federation
from tests.report import studies
from verticopula import VerticalGLM
from verticopula.errors import SchemaError, SettingsError
from verticopula.estimators.default_regression import fit_if_cheap
from verticopula.formatting import (
    describe_odds,
    format_number,
    format_percent,
    format_small,
    join_names,
    json_safe,
    readable,
)
from verticopula.report.association_figures import (
    describe_correlation,
    expected_errors,
    party_blocks,
    rank_correlation,
    realised_errors,
    strongest_pairs,
)
from verticopula.report.margin_figures import describe_margins
from verticopula.report.propensity_check import compare, propensity_scores
from verticopula.report.regression_section import regression_section
from verticopula.report.release_section import describe_parties, describe_units
from verticopula.report.report_data import ReportData, read_real
from verticopula.report.report_page import as_json, gather, render_report
from verticopula.report.sensitivity_analysis import DELTAS, margin_sensitivity, regression_sensitivity, shift_missing
from verticopula.schema.units import Unit


def real() -> ReportData:
    return studies.subject(real=read_real(studies.federation(), studies.tables()))


@pytest.fixture(scope="module")
def facts() -> dict[str, object]:
    tables = studies.fitted().decode(studies.fitted().result_.copula.sample(3_000, np.random.default_rng(1)))
    found = fit_if_cheap(studies.fitted().study_, tables)
    assert found is not None
    return found


def test_units_say_what_the_statement_says() -> None:
    units = {row["unit"]: row for row in describe_units(studies.fitted().privacy_, Unit.CLIENT)}
    assert units["client"]["epsilon"] == "8"
    assert units["client"]["asked"]
    assert not units["person"]["asked"]
    assert units["person"]["delta"] == "1e-6"
    assert "no bound" in units["person"]["odds"]
    assert units["variable"]["odds"] == "at most 54.6 times"  # e^4, rounded up


def test_every_release_is_listed_once() -> None:
    parties = describe_parties(studies.fitted().study_.releases, studies.fitted().privacy_)
    assert [party["name"] for party in parties] == ["bank", "court", "shop"]
    listed_columns = {(party["name"], column["name"]) for party in parties for column in party["columns"]}
    assert listed_columns == set(studies.federation().keys)
    assert parties[0]["columns"][0]["per_comparison"] == "2"
    assert "UTC" in parties[0]["when"]


def test_bars_hold_all_of_every_margin() -> None:
    columns = describe_margins(studies.subject())
    assert len(columns) == 6
    for column in columns:
        assert set(column["series"]) == {"observed", "synthetic"}
        for shares in column["series"].values():
            assert len(shares) == len(column["labels"])
            assert sum(shares) == pytest.approx(1.0, abs=1e-3)


def test_cells_of_different_widths_know_their_places() -> None:
    columns = {column["key"]: column for column in describe_margins(studies.subject())}
    for key, column in columns.items():
        assert column["places"] is None or key == "court.suits"
        if column["edges"] is not None:
            assert len(column["edges"]) == len(column["labels"]) + 1
    federation = make_federation({"clinic": {"days": {"kind": "count", "bounds": [0, 400], "cells": "growing"}}})
    days = np.random.default_rng(1).gamma(4.0, 30.0, 500).astype(int)
    data = {"clinic": pl.DataFrame({"subject_id": [f"s{i}" for i in range(500)], "days": np.minimum(days, 400)})}
    (column,) = describe_margins(ReportData(studies.fit("vcds", data, federation=federation).study_))
    places = column["places"]
    assert places[0] == 0
    assert places == sorted(set(places))
    assert len(places) == len(column["series"]["synthetic"]) + 1 == len(column["edges"])
    # As high as a share of one value, the bars fall to the right, as the values do.
    heights = np.array(column["series"]["observed"]) / np.diff(places)
    assert np.argmax(column["series"]["observed"]) > np.argmax(heights)
    assert 30 < places[int(np.argmax(heights))] < 130


def test_bars_of_real_tables_are_their_shares() -> None:
    columns = {column["key"]: column for column in describe_margins(real())}
    grade = studies.tables()["court"]["grade"]
    assert columns["court.grade"]["series"]["real"] == pytest.approx(
        [float((grade == name).mean()) for name in ("low", "middle", "high")], abs=1e-5
    )
    assert sum(columns["shop.spent"]["series"]["real"]) == pytest.approx(1.0, abs=1e-3)
    assert sum(columns["court.suits"]["series"]["real"]) == pytest.approx(1.0, abs=1e-3)


def test_the_lower_triangle_holds_every_correlation() -> None:
    subject = studies.subject()
    told = describe_correlation(subject)
    matrix = subject.result.copula.correlation
    q = matrix.shape[0]
    assert len(told["names"]) == q == 8
    assert [span[0] for span in told["parties"]] == ["bank", "court", "shop"]
    assert told["parties"][-1][2] == q
    assert told["r"][5 * 4 // 2 + 2] == round(1000 * matrix[5, 2])
    assert len(told["r"]) == len(told["se"]) == len(told["n"]) == q * (q - 1) // 2


def test_strongest_pairs_are_of_different_columns() -> None:
    pairs = strongest_pairs(studies.subject())
    sizes = [abs(pair["r"]) for pair in pairs]
    assert sizes == sorted(sizes, reverse=True)
    assert all(pair["first"].split("=")[0] != pair["second"].split("=")[0] for pair in pairs)
    assert all(value is not None for row in party_blocks(studies.subject())["rows"] for value in row)


def test_expected_errors_count_every_pair() -> None:
    told = expected_errors(studies.subject())
    assert told["pairs"] == 8 * 7 // 2 - 3  # not the pairs of the three categories of one column
    assert sum(told["counts"]) == told["pairs"]
    assert told["median"] <= told["upper"] <= told["largest"] <= told["edges"][-1]
    assert told["largest"] <= 1.0
    # 600 people cannot tell a correlation better than this, whatever the noise.
    assert told["median"] > 0.7 / np.sqrt(600)


def test_rank_correlation_is_spearman_of_common_rows() -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_normal((200, 3))
    found, common = rank_correlation(values, np.ones((200, 3), dtype=bool))
    assert found[0, 1] == pytest.approx(spearmanr(values[:, 0], values[:, 1]).statistic)
    observed = np.ones((200, 3), dtype=bool)
    observed[:50, 0] = False
    _, common = rank_correlation(values, observed)
    assert common[0, 1] == 150
    assert common[1, 2] == 200


def test_realised_errors_need_real_tables() -> None:
    assert realised_errors(studies.subject()) is None
    told = realised_errors(real())
    assert told is not None
    assert len(told["points"]) == 8 * 7 // 2 - 3
    assert told["mean"] < 0.25
    one = studies.subject(real=read_real(studies.federation(), {"court": studies.tables()["court"]}))
    alone = realised_errors(one)
    assert alone is not None
    assert [point[:2] for point in alone["points"]] == [["court.suits", "court.grade"]]


def test_one_partys_table_is_enough_and_a_stranger_is_refused() -> None:
    with pytest.raises(SchemaError, match="nobody"):
        read_real(studies.federation(), {"nobody": studies.tables()["court"]})


def test_pmse_of_like_rows_is_what_chance_gives() -> None:
    rng = np.random.default_rng(3)
    alike = compare(rng.standard_normal((4_000, 5)), rng)
    assert 0.1 < alike["logistic"]["ratio"] < 4.0  # a chi-square of 5 over 5
    assert 0.8 < alike["tree"]["ratio"] < 1.25
    shifted = rng.standard_normal((4_000, 5))
    shifted[:2_000] += 0.5
    apart = compare(shifted, rng)
    assert apart["logistic"]["ratio"] > 20.0
    assert apart["tree"]["ratio"] > 2.0


def test_propensity_scores_are_per_party_and_for_all() -> None:
    assert propensity_scores(studies.subject()) == []
    scores = {entry["label"]: entry for entry in propensity_scores(real())}
    assert list(scores) == ["bank", "court", "shop", "all parties"]
    assert scores["bank"]["rows"] == studies.N
    assert all(entry["logistic"]["pmse"] > 0.0 for entry in scores.values())


def test_nothing_moves_at_delta_zero_or_without_missing() -> None:
    before, after = np.array([0.2, 0.6, 0.9, 1.0]), np.array([0.3, 0.65, 0.92, 1.0])
    assert shift_missing(before, after, 0.5, 0.0) == pytest.approx(after)
    assert shift_missing(before, after, 0.0, 0.5) == pytest.approx(after)


def test_a_shift_is_that_of_a_normal_population() -> None:
    """Nobody observed: a normal population half a standard deviation higher."""
    z = np.linspace(-2, 2, 9)
    assert shift_missing(ndtr(z), ndtr(z), 1.0, 0.5) == pytest.approx(ndtr(z - 0.5))
    half = shift_missing(ndtr(z), ndtr(z), 0.5, 0.5)
    assert half == pytest.approx(0.5 * ndtr(z) + 0.5 * ndtr(z - 0.5))
    assert ndtri(half)[4] < 0.0


def test_where_everybody_is_known_nothing_is_said_of_the_missing() -> None:
    complete = studies.fit("vcds", studies.tables(missing=False))
    assert margin_sensitivity(ReportData(complete.study_)) == []
    assert "not missing at random" not in render_report(ReportData(complete.study_))
    assert "The fit predicts" in render_report(studies.subject())
    observed_only = render_report(ReportData(studies.fit("vcds").study_))
    assert "vcds takes the subjects a party does not know to be like those it knows" in observed_only
    assert "The fit predicts" not in observed_only


def test_tiny_repairs_are_none() -> None:
    study = studies.fitted().study_
    report = replace(study.result.report, psd_change=2.78e-17)
    page = render_report(ReportData(replace(study, result=replace(study.result, report=report))))
    row = page[page.index("Made a correlation matrix") :][:60]
    assert '<td class="n">0</td>' in row


def test_margins_move_up_with_delta_and_the_response_stays() -> None:
    told = {row["key"]: row for row in margin_sensitivity(studies.subject())}
    assert set(told) == {"bank.default", "court.suits", "court.grade", "shop.sector", "shop.spent"}
    assert told["bank.default"]["response"]
    assert np.ptp(told["bank.default"]["values"]) == 0.0
    for key in ("court.suits", "court.grade", "shop.sector", "shop.spent"):
        assert np.all(np.diff(told[key]["values"]) > 0.0)
    assert told["shop.spent"]["statistic"] == "median"
    assert told["court.suits"]["statistic"] == "mean"


def test_coefficients_move_only_where_blocks_are_missing(facts: dict[str, object]) -> None:
    told = regression_sensitivity(studies.subject(regression=facts))
    assert told is not None
    assert {part["party"] for part in told["parties"]} == {"court", "shop"}
    for part in told["parties"]:
        moves = dict(zip(DELTAS, part["moves"], strict=True))
        assert np.all(np.array(moves[0.0]) == 0.0)
        assert np.all(np.isfinite(moves[0.5]))
    assert max(abs(v) for part in told["parties"] for move in part["moves"] for v in move) > 0.0


def test_a_regression_whose_response_has_no_name_cannot_be_repeated() -> None:
    tables = studies.fitted().decode(studies.fitted().result_.copula.sample(2_000, np.random.default_rng(1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = VerticalGLM("gaussian", penalty="none").fit(
            {"court": tables["court"].select("suits")}, tables["bank"]["income"]
        )
    told = model.to_dict(0.95)
    assert told["rows"][1]["feature"] == "suits"
    assert regression_sensitivity(studies.subject(regression=told)) is None


def test_regressions_are_kept_and_shown(facts: dict[str, object]) -> None:
    json.dumps(facts, allow_nan=False)
    told = regression_section(studies.subject(regression=facts))
    assert told is not None
    assert told["rows"][0]["name"] == "intercept"
    assert all(row["sd"] > 0.0 for row in told["rows"][1:])
    assert regression_section(studies.subject()) is None
    stranger = {**facts, "rows": [{"party": "bank", "column": "shoes", "feature": "shoes", "coefficient": 1.0}]}
    with pytest.raises(SettingsError, match="another"):
        regression_section(studies.subject(regression=stranger))


def test_a_regression_that_would_take_long_is_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verticopula.estimators.default_regression.CHEAP", 10)
    assert fit_if_cheap(studies.fitted().study_, dict.fromkeys(("bank", "court", "shop"))) is None


def test_without_real_tables_nothing_real_is_gathered() -> None:
    told = gather(studies.subject())
    assert not told["in_house"]
    assert told["realised"] is None
    assert told["scores"] == []
    assert all("real" not in column["series"] for column in told["columns"])


def test_json_cannot_leave_its_element() -> None:
    text = as_json({"a": "</script><!--&", "b": float("nan"), "c": [1.5, "\u2028"]})
    assert "<" not in text
    assert ">" not in text
    assert json.loads(text) == {"a": "</script><!--&", "b": None, "c": [1.5, "⟨U+2028⟩"]}


def test_words() -> None:
    assert [format_number(v) for v in (0.0, 1234567.0, 0.05678, 3.0, 1e-7, None)] == [
        "0",
        "1,234,567",
        "0.0568",
        "3",
        "1.00e-7",
        "–",
    ]
    assert format_percent(0.00001) == "< 0.1 %"
    assert format_percent(0.1234) == "12.3 %"
    assert join_names(["a", "b", "c"], 2) == "a, b and 1 more"
    assert readable("a\u202eb") == "a⟨U+202E⟩b"
    assert readable("naïve 👩‍⚕️") == "naïve 👩‍⚕️"
    assert json_safe({"x\u200f": (1, "y")}) == {"x⟨U+200F⟩": [1, "y"]}
    assert describe_odds(float("inf")) == "no bound at all"
    assert format_small(1e-6) == "1e-6"
