"""`init`: a federation file from tables, whose questions only people answer."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

from tests.builders import Call
from verticopula import Federation
from verticopula.errors import SchemaError
from verticopula.schema.draft_guesses import draft_federation
from verticopula.schema.imported_schemas import read_schema

BANK = """Customer;income;age;sector;since;remark;vip
7;1.234,50;31;K-7071;01.02.2020;nobody 7071;True
18;999,00;44;L-7071;15.03.2021;else 7071;False
119;12.500,25;70;M-7071;31.12.2019;here 7071;True
"""
AGENCY = "Customer,default,score\n000007,0,3\n000018,1,n/a\n000119,0,5\n000333,1,4\n"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two tables, below the current one."""
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "bank.csv").write_text(BANK, "utf-8")
    (folder / "agency.csv").write_text(AGENCY, "utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


def drafted(path: str = "federation.toml") -> dict[str, Any]:
    return tomllib.loads(Path(path).read_text("utf-8"))


def columns(raw: dict[str, Any], party: str) -> dict[str, dict[str, Any]]:
    (found,) = [p for p in raw["party"] if p["name"] == party]
    return {column["name"]: column for column in found["column"]}


def test_it_guesses_names_kinds_ids_and_response_and_leaves_ranges_blank(tables: Path, call: Call) -> None:
    done = call("init", tables, "--yes")
    assert done.code == 0, done.err
    raw = drafted()
    assert raw["name"] == "tables"
    assert raw["response"] == "agency.default"
    assert raw["id"] == {"name": "Customer", "rules": ["zfill:6"]}
    bank = columns(raw, "bank")
    assert {name: column["kind"] for name, column in bank.items()} == {
        "income": "continuous",
        "age": "ordinal",
        "sector": "nominal",
        "since": "count",
        "remark": "nominal",
        "vip": "binary",
    }
    assert [p.get("decimal") for p in raw["party"]] == [None, ","]
    assert all(c.get("bounds", []) == [] and c.get("categories", []) == [] for c in bank.values())
    assert "6 questions are open" in done.out


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ("agency.defalt", "'agency.defalt' is not a column of these tables; did you mean 'agency.default'?"),
        ("default", "is not a column of these tables, written as party.column; did you mean 'agency.default'?"),
        ("agency.nonsense", "'agency.nonsense' is not a column of these tables"),
        ("agency.Customer", "'agency.Customer' is not a column of these tables"),
    ],
)
def test_a_response_that_is_not_there_is_an_error(tables: Path, call: Call, response: str, said: str) -> None:
    done = call("init", tables, "--yes", "--response", response)
    assert done.code == 1
    assert said in " ".join(done.err.split())
    assert not Path("federation.toml").exists()


def test_a_response_that_was_given_is_not_called_a_guess(tables: Path, call: Call) -> None:
    assert call("init", tables, "--yes", "--response", "agency.score").code == 0
    text = Path("federation.toml").read_text("utf-8")
    assert "kinds and ids were guessed" in text
    (line,) = [line for line in text.splitlines() if line.startswith("response")]
    assert line.startswith('response = "agency.score"')
    assert line.endswith("# as you said; the people of this party are the study's")


def test_a_response_that_cannot_be_in_a_study_is_an_error() -> None:
    people = pl.DataFrame({"id": range(80), "name": [f"person {k}" for k in range(80)], "y": [0, 1] * 40})
    with pytest.raises(SchemaError, match="cannot be in a study: names or remarks"):
        draft_federation({"a": people}, response="a.name")


def test_nothing_of_the_cells_is_in_the_file(tables: Path, call: Call) -> None:
    call("init", tables, "--yes")
    text = Path("federation.toml").read_text("utf-8").replace(str(tables), "")  # a folder's name may hold any number
    assert not any(cell in text for cell in ("7071", "1.234", "1234", "12.500", "999", "2019", "2020", "70"))


def test_check_says_what_is_still_open_and_then_what_is_wrong(tables: Path, call: Call) -> None:
    call("init", tables, "--yes")
    checked = call("check", "federation.toml", "--data", tables)
    said = " ".join(checked.err.split())
    assert checked.code == 1
    assert "6 questions are still open in the federation file; nothing was spent" in said
    assert "found; nothing was spent" not in said
    assert "? party 'bank', column 'income': public bounds are still open: write bounds = [low, high]" in said
    assert "? party 'bank', column 'sector': the public list of categories is still open" in said
    text = Path("federation.toml").read_text("utf-8").replace('kind = "continuous"', 'kind = "contiguous"')
    Path("federation.toml").write_text(text, "utf-8")
    said = " ".join(call("check", "federation.toml").err.split())
    assert "1 problem found" in said
    assert "5 questions are still open" in said


