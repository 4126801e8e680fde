"""What a report says of caps, quality, settings, columns and dates, and the steward's page."""

from __future__ import annotations

import datetime
import html
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from tests.builders import tables_in
from tests.report import studies
from verticopula import Federation, Synthesizer
from verticopula.cli.app import app
from verticopula.data.input_files import write_inputs
from verticopula.errors import SettingsError
from verticopula.report.audit_section import read_audit
from verticopula.report.quality_score import shape_score
from verticopula.report.read_report_data import read_report_data
from verticopula.report.report_data import CapUse, ReportData, read_real
from verticopula.report.report_page import gather, render_report
from verticopula.report.study_settings_section import repeating_command
from verticopula.schema.study_settings import StudySettings

START = datetime.date(2020, 1, 1)


def real_subject() -> ReportData:
    return studies.subject(real=read_real(studies.federation(), studies.tables()))


def dated_study() -> tuple[Federation, dict[str, pl.DataFrame]]:
    """A column of days, with a title, at a party that knows half of the people."""
    party = {
        "name": "clinic",
        "column": [
            {
                "name": "admitted",
                "kind": "count",
                "bounds": ["2020-01-01", "2020-12-31"],
                "title": "Day of admission",
            },
            {"name": "weight", "kind": "continuous", "bounds": [30, 150], "measured_in": "kg"},
        ],
    }
    response = {"name": "bank", "column": [{"name": "default", "kind": "binary"}]}
    federation = Federation.from_dict(
        {"name": "days", "response": "bank.default", "id": "who", "party": [party, response]}
    )
    rng = np.random.default_rng(2)
    days = [START + datetime.timedelta(days=int(day)) for day in rng.integers(100, 200, 400)]
    whole = pl.DataFrame(
        {"who": range(400), "admitted": days, "weight": rng.normal(80, 9, 400), "default": rng.integers(0, 2, 400)}
    )
    return federation, {
        "clinic": whole.select("who", "admitted", "weight").filter(pl.col("who") % 2 == 0),
        "bank": whole.select("who", "default"),
    }


def test_dates_are_shown_as_dates_and_columns_by_their_titles_and_units() -> None:
    federation, tables = dated_study()
    study = Synthesizer(federation, "refined", epsilon=8.0).fit(tables)
    facts = gather(ReportData(study.study_))
    day, weight, _ = facts["columns"]
    assert (day["title"], weight["title"]) == ("Day of admission", "weight (kg)")
    assert all(datetime.date.fromisoformat(label[:10]).year == 2020 for label in day["labels"])
    for row in day["facts"]:
        for told in row[1:]:
            assert START <= datetime.date.fromisoformat(told) <= datetime.date(2020, 12, 31)
    moving = next(entry for entry in facts["moving"] if entry["key"] == "clinic.admitted")
    assert all(datetime.date.fromisoformat(text).year == 2020 for text in moving["texts"])
    assert moving["dates"]
    schema = {row["name"]: row for row in facts["schema"]}
    assert (schema["admitted"]["title"], schema["admitted"]["kind"]) == ("Day of admission", "dates")
    assert schema["admitted"]["range"] == "2020-01-01 to 2020-12-31"
    assert schema["weight"]["measured_in"] == "kg"
    assert "Day of admission" in render_report(ReportData(study.study_))


def test_titles_and_units_survive_the_file_and_must_be_printable() -> None:
    federation, _ = dated_study()
    again = Federation.from_dict(federation.to_dict())
    assert [column.heading for column in again.parties[0].columns] == ["Day of admission", "weight (kg)"]
    column = {"name": "x", "kind": "binary", "title": "a\nb"}
    with pytest.raises(ValueError, match="printable"):
        Federation.from_dict({"response": "p.x", "party": [{"name": "p", "column": [column]}]})


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "refined", "epsilon": 4.0},
        {"method": "ievcds", "epsilon": 2.5, "rounds": 3, "per_round": True, "seed": 7},
        {"method": "vcds", "epsilon": None, "epsilon_ranks": 1.0, "epsilon_marginals": 0.5, "sampler": "binomial"},
        {"method": "vcds", "epsilon": 2.0, "variant": "as-printed", "rank_correlation": "spearman"},
        {"method": "strict", "epsilon": 3.0, "delta": 1e-6, "unit": "block"},
    ],
    ids=lambda settings: settings["method"],
)
def test_the_command_asks_for_the_same_settings_again(settings: dict[str, object]) -> None:
    wanted = StudySettings(**settings).checked(studies.federation())  # type: ignore[arg-type]
    fitted = studies.fitted().study_
    subject = replace(real_subject(), fitted=type(fitted)(**{**vars(fitted), "settings": wanted}))
    shown = repeating_command(subject)
    name, *options = shlex.split(shown)[1:]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    parsed = commands[name].make_context(name, options).params
    names = {"random_state": "seed"}
    for setting, value in wanted.to_dict().items():
        if setting == "variant":
            assert parsed["as_printed"]
        else:
            assert parsed[names.get(setting, setting)] == value, setting
    other = {option for each in commands["submit"].params for option in each.opts}
    assert {part for part in options if part.startswith("--")} - {"--data"} <= other


