"""What is said before anything is spent, and what the ledger holds afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, Call, make_federation
from verticopula import Federation, Policy, Synthesizer
from verticopula.data.input_files import write_inputs
from verticopula.data.tables import align_tables
from verticopula.errors import BudgetExceeded, PolicyRefused, StudyWarning
from verticopula.forecasting.preflight_checks import describe_expectation, warn_before_spending, would_refuse
from verticopula.privacy.policy import Caps
from verticopula.schema.study_settings import StudySettings
from verticopula.storage.ledger import read_ledger


def study(n: int = 300, known: int = 300, **column: Any) -> tuple[Federation, dict[str, pl.DataFrame]]:
    """Two parties with one column each, of which the second knows the first people only."""
    federation = make_federation({"hub": {"y": CONTINUOUS}, "bank": {"x": {**CONTINUOUS, **column}}})
    values = np.random.default_rng(3).normal(size=(n, 2)).clip(-7, 7)
    ids = [f"s{i}" for i in range(n)]
    tables = {
        "hub": pl.DataFrame({"subject_id": ids, "y": values[:, 0]}),
        "bank": pl.DataFrame({"subject_id": ids[:known], "x": values[:known, 1]}),
    }
    return federation, tables


def found(
    made: tuple[Federation, dict[str, pl.DataFrame]], method: str = "vcds", **more: Any
) -> dict[str, StudyWarning]:
    federation, tables = made
    given = {name: more.pop(name) for name in ("epsilon", "delta", "sampler") if name in more}
    settings = StudySettings(method, **{"epsilon": 1.0, **given}).checked(federation)
    aligned = align_tables(federation, tables, need_overlap=False)
    codes = {warning.code: warning for warning in warn_before_spending(federation, settings, aligned, **more)}
    assert ("unit" in codes) == (settings.unit == "client")  # whatever else there is
    return {code: warning for code, warning in codes.items() if code != "unit"}


def test_a_plain_study_has_no_warning_but_of_its_unit() -> None:
    federation, tables = study()
    settings = StudySettings("vcds", epsilon=1.0).checked(federation)
    (warning,) = warn_before_spending(federation, settings, align_tables(federation, tables))
    assert "client, does not protect a whole person" in warning.title
    after = Synthesizer(federation, "vcds", 1.0).fit(tables)
    assert str(warning) in " ".join(after.summary().split())  # the same before and after


def test_missing_blocks_with_a_method_that_does_not_correct() -> None:
    made = study(known=200)
    assert "VCDS does not correct for missing blocks" in str(found(made)["missing-blocks"])
    assert found(made, "refined") == {}


def test_few_subjects() -> None:
    assert "The study has 3 subjects" in str(found(study(3, 3))["few-subjects"])
    assert "few-subjects" not in found(study(100, 100))


def test_bounds_that_are_much_wider_than_the_values_or_that_exclude_most_of_them() -> None:
    wide = found(study(bounds=[-1000, 1000]))["wide-bounds"]
    assert "bank.x" in str(wide)
    assert "hub.y" not in str(wide)
    assert set(found(study(bounds=[20, 30]))) == {"mostly-clamped"}
    assert "bank.x" in str(found(study(bounds=[20, 30], clamp=True))["mostly-clamped"])


def test_a_slow_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from verticopula.forecasting import preflight_checks

    lower = replace(preflight_checks.SAMPLER_TUNING, comparisons=50_000.0)  # 2 columns of 300 people have 89,700
    monkeypatch.setattr(preflight_checks, "SAMPLER_TUNING", lower)
    assert "--sampler binomial" in str(found(study())["slow-sampler"])
    assert found(study(), sampler="binomial") == {}
    assert found(study(150, 150)) == {}
    assert found(study(), "strict", delta=1e-6) == {}


def test_caps_that_are_nearly_used_or_too_small_for_the_study() -> None:
    made = study()
    for cap, code in ((0.9, "above-cap"), (1.0, "cap-nearly-used"), (1.2, "cap-nearly-used"), (1.3, None)):
        codes = list(found(made, policies={"bank": Policy(caps=Caps(client=cap))}))
        assert codes == ([code] if code else [])
    spent = Synthesizer(made[0], "vcds", epsilon=1.0).fit(made[1]).ledger_
    policy = {"bank": Policy(caps=Caps(client=2.0))}
    said = str(found(made, policies=policy, spent=spent)["cap-nearly-used"])
    assert "100 % of the cap per client of party bank is used" in said
    assert "Epsilon would be 2 of 2" in said
    with_strict = found(made, "strict", delta=1e-6, policies={"bank": Policy(caps=Caps(person=1.1))})
    assert list(with_strict) == ["cap-nearly-used"]


def test_a_strict_study_is_priced_as_its_caps_count_it() -> None:
    """Caps count Gaussian noise by a filter, which is dearer: what `run` refuses, `check` refuses, too."""
    made = study()
    for policy, cap, code in (
        (Policy(caps=Caps(person=4.0)), 4.0, "above-cap"),
        (Policy(caps=Caps(person=4.3)), 4.3, "cap-nearly-used"),
        (Policy(methods=("strict",), caps=Caps(person=4.0)), 4.0, "cap-nearly-used"),
    ):
        given = {"epsilon": 4.0, "delta": 1e-6}
        assert list(found(made, "strict", **given, policies={"bank": policy})) == [code], cap
        study_ = Synthesizer(made[0], "strict", **given)
        if code == "above-cap":
            with pytest.raises(BudgetExceeded):
                study_.fit(made[1], policies={"bank": policy})
        else:
            study_.fit(made[1], policies={"bank": policy})
    assert list(found(made, "strict", delta=1e-6, policies={"bank": Policy(caps=Caps(block=0.9))})) == []


@pytest.mark.parametrize(
    "policy",
    [Policy(methods=("strict",)), Policy(columns=("z",)), Policy(min_subjects=301), Policy(caps=Caps(block=1))],
)
def test_every_rule_that_would_refuse_is_said_before(policy: Policy) -> None:
    made = study()
    warned = would_refuse(found(made, policies={"bank": policy}).values())
    assert [warning.level for warning in warned] == ["stop"]
    assert warned[0].title.startswith("Party bank would refuse")
    with pytest.raises((PolicyRefused, BudgetExceeded)):
        Synthesizer(made[0], "vcds", 1.0).fit(made[1], policies={"bank": policy})


def test_the_paper_s_algorithms_as_printed_are_refused_before_too() -> None:
    federation, tables = study()
    settings = StudySettings("vcds", 1.0, variant="as-printed").checked(federation)
    aligned = align_tables(federation, tables, need_overlap=False)
    for policy, count in ((Policy(), 1), (Policy(allow_as_printed=True), 0)):
        given = warn_before_spending(federation, settings, aligned, policies={"bank": policy})
        assert len(would_refuse(given)) == count
    capped = Policy(allow_as_printed=True, caps=Caps(client=1e6))
    (warning,) = would_refuse(warn_before_spending(federation, settings, aligned, policies={"bank": capped}))
    assert "would become infinite" in warning.title or "inf" in warning.title


def test_the_last_line_of_a_check_says_what_is_open(folder: Path, call: Call) -> None:
    inputs = [folder / "federation.toml", "--data", folder / "data"]
    assert call("check", *inputs).out.endswith("Nothing was spent; nothing would stop the study.")
    last = "Nothing was spent; nothing would stop the study; 2 things to look at above."
    assert call("check", *inputs, "--method", "vcds").out.endswith(last)
    last = "Nothing was spent; the federation file is complete."
    assert call("check", folder / "federation.toml").out.endswith(last)


def test_the_prices_before_are_those_of_the_ledger_after() -> None:
    from verticopula.forecasting.preflight_checks import propose_releases

    federation, tables = study(known=200)
    for method in ("vcds", "refined", "ievcds"):
        settings = StudySettings(method, 2.0, rounds=3).checked(federation)
        before = propose_releases(federation, settings, align_tables(federation, tables, need_overlap=False))
        after = Synthesizer(federation, method, 2.0, rounds=3).fit(tables).ledger_
        assert sorted((e.party, e.column, e.what, e.epsilon, e.coins) for e in before) == sorted(
            (e.party, e.column, e.what, e.epsilon, e.coins) for e in after
        )


@pytest.mark.parametrize("known", [300, 200])
def test_the_method_where_nobody_names_one_protects_a_person(known: int) -> None:
    federation, tables = study(known=known)
    synthesizer = Synthesizer(federation).fit(tables)
    assert synthesizer.method is None  # as it was given
    asked = {"method": "strict", "epsilon": 3.0, "delta": 1e-6, "unit": "person"}
    assert synthesizer.settings_ == asked
    assert Synthesizer(federation).check().to_dict() == asked  # as over a transport
    assert synthesizer.privacy_.person <= 3.0 + 1e-9
    assert "method: strict" in synthesizer.summary()


def test_one_sentence_of_what_to_expect() -> None:
    federation, tables = study(known=200)
    aligned = align_tables(federation, tables)
    settings = StudySettings("refined", 4.0).checked(federation)
    assert describe_expectation(federation, settings, aligned).startswith(
        "At epsilon 4 per client, expect correlations to be"
    )
    noisy = StudySettings("refined", 0.01).checked(federation)
    assert "mostly noise" in describe_expectation(federation, noisy, aligned)
    few = align_tables(*study(5, 5))
    assert describe_expectation(federation, settings, few) == ""


# ---- on the command line -----------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_inputs(*study(known=200), tmp_path)
    return tmp_path


def run(call: Call, folder: Path, *more: Any) -> Any:
    given = ["--data", folder / "data", "--out", folder / "out", "--method", "refined", "--epsilon", 4]
    return call("run", folder / "federation.toml", *given, *more)


def test_check_and_run_say_it_first_and_choose_a_method(folder: Path, call: Call) -> None:
    checked = call("check", folder / "federation.toml", "--data", folder / "data")
    assert checked.code == 0, checked.err
    assert "Method strict. At epsilon 3 per person, expect correlations" in checked.out
    named = call("check", folder / "federation.toml", "--data", folder / "data", "--method", "vcds")
    assert "! VCDS does not correct for missing blocks" in named.out
    done = run(call, folder, "--method", "vcds")
    assert "! VCDS does not correct for missing blocks" in done.err
    assert "At epsilon 4 per client, expect correlations" in done.err
    assert "for a person" not in done.err.split("! The budget's unit")[0]
    assert "client, does not protect a whole person" in done.err  # with a person's epsilon beside it
    assert run(call, folder, "--overwrite", "--quiet").err == ""
    assert '"method": "refined"' in (folder / "out" / "study.json").read_text()


def test_an_overwritten_run_still_counts_in_summary_study_and_report(folder: Path, call: Call) -> None:
    assert run(call, folder).code == 0
    again = run(call, folder, "--overwrite")
    assert "The ledger holds releases of 1 earlier study, too" in again.out
    assert "This study alone has epsilon 4 per client; all of them together have 8." in again.out
    summary = (folder / "out" / "summary.txt").read_text("utf-8")
    assert "    client            8:" in summary
    shown = call("ledger", "show", folder / "out").out
    assert "client 8:" in shown
    assert len(Synthesizer.load(folder / "out" / "study.json").ledger_) == len(
        read_ledger(folder / "out" / "ledger.jsonl")
    )
    assert 'data-code="earlier"' in (folder / "out" / "report.html").read_text("utf-8")


def test_check_asks_the_vault_and_tells_it_nothing(folder: Path, call: Call) -> None:
    rules = folder / "policies"
    rules.mkdir()
    (rules / "bank.toml").write_text("[caps]\nclient = 6.0\n")
    kept = ["--policies", rules, "--vault", folder / "vault"]
    inputs = [folder / "federation.toml", "--data", folder / "data", *kept, "--method", "refined"]
    assert call("check", *inputs).code == 0
    assert not (folder / "vault").exists()
    assert run(call, folder, *kept).code == 0
    before = {path: path.read_bytes() for path in (folder / "vault").rglob("*") if path.is_file()}
    said = call("check", *inputs, "--epsilon", 2).out
    assert "100 % of the cap per client of party bank is used. Epsilon would be 6 of 6" in said
    refused = call("check", *inputs, "--epsilon", 3)
    assert refused.code == 1
    assert "Party bank would refuse: epsilon per client would become 7" in refused.out
    last = (
        "Nothing was spent; 1 thing would stop the study: Party bank would refuse: epsilon per client would become 7. "
        "And 1 thing to look at above."
    )
    assert refused.out.endswith(last)
    assert call("check", *inputs, "--epsilon", 3, "--quiet").code == 1
    assert {path: path.read_bytes() for path in (folder / "vault").rglob("*") if path.is_file()} == before


def test_an_interrupted_run_says_what_was_charged_and_the_next_one_adds_to_it(tmp_path: Path, call: Call) -> None:
    write_inputs(*study(60_000, 60_000), tmp_path)
    code = "from verticopula.cli.app import main; main()"
    given = ["--data", "data", "--out", "out", "--epsilon", "4", "--method", "vcds"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "run", "federation.toml", *given],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ledger = tmp_path / "out" / "ledger.jsonl"
    while process.poll() is None and not (ledger.is_file() and len(ledger.read_text().splitlines()) == 4):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    said = " ".join(err.split())
    assert process.returncode == 130, said
    said = said[said.index("interrupted") :]
    charged = len(read_ledger(ledger))  # an entry that was not yet safe on disk is taken back: nothing was drawn for it
    assert charged in (2, 4)
    assert said.startswith(f"interrupted; {charged} releases were charged: epsilon per client 4, per person")
    assert not (tmp_path / "out" / "study.json").exists()
    write_inputs(*study(), tmp_path)
    assert run(call, tmp_path).code == 0
    assert "    client            8:" in (tmp_path / "out" / "summary.txt").read_text("utf-8")


def test_unwritable_and_unreadable_paths_are_errors_of_the_user_s_world(folder: Path, call: Call) -> None:
    (folder / "taken").write_text("a file")
    said = run(call, folder, "--vault", folder / "taken" / "vault")
    assert said.code == 1
    assert "defect" not in said.err
    for command in (
        ("init", folder / "data", "--yes", "--out", folder / "none" / "f.toml"),
        ("run", folder / "data", "--data", folder / "data", "--out", folder / "o"),
        ("check", folder / "federation.toml", "--data", folder / "taken"),
        ("ledger", "show", folder / "data"),
        ("report", folder / "data"),
    ):
        said = call(*command)
        assert said.code == 1, command
        assert "error" in said.err or "problem" in said.err
        assert "defect" not in said.err


def test_a_reader_who_goes_away_is_no_error(folder: Path, call: Call) -> None:
    assert run(call, folder).code == 0
    code = "from verticopula.cli.app import main; main()"
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code, "ledger", "show", str(folder / "out")], stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    os.close(reading)
    _, err = process.communicate(timeout=600)
    assert b"defect" not in err


def test_a_forecast_fits_80_columns(folder: Path) -> None:
    code = "from verticopula.cli.app import main; main()"
    given = ["forecast", str(folder / "federation.toml"), "--subjects", "2000", "--delta", "1e-9"]
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-c", code, *given]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
