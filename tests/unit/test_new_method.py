"""A method that is added while the test runs: everything that reads its record knows it, and nothing else is needed."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import Call
from tests.members import make_members
from tests.report import studies
from verticopula import METHODS, AuditSettings, NotPrivateWarning, Policy, Synthesizer, audit, forecast
from verticopula.errors import PolicyRefused, SettingsError, StudyWarning
from verticopula.network.coordinator.study_records import StudyRecord, StudyStore
from verticopula.network.coordinator.study_runner import check_study, run_study
from verticopula.protocol import method_registry
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.shared_rounds import Rounds, collect
from verticopula.schema import methods
from verticopula.schema.methods import VCDS, methods_help
from verticopula.stats.fit_result import FitResult
from verticopula.stats.vcds import fit_vcds
from verticopula.study.study_folder import read_fitted
from verticopula.transport.in_process_transport import InProcessTransport

TOY = replace(
    VCDS,
    name="toy",
    help="a method of the tests",
    missing_blocks=StudyWarning(
        "missing-blocks", "care", "Toy knows nothing of missing blocks", "It is a toy.", "Use another method."
    ),
)


def toy(federation, request, study: str, side: CoordinatorSide) -> Rounds[FitResult]:  # type: ignore[no-untyped-def]
    return fit_vcds((yield from collect(federation, request, study, TOY.name, side.context)))


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods._METHODS, TOY.name, TOY)
    monkeypatch.setitem(method_registry.PROTOCOLS, TOY.name, toy)  # type: ignore[arg-type]


@pytest.fixture
def fitted() -> Synthesizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return Synthesizer(studies.federation(), "toy", 8.0, random_state=1).fit(studies.tables())


def test_help_and_errors_name_it() -> None:
    assert "toy (a method of the tests)" in methods_help()
    assert "toy" in METHODS


def test_it_fits_samples_saves_and_says_its_own_words(fitted: Synthesizer, tmp_path: Path) -> None:
    assert all(table.height == 9 for table in fitted.sample(9).values())
    assert "Toy knows nothing of missing blocks" in fitted.summary()
    assert "Toy knows nothing of missing blocks" in fitted.report(tmp_path / "report.html").read_text("utf-8")
    fitted.save(tmp_path / "study.json")
    assert Synthesizer.load(tmp_path / "study.json").method == "toy"


def test_a_forecast_has_a_row_of_it() -> None:
    made = forecast(studies.federation(), 500, 4.0, units=["client"], methods=["toy", "vcds"])
    assert {row.method for row in made.rows} == {"toy", "vcds"}


def test_policies_know_it() -> None:
    with pytest.raises(PolicyRefused, match="'toy'"):
        Synthesizer(studies.federation(), "toy", 8.0).fit(
            studies.tables(), policies={"bank": Policy(methods=("vcds",))}
        )


def test_an_audit_attacks_its_claims(fitted: Synthesizer) -> None:
    found = audit(fitted, AuditSettings(trials=100, random_state=1, party="bank"))
    assert found.holds
    assert found.mechanism


def test_the_coordinator_runs_it_between_members(tmp_path: Path) -> None:
    federation, settings = studies.federation(), {"method": "toy", "epsilon": 8.0}
    check_study(federation, "synthesis", settings, 60.0)
    with pytest.raises(SettingsError, match="unit"):
        check_study(federation, "synthesis", {**settings, "unit": "planet"}, 60.0)
    record = StudyRecord("toy-1", "synthesis", settings, 9, False, 60.0, "token", 1, "", {})
    records, members = StudyStore(tmp_path), make_members(federation, studies.tables())
    run_study(record, federation, InProcessTransport(members), records)
    assert "method: toy" in (records.result_folder("toy-1") / "summary.txt").read_text("utf-8")
    assert read_fitted(records.result_folder("toy-1")).settings.method == "toy"


def test_commands_take_it_and_name_it(tmp_path: Path, call: Call) -> None:
    file = tmp_path / "federation.toml"
    studies.federation().to_toml(file)
    for party, table in studies.tables().items():
        table.write_csv(tmp_path / f"{party}.csv")
    run = ("run", file, "--data", tmp_path, "--epsilon", 8)
    assert "toy" in call(*run, "--out", tmp_path / "none", "--method", "unheard-of").err
    done = call(*run, "--out", tmp_path / "out", "--method", "toy")
    assert done.code == 0, done.err
    assert "Toy knows nothing of missing blocks" in done.out
    assert "Toy knows nothing of missing blocks" in (tmp_path / "out" / "report.html").read_text("utf-8")
    forecasted = call("forecast", file, "--subjects", 500, "--epsilon", 8, "--method", "toy", "--unit", "client")
    assert (forecasted.code, "toy" in forecasted.out) == (0, True), forecasted.err
    audited = call("audit", tmp_path / "out", "--claims-only", "--party", "bank", "--trials", 100, "--seed", 1)
    assert audited.code == 0, audited.err
