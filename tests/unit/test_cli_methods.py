"""The command line's methods, rounds and aligned rows: called in this process, as `main` is called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, Call, make_federation, make_tables
from verticopula import Federation
from verticopula.storage.ledger import read_ledger

N = 60


def federation() -> Federation:
    return make_federation(
        {
            "hub": {"y": CONTINUOUS},
            "north": {"a": CONTINUOUS, "g": {"kind": "nominal", "categories": ["u", "v", "w"]}},
            "south": {"b": {"kind": "binary"}},
        }
    )


def write(folder: Path, *, apart: bool = False) -> None:
    """A federation file and its tables; `apart`: north and south have no subject in common."""
    rng = np.random.default_rng(1)
    y = rng.standard_normal(N)
    g = np.array(["u", "v", "w"])[rng.integers(0, 3, N)]
    tables = make_tables(
        federation(), {"y": y, "a": y + rng.standard_normal(N), "g": g, "b": (y > rng.standard_normal(N)).astype(int)}
    )
    tables["north"] = tables["north"][: N // 2]
    tables["south"] = tables["south"][N // 2 :] if apart else tables["south"]
    federation().to_toml(folder / "federation.toml")
    for party, table in tables.items():
        table.write_csv(folder / f"{party}.csv")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def arguments(folder: Path, *more: object) -> list[object]:
    return ["run", folder / "federation.toml", "--data", folder, "--out", folder / "out", "--unit", "variable", *more]


@pytest.mark.parametrize(
    ("options", "rank_releases"),
    [
        (["--method", "refined"], 1),
        (["--method", "evcds"], 1),
        (["--method", "ievcds", "--rounds", "3"], 3),
        (["--method", "ievcds", "--rounds", "2", "--per-round"], 2),
    ],
    ids=lambda o: " ".join(o) if isinstance(o, list) else "",
)
@pytest.mark.parametrize("aligned", [False, True], ids=["free", "aligned"])
def test_run_with_every_method(study: Path, call: Call, options: list[str], rank_releases: int, aligned: bool) -> None:
    said = call(*arguments(study, *options, "--epsilon", 8, *(["--aligned"] if aligned else [])))
    assert said.code == 0, said.err
    assert len(pl.read_csv(study / "out" / "synthetic" / "joined.csv")) == N
    ledger = read_ledger(study / "out" / "ledger.jsonl")
    assert len(ledger) == 4 * (1 + rank_releases)
    per_round = 4.0 if "--per-round" in options else 4.0 / rank_releases
    ranks = [e for e in ledger if e.what == "ranks"]
    known = [1 + 2 * (N - e.n_subjects) if "completed" in e.mechanism else 1 for e in ranks]
    assert [e.epsilon for e in ranks] == pytest.approx([per_round * count for count in known])
    saved = json.loads((study / "out" / "study.json").read_text())
    assert saved["settings"]["method"] == options[1]
    assert saved["settings"].get("rounds", 1) == rank_releases
    summary = (study / "out" / "summary.txt").read_text()
    for text in (summary, said.out):
        assert ("Aligned rows" in text) == aligned
        assert "missing" in text.partition("Settings")[0]
    assert ("Refinement:" in summary) == (options[1] == "refined")


def test_aligned_rows_come_in_multiples_on_the_command_line(study: Path, call: Call) -> None:
    assert call(*arguments(study, "--method", "evcds", "--aligned", "--rows", 2 * N)).code == 0
    assert len(pl.read_csv(study / "out" / "synthetic" / "hub.csv")) == 2 * N
    assert "noisy copy of subject i" in (study / "out" / "synthetic" / "READ-ME-FIRST.txt").read_text()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--aligned", "--unit", "person"], "method 'strict' has no aligned release"),
        (["--epsilon", "1"], "method 'strict' has the units 'person' or 'block', not 'variable'"),
        (["--as-printed"], "method 'strict' is not in the paper"),
        (["--method", "vcds", "--aligned"], "its rows belong to no subject"),
        (["--method", "evcds", "--aligned", "--rows", "61"], "multiples of the cohort's 60 subjects"),
        (["--method", "refined", "--aligned", "--rows", "59"], "multiples of the cohort's 60 subjects"),
        (["--method", "ievcds", "--rounds", "0"], "rounds must be a whole number"),
        (["--method", "ievcds", "--rounds", "-2"], "rounds must be a whole number"),
        (["--method", "ievcds", "--rounds", "1001"], "rounds"),
        (["--method", "magic"], "unknown method 'magic'; known: vcds, refined, evcds, ievcds, strict"),
        (["--method", "ievcds", "--rounds", "1000", "--epsilon", "1e-6"], "epsilon is too small"),
    ],
    ids=lambda o: " ".join(o) if isinstance(o, list) else "",
)
def test_bad_combinations_give_words_and_spend_nothing(
    study: Path, call: Call, options: list[str], expected: str
) -> None:
    said = call(*arguments(study, *options))
    assert said.code == 1
    assert expected in said.err
    assert "internal error" not in said.err
    assert not (study / "out" / "ledger.jsonl").exists()


def test_a_cap_that_allows_one_round_stops_ten_on_the_command_line(study: Path, call: Call) -> None:
    policies = study / "policies"
    policies.mkdir()
    (policies / "south.toml").write_text("[caps]\nvariable = 1.5\n")
    more = ["--method", "ievcds", "--per-round", "--epsilon", 1, "--policies", policies]
    said = call(*arguments(study, *more, "--rounds", 10))
    assert said.code == 1
    assert "above its cap of 1.5" in said.err
    assert not (study / "out" / "ledger.jsonl").exists()
    assert call(*arguments(study, *more, "--rounds", 2)).code == 0


def test_check_prices_a_study_with_all_of_its_settings(study: Path, call: Call) -> None:
    policies = study / "policies"
    policies.mkdir()
    (policies / "south.toml").write_text("[caps]\nvariable = 1.5\n")
    asked = ["check", study / "federation.toml", "--data", study, "--policies", policies, "--vault", study / "vault"]
    asked += ["--method", "ievcds", "--per-round", "--epsilon", 1]
    said = call(*asked, "--rounds", 10)
    assert said.code == 1
    assert "epsilon per variable would become 5.5" in " ".join(said.out.split())
    assert call(*asked, "--rounds", 2).code == 0


@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds", "refined"])
def test_check_knows_which_methods_need_common_subjects(tmp_path: Path, call: Call, method: str) -> None:
    write(tmp_path, apart=True)
    said = call("check", tmp_path / "federation.toml", "--data", tmp_path, "--method", method)
    if method == "refined":
        assert said.code == 0, said.err
        assert "Nothing was spent" in said.out
    else:
        assert said.code == 1
        assert "never observed together" in said.err
        assert "north" in said.err
        assert "south" in said.err


def test_check_names_an_unknown_method(study: Path, call: Call) -> None:
    said = call("check", study / "federation.toml", "--data", study, "--method", "magic")
    assert said.code == 1
    assert "unknown method" in said.err


def test_run_refined_names_parties_that_never_meet(tmp_path: Path, call: Call) -> None:
    write(tmp_path, apart=True)
    said = call(*arguments(tmp_path, "--method", "refined", "--epsilon", 8))
    assert said.code == 0, said.err
    assert "north and south were never observed together" in said.out
    refused = call(*arguments(tmp_path, "--method", "vcds", "--overwrite"))
    assert refused.code == 1
    assert len(read_ledger(tmp_path / "out" / "ledger.jsonl")) == 8
