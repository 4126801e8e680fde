"""Table 8: splits, measures and the files that it writes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from experiments import sme, sme_table
from experiments.study import NOTHING_PROTECTED, Outcome, keep_common
from reporting.records import Record
from verticopula.datasets import make_sme
from verticopula.errors import SettingsError


@pytest.fixture(scope="module")
def study():
    return make_sme(3_000)


def test_a_split_puts_complete_cases_aside_and_keeps_everybody_else(study) -> None:
    split = sme.split_study(study, 0, test_cases=3)
    name, response = study.federation.id.name, study.federation.response
    complete = keep_common(study.federation, study.tables)[response.party][name]
    tested = split.test[response.party][name]
    assert len(tested) == 3
    assert tested.is_in(complete.implode()).all()
    for party, table in split.tables.items():
        assert not table[name].is_in(tested.implode()).any()
        assert table.height == study.tables[party].height - 3
    assert split.test["credit_agency"][name].to_list() == tested.to_list()
    assert sme.split_study(study, 1, test_cases=3).test[response.party][name].to_list() != tested.to_list()


def test_no_more_than_half_of_the_complete_cases_are_put_aside(study) -> None:
    complete = keep_common(study.federation, study.tables)["law_enforcement"].height
    assert sme.split_study(study, 0).test["law_enforcement"].height == complete // 2


def test_recall_and_auc_by_hand() -> None:
    predicted = np.array([0.9, 0.4, 0.4, 0.1])
    risky = np.array([True, True, False, False])
    assert sme.recall(predicted, risky, 0.5) == 0.5
    assert sme.recall(predicted, risky, 0.3) == 1.0
    assert sme.auc(predicted, risky) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    assert sme.auc(predicted, np.zeros(4, dtype=bool)) == 0.5


@pytest.mark.slow
def test_on_the_complete_truth_most_relevant_variables_are_found() -> None:
    study = make_sme(20_000)
    tables = {party: table.drop("subject_id") for party, table in study.truth.complete.items()}
    model = sme.fit_tables(study.federation, Outcome(NOTHING_PROTECTED, 20_000, tables))
    found = set(model.selected)
    assert len(found & set(study.truth.relevant)) >= 11
    assert len(found - set(study.truth.relevant)) <= 2
    predicted = model.predict(tables)
    assert np.corrcoef(predicted, study.truth.probability)[0, 1] > 0.95


def test_free_and_aligned_rows_share_a_fit() -> None:
    made = make_sme(1_500)
    split = sme.split_study(made, 0)
    study = sme.make_study(made.federation, split, 0)
    aligned = sme.measure(study, split, "EVCDS")
    fitted = dict(study.fitted)
    free = sme.measure(study, split, "EVCDS-free")
    assert list(study.fitted.values()) == list(fitted.values())
    assert free.auc != aligned.auc
    assert free.spent.person == aligned.spent.person


def test_the_page_says_where_methods_have_different_numbers_of_splits(tmp_path: Path) -> None:
    sme_table.run(tmp_path, subjects=1_500, splits=1, methods=["Single-VCDS", "CC-VCDS"])
    assert "cannot be compared" not in sme_table.render(tmp_path, 1_500)
    sme_table.run(tmp_path, subjects=1_500, splits=2, methods=["CC-VCDS"])
    assert "cannot be compared" in sme_table.render(tmp_path, 1_500)


def test_hours_are_those_of_all_kept_fits(tmp_path: Path) -> None:
    sme_table.run(tmp_path, subjects=1_500, splits=1, methods=["Single-VCDS", "CC-VCDS"])
    kept = sme_table.read_kept(tmp_path, 1_500)
    assert sme_table.sum_hours(tmp_path, 1_500) == sum(rows[0]["seconds"] for rows in kept.values()) / 3600 > 0


def test_lines_of_the_table_by_hand() -> None:
    spent = {"client": 1.0, "block": "inf", "person": "inf", "note": ""}
    rows = [
        {"recall": 0.5, "recall_half": 0.0, "auc": 0.6, "selected": ["a.x", "a.z"], "spent": spent},
        {"recall": 0.7, "recall_half": 0.2, "auc": 0.8, "selected": ["a.x"], "spent": spent},
        {"failure": "why"},
    ]
    line = sme_table.average(rows, ["a.x", "a.y"])
    assert line["replications"] == 2
    assert (line["recall"], line["auc"]) == (pytest.approx(0.6), pytest.approx(0.7))
    assert line["recall_se"] == pytest.approx(0.1)
    assert (line["n_selected"], line["relevant"], line["irrelevant"]) == (1.5, 1.0, 0.5)
    assert math.isnan(sme_table.average(rows[2:], ["a.x"])["auc"])


def test_a_run_writes_the_table_and_is_not_repeated(tmp_path: Path) -> None:
    sme_table.run(tmp_path, subjects=1_500, splits=1, methods=["Single-VCDS", "CC-VCDS"])
    sme_table.write_csv(tmp_path, 1_500)
    first = (tmp_path / "table8.csv").read_text()
    assert first.splitlines()[0].startswith("method,recall,recall_se,auc,auc_se,n_selected")
    kept = sme_table.locate(tmp_path, 1_500, "Single-VCDS", 0)
    assert "failure" not in Record.read(kept).results
    before = kept.stat().st_mtime_ns
    sme_table.run(tmp_path, subjects=1_500, splits=1, methods=["Single-VCDS", "CC-VCDS"])
    sme_table.write_csv(tmp_path, 1_500)
    assert kept.stat().st_mtime_ns == before
    assert (tmp_path / "table8.csv").read_text() == first
    assert "Single-VCDS" in sme_table.render(tmp_path, 1_500)


def test_the_page_counts_the_splits_that_find_a_relevant_variable(tmp_path: Path) -> None:
    spent = {"client": 1.0, "block": 2.0, "person": 3.0, "note": ""}
    first, second = sme_table.relevant_variables()[:2]
    found = [[first, second, "law_enforcement.appeal_filed"], [first]]
    for split, selected in enumerate(found):
        path = sme_table.locate(tmp_path, 1_500, "Refined", split)
        row = {"recall": 0.5, "recall_half": 0.1, "auc": 0.7, "selected": selected, "spent": spent}
        Record("table8", {}, row).save(path)
    page = sme_table.render(tmp_path, 1_500)
    assert f"<tr><th>{first}</th><td class='better'>2</td></tr>" in page
    assert f"<tr><th>{second}</th><td class='none'>1</td></tr>" in page
    assert "appeal_filed" not in page
    sme_table.locate(tmp_path, 1_500, "Refined", 1).write_text("{")
    with pytest.raises(SettingsError, match="damaged"):
        sme_table.render(tmp_path, 1_500)


def test_the_page_says_what_the_papers_methods_select(tmp_path: Path) -> None:
    spent = {"client": 1.0, "block": 2.0, "person": 3.0, "note": ""}
    first, second = sme_table.relevant_variables()[:2]
    for method, selected in (("VCDS", [first, "law_enforcement.appeal_filed"]), ("EVCDS", [first, second])):
        row = {"recall": 0.5, "recall_half": 0.1, "auc": 0.7, "selected": selected, "spent": spent}
        Record("table8", {}, row).save(sme_table.locate(tmp_path, 1_500, method, 0))
    page = sme_table.render(tmp_path, 1_500)
    assert "select 1.0 (VCDS); and 2.0 (EVCDS) on average" in page
    assert "what else they select: 1.0 (VCDS); and 0.0 (EVCDS)." in page
    sme_table.locate(tmp_path, 1_500, "VCDS", 0).unlink()
    assert "what else they select" not in sme_table.render(tmp_path, 1_500)


def test_methods_are_compared_on_the_splits_that_both_have(tmp_path: Path) -> None:
    def keep(method: str, split: int, **results: float | str) -> None:
        Record("table8", {}, results).save(sme_table.locate(tmp_path, 1_500, method, split))

    for split, auc in enumerate((0.6, 0.8)):
        keep("VCDS", split, auc=auc, recall=0.5)
    keep("EVCDS", 0, auc=0.7, recall=0.5)
    keep("EVCDS", 1, failure="none")
    keep("EVCDS", 2, auc=0.9, recall=0.5)
    ((first, second),) = sme_table.pair_splits(tmp_path, 1_500, "EVCDS", "VCDS")
    assert (first["auc"], second["auc"]) == (0.7, 0.6)


def test_the_page_has_every_number_of_subjects(tmp_path: Path) -> None:
    for subjects in (1_500, 2_000):
        sme_table.run(tmp_path, subjects=subjects, splits=1, methods=["Single-VCDS"])
    assert sme_table.list_sizes(tmp_path, 1_500) == [1_500, 2_000]
    page = sme_table.render_sizes(tmp_path, 1_500)
    assert page.index("1,500 made-up subjects") < page.index("2,000 made-up subjects")
