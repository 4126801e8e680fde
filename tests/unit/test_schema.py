"""The federation file: what is accepted, and that everything wrong is reported at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verticopula import Federation, Policy
from verticopula.errors import SchemaError
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Party

GOOD: dict[str, Any] = {
    "name": "study",
    "response": "agency.default",
    "id": "firm",
    "party": [
        {
            "name": "registry",
            "epsilon": 0.8,
            "column": [
                {
                    "name": "turnover",
                    "kind": "continuous",
                    "bounds": [1, 1e7],
                    "scale": "log",
                    "clamp": True,
                    "weight": 2,
                },
                {"name": "sector", "kind": "nominal", "categories": ["11", "21", "22"]},
                {"name": "size", "kind": "ordinal", "categories": [1, 2, 3]},
            ],
        },
        {
            "name": "agency",
            "column": [{"name": "default", "kind": "binary"}, {"name": "visits", "kind": "count", "bounds": [0, 9]}],
        },
    ],
}


def problems_of(raw: dict[str, Any]) -> list[str]:
    with pytest.raises(SchemaError) as caught:
        Federation.from_dict(raw)
    return [str(p) for p in caught.value.problems]


def test_file_round_trip(tmp_path: Path) -> None:
    federation = Federation.from_dict(GOOD)
    federation.to_toml(tmp_path / "f.toml")
    assert Federation.from_toml(tmp_path / "f.toml") == federation
    assert [str(k) for k in federation.keys] == [
        "registry.turnover", "registry.sector", "registry.size", "agency.default", "agency.visits",
    ]  # fmt: skip
    assert federation.party("agency").column("default").categories == (0, 1)


def test_id_rules_round_trip() -> None:
    raw = {**GOOD, "id": {"name": "firm", "rules": ["strip", "upper", "zfill:9"]}}
    federation = Federation.from_dict(raw)
    assert Federation.from_dict(federation.to_dict()) == federation


def test_everything_wrong_is_reported_at_once() -> None:
    raw = copy.deepcopy(GOOD)
    raw["response"] = "agency.nothing"
    raw["party"][0]["column"][0] = {"name": "turnover", "kind": "continuous", "bound": [0, 1]}
    raw["party"][0]["column"][1]["kind"] = "colour"
    raw["party"][1]["name"] = "REGISTRY"
    raw["party"][1]["epsilon"] = -1
    found = "\n".join(problems_of(raw))
    for expected in (
        "'agency.nothing' is not a column",
        "did you mean 'bounds'?",
        "party 'registry', column 'sector', kind: must be one of",
        "the name is used by 2 parties",
        "epsilon must be a positive number",
    ):
        assert expected in found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "continuous"}, "public bounds"),
        ({"kind": "continuous", "bounds": [1, 1]}, "low < high"),
        ({"kind": "continuous", "bounds": [0, float("inf")]}, "finite"),
        ({"kind": "continuous", "bounds": [float("nan"), 1]}, "finite"),
        ({"kind": "continuous", "bounds": [0, 1], "scale": "log"}, "above 0"),
        ({"kind": "continuous", "bounds": [0, 1], "categories": ["a", "b"]}, "takes bounds"),
        ({"kind": "continuous", "bounds": [0, 1], "weight": 0}, "weight"),
        ({"kind": "count", "bounds": [0, 1.5]}, "whole bounds"),
        ({"kind": "count", "bounds": [0, 1e17]}, "below 2^53"),
        ({"kind": "count", "bounds": [0, 9], "decimals": 1}, "decimals is for continuous"),
        ({"kind": "nominal"}, "list of categories"),
        ({"kind": "nominal", "categories": ["a"]}, "at least two"),
        ({"kind": "nominal", "categories": ["a", "a"]}, "differ"),
        ({"kind": "ordinal", "categories": [1, "1"]}, "differ"),
        ({"kind": "nominal", "categories": ["a", ""]}, "blank"),
        ({"kind": "nominal", "categories": ["a", 1.5]}, "strings or whole"),
        ({"kind": "nominal", "categories": [True, False]}, "strings or whole"),
        ({"kind": "binary", "categories": ["a", "b", "c"]}, "exactly two"),
        ({"kind": "binary", "bounds": [0, 1]}, "takes categories"),
    ],
)
def test_column_ranges(change: dict[str, Any], expected: str) -> None:
    raw = copy.deepcopy(GOOD)
    raw["party"][0]["column"][0] = {"name": "x", **change}
    assert any(expected in p and "column 'x'" in p for p in problems_of(raw))


@pytest.mark.parametrize("name", ["", " ", "a/b", "../x", "a.b", "-x", "x" * 65, "naïve\n"])
def test_party_names_are_safe_file_names(name: str) -> None:
    raw = copy.deepcopy(GOOD)
    raw["party"][0]["name"] = name
    assert any("party name" in p for p in problems_of(raw))


@pytest.mark.parametrize("name", ["joined", "Joined"])
def test_no_party_has_the_file_name_of_the_joined_table(name: str) -> None:
    raw = copy.deepcopy(GOOD)
    raw["party"][0]["name"] = name
    assert any("all parties together" in p for p in problems_of(raw))


@pytest.mark.parametrize("name", ["", "a\tb", "x\x00", "y" * 201])
def test_column_names_are_printable(name: str) -> None:
    raw = copy.deepcopy(GOOD)
    raw["party"][0]["column"][0]["name"] = name
    assert any("printable" in p for p in problems_of(raw))


def test_hostile_but_printable_column_names_are_kept() -> None:
    raw = copy.deepcopy(GOOD)
    name = "<script>alert('x')</script>; DROP TABLE \"t\" .=💥"
    raw["party"][0]["column"][0]["name"] = name
    federation = Federation.from_dict(raw)
    assert Federation.from_dict(federation.to_dict()).keys[0].column == name


def test_duplicates_and_the_id_among_columns() -> None:
    raw = copy.deepcopy(GOOD)
    raw["party"][0]["column"] += [{"name": "size", "kind": "binary"}, {"name": "firm", "kind": "binary"}]
    found = problems_of(raw)
    assert any("'size'" in p and "2 times" in p for p in found)
    assert any("'firm'" in p and "subject id" in p for p in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("name = ", "not valid TOML"), ("", "at least one [[party]]"), ("party = 3\nresponse='a.b'", "party")],
)
def test_files_that_are_no_federation(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "f.toml").write_text(text)
    with pytest.raises(SchemaError) as caught:
        Federation.from_toml(tmp_path / "f.toml")
    assert expected in str(caught.value)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no such file"):
        Federation.from_toml(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SchemaError, match="UTF-8"):
        Federation.from_toml(tmp_path / "b.toml")


@pytest.mark.parametrize("rule", ["reverse", "zfill:0", "zfill:x", "zfill:100"])
def test_unknown_id_rules(rule: str) -> None:
    assert any("unknown id rule" in p for p in problems_of({**GOOD, "id": {"name": "firm", "rules": [rule]}}))


def test_the_constructor_checks_as_a_file_is_checked() -> None:
    column = Column(name="x", kind="binary")
    good = Federation(response=ColumnKey("a", "x"), parties=(Party(name="a", columns=(column,)),))
    assert good.keys == (ColumnKey("a", "x"),)
    twice = Party(name="a", columns=(column, column))
    with pytest.raises(SchemaError) as caught:
        Federation(response="a.y", parties=(twice, twice), id="x", colour="red")
    said = str(caught.value)
    for what in ("used by 2 parties", "listed 2 times", "is the subject id", "'a.y' is not a column", "unknown key"):
        assert what in said


def test_a_policy_made_in_python_says_what_is_wrong_as_a_file_does() -> None:
    with pytest.raises(SchemaError, match="min_subjects"):
        Policy(min_subjects=-1)


def test_the_category_for_values_that_are_not_listed_is_a_listed_one() -> None:
    column = {"name": "g", "kind": "nominal", "categories": ["a", "b"]}
    raw = {"response": "p.g", "party": [{"name": "p", "column": [{**column, "other": "b"}]}]}
    assert Federation.from_dict(Federation.from_dict(raw).to_dict()).party("p").column("g").other == "b"
    raw["party"] = [{"name": "p", "column": [{**column, "other": "c"}]}]
    assert any("other must be one of the listed categories" in p for p in problems_of(raw))
    raw["party"] = [{"name": "p", "column": [{"name": "g", "kind": "count", "bounds": [0, 9], "other": "c"}]}]
    assert any("other is for columns with categories" in p for p in problems_of(raw))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Column(name="age", kind="count"), "column 'age': public bounds"),
        (
            lambda: Column(name="age", kind="binary", wieght=2.0),
            "column 'age', wieght: unknown key; did you mean 'weight'",
        ),
        (lambda: Party(name="a", column=[{"kind": "binary"}]), "party 'a', column number 1, name: is required"),
        (lambda: Party.model_validate({"name": "a b", "column": []}), "party 'a b', name: a party name needs"),
        (lambda: Federation.model_validate({"response": "a.b"}), "federation: at least one [[party]] is needed"),
        (lambda: Federation.model_validate_json("{"), "federation: is not valid JSON"),
        (lambda: Policy(caps={"persn": 1.0}), "caps, persn: unknown key; did you mean 'person'"),
        (lambda: Policy.model_validate_json('{"delta": 2}'), "delta: "),
    ],
)
def test_every_record_says_what_is_wrong_as_a_federation_does(make: Callable[[], object], said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        make()
    assert said in str(caught.value)


def test_records_are_made_from_mappings_and_json_alike() -> None:
    column = Column(name="age", kind="count", bounds=(0, 99))
    assert Column.model_validate({"name": "age", "kind": "count", "bounds": [0, 99]}) == column
    assert Column.model_validate_json(column.model_dump_json()) == column
    assert Column.model_validate(column) is column


def test_a_column_of_an_older_file_says_unit_for_what_it_is_measured_in() -> None:
    old = {"name": "turnover", "kind": "continuous", "bounds": [0, 1], "unit": "EUR"}
    column = Column.model_validate(old)
    assert column == Column(name="turnover", kind="continuous", bounds=(0.0, 1.0), measured_in="EUR")
    assert column.heading == "turnover (EUR)"
    with pytest.raises(SchemaError, match="unit"):
        Column.model_validate({**old, "measured_in": "GBP"})
