"""Rows that a lead asks for: under conditions, with or without gaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.report.test_report_hostile import canary_federation, canary_tables
from tests.report.test_report_lead import submitted
from tests.unit.test_study_records import request
from verticopula.errors import SettingsError
from verticopula.network.coordinator.study_runner import check_wanted_rows


def test_conditions_hold_in_all_rows_and_are_told_of(tmp_path: Path) -> None:
    result, parties = submitted(tmp_path, conditions=("left.flag=1", "left.y=-1..1"), rows=80)
    rows = pl.read_csv(result / "synthetic" / "left.csv")
    assert rows.height == 80
    assert (rows["flag"] == 1).all()
    assert rows["y"].is_between(-1, 1).all()
    assert pl.read_csv(next(parties.rglob("left.csv"))).equals(rows)
    assert "All rows were drawn under conditions: left.flag=1, left.y=-1..1." in (result / "summary.txt").read_text()


def test_gaps_as_observed_reach_the_lead_and_the_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = canary_tables()
    monkeypatch.setattr("tests.report.test_report_lead.canary_tables", lambda: {**whole, "right": whole["right"][:60]})
    result, parties = submitted(tmp_path, missing="as-observed")
    rows = pl.read_csv(result / "synthetic" / "right.csv")
    assert 30 <= rows["n"].null_count() <= 90  # half of 120: five standard deviations
    assert next(parties.rglob("right.csv")).read_bytes() == (result / "synthetic" / "right.csv").read_bytes()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"conditions": ("left.flag=7",)}, "not one of its categories"),
        ({"conditions": ("left.flog=1",)}, "did you mean"),
        ({"conditions": ("nonsense",)}, "party.column=value"),
        ({"missing": "some"}, "missing must be"),
        ({"aligned": True, "missing": "complete"}, "--aligned excludes"),
        ({"kind": "regression", "conditions": ("left.flag=1",)}, "a regression has none"),
    ],
)
def test_rows_that_cannot_be_are_refused_before_anything_is_sent(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_wanted_rows(canary_federation(), request(**asked))
