"""The paper's Algorithm 3 as printed, between real processes: asked for with `submit --as-printed`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.network.harness import PARTIES, POLICY, network
from verticopula.privacy.pricing import PRINTED_MARGIN
from verticopula.study.saved_study import load_study

pytestmark = pytest.mark.network


@pytest.mark.parametrize("allowed", [True, False])
def test_submit_as_printed(tmp_path: Path, allowed: bool) -> None:
    policy = POLICY + "allow_as_printed = true\n"
    policies = {name: policy if allowed or name != "right" else POLICY for name in PARTIES}
    with network(tmp_path, policies=policies) as net:
        net.start_all()
        options = ["--method", "ievcds", "--rounds", 2, "--as-printed", "--rank-correlation", "spearman"]
        study = ["submit", tmp_path / "federation.toml", "--out", tmp_path / "out", "--kit", tmp_path / "kits" / "lead"]
        words = map(str, [*study, *options, "--epsilon", 4])
        said = subprocess.run(
            [sys.executable, "-m", "verticopula", *words], capture_output=True, text=True, check=False
        )
        ledgers = [net.ledger(name) for name in PARTIES]
        if not allowed:
            assert said.returncode == 1
            assert "allow_as_printed" in said.stderr
            assert ledgers == [[], [], []]
            return
        assert said.returncode == 0, said.stderr
        assert [len(ledger) for ledger in ledgers] == [6, 3, 6]  # two rounds and a margin of every column
        margins = {line["mechanism"] for ledger in ledgers for line in ledger if line["what"] == "marginal"}
        assert margins == {PRINTED_MARGIN}
        fitted = load_study(tmp_path / "out" / "study.json")
        assert (fitted.settings.variant, fitted.settings.rank_correlation) == ("as-printed", "spearman")
        assert pl.read_csv(tmp_path / "out" / "synthetic" / "joined.csv").height == 120
        summary = (tmp_path / "out" / "summary.txt").read_text("utf-8")
        assert "ranges of the data are in the open" in summary
        assert "Aligned rows" in summary
        assert json.loads((tmp_path / "out" / "study.json").read_text("utf-8"))["settings"]["rounds"] == 2
