"""How long messages may be: from public numbers, and as the federation file says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.network.harness import small_federation
from verticopula import Federation
from verticopula.errors import SchemaError, SettingsError
from verticopula.mpc.sums_plan import MOST_BODIES, check_bodies
from verticopula.protocol.message_sizes import ANY_STUDY, most_message_bytes
from verticopula.protocol.party.joined_study import JoinedStudy, subjects_of
from verticopula.schema.federation import Network
from verticopula.schema.federation_digest import federation_file_digest, federation_fingerprint
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING
from verticopula.storage.record_store import MemoryRecords


def with_network(**changes: Any) -> Federation:
    said = small_federation().to_dict()
    return Federation.from_dict({**said, "network": {**said.get("network", {}), **changes}})


def test_the_limit_is_above_every_message_of_a_study_and_grows_with_it() -> None:
    federation, n = small_federation(), 50_000_000
    columns = len(federation.keys)
    bodies = 8 * TILTED_TUNING.most_cells * columns * n  # of all dealings, every cell but a column's last
    assert bodies < most_message_bytes(federation, n) < 2 * bodies
    assert most_message_bytes(federation, 2 * n) == 2 * most_message_bytes(federation, n)
    assert most_message_bytes(federation, 100) == ANY_STUDY == 2**30


def test_settings_that_came_later_change_no_file_that_does_not_name_them() -> None:
    plain = with_network(port=9_000)
    assert "part_mib" not in plain.to_toml()
    chosen = with_network(port=9_000, part_mib=1, message_gib=2)
    assert chosen.to_dict()["network"] | {"part_mib": 1, "message_gib": 2} == chosen.to_dict()["network"]
    assert federation_fingerprint(chosen) == federation_fingerprint(plain)
    assert federation_file_digest(chosen) != federation_file_digest(plain)
    assert federation_file_digest(plain) == federation_file_digest(with_network(port=9_000, part_mib=16))
    assert "part_mib" not in Network().chosen()


@pytest.mark.parametrize("changes", [{"part_mib": 0}, {"part_mib": 65}, {"message_gib": 0}, {"message_gib": 5_001}])
def test_settings_out_of_range_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(SchemaError):
        with_network(**changes)


def test_shares_have_to_fit_in_a_message_of_the_federation() -> None:
    check_bodies(10**9)
    check_bodies(10**8, 2**30)
    with pytest.raises(SettingsError, match="or a larger message_gib in the federation file"):
        check_bodies(10**9, 2**30)
    with pytest.raises(SettingsError, match="do not fit in one message"):
        check_bodies(MOST_BODIES)


def test_a_party_knows_how_many_people_a_study_has() -> None:
    records = MemoryRecords()
    assert subjects_of(records, "left", "study") is None
    records.put(JoinedStudy.record_name("left", "study"), JoinedStudy("vcds", "hash", None, "").to_dict())
    assert subjects_of(records, "left", "study") == 0
