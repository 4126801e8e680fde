"""A member whose rows are with an engine: the same study, the same accounts, and nothing that it cannot do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.engines import FEDERATION, RunHere, make_tables, write_folders
from tests.members import KEY, SEEDED, make_member
from verticopula import Federation, PolicyRefused, ProtocolError, SettingsError, Synthesizer
from verticopula.data.engine_source import EngineSource
from verticopula.data.engine_table import EngineTable
from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.data.table_source import TableSource
from verticopula.errors import EngineError
from verticopula.protocol.party.member import Member
from verticopula.protocol.study_messages import BeginRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.stats.binomial_ranks import NOISE_ROWS
from verticopula.storage.charged_ledger import leave_out_withdrawn, open_accounts
from verticopula.storage.vault import Vault
from verticopula.transport.in_process_transport import InProcessTransport

ROWS = 500


class LostEngine(RunHere):
    """An engine that is lost once it is told so."""

    is_lost = False

    def fetch(self, handles: Any) -> list[Any]:
        if self.is_lost:
            raise EngineError("engine tls://inner.bank.example:8786 is lost")
        return list(handles)


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    return make_tables(ROWS)


@pytest.fixture
def paths(tables: dict[str, pl.DataFrame], tmp_path: Path) -> dict[str, Path]:
    return write_folders(tables, tmp_path / "tables", 70)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.open(tmp_path / "vault") as opened:
        yield opened


def source(name: str, paths: Mapping[str, Path], engine: RunHere | None = None) -> EngineSource:
    return EngineSource.of(engine or RunHere(), TableSource(name, paths[name]), KEY)


def members(tables: Mapping[str, pl.DataFrame], paths: Mapping[str, Path], vault: Vault) -> dict[str, Member]:
    """The bank on an engine, with a vault of its own on disk; the agency as always."""
    bank = make_member(FEDERATION, "bank", source("bank", paths).read(), vault=vault, policy=SEEDED)
    return {"bank": bank, "agency": make_member(FEDERATION, "agency", tables["agency"], policy=SEEDED)}


def study(parties: Mapping[str, Member], name: str = "one", **how: Any) -> Synthesizer:
    how = {"method": "vcds", "sampler": "binomial", **how}
    made = Synthesizer(FEDERATION, epsilon=4.0, unit="variable", random_state=1, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # seeded
        return made.fit_transport(InProcessTransport(parties), study=name)


def test_chunks_of_a_party_are_whole_blocks_of_noise() -> None:
    assert ROWS_IN_MEMORY % NOISE_ROWS == 0


def test_a_study_with_a_member_on_an_engine_has_the_same_numbers(
    tables: dict[str, pl.DataFrame], paths: dict[str, Path], vault: Vault
) -> None:
    held = {name: make_member(FEDERATION, name, tables[name], policy=SEEDED) for name in tables}
    found, expected = study(members(tables, paths, vault)), study(held)
    np.testing.assert_array_equal(found.correlation_, expected.correlation_)
    assert found.margins_.equals(expected.margins_)
    assert len(vault.ledger) == 2 * 4


def test_a_member_made_anew_goes_on_with_the_study(
    tables: dict[str, pl.DataFrame], paths: dict[str, Path], vault: Vault
) -> None:
    """Its places in the cohort are still those of its rows, and what was sent is sent again at no cost."""
    first = members(tables, paths, vault)
    before = study(first)
    spent = len(vault.ledger)
    again = {**first, "bank": members(tables, paths, vault)["bank"]}
    np.testing.assert_array_equal(study(again).correlation_, before.correlation_)
    assert len(vault.ledger) == spent


def test_a_table_that_changed_is_noticed(tables: dict[str, pl.DataFrame], paths: dict[str, Path], vault: Vault) -> None:
    first = members(tables, paths, vault)
    study(first)
    file = sorted(paths["bank"].iterdir())[0]
    pl.read_parquet(file).with_columns(age=pl.lit(40, dtype=pl.Int64)).write_parquet(file)
    again = {**first, "bank": members(tables, paths, vault)["bank"]}
    with pytest.raises(ProtocolError, match="with another table"):
        Synthesizer(FEDERATION, "vcds", 4.0, unit="variable", sampler="binomial", random_state=1).fit_transport(
            InProcessTransport(again), study="one"
        )


def test_a_table_is_charged_alike_wherever_its_rows_are(
    tables: dict[str, pl.DataFrame], paths: dict[str, Path], vault: Vault
) -> None:
    """Under its own name and another, with renamed columns: caps hold over both."""
    bank = members(tables, paths, vault)["bank"]
    held = make_member(FEDERATION, "bank", tables["bank"], vault=vault)
    assert bank._account == held._account
    assert bank.snapshot == held.snapshot
    renamed = FEDERATION.to_dict()
    renamed["party"][0]["column"][2]["name"] = "years"
    frame = tables["bank"].rename({"age": "years"})
    other = make_member(Federation.from_dict(renamed), "bank", frame, vault=vault)
    assert other._account.columns["years"] == bank._account.columns["age"]


def test_what_the_vault_gets_of_an_engine_has_no_places_of_values(
    paths: dict[str, Path], tables: dict[str, pl.DataFrame], vault: Vault
) -> None:
    bank = members(tables, paths, vault)["bank"]
    assert bank._account.people is not None
    assert bank._account.people.columns == {}


def test_people_who_withdrew_are_left_out(
    tables: dict[str, pl.DataFrame], paths: dict[str, Path], vault: Vault
) -> None:
    gone = tables["bank"]["customer"][3:9].to_list()
    vault.account(tables["bank"]["customer"].to_list(), {})  # so that it has a secret
    vault.withdrawals.record("withdrawn", gone, "asked", "me")
    bank = make_member(FEDERATION, "bank", source("bank", paths).read(), vault=vault, policy=SEEDED)
    assert (bank.subjects, bank.left_out) == (len(tables["bank"]) - 6, 6)
    agency = make_member(FEDERATION, "agency", tables["agency"], policy=SEEDED)
    left = tables["bank"].filter(~pl.col("customer").is_in(gone))
    held = make_member(FEDERATION, "bank", left, policy=SEEDED)
    found, expected = study({"bank": bank, "agency": agency}), study({"bank": held, "agency": agency}, "two")
    np.testing.assert_array_equal(found.correlation_, expected.correlation_)
    assert found.margins_.equals(expected.margins_)
    assert bank._account.table == vault.account_of(held._table).table
    assert bank.snapshot == vault.account_of(held._table).snapshot


def test_a_run_with_a_vault_charges_all_parties(
    tables: dict[str, pl.DataFrame], paths: dict[str, Path], vault: Vault
) -> None:
    apart: dict[str, EngineTable] = {name: source(name, paths).read() for name in paths}
    left = leave_out_withdrawn(vault.folder, apart, FEDERATION.id)
    found = open_accounts(vault, FEDERATION, left, FEDERATION.id)
    held = open_accounts(vault, FEDERATION, tables, FEDERATION.id)
    assert found == held
    assert {name: account.snapshot for name, account in found.items()} == {
        name: account.snapshot for name, account in held.items()
    }


# ---- what it refuses ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        {"method": "vcds", "sampler": "exact"},
        {"method": "ievcds"},
        {"method": "vcds", "variant": "as-printed", "sampler": "exact"},
    ],
    ids=lambda how: "-".join(map(str, how.values())),
)
def test_other_studies_are_refused_before_anything_is_spent(
    tables: dict[str, pl.DataFrame], paths: dict[str, Path], vault: Vault, how: dict[str, Any]
) -> None:
    made = Synthesizer(FEDERATION, **{"epsilon": 4.0, "unit": "variable", "random_state": 1, **how})
    policy = SEEDED.__class__(allow_seeded=True, allow_as_printed=True)
    bank = make_member(FEDERATION, "bank", source("bank", paths).read(), vault=vault, policy=policy)
    agency = make_member(FEDERATION, "agency", tables["agency"], policy=policy)
    with pytest.raises(PolicyRefused, match="engine"):
        made.fit_transport(InProcessTransport({"bank": bank, "agency": agency}), study="one")
    assert len(vault.ledger) == 0


def test_masked_points_are_refused(paths: dict[str, Path], vault: Vault) -> None:
    bank = make_member(FEDERATION, "bank", source("bank", paths).read(), vault=vault, policy=SEEDED)
    request = BeginRequest("s", "vcds", federation_fingerprint(FEDERATION), "psi", None, 0, "")
    with pytest.raises(PolicyRefused, match="does not mask points"):
        bank.handle(request)


def test_a_kit_without_an_id_key_has_no_engine(paths: dict[str, Path]) -> None:
    with pytest.raises(SettingsError, match="no id key"):
        EngineSource.of(RunHere(), TableSource("bank", paths["bank"]), None)


def test_a_lost_engine_tells_nobody_where_it_was(
    tables: dict[str, pl.DataFrame], paths: dict[str, Path], vault: Vault
) -> None:
    engine = LostEngine()
    bank = make_member(FEDERATION, "bank", source("bank", paths, engine).read(), vault=vault, policy=SEEDED)
    agency = make_member(FEDERATION, "agency", tables["agency"], policy=SEEDED)
    engine.is_lost = True
    with pytest.raises(ProtocolError, match="can be resumed") as caught:
        study({"bank": bank, "agency": agency})
    assert "inner.bank.example" not in str(caught.value)
    engine.is_lost = False
    study({"bank": bank, "agency": agency})
