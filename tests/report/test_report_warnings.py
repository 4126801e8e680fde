"""Every warning shows when its cause is there, and not otherwise."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.report import studies
from verticopula import Federation
from verticopula.errors import AlignedWarning
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.report.report_data import ReportData, read_real
from verticopula.report.report_page import render_report
from verticopula.report.report_warnings import report_warnings
from verticopula.stats.fit_result import FitResult
from verticopula.stats.marginals import Marginal


def codes(subject: ReportData) -> set[str]:
    return {warning.code for warning in report_warnings(subject)}


def with_result(synthesizer: Synthesizer, **changes: Any) -> ReportData:
    """The same study with something else in its result."""
    changed: FitResult = dataclasses.replace(synthesizer.result_, **changes)
    return ReportData(dataclasses.replace(synthesizer.study_, result=changed))


def test_a_plain_study_has_only_what_belongs_to_it() -> None:
    assert codes(studies.subject()) == {"unit", "method-refined", "patterns"}


def test_a_complete_study_at_unit_person_has_none_of_them() -> None:
    data = studies.tables(missing=False)
    subject = ReportData(studies.fit("vcds", data, unit="person", delta=1e-6, epsilon=400.0).study_)
    assert codes(subject) <= {"noisy"}


@pytest.mark.parametrize("unit", ["variable", "client"])
def test_units_that_do_not_protect_a_person(unit: str) -> None:
    assert "unit" in codes(ReportData(studies.fit("vcds", unit=unit).study_))


def test_unit_block_is_not_warned_of() -> None:
    assert "unit" not in codes(ReportData(studies.fit("vcds", unit="block", delta=1e-6, epsilon=400.0).study_))


def test_seeded_noise() -> None:
    assert "seeded" in codes(ReportData(studies.fit("vcds", random_state=1).study_))


def test_bounds_from_data() -> None:
    data = studies.tables()
    guessed = Federation.infer(data, response="bank.default", bounds="from-data")
    assert "bounds" in codes(ReportData(studies.fit("vcds", data, federation=guessed).study_))


def test_aligned_rows() -> None:
    assert "aligned" in codes(studies.subject(aligned=True))


def test_the_synthesizer_remembers_that_it_drew_aligned_rows(tmp_path: Any) -> None:
    synthesizer = studies.fit()
    assert 'data-code="aligned"' not in synthesizer.report(tmp_path / "a.html").read_text("utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignedWarning)
        synthesizer.sample(aligned=True)
    assert 'data-code="aligned"' in synthesizer.report(tmp_path / "a.html").read_text("utf-8")


def test_exact_values() -> None:
    synthesizer = studies.fit("vcds")
    exact = dataclasses.replace(synthesizer.ledger_[0], what="raw", coins_epsilon=float("inf"))
    study = dataclasses.replace(synthesizer.study_, releases=(*synthesizer.ledger_, exact))
    assert "exact" in codes(ReportData(study))


def test_real_tables_and_clamped_values() -> None:
    real = read_real(studies.federation(), studies.tables())
    found = codes(studies.subject(real=real))
    assert "in-house" in found
    assert "clamped" not in found
    narrow = studies.federation(income=[-1, 1])
    found = codes(studies.subject(real=read_real(narrow, studies.tables())))
    assert "clamped" in found


def test_a_heap_at_a_bound() -> None:
    narrow = studies.federation(income=[-0.8, 0.8])
    subject = ReportData(studies.fit("vcds", federation=narrow, epsilon=30.0).study_)
    (warning,) = [warning for warning in report_warnings(subject) if warning.code == "at-bounds"]
    assert "bank.income" in warning.meaning
    assert "court.suits" not in warning.meaning  # no suits at all is natural


def test_heaps_are_looked_for_in_what_is_released_as_well() -> None:
    key = next(key for key in studies.federation().keys if key.column == "income")
    result = studies.fitted().result_
    shares = np.full(20, 0.8 / 19)
    shares[-1] = 0.2
    changed = {**result.copula.margins, key: Marginal(studies.federation().column(key), shares / shares.sum(), 0.0)}
    copula = dataclasses.replace(result.copula, margins=changed)
    assert "at-bounds" in codes(with_result(studies.fitted(), copula=copula))


def apart(common: int) -> dict[str, pl.DataFrame]:
    """Court and shop share only a few subjects."""
    data = studies.tables(missing=False)
    half = studies.N // 2
    return {**data, "court": data["court"][: half + common], "shop": data["shop"][half:]}


def test_low_overlap_and_columns_never_observed_together() -> None:
    assert {"low-overlap", "unidentified"}.isdisjoint(codes(ReportData(studies.fit(data=apart(100)).study_)))
    few = codes(ReportData(studies.fit(data=apart(12)).study_))
    assert "low-overlap" in few
    assert "unidentified" not in few
    none = report_warnings(ReportData(studies.fit(data=apart(0)).study_))
    (warning,) = [warning for warning in none if warning.code == "unidentified"]
    assert "court and shop" in str(warning)
    assert "low-overlap" not in {warning.code for warning in none}


@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds"])
def test_methods_that_do_not_correct(method: str) -> None:
    more = {"rounds": 2} if method == "ievcds" else {}
    found = codes(ReportData(studies.fit(method, **more).study_))
    assert f"method-{method}" in found
    complete = codes(ReportData(studies.fit(method, studies.tables(missing=False), **more).study_))
    assert f"method-{method}" not in complete
    assert "patterns" not in complete


def test_refinement_that_has_not_settled() -> None:
    result = studies.fitted().result_
    assert result.refinement is not None
    restless = dataclasses.replace(result.refinement, converged=False)
    assert "not-converged" in codes(with_result(studies.fitted(), refinement=restless))


def test_noisy_correlations() -> None:
    report = studies.fitted().result_.report
    noisy = dataclasses.replace(report, standard_error=np.full_like(report.standard_error, 0.5))
    assert "noisy" in codes(with_result(studies.fitted(), report=noisy))


def test_a_regression_with_doubts() -> None:
    facts = {"warnings": [], "converged": True, "rows": [], "response": "", "heading": ["", ""], "notes": []}
    assert "regression" not in codes(studies.subject(regression=facts))
    assert "regression" in codes(studies.subject(regression={**facts, "converged": False}))
    assert "regression" in codes(studies.subject(regression={**facts, "warnings": ["separated"]}))


def test_notes_of_a_study_are_told() -> None:
    assert "study-note" in codes(studies.subject(notes=("Party 'court' keeps its synthetic block to itself.",)))


def test_the_gravest_come_first_and_each_says_what_to_do() -> None:
    subject = ReportData(studies.fit("evcds", random_state=1).study_, aligned=True)
    found_warnings = report_warnings(subject)
    ranks = [["stop", "care", "note"].index(warning.level) for warning in found_warnings]
    assert ranks == sorted(ranks)
    page = render_report(subject)
    assert page.index('id="warnings"') < page.index('id="released"')
    for warning in found_warnings:
        assert warning.meaning.endswith(".")
        assert warning.action.endswith(".")
        assert f'data-code="{warning.code}"' in page
