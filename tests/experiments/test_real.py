"""A study on a CSV of the user's own: what the study file does, and the measures by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from experiments.__main__ import main
from experiments.real import description as d
from experiments.real.real_command import tabulate_spreads
from experiments.real.utility import CompleteDataModel, margin_distance
from experiments.sme import fit_tables
from experiments.study import NOTHING_PROTECTED, Outcome
from reporting.records import Record
from verticopula.errors import SettingsError
from verticopula.schema.columns import Column

STUDY = """
name = "small"
response = "agency.late"
id = "id"
[[party]]
name = "bank"
  [[party.column]]
  name = "amount"
  kind = "continuous"
  bounds = [-5, 5]
  clamp = true
  [[party.column]]
  name = "line"
  kind = "nominal"
  categories = ["yes", "no", "unknown"]
[[party]]
name = "agency"
  [[party.column]]
  name = "year"
  kind = "count"
  bounds = [0, 20]
  clamp = true
  [[party.column]]
  name = "late"
  kind = "binary"
[recode.line]
empty = "unknown"
values = { "1" = "yes", "0" = "no" }
[[remove]]
party = "bank"
rate = 0.4
on = { "agency.year" = 2.0 }
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("real")
    rng = np.random.default_rng(0)
    amount, year = rng.standard_normal(600), rng.poisson(8.0, 600)
    late = rng.random(600) < 1.0 / (1.0 + np.exp(-2.0 * amount))
    line = [(1.0, 0.0, None)[code] for code in rng.integers(0, 3, 600)]
    table = pl.DataFrame(
        {
            "id": np.arange(600),
            "amount": amount,
            "line": line,
            "year": [None, *year[1:].tolist()],
            "late": late.astype(int),
            "not_asked_for": 1,
        }
    )
    table.write_csv(folder / "data.csv")
    (folder / "small.toml").write_text(STUDY)
    return folder / "data.csv", folder / "small.toml"


def test_values_are_recoded_and_incomplete_rows_left_out(files: tuple[Path, Path]) -> None:
    description = d.read_description(files[1])
    rows = d.read_rows(files[0], description)
    assert rows.columns == ["id", "amount", "line", "year", "late"]
    assert rows.height == 599
    assert set(rows["line"]) == {"yes", "no", "unknown"}
    assert set(rows["late"]) == {"0", "1"}


def test_blocks_go_at_the_rate_and_by_what_stays(files: tuple[Path, Path]) -> None:
    description = d.read_description(files[1])
    tables = d.split_parties(description.federation, d.read_rows(files[0], description))
    chance = d.chance_of_removal(description.removals[0], tables)
    assert chance.mean() == pytest.approx(0.4)
    year = tables["agency"]["year"].to_numpy()
    odds = np.log(chance / (1.0 - chance))
    assert np.ptp(odds - 2.0 * (year - year.mean()) / year.std()) == pytest.approx(0.0, abs=1e-9)
    left = d.remove_blocks(description, tables, np.random.default_rng(0))
    assert left["agency"].height == 599
    assert left["bank"].height == pytest.approx(0.6 * 599, abs=4 * np.sqrt(599 * 0.24))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('party = "bank"\nrate', 'party = "agency"\nrate', "other than the response"),
        ("rate = 0.4", "rate = 1.5", "between 0 and 1"),
        ('"agency.year" = 2.0', '"bank.amount" = 2.0', "stays observed"),
    ],
)
def test_senseless_study_files_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace(old, new))
    with pytest.raises(SettingsError, match=message):
        d.read_description(path)


def test_the_loans_study_file_is_sound() -> None:
    description = d.read_description(Path("experiments/real/sba_loans.toml"))
    assert len(description.federation.keys) == 16
    assert {removal.party for removal in description.removals} == {"registry", "labour", "bank"}


def test_margin_distances_by_hand() -> None:
    number = Column(name="x", kind="continuous", bounds=(0, 10), clamp=True)
    assert margin_distance(pl.Series([1.0, 2.0, 3.0, 4.0]), pl.Series([3.0, 4.0, 5.0, 6.0]), number) == 0.5
    assert margin_distance(pl.Series([1.0, 99.0]), pl.Series([1.0, 10.0]), number) == 0.0  # 99 counts as its bound
    label = Column(name="x", kind="nominal", categories=("a", "b", "c"))
    assert margin_distance(pl.Series(["a", "b"]), pl.Series(["a", "c"]), label) == 0.5