def test_answered_questions_make_a_study_that_runs(tables: Path, call: Call) -> None:
    call("init", tables, "--yes")
    raw = drafted()
    for party in raw["party"]:
        for column in party["column"]:
            if column.get("bounds") == []:
                column["bounds"] = ["2000-01-01", "2030-12-31"] if column["name"] == "since" else [1, 1e5]
    bank, agency = columns(raw, "bank"), columns(raw, "agency")
    bank["age"] |= {"kind": "count", "bounds": [18, 110], "categories": None}
    del bank["age"]["categories"]
    del bank["sector"]["categories"]
    bank["sector"]["categories_file"] = "lists/sectors.txt"
    agency["score"]["categories"] = [1, 2, 3, 4, 5]
    raw["party"][1]["column"] = [column for name, column in bank.items() if name != "remark"]
    Path("lists").mkdir()
    Path("lists/sectors.txt").write_text("# sectors\nK-7071\nL-7071\n\nM-7071\n", "utf-8")
    import tomli_w

    Path("federation.toml").write_text(tomli_w.dumps(raw), "utf-8")
    federation = Federation.from_toml("federation.toml")
    assert federation.party("bank").column("sector").categories == ("K-7071", "L-7071", "M-7071")
    assert Federation.from_dict(federation.to_dict()) == federation
    done = call(
        "run",
        "federation.toml",
        "--data",
        tables,
        "--out",
        "study",
        "--method",
        "refined",
        "--epsilon",
        60,
        "--rows",
        300,
    )
    assert done.code == 0, done.err
    assert pl.read_parquet("study/synthetic/bank.parquet").schema["since"] == pl.Date
    assert call("glm", "study").code == 0


def test_ranges_from_the_data_are_asked_for_by_name_and_marked(tables: Path, call: Call) -> None:
    assert call("init", tables, "--yes", "--bounds", "guess").code == 1
    done = call("init", tables, "--yes", "--bounds", "from-data")
    assert done.code == 0, done.err
    federation = Federation.from_toml("federation.toml")
    assert federation.bounds_source == "from-data"
    assert federation.party("bank").column("income").bounds == (999.0, 12500.25)
    assert "epsilon will be infinite" in call("check", "federation.toml", "--method", "vcds").out
    said = call("check", "federation.toml")  # two parties need a third that computes, and nobody has named it
    assert said.code == 1
    assert "needs three that compute" in " ".join(said.err.split())
    assert '# compute = "NAME"' in Path("federation.toml").read_text("utf-8")


def test_it_asks_nothing_without_a_terminal_and_replaces_nothing_unasked(tables: Path, call: Call) -> None:
    asked = call("init", tables)
    assert asked.code == 1
    assert "give --yes" in asked.err
    assert call("init", tables / "bank.csv", tables / "agency.csv", "--yes").code == 0
    again = call("init", tables, "--yes")
    assert again.code == 1
    assert "is there already" in again.err
    assert call("init", tables, "--yes", "--overwrite").code == 0
    assert "no such file or folder" in call("init", tables / "none.csv", "--yes", "--out", "x.toml").err
    (tables / "empty").mkdir()
    assert "no tables there" in call("init", tables / "empty", "--yes", "--out", "x.toml").err


def test_on_a_terminal_it_asks_and_enter_leaves_a_question_open(tables: Path) -> None:
    leader, follower = pty.openpty()
    code = "from verticopula.cli.app import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "init", str(tables)],
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(follower)
    # id, response; agency: default, score with categories; bank: income (wrong once), age as a count without bounds,
    # sector left out, then Enter for everything else
    answers = ["", "", "", "", "1,2,3,4,5", "", "5", "1 100000", "count", "", "out", *([""] * 12)]
    os.write(leader, "".join(f"{answer}\n" for answer in answers).encode())
    out, err = process.communicate(timeout=600)
    os.close(leader)
    assert process.returncode == 0, err
    raw = drafted()
    assert columns(raw, "agency")["score"]["categories"] == ["1", "2", "3", "4", "5"]
    bank = columns(raw, "bank")
    assert bank["income"]["bounds"] == [1, 100000]
    assert bank["age"] == {"name": "age", "kind": "count", "bounds": []}
    assert "sector" not in bank
    assert b"two of them, the smaller first" in out
    assert b"questions are open" in out


