"""Attacks on tables: they find a copy, and nothing in rows that know nothing of the people."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.audit.studies import N, federation, people
from tests.builders import CONTINUOUS, fit_seeded, make_federation, make_tables
from verticopula.auditing import AuditSettings, audit_study
from verticopula.auditing.audit_report import AuditReport, describe_value, verdict
from verticopula.auditing.tables.aligned_attack import attack_aligned
from verticopula.auditing.tables.encoded_rows import EncodedRows, GradeScale, nearest, tied_nearest
from verticopula.auditing.tables.findings import (
    Finding,
    auc,
    can_tell_from_half,
    difference_of_means,
    difference_of_shares,
    wilson_interval,
)
from verticopula.auditing.tables.holdout import restrict
from verticopula.auditing.tables.sdmetrics_findings import sdmetrics_findings
from verticopula.auditing.tables.table_attacks import AttackedTable, attack_tables, closeness, closer_share
from verticopula.data.tables import align_tables
from verticopula.errors import AlignedWarning, SettingsError
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.privacy.coins import flip_probability
from verticopula.schema.columns import ColumnKey

CONFIDENCE = 0.9999
COUNT = 300


def exposed(copies: bool) -> AttackedTable:
    """Rows that are the members themselves, or a third group of people."""
    groups = [align_tables(federation(), people(k * COUNT, COUNT, seed=k), need_overlap=False) for k in range(3)]
    rows = people(2 * COUNT, COUNT, seed=2)
    rows["clinic"] = people(2 * COUNT, 2 * COUNT, seed=7)["clinic"].head(COUNT)
    scale = GradeScale(federation(), rows)
    members, others = scale.people(groups[0]), scale.people(groups[1])
    synthetic = scale.synthetic
    if copies:
        synthetic = replace(members, values=np.where(np.isnan(members.values), 0.5, members.values))
    return AttackedTable.draw(members, others, synthetic, np.random.default_rng(0))


def test_copied_people_are_found() -> None:
    found = {f.name: f for f in attack_tables(exposed(copies=True), CONFIDENCE, np.random.default_rng(0))}
    for name in (
        "membership, by distance",
        "closest record",
        "attribute inference, beyond the left-out",
        "linkability, beyond the left-out",
    ):
        assert found[name].is_suspicious, name
        assert found[name].low <= found[name].value <= found[name].high
    assert found["membership, by distance"].value > 0.9


def test_strangers_rows_say_nothing() -> None:
    found = list(attack_tables(exposed(copies=False), CONFIDENCE, np.random.default_rng(0)))
    assert len(found) == 5
    assert not [f.name for f in found if f.is_suspicious]
    assert all(f.means and f.low < f.expected < f.high for f in found)


@pytest.mark.sdmetrics
@pytest.mark.parametrize("copies", [True, False])
def test_sdmetrics_agrees(copies: bool) -> None:
    found = {f.name: f for f in sdmetrics_findings(exposed(copies), CONFIDENCE, np.random.default_rng(0))}
    assert len(found) == 3
    assert found["SDMetrics: closer to training"].is_suspicious is copies
    assert (found["SDMetrics: baseline protection"].value < 0.1) is copies


def test_aligned_rows_have_the_error_that_the_coins_give_them() -> None:
    n, epsilon = 400, 1.0
    study = make_federation({"left": {"y": CONTINUOUS, "x": CONTINUOUS}})
    rng = np.random.default_rng(5)
    tables = make_tables(study, {name: rng.standard_normal(n).clip(-7, 7) for name in ("y", "x")})
    fitted = fit_seeded(study, tables, 1, method="evcds", epsilon=2 * epsilon, unit="variable")
    with pytest.warns(AlignedWarning):
        scale = GradeScale(study, fitted.sample(aligned=True))
    members = scale.people(align_tables(study, tables))
    coins = dict.fromkeys(study.keys, epsilon)
    own, error = attack_aligned(members, scale.synthetic, coins, CONFIDENCE, rng)
    assert own.is_suspicious
    assert error.is_suspicious
    theta = flip_probability(epsilon)
    formula = math.sqrt(theta * (1 - theta) / n) / (1 - 2 * theta)
    assert error.details == {"sqrt(theta(1-theta)/n)/(1-2 theta)": pytest.approx(formula)}
    assert 0.7 * formula < error.value < 1.3 * formula  # ranking the noisy ranks again bends it at both ends


def test_nearest_is_the_obvious_loop() -> None:
    rng = np.random.default_rng(1)
    keys = tuple(ColumnKey("p", str(k)) for k in range(3))
    columns = tuple(federation().party("bank").columns)
    unordered = np.array([False, True, False])

    def draw(rows: int) -> EncodedRows:
        values = np.column_stack([rng.random(rows), rng.integers(0, 3, rows), rng.random(rows)])
        values[rng.random(values.shape) < 0.2] = np.nan
        return EncodedRows(keys, values, unordered, columns)

    people_, rows = draw(20), draw(30)
    index, distance = nearest(people_, rows, 4)
    for i, person in enumerate(people_.values):
        each = np.column_stack(
            [np.where(u, (person[j] != rows.values[:, j]).astype(float), np.abs(person[j] - rows.values[:, j]))
             for j, u in enumerate(unordered)]
        )  # fmt: skip
        each[np.isnan(rows.values) | np.isnan(person)] = np.nan
        known = ~np.isnan(each).all(axis=1)
        all_of_them = np.full(30, np.inf)
        all_of_them[known] = np.nanmean(each[known], axis=1)
        np.testing.assert_allclose(distance[i], np.sort(all_of_them)[:4])
        found = index[i] >= 0
        np.testing.assert_allclose(all_of_them[index[i][found]], distance[i][found])


def some_people(count: int, patterns: int, seed: int) -> EncodedRows:
    """Three columns of a bank and three of a clinic; the clinic does not know every `patterns`-th person."""
    rng = np.random.default_rng(seed)
    study = federation()
    columns = tuple(study.column(key) for key in study.keys)
    unordered = np.array([column.kind == "nominal" for column in columns])
    values = np.where(unordered, rng.integers(0, 3, (count, len(columns))), rng.random((count, len(columns))))
    clinic = np.array([key.party == "clinic" for key in study.keys])
    values[np.ix_(np.arange(count) % patterns == 0, clinic)] = np.nan
    return EncodedRows(study.keys, values, unordered, columns)


def test_tied_people_share_a_row_as_in_the_obvious_loop() -> None:
    people_, rows = some_people(40, 3, 1), some_people(25, 99, 2)
    people_.values[7] = people_.values[5]  # a tie
    expected = np.zeros(40)
    for r in range(25):
        distance = nearest(rows.rows(slice(r, r + 1)), people_)[1][0, 0]
        tied = [
            i for i in range(40) if nearest(rows.rows(slice(r, r + 1)), people_.rows(slice(i, i + 1)))[1] == distance
        ]
        expected[tied] += 1.0 / len(tied) / 25
    np.testing.assert_allclose(tied_nearest(rows, people_), expected)
    assert tied_nearest(rows, people_)[5] == tied_nearest(rows, people_)[7]


def test_nobody_is_nearest_for_standing_first_in_the_table() -> None:
    """People known by one binary column are at distance zero from half of all rows: they tie, and share."""
    study = make_federation({"bank": {"a": CONTINUOUS, "b": CONTINUOUS}, "agency": {"late": {"kind": "binary"}}})
    columns = tuple(study.column(key) for key in study.keys)
    at_agency = np.array([key.party == "agency" for key in study.keys])
    rng = np.random.default_rng(3)

    def draw(count: int) -> EncodedRows:
        values = np.where(at_agency, rng.integers(0, 2, (count, 3)), rng.random((count, 3)))
        return EncodedRows(study.keys, values, np.zeros(3, dtype=bool), columns)

    members, others, rows = draw(300), draw(300), draw(600)
    for part in (members, others):
        part.values[:100, ~at_agency] = np.nan  # no row of the bank
    table = AttackedTable(members, others, rows)
    share, decided_by = closer_share(table, rows)
    swapped, _ = closer_share(AttackedTable(others, members, rows), rows)
    assert share + swapped == pytest.approx(1.0)  # who stands first does not matter
    assert decided_by > 50
    found = closeness(table, CONFIDENCE, rng)
    assert 0.0 <= found.low < 0.5 < found.high <= 1.0
    assert found.conclusive
    copied = closeness(AttackedTable(members, others, members.rows(slice(100, 300))), CONFIDENCE, rng)
    assert copied.is_suspicious
    assert copied.high <= 1.0


def test_one_person_near_all_rows_is_too_few_to_say() -> None:
    study = make_federation({"bank": {"a": CONTINUOUS, "b": CONTINUOUS}})
    columns = tuple(study.column(key) for key in study.keys)

    def rows(values: np.ndarray) -> EncodedRows:
        return EncodedRows(study.keys, values, np.zeros(2, dtype=bool), columns)

    members = rows(np.r_[[[0.5, 0.5]], np.full((49, 2), 9.0)])
    table = AttackedTable(members, rows(np.full((50, 2), -9.0)), rows(np.random.default_rng(0).random((80, 2))))
    found = closeness(table, 0.995, np.random.default_rng(0))
    assert found.value == 1.0
    assert 0.0 <= found.low < 0.5
    assert found.high == 1.0
    assert not found.is_suspicious
    assert not found.conclusive
    assert found.means.startswith("Too few to say")
    report = AuditReport("s", "client", None, 0.95, None, None, (), (found,), ())  # type: ignore[arg-type]
    assert verdict(report) == "The table shows nothing beyond chance. Too few people to say: closest record."
    assert "-" not in describe_value(found)


def test_wilsons_interval_is_scipys_and_stays_a_share() -> None:
    for hits in (0, 1, 7, 20):
        theirs = stats.binomtest(hits, 20).proportion_ci(0.9, method="wilson")
        assert wilson_interval(hits / 20, 20, 0.9) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    for size in (1.0, 1.3, 4.0, 1e6):
        for share in (0.0, 1e-9, 0.4, 1.0):
            low, high = wilson_interval(share, size, 0.995)
            assert 0.0 <= low <= share <= high <= 1.0
    assert not can_tell_from_half(1.0, 0.95)
    assert not can_tell_from_half(3.8, 0.95)  # 1.96 squared is 3.84
    assert can_tell_from_half(3.9, 0.95)


def test_a_difference_of_shares_has_newcombes_interval() -> None:
    value, low, high = difference_of_shares((56 / 70, 70), (48 / 80, 80), 0.95)  # his example (a)
    assert (value, low, high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    value, low, high = difference_of_shares((1.0, 30), (0.0, 30), 0.995)
    assert -1.0 <= low < value == high == 1.0


def test_a_finding_is_conclusive_unless_it_says_otherwise() -> None:
    assert Finding("x", 0.5, 0.4, 0.6, 0.5, None, "").conclusive


def test_intervals_are_those_of_the_textbook() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(0.5, 1.0, 80), rng.normal(0.0, 1.0, 60)
    value, low, high = auc(a, b, 0.95)
    assert value == pytest.approx(stats.mannwhitneyu(a, b).statistic / (80 * 60))
    assert low < value < high
    assert auc(np.ones(5), np.ones(7), 0.95)[0] == 0.5
    difference, low, high = difference_of_means(a, b, 0.95)
    error = math.sqrt(a.var(ddof=1) / 80 + b.var(ddof=1) / 60)
    assert (difference - low, high - difference) == pytest.approx((1.959964 * error,) * 2)


def test_intervals_of_the_auc_cover() -> None:
    rng = np.random.default_rng(4)
    truth = stats.norm.cdf(0.5 / math.sqrt(2.0))
    inside = 0
    for _ in range(400):
        _, low, high = auc(rng.normal(0.5, 1.0, 60), rng.normal(0.0, 1.0, 60), 0.9)
        inside += low <= truth <= high
    assert abs(inside / 400 - 0.9) < 4.0 * math.sqrt(0.09 / 400)


def strict_study() -> Synthesizer:
    return Synthesizer(federation(), method="strict", epsilon=4.0, delta=1e-6).fit(people(0, N, 1))


def test_a_strict_study_can_be_repeated_whole_and_by_no_party_alone() -> None:
    study = strict_study()
    _, again = restrict(study, None)
    assert again.check().to_dict() == study.settings_
    with pytest.raises(SettingsError, match="alone"):
        audit_study(study, AuditSettings(trials=100, party="bank"), real=people(0, N, 1))


@pytest.mark.slow
def test_a_strict_study_is_audited_through_its_tables() -> None:
    study = strict_study()
    settings = AuditSettings(trials=100, random_state=1)
    report = audit_study(study, settings, synthetic=study.sample(), real=people(0, N, 1))
    assert report.tables
    assert {found.measured.claim.unit for found in report.mechanism} == {"person", "block"}
