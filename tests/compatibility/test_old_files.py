"""Studies, ledgers and vaults that an earlier version wrote: they load, and a vault's answers stay the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.members import KEY
from verticopula import Federation, Policy, Synthesizer
from verticopula.errors import VersionMismatch, VerticopulaError
from verticopula.protocol.messages import REQUEST_KINDS
from verticopula.protocol.party.member import Member
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseRequest
from verticopula.protocol.wire import decode
from verticopula.storage.ledger import Ledger
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import inspect_vault

OLD = Path(__file__).parent / "v0_1"
METHODS = ("vcds", "evcds", "ievcds", "refined", "strict")
ASKED = sorted(OLD.glob("asked/*.request"))


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_study_loads_and_samples(method: str) -> None:
    study = Synthesizer.load(OLD / "studies" / f"{method}.json")
    assert study.method == method
    assert study.n_subjects_ == 90
    assert not study.privacy_.is_private
    assert {name: table.shape for name, table in study.sample(7).items()} == {
        "left": (7, 2),
        "middle": (7, 1),
        "right": (7, 2),
    }
    assert "Study 'small'" in study.summary()


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_study_is_saved_again_with_the_same_numbers(method: str, tmp_path: Path) -> None:
    first = Synthesizer.load(OLD / "studies" / f"{method}.json")
    first.save(tmp_path / "again.json")
    second = Synthesizer.load(tmp_path / "again.json")
    np.testing.assert_array_equal(first.correlation_, second.correlation_)
    assert first.ledger_ == second.ledger_
    assert first.settings_ == second.settings_


@pytest.mark.parametrize("method", METHODS)
def test_a_ledger_is_read_and_continued(method: str, tmp_path: Path) -> None:
    shutil.copy(OLD / "studies" / f"{method}.jsonl", tmp_path / "ledger.jsonl")
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert tuple(ledger) == Synthesizer.load(OLD / "studies" / f"{method}.json").ledger_


def test_a_folder_of_run_makes_a_report(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from verticopula.cli.app import app

    shutil.copytree(OLD / "folder", tmp_path / "folder")
    done = CliRunner().invoke(app, ["report", str(tmp_path / "folder")])
    assert done.exit_code == 0, done.output
    assert "</html>" in (tmp_path / "folder" / "report.html").read_text("utf-8")


def test_a_folder_of_run_still_has_its_posterior_draws(tmp_path: Path) -> None:
    """Of the correlations, in a file of an earlier name; another study in the folder takes it away."""
    from verticopula.study.study_folder import read_study, write_study

    shutil.copytree(OLD / "folder", tmp_path / "folder")
    for party, table in Synthesizer.load(OLD / "folder" / "study.json").sample(9).items():
        table.write_parquet(tmp_path / "folder" / "synthetic" / f"{party}.parquet")
    study, tables = read_study(tmp_path / "folder")
    assert tables.posterior_draws is not None
    assert tables.posterior_draws().copula.correlation.shape == study.result.copula.correlation.shape
    write_study(tmp_path / "folder", study, tables, "")
    assert read_study(tmp_path / "folder")[1].posterior_draws is None


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    shutil.copytree(OLD / "vault", tmp_path / "vault")
    return tmp_path / "vault"


def test_a_vault_is_whole(vault: Path) -> None:
    assert inspect_vault(vault) == (9, 3)


@pytest.mark.parametrize("asked", ASKED, ids=lambda path: path.stem)
def test_a_request_of_the_old_version_is_named_as_such(asked: Path) -> None:
    """Studies of that version asked nobody for consent, so they are not gone on with."""
    with pytest.raises(VersionMismatch):
        decode(asked.read_bytes(), REQUEST_KINDS)


def test_an_old_vault_goes_on_with_its_ledger_and_no_study_without_consent(vault: Path) -> None:
    federation = Federation.from_toml(OLD / "federation.toml")
    with Vault.open(vault) as opened:
        before = opened.head()
        member = Member(federation, "left", pl.read_csv(OLD / "tables" / "left.csv"), key=KEY, vault=opened)
        studies = {entry.study for entry in opened.ledger}
        assert studies
        for study in studies:
            with pytest.raises(VerticopulaError):
                member.handle(ReleaseRequest(study, "ievcds", "exact", (ColumnQuery("y", 0.25, 0.5),)))
        assert opened.head() == before


def test_there_is_something_to_ask() -> None:
    assert len(ASKED) == 5
    assert Policy().methods is None