def test_a_study_that_a_vault_counted_is_repeated_with_policies_and_vault() -> None:
    fitted = studies.fitted().study_
    counted = replace(fitted, releases=tuple(replace(release, table="ff6b") for release in fitted.releases))
    shown = shlex.split(repeating_command(ReportData(counted)))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    parsed = commands["run"].make_context("run", shown[2:]).params
    assert (str(parsed["policies"]), str(parsed["vault"])) == ("POLICIES", "VAULT")
    assert "nobody would count the new one" in render_report(ReportData(counted))
    assert "--vault" not in repeating_command(ReportData(fitted))
    assert "nobody would count the new one" not in render_report(ReportData(fitted))


def test_a_page_that_may_leave_the_house_has_no_seed() -> None:
    """It has noisy margins, and the seed takes the noise off them."""
    seeded = studies.fit("vcds", random_state=918_273_645).study_
    assert "918273645" not in render_report(ReportData(seeded))
    assert "--seed 918273645" in repeating_command(replace(real_subject(), fitted=seeded))


def test_quality_is_the_mean_of_margins_and_pairs_in_the_house() -> None:
    facts = gather(real_subject())
    quality = facts["quality"]
    assert quality["measured"]
    assert quality["whole"] == pytest.approx((quality["shapes"] + quality["pairs"]) / 2)
    assert quality["pairs"] == pytest.approx(1 - facts["realised"]["mean"] / 2)
    assert 0.9 < quality["shapes"] <= 1.0  # epsilon is 8 per client
    assert quality["worst"][0]["score"] == min(entry["score"] for entry in quality["worst"])
    lead = gather(studies.subject())["quality"]
    assert "whole" not in lead
    assert 0.9 < lead["pairs"] <= 1.0


def test_a_margin_that_is_right_scores_one_and_one_elsewhere_none() -> None:
    def column(observed: list[float], real: list[float], *, ordered: bool) -> dict[str, object]:
        return {"series": {"observed": observed, "real": real}, "ordered": ordered}

    assert shape_score(column([0.2, 0.8], [0.2, 0.8], ordered=True)) == pytest.approx(1.0)
    assert shape_score(column([1, 0, 0], [0, 0, 1], ordered=True)) == pytest.approx(0.0)
    assert shape_score(column([0.5, 0.5, 0], [0.5, 0, 0.5], ordered=False)) == pytest.approx(0.5)
    assert shape_score(column([0.5, 0.1, 0.4], [0.1, 0.5, 0.4], ordered=True)) == pytest.approx(0.6)


def test_caps_are_shown_in_the_house_only_the_fullest_first() -> None:
    caps = (CapUse("bank", "client", 2.0, 10.0), CapUse("shop", "block", 45.0, 50.0))
    real = real_subject().real
    shown = gather(studies.subject(real=real, caps=caps))["caps"]
    assert [(row["party"], row["share"]) for row in shown] == [("shop", 0.9), ("bank", 0.2)]
    assert gather(studies.subject(caps=caps))["caps"] == []
    assert "Spent so far" not in render_report(studies.subject(caps=caps))
    assert "Spent so far" in render_report(studies.subject(real=real, caps=caps))