def test_a_draft_from_frames() -> None:
    bank = pd.DataFrame({"firm": [1, 2, 3], "turnover": [1.5, 2.5, None], "big": [True, False, True]})
    agency = pl.DataFrame({"firm": [1, 2, 3, 4], "default": [0, 1, 0, 1]})
    draft = Federation.draft({"bank": bank, "agency": agency})
    assert (draft.id, draft.response, draft.open_questions) == ("firm", "agency.default", ["bank.turnover"])
    with pytest.raises(SchemaError) as caught:
        Federation.from_dict(tomllib.loads(draft.to_toml()))
    assert [problem.is_open for problem in caught.value.problems] == [True]


def test_what_cannot_be_guessed_is_a_question() -> None:
    twice = {"a": pl.DataFrame({"p_id": [1, 1]}), "b": pl.DataFrame({"P_ID": [1, 2]})}
    assert "'p_id' and 'P_ID' differ" in draft_federation(twice).id_why
    apart = {
        "a": pl.DataFrame({"Firm ID": [1, 2], "x": [1.5, 2.5]}),
        "b": pl.DataFrame({"firm_id": [1, 2], "y": [1, 0]}),
    }
    draft = draft_federation(apart)
    assert draft.id == ""
    assert "'Firm ID' and 'firm_id' differ in case or blanks" in draft.to_toml()
    with pytest.raises(SchemaError) as caught:
        Federation.from_dict({**draft.to_dict(), "response": ""})
    assert {problem.where for problem in caught.value.problems if problem.is_open} >= {"id", "response"}
    strangers = {"a": pl.DataFrame({"id": [1, 2], "x": [0, 1]}), "b": pl.DataFrame({"id": [2, 3], "y": [1, 0]})}
    assert draft_federation(strangers).response == ""


def test_dates_that_can_be_read_two_ways_are_left_out_with_a_reason() -> None:
    table = pl.DataFrame({"id": [1, 2, 3], "day": ["12/11/2024", "1/2/2024", "31/12/2023"], "z": [0.5, 1.5, 2.5]})
    draft = draft_federation({"a": table})
    assert '# Left out: column "day" (dates such as 12/11/2024, which can be read two ways' in draft.to_toml()
    assert "so it is a column of a" in draft.response_why


def test_names_or_remarks_and_empty_columns_are_left_out() -> None:
    people = pl.DataFrame(
        {"id": range(80), "name": [f"person {k}" for k in range(80)], "none": [None] * 80, "y": [0, 1] * 40}
    )
    draft = draft_federation({"a": people})
    assert [column["name"] for column in draft.to_dict()["party"][0]["column"]] == ["y"]
    assert '# Left out: column "name" (names or remarks: hardly two cells are alike).' in draft.to_toml()


def test_hostile_column_names_stay_inside_their_quotation_marks() -> None:
    names = ['a"b', "c\\d", "e\nf = 1", "#g", "h\x7f", "[[party]]"]
    table = pl.DataFrame({"id": [1, 2, 3], **{name: [0.5, 1.5, 2.5] for name in names}})
    draft = draft_federation({"a": table}, response='a.a"b')
    raw = tomllib.loads(draft.to_toml())
    assert [column["name"] for column in raw["party"][0]["column"]] == names
    assert set(raw) == {"name", "response", "id", "party"}


# ---- schemas that people have ------------------------------------------------------------

