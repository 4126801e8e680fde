"""Columns of dates with a time: read, kept and written to the second."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.builders import make_federation, make_tables
from verticopula import Federation, NotPrivateWarning, Synthesizer
from verticopula.data.column_encoding import decode_column, encode_column
from verticopula.schema.cell_text import parse_seconds
from verticopula.schema.columns import Column
from verticopula.schema.conditions import read_conditions

LOW, HIGH = datetime.datetime(2020, 1, 1), datetime.datetime(2024, 12, 31, 23, 59, 59)
COLUMN = Column(name="at", kind="count", bounds=(LOW, HIGH))


def seconds(moment: datetime.datetime) -> float:
    return (moment - datetime.datetime(1970, 1, 1)).total_seconds()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-12-31", datetime.datetime(2024, 12, 31)),
        ("2024-12-31 23:59", datetime.datetime(2024, 12, 31, 23, 59)),
        ("2024-12-31T23:59:58Z", datetime.datetime(2024, 12, 31, 23, 59, 58)),
        ("2024-12-31 23:59:58.750", datetime.datetime(2024, 12, 31, 23, 59, 58)),
        ("31.12.2024 7:05", datetime.datetime(2024, 12, 31, 7, 5)),
        ("2024/12/31 07:05:01", datetime.datetime(2024, 12, 31, 7, 5, 1)),
        ("2024-12-31 25:00", None),
        ("2024-12-31 10:61", None),
        ("2024-12-31 10", None),
        ("2024-13-31 10:00", None),
        ("soon", None),
    ],
)
def test_text_is_read_to_the_second(text: str, moment: datetime.datetime | None) -> None:
    for cells in ([text], ["2021-01-01", text]):  # every cell by itself
        found = parse_seconds(pl.Series(cells))[-1]
        assert np.isnan(found) if moment is None else found == seconds(moment)


def test_frames_and_text_give_the_same_seconds_and_come_back() -> None:
    moments = [LOW, datetime.datetime(2022, 5, 6, 7, 8, 9), HIGH, None]
    plain = pl.Series(moments, dtype=pl.Datetime("ms"))
    zoned = plain.dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Rome")
    text = pl.Series([None if m is None else m.isoformat() for m in moments])
    for series in (plain, zoned, text):
        encoded, problems = encode_column(series, COLUMN, "here")
        assert not problems
        assert encoded.observed.tolist() == [True, True, True, False]
        back = decode_column(np.where(encoded.observed, encoded.values, np.nan), COLUMN)
        assert back.to_list() == moments


def test_files_keep_times_and_days_stay_days(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(
        'response = "a.at"\n[[party]]\nname = "a"\ncolumn = [{ name = "at", kind = "count", bounds = '
        '[2020-01-01T00:00:00, 2024-12-31T23:59:59] }, { name = "day", kind = "count", bounds = '
        "[2020-01-01, 2021-01-01] }]\n"
    )
    study = Federation.from_toml(tmp_path / "f.toml")
    assert study.parties[0].columns[0].bounds == (seconds(LOW), seconds(HIGH))
    assert [c.times for c in study.parties[0].columns] == [True, False]
    assert Federation.from_dict(study.to_dict()) == study
    assert "2024-12-31T23:59:59" in study._repr_html_()


def test_a_study_gives_moments_and_takes_them_as_conditions() -> None:
    study = make_federation({"a": {"at": {"kind": "count", "bounds": [LOW, HIGH]}}, "b": {"x": {"kind": "binary"}}})
    rng = np.random.default_rng(0)
    at = [LOW + datetime.timedelta(seconds=int(s)) for s in rng.beta(2, 5, 500) * (HIGH - LOW).total_seconds()]
    with pytest.warns(NotPrivateWarning):
        fitted = Synthesizer(study, method="vcds", epsilon=50.0, random_state=0).fit(
            make_tables(study, {"at": at, "x": rng.integers(0, 2, 500)})
        )
    made = fitted.sample(500)["a"]["at"]
    assert made.dtype == pl.Datetime("us")
    spread = np.std([seconds(m) for m in at])
    assert abs(np.median([seconds(m) for m in made]) - np.median([seconds(m) for m in at])) < 0.3 * spread
    [asked] = read_conditions(study, {"a.at": "2021-01-01T00:00..2021-06-30"}).values()
    assert (asked.low, asked.high) == (seconds(datetime.datetime(2021, 1, 1)), seconds(datetime.datetime(2021, 6, 30)))
    assert (
        fitted.sample(20, conditions={"a.at": ("2021-01-01", "2021-02-01")})["a"]["at"].dt.year().to_list()
        == [2021] * 20
    )