def test_run_writes_what_was_spent_of_the_caps_over_all_runs(tmp_path: Path) -> None:
    write_inputs(studies.federation(), studies.tables(), tmp_path)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies/bank.toml").write_text("[caps]\nclient = 40.0\n", encoding="utf-8")
    common = [str(tmp_path / "federation.toml"), "--data", str(tmp_path / "data"), "--epsilon", "8", "--quiet"]
    common += [
        "--method",
        "refined",
        "--policies",
        str(tmp_path / "policies"),
        "--vault",
        str(tmp_path / "vault"),
        "--in-house",
    ]
    for name in ("first", "second"):
        done = CliRunner().invoke(app, ["run", *common, "--out", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    for name, used in (("first", "20 %"), ("second", "40 %")):
        page = (tmp_path / name / "report-in-house.html").read_text("utf-8")
        assert "--policies POLICIES --vault VAULT" in page
        assert str(tmp_path) not in page
        assert used in page[page.index('id="caps"') :][:900]
        assert 'id="caps"' not in (tmp_path / name / "report.html").read_text("utf-8")


def test_the_steward_reads_what_left_what_stayed_and_what_speaks_against_it() -> None:
    yes = gather(studies.subject())["yes"]
    assert not yes["protects"]
    assert [party["name"] for party in yes["parties"]] == ["bank", "court", "shop"]
    assert any("does not protect a whole person" in warning["title"] for warning in yes["grave"])
    assert yes["stayed"] == "Rows, and anybody's exact values."
    seeded = gather(ReportData(studies.fit("vcds", random_state=1).study_))["yes"]
    assert "seed" in seeded["stayed"]
    assert seeded["grave"][0]["level"] == "stop"
    strict = gather(ReportData(studies.fit("strict", epsilon=3.0, delta=1e-6, unit="person").study_))["yes"]
    assert strict["protects"]
    assert any("two of them" in check for check in strict["checks"])


def propose(folder: Path, *options: str, code: int = 0) -> dict[str, str]:
    """The stewards' pages that `check` writes, without tags; nobody but the bank has a policy."""
    if not (folder / "data").exists():
        write_inputs(studies.federation(), studies.tables(), folder)
        (folder / "policies").mkdir()
        (folder / "policies/bank.toml").write_text("[caps]\nclient = 12.0\n", encoding="utf-8")
    common = ["--data", "data", "--policies", "policies", "--vault", "vault"]
    given = [str(folder / part) if not part.startswith("-") else part for part in common]
    done = CliRunner().invoke(
        app, ["check", str(folder / "federation.toml"), *given, *options, "--out", str(folder / "pages")]
    )
    assert done.exit_code == code, done.output
    texts = {
        path.stem: re.sub(r"<style>.*?</style>|<[^>]*>", "", path.read_text("utf-8"), flags=re.S)
        for path in (folder / "pages").glob("*.html")
    }
    return {name: " ".join(html.unescape(text).split()) for name, text in texts.items()}


def test_a_steward_has_a_page_before_the_yes(tmp_path: Path) -> None:
    pages = propose(tmp_path, "--method", "refined", "--epsilon", "8")
    assert sorted(pages) == ["bank", "court", "shop"]
    assert not (tmp_path / "vault").exists()  # nothing was spent
    said = pages["bank"]
    assert "For the data steward of bank" in said
    assert "Nothing was spent yet" in said
    assert "noisy ranks and noisy cell counts of 2 columns, 600 subjects at most: default (" in said
    assert "8 per client" in said
    assert "This does not protect a person." in said
    assert "ε per client: 0 so far, 8 after this study, of 12." in said
    assert "Signature" in said
    # A party's page tells nothing of another party's rules.
    assert "None: nothing limits what is spent" in pages["court"]
    assert "of 12" not in pages["court"] + pages["shop"]


def test_the_page_and_the_record_state_the_same_prices(tmp_path: Path) -> None:
    propose(tmp_path, "--epsilon", "8", "--method", "vcds")
    common = [
        "--data",
        str(tmp_path / "data"),
        "--policies",
        str(tmp_path / "policies"),
        "--vault",
        str(tmp_path / "vault"),
    ]
    common += ["--epsilon", "8", "--method", "vcds", "--quiet", "--out", str(tmp_path / "study")]
    done = CliRunner().invoke(app, ["run", str(tmp_path / "federation.toml"), *common])
    assert done.exit_code == 0, done.output
    record = gather(read_report_data(tmp_path / "study"))["yes"]
    before = (tmp_path / "pages/bank.html").read_text("utf-8")
    assert record["is_over"]
    assert f"{record['person']} per person" in before
    assert f"{record['parties'][0]['block']} per block" in before
    # A second study of the same size would go above the cap, and the page says so before anything is drawn.
    again = propose(tmp_path, "--epsilon", "8", "--method", "vcds", code=1)
    assert "ε per client: 8 so far, 16 after this study, of 12. Stop It would be refused." in again["bank"]


def test_warnings_that_rest_on_cells_are_not_written_on_the_page(tmp_path: Path) -> None:
    write_inputs(studies.federation(income=[-600, 600]), studies.tables(), tmp_path)
    (tmp_path / "policies").mkdir()
    pages = propose(tmp_path, "--epsilon", "8")
    assert "wider" not in "".join(pages.values())
    said = CliRunner().invoke(app, ["check", str(tmp_path / "federation.toml"), "--data", str(tmp_path / "data")])
    assert "wider" in said.output


def test_a_strict_study_s_page_says_what_is_an_upper_bound(tmp_path: Path) -> None:
    said = propose(tmp_path, "--epsilon", "3", "--method", "strict", "--delta", "1e-6")["bank"]
    assert "at most 3 per block, 3 per person" in said
    assert "all other parties" in said
    assert "two of them could read every cell" in said


def test_pages_for_stewards_need_tables(tmp_path: Path) -> None:
    write_inputs(studies.federation(), studies.tables(), tmp_path)
    done = CliRunner().invoke(app, ["check", str(tmp_path / "federation.toml"), "--out", str(tmp_path / "pages")])
    assert done.exit_code != 0
    assert not (tmp_path / "pages").exists()


def test_glossary_terms_are_sorted_and_in_the_page_s_glossary() -> None:
    from verticopula.report.glossary import GLOSSARY

    page = (Path(__file__).parents[2] / "docs/reference/glossary.md").read_text("utf-8")
    terms = [term for term, _ in GLOSSARY]
    assert terms == sorted(terms)
    # The page has the first two together, and the next three under "unit"; the others are words of statistics.
    others = {"delta", "epsilon", "client", "person", "variable", "party", "response", "standard error", "synthetic"}
    assert [term for term in terms if f"**{term}**" not in page and term not in others] == []
    # A page's entry says what the report does, and may go on from there.
    assert [term for term, said in GLOSSARY if f"**{term}** " in page and f"**{term}** {said}" not in page] == []


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's folder with its audit, as the commands write them."""
    folder = tmp_path_factory.mktemp("audited")
    write_inputs(studies.federation(), studies.tables(), folder)
    study, data = str(folder / "study"), str(folder / "data")
    asked = ["--method", "refined", "--epsilon", "8"]
    for command in (
        ["run", str(folder / "federation.toml"), "--data", data, "--out", study, *asked, "--quiet"],
        [
            "audit",
            study,
            "--data",
            data,
            "--trials",
            "120",
            "--out",
            str(folder / "study/audit"),
            "--columns",
            "one-per-kind",
        ],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    return folder


@pytest.mark.audit
def test_an_audit_is_shown_in_the_house_by_its_risks(audited: Path) -> None:
    study = audited / "study"
    found = json.loads((study / "audit/audit.json").read_text("utf-8"))
    section = gather(read_report_data(study, lambda federation: tables_in(federation, audited / "data")))["audit"]
    risks = [attack["risk"] for attack in section["attacks"]]
    assert {"Singling out", "Linkability", "Inference"} == set(risks)  # no attack is left without a name
    assert risks == sorted(risks, key=["Singling out", "Linkability", "Inference"].index)
    assert section["claims"] == len(found["mechanism"]) > 0
    assert section["refuted"] == []
    assert CliRunner().invoke(app, ["report", str(study), "--data", str(audited / "data")]).exit_code == 0
    assert "Attacks on this study" in (study / "report-in-house.html").read_text("utf-8")
    assert CliRunner().invoke(app, ["report", str(study)]).exit_code == 0
    assert "Attacks on this study" not in (study / "report.html").read_text("utf-8")


@pytest.mark.audit
def test_a_refuted_claim_is_named_and_a_file_that_is_no_audit_is_an_error(audited: Path, tmp_path: Path) -> None:
    found = json.loads((audited / "study/audit/audit.json").read_text("utf-8"))
    found["mechanism"][0]["holds"] = False
    page = render_report(studies.subject(real=real_subject().real, audit=found))
    assert "1 refuted" in page
    assert found["mechanism"][0]["what"] in page
    assert read_audit(tmp_path) is None
    for text in ("no JSON", "[]", '{"tables": [{}]}'):
        (tmp_path / "audit.json").write_text(text, encoding="utf-8")
        with pytest.raises(SettingsError, match=r"audit\.json"):
            read_audit(tmp_path)
