"""The same cells in a CSV file and in a data frame are the same numbers."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from verticopula.data.column_encoding import encode_column
from verticopula.data.id_checks import normalise_ids
from verticopula.data.table_files import read_table
from verticopula.schema.columns import Column
from verticopula.schema.federation import IdRule
from verticopula.schema.frames import to_polars

AMOUNT = Column(name="amount", kind="continuous", bounds=(-1e6, 1e6))
VISITS = Column(name="visits", kind="count", bounds=(0, 10_000))
CODE = Column(name="code", kind="ordinal", categories=(0, 1, 2))
FLAG = Column(name="flag", kind="binary")
REGION = Column(name="region", kind="nominal", categories=("01", "02", "NA", "north, old"))
DAY = Column(name="day", kind="count", bounds=("1990-01-01", "2030-12-31"))  # type: ignore[arg-type]
COLUMNS = (AMOUNT, VISITS, CODE, FLAG, REGION, DAY)

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(1, 10**9),
            "amount": st.none() | st.floats(-1e7, 1e7),
            "visits": st.none() | st.integers(0, 20_000),
            "code": st.none() | st.integers(0, 3),
            "flag": st.none() | st.booleans(),
            "region": st.none() | st.sampled_from(["01", "02", "2", "NA", "north, old", "else"]),
            "day": st.none() | st.dates(datetime.date(1980, 1, 1), datetime.date(2040, 1, 1)),
        }
    ),
    min_size=1,
    max_size=12,
)


def as_polars(rows: list[dict[str, Any]]) -> pl.DataFrame:
    types = {"id": pl.Int64, "amount": pl.Float64, "visits": pl.Int64, "code": pl.Int64}
    return pl.DataFrame(rows, schema=types | {"flag": pl.Boolean, "region": pl.String, "day": pl.Date})


def as_pandas(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """As pandas reads such data: whole numbers with gaps are floats, truth values with gaps are objects."""
    frame = pd.DataFrame(rows)
    numeric = {name: pd.to_numeric(frame[name]) for name in ("amount", "visits", "code")}
    return frame.assign(**numeric, day=pd.to_datetime(frame["day"]))


def encoded(table: pl.DataFrame, decimal: str | None = None) -> dict[str, list[float | None]]:
    out: dict[str, list[float | None]] = {}
    for column in COLUMNS:
        series = table[column.name]
        if column is DAY and series.dtype == pl.Null:
            series = series.cast(pl.String)
        found, problems = encode_column(series, column, "here", decimal)
        assert problems == []
        out[column.name] = [float(v) if o else None for v, o in zip(found.values, found.observed, strict=True)]
    return out


@given(rows=ROWS)
@settings(deadline=None)
def test_frames_of_two_libraries_and_the_files_that_they_write_agree(
    rows: list[dict[str, Any]], tmp_path_factory: Any
) -> None:
    folder: Path = tmp_path_factory.mktemp("files")
    frame, other = as_polars(rows), as_pandas(rows)
    expected = encoded(frame)
    frame.write_csv(folder / "polars.csv")
    other.to_csv(folder / "pandas.csv", index=False)
    other.to_csv(folder / "german.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig")
    frame.write_parquet(folder / "polars.parquet")
    tables = [read_table(folder / name) for name in ("polars.csv", "pandas.csv", "polars.parquet")]
    assert encoded(read_table(folder / "german.csv"), ",") == expected
    for table in (to_polars(other, "bank"), *tables):
        assert encoded(table) == expected
        ids = normalise_ids(table["id"], IdRule())
        assert ids.to_list() == [str(row["id"]) for row in rows]


@given(values=st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 2)), min_size=1, max_size=10))
@settings(deadline=None)
def test_a_decimal_comma_and_marks_between_thousands_change_no_number(values: list[float]) -> None:
    english = [f"{value:,.2f}" for value in values]
    german = [text.translate(str.maketrans(",.", ".,")) for text in english]
    spaced = [text.replace(",", "\u202f") for text in english]
    for cells in (english, german, spaced):
        found, _ = encode_column(pl.Series(cells), AMOUNT, "here")
        np.testing.assert_allclose(found.values, values, rtol=0, atol=1e-9)
