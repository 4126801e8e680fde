"""`verticopula audit` on a strict study: its sums and margins are attacked, and what is broken is red."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.audit_sums import none
from tests.audit.studies import N, federation, people, write_tables
from tests.builders import Call
from verticopula.auditing import audit_sums
from verticopula.auditing.sums import strict_attacks as audit_strict
from verticopula.auditing.sums.strict_attacks import MOST_COLUMNS, narrow, plan_of, plan_sums_attacks
from verticopula.auditing.sums.sums_neighbours import cut_plan, without_tables
from verticopula.cli import audit_commands as cli_audit
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.mpc import proof_rounds
from verticopula.mpc.sums_plan import block_factor
from verticopula.privacy.gaussian_dp import compose
from verticopula.protocol.party import strict_handler as strict_party
from verticopula.storage.ledger import Ledger
from verticopula.study.study_folder import write_study

pytestmark = pytest.mark.audit

OPTIONS = ("--claims-only", "--trials", 100, "--seed", 1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strict")
    tables = people(0, N, 1)
    write_tables(tables, folder / "data")
    study = Synthesizer(federation(), method="strict", epsilon=4.0, delta=1e-6)
    study.fit(tables, ledger=Ledger(folder / "study" / "ledger.jsonl"))
    write_study(folder / "study", study.study_, study.sample(), study.summary())
    return folder


@pytest.fixture(scope="module")
def synthesizer(home: Path) -> Synthesizer:
    return Synthesizer.load(home / "study" / "study.json")


def test_the_plan_of_a_finished_study_is_found_again(synthesizer: Synthesizer) -> None:
    plan, spent = plan_of(synthesizer), synthesizer.result_.spending
    assert spent is not None
    assert (plan.mu, plan.mu_tables) == (spent.mu, spent.tables)
    assert {party: block_factor(plan, party) for party in plan.parties} == pytest.approx(dict(spent.factors))
    assert plan.pattern_of.size == N


def test_a_cut_down_plan_keeps_bounds_and_mu(synthesizer: Synthesizer) -> None:
    plan = plan_of(synthesizer)
    for pattern in range(len(plan.weights)):
        one = narrow(cut_plan(plan, pattern, 3), most=2)
        assert (one.bits, one.mu, one.mu_tables) == (plan.bits, plan.mu, plan.mu_tables)
        assert one.parts == pytest.approx(plan.parts[[pattern]], rel=1e-2)  # scores are whole numbers
        taking_part = int((plan.parts[pattern] > 0).sum())
        assert one.n_columns == (2 // taking_part,) * 2
    attacks = plan_sums_attacks(plan, None)
    assert [what for what, _ in attacks] == [
        "one replaced person",
        "one replaced block of bank",
        "one replaced block of clinic",
    ]
    for (_, pair), party in zip(attacks, (None, *plan.parties), strict=True):
        assert sum(pair.plan.n_columns) <= MOST_COLUMNS
        assert len(pair.pairs)
        assert without_tables(pair, party).mu <= plan.mu < pair.mu or party is not None
        assert pair.mu <= compose([plan.mu, plan.mu_tables]) * (1.0 + 1e-9)


def test_claims_are_attacked_and_the_output_says_how(home: Path, call: Call, tmp_path: Path) -> None:
    before = (home / "study" / "ledger.jsonl").read_bytes()
    said = call("audit", home / "study", *OPTIONS, "--out", tmp_path / "o")
    assert said.code == 0, said.err
    raw = json.loads((tmp_path / "o" / "audit.json").read_text())
    assert raw["holds"] is True
    assert sorted(m["unit"] for m in raw["mechanism"]) == ["block"] * 5 + ["person"]
    assert all(m["measured_low"] <= m["claimed"] for m in raw["mechanism"])
    assert f"8 people in place of {N}" in re.sub(r"\s+", " ", said.out)
    assert "no budget was spent" in said.out
    assert (home / "study" / "ledger.jsonl").read_bytes() == before


@pytest.mark.parametrize("broken", ["sums", "margins", "check of cells"])
def test_missing_noise_and_checks_are_red_and_end_with_three(
    home: Path, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str
) -> None:
    def silent_sums(neighbours: Any, *args: Any, **options: Any) -> Any:
        return audit_sums(neighbours, *args, **options, noises=dict.fromkeys(neighbours.plan.compute, none))

    def silent_cells(cells: Any, n_cells: int, *others: Any) -> Any:
        return np.bincount(cells, minlength=n_cells)

    if broken == "sums":
        monkeypatch.setattr(audit_strict, "audit_sums", silent_sums)
    elif broken == "check of cells":
        monkeypatch.setattr(proof_rounds, "is_accepted", lambda *openings: True)
    else:
        monkeypatch.setattr(strict_party, "release_gaussian_cells", silent_cells)
    said = call("audit", home / "study", *OPTIONS, "--out", tmp_path / "o")
    assert said.code == cli_audit.REFUTED_CODE
    assert "REFUTED" in said.out
    raw = json.loads((tmp_path / "o" / "audit.json").read_text())
    refuted = {m["what"].split(" (")[0] for m in raw["mechanism"] if m["measured_low"] > m["claimed"]}
    assert (
        refuted
        == {
            "sums": {"opened sums and tables"},
            "margins": {"margins of bank", "margins of clinic"},
            "check of cells": {"opened sums, a party shares no cells"},
        }[broken]
    )
    assert "protected less than you were promised" in said.out


def test_one_party_attacks_its_own_claims_without_data_and_no_tables(home: Path, call: Call) -> None:
    said = call("audit", home / "study", *OPTIONS, "--party", "bank")
    assert said.code == 0, said.err
    assert "bank" in said.out
    assert "clinic" not in said.out
    assert "per person, δ" not in said.out
    said = call("audit", home / "study", "--data", home / "data", "--party", "bank")
    assert said.code == 1
    assert "one party alone cannot repeat its part" in re.sub(r"\s+", " ", said.err)
    assert "--claims-only" in said.err
