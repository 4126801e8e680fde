"""A method that is added while the test runs: everything that reads its record knows it, and nothing else is needed."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report import studies
from verticopula import METHODS, NotPrivateWarning, Policy, Synthesizer, forecast
from verticopula.errors import PolicyRefused, StudyWarning
from verticopula.protocol import method_registry
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.shared_rounds import Rounds, collect
from verticopula.schema import methods
from verticopula.schema.methods import VCDS, methods_help
from verticopula.stats.fit_result import FitResult
from verticopula.stats.vcds import fit_vcds

TOY = replace(
    VCDS,
    name="toy",
    help="a method of the tests",
    missing_blocks=StudyWarning(
        "missing-blocks", "care", "Toy knows nothing of missing blocks", "It is a toy.", "Use another method."
    ),
)


def toy(federation, request, study: str, side: CoordinatorSide) -> Rounds[FitResult]:  # type: ignore[no-untyped-def]
    return fit_vcds((yield from collect(federation, request, study, TOY.name)))


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