def test_the_complete_data_are_their_own_perfect_match(files: tuple[Path, Path]) -> None:
    description = d.read_description(files[1])
    tables = d.split_parties(description.federation, d.read_rows(files[0], description))
    outcome = Outcome(NOTHING_PROTECTED, 599, tables)
    fitted = fit_tables(description.federation, outcome)
    found = CompleteDataModel(description.federation, tables, tables, fitted).measure(outcome, fitted)
    assert fitted.selected == ("bank.amount",)
    assert (found.found, found.invented, found.rmse, found.signs, found.margins) == (1, 0, 0.0, 1.0, 0.0)
    assert found.auc > 0.8
    half = {**tables, "bank": tables["bank"].with_columns(-pl.col("amount"))}
    turned = fit_tables(description.federation, Outcome(NOTHING_PROTECTED, 599, half))
    worse = CompleteDataModel(description.federation, tables, tables, fitted).measure(outcome, turned)
    spread = float(tables["bank"]["amount"].std(ddof=0))  # type: ignore[arg-type]
    assert worse.signs == 0.0
    assert worse.rmse == pytest.approx(2.0 * abs(fitted.coef[0]) * spread / np.sqrt(4))


def test_the_command_writes_one_line_per_method_and_is_not_repeated(files: tuple[Path, Path], tmp_path: Path) -> None:
    options = ["--csv", str(files[0]), "--study", str(files[1]), "--methods", "CC-VCDS", "Refined"]
    options += ["--splits", "2", "--test-cases", "100", "--epsilon", "5", "--out", str(tmp_path)]
    assert main(["real", *options]) == 0
    with (tmp_path / "real.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["Complete data", "Complete cases, no noise", "CC-VCDS", "Refined"]
    assert all(row["splits"] == "2" and row["failures"] == "0" for row in rows)
    assert float(rows[0]["rmse"]) == 0.0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("replications/*/*.json")}
    assert len(before) == 8
    assert main(["real", *options]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_spreads_of_aligned_latents_are_those_of_the_methods_that_have_them() -> None:
    kept = {"VCDS": [{}], "EVCDS": [{"spreads": {"a": 0.9, "b": 1.0}}, {"spreads": {"a": 1.25, "b": 1.1}}]}
    (table,) = tabulate_spreads(kept)
    assert table.rows == [("EVCDS", "0.900", "1.250")]
    assert tabulate_spreads({"VCDS": [{}]}) == []


def test_spreads_are_measured_of_aligned_methods_only(files: tuple[Path, Path], tmp_path: Path) -> None:
    options = ["--csv", str(files[0]), "--study", str(files[1]), "--methods", "VCDS", "EVCDS", "--splits", "1"]
    assert main(["real", *options, "--test-cases", "100", "--epsilon", "5", "--out", str(tmp_path)]) == 0
    kept = {path.name: Record.read(path).results for path in tmp_path.glob("replications/*/*vcds.00.json")}
    assert "spreads" not in kept["vcds.00.json"]
    spreads = kept["evcds.00.json"]["spreads"]
    assert {"bank.amount", "agency.year", "agency.late"} <= set(spreads)
    # Four standard errors of a standard deviation of 499 latents.
    assert np.array(list(spreads.values())) == pytest.approx(1.0, abs=4.0 / np.sqrt(2 * 499))


def test_a_column_that_is_not_there_is_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    pl.read_csv(files[0]).drop("amount").write_csv(tmp_path / "less.csv")
    with pytest.raises(SettingsError, match="'amount'"):
        d.read_rows(tmp_path / "less.csv", d.read_description(files[1]))


@pytest.mark.parametrize("other", [["--epsilon", "5"], ["--test-cases", "120"], ["--rows", "500"]])
def test_figures_of_other_settings_are_not_handed_out(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], other: list[str]
) -> None:
    data, study = files
    options = ["--csv", str(data), "--study", str(study), "--splits", "1", "--out", str(tmp_path)]
    options += ["--methods", "Single-VCDS", "--test-cases", "100", "--epsilon", "20"]
    assert main(["real", *options]) == 0
    assert main(["real", *options, *other]) == 2
    assert "other settings" in " ".join(capsys.readouterr().out.split())


def test_categories_keep_their_decimals() -> None:
    assert d.as_text(pl.Series([1.0, 2.0, None])).to_list() == ["1", "2", None]
    assert d.as_text(pl.Series([0.5, 1.5])).to_list() == ["0.5", "1.5"]