SDV = {
    "METADATA_SPEC_VERSION": "V1",
    "tables": {
        "bank": {
            "primary_key": "Customer",
            "columns": {
                "Customer": {"sdtype": "id"},
                "income": {"sdtype": "numerical", "computer_representation": "Float"},
                "age": {"sdtype": "numerical", "computer_representation": "Int64"},
                "sector": {"sdtype": "categorical"},
                "since": {"sdtype": "datetime", "datetime_format": "%d.%m.%Y"},
                "remark": {"sdtype": "unknown", "pii": True},
                "vip": {"sdtype": "boolean"},
            },
        }
    },
    "relationships": [],
}
FRICTIONLESS = {
    "resources": [
        {
            "name": "bank",
            "path": "bank.csv",
            "schema": {
                "primaryKey": ["Customer"],
                "fields": [
                    {"name": "Customer", "type": "string"},
                    {"name": "income", "type": "number", "constraints": {"minimum": 0, "maximum": 1e6}},
                    {"name": "age", "type": "integer", "constraints": {"minimum": 18}},
                    {"name": "sector", "type": "string", "constraints": {"enum": ["K", "L", "M"], "required": True}},
                    {
                        "name": "since",
                        "type": "date",
                        "constraints": {"minimum": "1990-01-01", "maximum": "2030-12-31"},
                    },
                    {"name": "remark", "type": "object"},
                    {"name": "vip", "type": "boolean"},
                ],
            },
        }
    ]
}
CSVW = {
    "@context": "http://www.w3.org/ns/csvw",
    "url": "bank.csv",
    "tableSchema": {
        "primaryKey": "customer",
        "columns": [
            {"name": "customer", "titles": "Customer", "datatype": "string"},
            {"name": "income", "datatype": {"base": "decimal", "minimum": "0", "maximum": "1000000"}},
            {"name": "age", "datatype": {"base": "integer", "minInclusive": 18}},
            {"name": "sector", "required": True, "datatype": {"base": "string", "format": "K|L|M"}},
            {"name": "since", "datatype": {"base": "date", "minimum": "1990-01-01", "maximum": "2030-12-31"}},
            {"name": "remark", "datatype": "hexBinary"},
            {"name": "vip", "datatype": "boolean"},
        ],
    },
}
KINDS = {"income": "continuous", "age": "count", "sector": "nominal", "since": "count", "vip": "binary"}


@pytest.mark.parametrize(("schema", "has_ranges"), [(SDV, False), (FRICTIONLESS, True), (CSVW, True)])
def test_schemas_go_before_guesses(schema: dict[str, Any], has_ranges: bool, tables: Path, call: Call) -> None:
    Path("about.json").write_text(json.dumps(schema), "utf-8")
    done = call("init", tables, "--yes", "--schema", "about.json")
    assert done.code == 0, done.err
    bank = columns(drafted(), "bank")
    assert {name: column["kind"] for name, column in bank.items()} == KINDS
    assert bank["age"]["bounds"] == []
    if has_ranges:
        assert bank["income"]["bounds"] == [0, 1000000]
        assert bank["sector"]["categories"] == ["K", "L", "M"]
        assert [name for name, column in bank.items() if column.get("required")] == ["sector"]
        assert bank["since"]["bounds"] == ["1990-01-01", "2030-12-31"]
    else:
        assert bank["income"]["bounds"] == []
    assert "from about.json" in Path("federation.toml").read_text("utf-8")


@pytest.mark.parametrize("schema", [SDV["tables"]["bank"], FRICTIONLESS["resources"][0]["schema"], CSVW])  # type: ignore[index]
def test_schemas_of_one_table(schema: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(schema), "utf-8")
    (table,) = read_schema(tmp_path / "one.json")
    assert table.id == "Customer"
    assert {column.name: column.kind for column in table.columns if column.kind} == KINDS


@pytest.mark.parametrize("text", ["{}", "[]", "3", "{", '{"tables": 3}', '{"fields": [3]}', '{"columns": {"a": {}}}'])
def test_files_that_are_no_schema(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SchemaError, match=r"x\.json: (is neither SDV|cannot be read as JSON)"):
        read_schema(tmp_path / "x.json")


def test_a_schema_of_another_table_is_a_mistake(tables: Path, call: Call) -> None:
    Path("about.json").write_text(json.dumps({**CSVW, "url": "banks.csv"}), "utf-8")
    done = call("init", tables, "--yes", "--schema", "about.json")
    assert "describes table 'banks', which is not among agency, bank; did you mean 'bank'?" in " ".join(
        done.err.split()
    )


# ---- code lists --------------------------------------------------------------------------


def test_code_lists_as_text_and_as_csv_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text("code;label\n01;Farms\n02;Mines\n", "utf-8-sig")
    file = tmp_path / "f.toml"
    column = '{{ name = "c", kind = "nominal", {} }}'
    text = 'response = "a.c"\n[[party]]\nname = "a"\ncolumn = [{}]\n'
    file.write_text(text.format(column.format('categories_file = "codes.csv"')))
    assert Federation.from_toml(file).party("a").column("c").categories == ("01", "02")
    for given, expected in {
        'categories_file = "none.txt"': "categories_file: none.txt: no such file; it is looked for",
        'categories_file = "codes.csv", categories = ["a", "b"]': "give either categories or a file of them",
        "categories_file = 3": "must be the name of a file",
    }.items():
        file.write_text(text.format(column.format(given)) + "unknown = 3\n")
        with pytest.raises(SchemaError) as caught:
            Federation.from_toml(file)
        assert expected in str(caught.value)
        assert "unknown key" in str(caught.value)
        assert len(caught.value.problems) == 2
