"""A person withdraws while all processes run: the next study is that of a table without them, to the last byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.network.harness import Net, network
from verticopula.network.lead.study_lead import Lead

pytestmark = pytest.mark.processes

GONE = "person-00017"


def tables_of(net: Net, lead: Lead, **settings: Any) -> tuple[str, dict[str, bytes]]:
    """A seeded study's name, and the tables that it made."""
    study = net.submit(lead, method="vcds", epsilon=8.0, random_state=3, **settings)
    assert net.wait(lead, study) == ("done", "")
    return study, {path.name: path.read_bytes() for path in sorted((net.result(study) / "synthetic").glob("*.csv"))}


def people(net: Net, step: str) -> str:
    command = [sys.executable, "-m", "verticopula", "people", step, str(net.folder / "kits" / "right"), "--ids", "-"]
    done = subprocess.run(command, input=f"{GONE.upper()}\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_study_after_a_withdrawal_is_that_of_a_table_without_the_row(tmp_path: Path) -> None:
    with network(tmp_path) as net:
        net.start_all()
        with net.lead() as lead:
            _, whole = tables_of(net, lead)
            assert "leave out 1 person" in people(net, "withdraw")
            after, without = tables_of(net, lead)
            table = pl.read_csv(net.folder / "right.csv")
            table.filter(pl.col("subject_id") != GONE).write_csv(net.folder / "right.csv")
            assert "leave out 0 people" in people(net, "restore")
            removed, expected = tables_of(net, lead)
        assert without == expected != whole
        counts = {entry["study"]: entry["n_subjects"] for entry in net.ledger("right")}
        assert list(counts.values()) == [120, 119, 119]
        digests = {entry["study"]: entry["snapshot"] for entry in net.ledger("right")}
        assert digests[after] == digests[removed]
        logs = "".join(net.output(name) for name in ("server", "left", "middle", "right"))
        assert GONE not in logs.casefold()
        said = (net.output("server") + net.output("left")).replace(str(tmp_path), "").replace(tmp_path.name, "")
        assert "withdrew" not in said
        assert "withdrawn" not in said
