"""Reading, checking and aligning tables: every kind of bad input gets words and no cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.builders import tables_in
from verticopula import Federation
from verticopula.data.column_encoding import encode_column
from verticopula.data.table_files import read_table
from verticopula.data.tables import OwnTable, align_tables
from verticopula.errors import SchemaError
from verticopula.schema.columns import Column
from verticopula.schema.frames import to_polars

SECRET = 7071.0678  # a value that must not be quoted anywhere


def federation(**turnover: Any) -> Federation:
    return Federation.from_dict(
        {
            "response": "agency.default",
            "id": {"name": "firm", "rules": ["strip", "upper", "zfill:3"]},
            "party": [
                {
                    "name": "registry",
                    "column": [
                        {"name": "turnover", "kind": "continuous", "bounds": [0, 100], **turnover},
                        {"name": "sector", "kind": "nominal", "categories": ["11", "21", "22"]},
                        {"name": "staff", "kind": "count", "bounds": [0, 50]},
                    ],
                },
                {"name": "agency", "column": [{"name": "default", "kind": "binary"}]},
            ],
        }
    )


def tables() -> dict[str, pl.DataFrame]:
    return {
        "registry": pl.DataFrame(
            {
                "firm": ["a1", " a3", "A2 "],
                "turnover": [1.0, 2.0, 3.0],
                "sector": ["11", "21", None],
                "staff": [1, 2, 3],
            }
        ),
        "agency": pl.DataFrame({"firm": ["A1", "A2", "A3", "A4"], "default": [0, 1, 1, 0]}),
    }


def with_cells(column: str, values: list[Any]) -> dict[str, Any]:
    raw: dict[str, Any] = tables()
    raw["registry"] = raw["registry"].to_pandas().assign(**{column: pd.Series(values, dtype=object)})
    return raw


def problems(raw: dict[str, Any], fed: Federation | None = None) -> str:
    with pytest.raises(SchemaError) as caught:
        align_tables(fed or federation(), {name: to_polars(t, name) for name, t in raw.items()})
    text = str(caught.value)
    assert "7071" not in text
    return text


def test_alignment_by_normalised_id() -> None:
    aligned = align_tables(federation(), tables())
    registry = aligned["registry"]
    assert registry.columns["turnover"].observed.tolist() == [True, True, True, False]
    assert registry.columns["turnover"].values[:3].tolist() == [1.0, 3.0, 2.0]
    assert registry.columns["sector"].values[[0, 2]].tolist() == [0.0, 1.0]
    assert registry.observed().tolist() == [[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]]
    assert aligned["agency"].columns["default"].values.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_row_order_does_not_matter() -> None:
    raw = tables()
    shuffled = {**raw, "registry": raw["registry"][::-1]}
    first, second = align_tables(federation(), raw), align_tables(federation(), shuffled)
    np.testing.assert_array_equal(first["registry"].observed(), second["registry"].observed())


def test_leading_zeros_of_whole_number_ids() -> None:
    raw = tables()
    raw["registry"] = raw["registry"].with_columns(firm=pl.Series([1, 3, 2]))
    raw["agency"] = raw["agency"].with_columns(firm=pl.Series(["001", "002", "003", "4"]))
    assert align_tables(federation(), raw)["registry"].observed().any(axis=1).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("values", "expected"), [([True, False, True], "expected numbers"), ([[1], [2], [3]], "lists, bytes or objects")]
)
def test_columns_that_are_no_column_of_numbers(values: list[Any], expected: str) -> None:
    text = problems(with_cells("turnover", values))
    assert expected in text
    assert "party 'registry', column 'turnover'" in text


@pytest.mark.parametrize(
    ("column", "values", "expected", "encoded"),
    [
        ("turnover", [1.0, SECRET, -SECRET], "2 cells are outside the public bounds", [1.0, 100.0, 0.0]),
        ("turnover", ["1", "7071.0678x", "2"], "1 cell is not a number: counted as empty", [1.0, None, 2.0]),
        ("turnover", [1.0, float("inf"), 2.0], "1 cell is outside the public bounds", [1.0, 100.0, 2.0]),
        ("turnover", ["1", "1e999", "2"], "1 cell is outside the public bounds", [1.0, 100.0, 2.0]),
        ("turnover", [None, None, 1.0], "only 1 observed value", [None, None, 1.0]),
        ("turnover", [float("nan"), None, ""], "only 0 observed", [None, None, None]),
        ("turnover", [5.0, 5.0, 5.0], "is constant", [5.0, 5.0, 5.0]),
        ("sector", ["11", "7071", "21"], "1 cell is not among the listed categories: counted as empty", [0, None, 1]),
        ("staff", [1.5, 2, 3], "1 cell is not a whole number: rounded", [2, 2, 3]),
        ("staff", [1, 2, 10**30], "outside the public bounds", [1, 2, 50]),
        ("staff", [1, "7071 people", None], "1 cell is not a number: counted as empty", [1, None, None]),
    ],
)
def test_single_cells_refuse_no_table_and_are_noted_without_being_quoted(
    column: str, values: list[Any], expected: str, encoded: list[Any]
) -> None:
    raw = {name: to_polars(table, name) for name, table in with_cells(column, values).items()}
    table = align_tables(federation(), raw, need_overlap=False)["registry"]
    said = "\n".join(map(str, table.notes()))
    assert f"party 'registry', column {column!r}: " in said
    assert expected in said
    assert "7071" not in said
    own = OwnTable.check(federation().party("registry"), raw["registry"], federation().id)
    assert own.notes() == table.notes()
    found = own.columns[column]
    assert [float(v) if o else None for v, o in zip(found.values, found.observed, strict=True)] == encoded


def test_values_outside_the_bounds_are_always_moved_to_them_and_named_unless_they_are_expected() -> None:
    raw = tables()
    raw["registry"] = raw["registry"].with_columns(turnover=pl.Series([-5.0, SECRET, 3.0]))
    for clamp in (False, True):
        table = align_tables(federation(clamp=clamp), raw)["registry"]
        column = table.columns["turnover"]
        assert column.clamped == 2
        assert sorted(column.values[column.observed]) == [0.0, 3.0, 100.0]
        assert len(table.notes()) == (0 if clamp else 1)


def test_a_declared_category_stands_for_those_that_are_not_listed() -> None:
    column = Column(name="c", kind="nominal", categories=("a", "rest"), other="rest")
    encoded, _ = encode_column(pl.Series(["a", "7071", "", None, "rest"]), column, "here")
    assert encoded.observed.tolist() == [True, True, False, False, True]
    assert encoded.values[encoded.observed].tolist() == [0.0, 1.0, 1.0]
    assert encoded.notes == ("1 cell is not among the listed categories: counted as 'rest' (data row 2)",)


def test_a_column_without_a_readable_cell_is_a_problem_where_all_tables_are_here() -> None:
    said = problems(with_cells("turnover", ["1,5,5", "2 km", None]))
    assert "column 'turnover': none of its 2 filled cells can be read" in said


def test_ids_missing_repeated_unknown_blank() -> None:
    raw = tables()
    assert "id column 'firm' is missing" in problems({**raw, "registry": raw["registry"].drop("firm")})
    twice = pl.concat([raw["registry"], raw["registry"][:1]])
    assert "1 row(s) repeat a subject id" in problems({**raw, "registry": twice})
    stranger = raw["registry"].with_columns(firm=pl.Series(["A1", "A2", "7071"]))
    assert "1 subject id(s) are unknown to 'agency'" in problems({**raw, "registry": stranger})
    blank = raw["registry"].with_columns(firm=pl.Series(["A1", None, "A2"]))
    assert "1 row(s) without a subject id" in problems({**raw, "registry": blank})


def test_ids_that_differ_only_before_normalising_are_repeats() -> None:
    raw = tables()
    raw["registry"] = raw["registry"].with_columns(firm=pl.Series(["a1", "A1 ", "A2"]))
    assert "repeat a subject id" in problems(raw)


def test_parties_columns_and_rows_that_are_missing() -> None:
    raw = tables()
    assert "party 'registry': has no table" in problems({"agency": raw["agency"]})
    assert "is not in the federation" in problems({**raw, "bank": raw["agency"]})
    assert "not in the table" in problems({**raw, "registry": raw["registry"].drop("staff")})
    assert "has no rows" in problems({**raw, "registry": raw["registry"][:0]})
    with pytest.raises(SchemaError, match="expected a pandas or polars"):
        to_polars([1, 2], "bank")


def test_all_missing_response() -> None:
    raw = tables()
    raw["agency"] = raw["agency"].with_columns(default=pl.lit(None, dtype=pl.Int64))
    assert "agency.default" in problems(raw)
    (note,) = align_tables(federation(), raw, need_overlap=False)["agency"].notes()
    assert str(note).startswith("party 'agency', column 'default': only 0 observed")


def test_two_columns_never_observed_together() -> None:
    raw = tables()
    raw["registry"] = raw["registry"].with_columns(
        turnover=pl.Series([1.0, 2.0, None]), sector=pl.Series([None, "11", "22"])
    )
    assert "registry.turnover and registry.sector are never observed together" in problems(raw)


def test_problems_of_all_parties_come_together() -> None:
    raw = tables()
    raw["registry"] = raw["registry"].with_columns(turnover=pl.Series(["x", "y", "7071x"])).drop("staff")
    raw["agency"] = raw["agency"].with_columns(default=pl.Series([[0], [1], [2], [0]]))
    text = problems(raw)
    assert all(part in text for part in ("3 problems", "'turnover'", "'staff'", "'default'"))


def test_spellings_of_no_value_and_categories_that_look_like_them() -> None:
    column = Column(name="c", kind="nominal", categories=("NA", "b"))
    encoded, found = encode_column(pl.Series(["NA", "b", "", "null", None]), column, "here")
    assert not found
    assert encoded.observed.tolist() == [True, True, False, False, False]


def test_whole_floats_and_booleans_match_categories() -> None:
    column = Column(name="c", kind="binary")
    for series in (pl.Series([0.0, 1.0, None]), pl.Series([False, True, None]), pl.Series(["0", "1", None])):
        encoded, found = encode_column(series, column, "here")
        assert not found
        assert encoded.values[:2].tolist() == [0.0, 1.0]
        assert encoded.observed.tolist() == [True, True, False]


def test_pandas_and_polars_read_the_same() -> None:
    raw = tables()
    as_pandas = {name: to_polars(t.to_pandas(), name) for name, t in raw.items()}
    first, second = align_tables(federation(), raw), align_tables(federation(), as_pandas)
    for party in first:
        for name, column in first[party].columns.items():
            np.testing.assert_array_equal(column.observed, second[party].columns[name].observed)
            np.testing.assert_array_equal(
                column.values[column.observed], second[party].columns[name].values[column.observed]
            )


def test_duplicate_column_names_of_pandas() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(SchemaError, match="same name"):
        to_polars(frame, "bank")


def test_files(tmp_path: Path) -> None:
    for name, table in tables().items():
        table.write_csv(tmp_path / f"{name}.csv")
    from_csv = align_tables(federation(), tables_in(federation(), tmp_path))
    (tmp_path / "registry.csv").unlink()
    tables()["registry"].write_parquet(tmp_path / "registry.parquet")
    from_both = align_tables(federation(), tables_in(federation(), tmp_path))
    np.testing.assert_array_equal(from_csv["registry"].observed(), from_both["registry"].observed())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("firm,name\n1,Müller\n".encode("latin-1"))
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 7071 no parquet")
    (tmp_path / "ragged.csv").write_bytes(b"firm,turnover\n1,2,7071\n")
    for name, expected in {
        "latin.csv": "not UTF-8",
        "empty.csv": "is empty",
        "broken.parquet": "as Parquet",
        "ragged.csv": "as CSV: line 2 has 3 cells, the header has 2",
    }.items():
        with pytest.raises(SchemaError, match=expected) as caught:
            read_table(tmp_path / name)
        assert "7071" not in str(caught.value)


def test_absent_and_ambiguous_files(tmp_path: Path) -> None:
    tables()["agency"].write_csv(tmp_path / "agency.csv")
    tables()["agency"].write_parquet(tmp_path / "agency.parquet")
    with pytest.raises(SchemaError) as caught:
        tables_in(federation(), tmp_path)
    assert "keep one" in str(caught.value)
    assert "no .csv or .parquet" in str(caught.value)


def test_byte_order_mark_and_quotes_in_header_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('\ufefffirm,"a ""b"", c"\n1,2\n', encoding="utf-8")
    assert read_table(tmp_path / "t.csv").columns == ["firm", 'a "b", c']
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    with pytest.raises(SchemaError, match="same name"):
        read_table(tmp_path / "t.csv")
