"""The most telling faults, on real processes; `test_faults` has all of them."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator

import pytest

from tests.network.faults import (
    COLUMNS_POINTS,
    RELEASE_POINTS,
    SERVER,
    STEP_POINTS,
    Fault,
    FaultyNetwork,
    faulty_network,
    is_named,
)
from tests.network.harness import PARTIES, small_tables
from verticopula.network.kit.startup_kit import new_id_key

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyNetwork]:
    with faulty_network(tmp_path_factory.mktemp("faulty")) as found:
        yield found


@pytest.mark.parametrize("points", RELEASE_POINTS, ids=lambda points: points[0])
def test_party_killed_at_every_step_of_a_release_pays_once_and_sends_the_same_bytes(
    faulty: FaultyNetwork, points: tuple[str, ...]
) -> None:
    outcome = faulty.run_with_faults("vcds", [Fault("left", "kill", "release", point) for point in points])
    assert outcome.problems == ()


@pytest.mark.parametrize("name", ["consent", "agreement"])
def test_party_killed_before_and_after_it_consents_says_the_same_again(faulty: FaultyNetwork, name: str) -> None:
    killed = [Fault("right", "kill", name, point) for point in STEP_POINTS[0]]
    outcome = faulty.run_with_faults("vcds", [*killed, Fault(SERVER, "kill", name, "answered")])
    assert outcome.problems == ()
    assert outcome.sent_again > 0


def test_all_killed_between_consent_and_the_first_release(faulty: FaultyNetwork) -> None:
    killed = [Fault(party, "kill", name, "answered") for party in PARTIES for name in ("consent", "agreement")]
    servers = [Fault(SERVER, "kill", name, point) for name in ("consent", "agreement") for point in ("asked", "kept")]
    outcome = faulty.run_with_faults("vcds", [*servers, *killed])
    assert outcome.problems == ()


def test_a_party_that_is_silent_when_asked_for_consent_costs_nobody_anything(faulty: FaultyNetwork) -> None:
    faulty.reference("vcds")
    before = {party: faulty.net.ledger(party) for party in PARTIES}
    study = faulty.begin("vcds", [Fault("right", "stop", "consent", "asked")], 5.0)
    record, deadline = faulty.wait_for_silence(study, "right", 5.0)
    assert is_named(record.note, "right", deadline)
    assert {party: faulty.net.ledger(party) for party in PARTIES} == before
    faulty.net.signal("right", signal.SIGCONT)
    faulty.resume(study)
    assert faulty.wait_until(study, "failed", "done").state == "done"


def test_coordinator_killed_around_its_journal_and_its_result_goes_on_where_it_stood(faulty: FaultyNetwork) -> None:
    points = [("release", "answered"), ("release", "half kept"), ("release", "kept"), ("result", "half written")]
    points += [("result", "renamed"), ("result", "done")]
    outcome = faulty.run_with_faults("vcds", [Fault(SERVER, "kill", name, point) for name, point in points])
    assert outcome.problems == ()
    assert outcome.sent_again > 0


def test_all_killed_in_the_same_round(faulty: FaultyNetwork) -> None:
    killed = [Fault(party, "kill", "ranks 2", "stored") for party in PARTIES]
    outcome = faulty.run_with_faults("ievcds", [Fault(SERVER, "kill", "ranks 2", "asked"), *killed])
    assert outcome.problems == ()


def test_regression_goes_on_after_kills_while_columns_leave(faulty: FaultyNetwork) -> None:
    killed = [Fault("middle", "kill", "columns 1", point) for point in COLUMNS_POINTS[0]]
    outcome = faulty.run_with_faults("raw-glm", [*killed, Fault(SERVER, "kill", "columns 1", "answered")])
    assert outcome.problems == ()
    assert outcome.sent_again > 0


def test_second_moments_are_the_same_after_kills_of_parties_and_coordinator(faulty: FaultyNetwork) -> None:
    points = (("moment keys", "answered"), ("moments", "unrecorded"), ("moments", "half recorded"))
    points += (("moments", "recorded"), ("moments", "answered"), ("cross moments", "asked"), ("cross moments", "sent"))
    killed = [Fault("middle", "kill", name, point) for name, point in points]
    servers = [Fault(SERVER, "kill", name, "answered") for name in ("moments", "cross moments")]
    outcome = faulty.run_with_faults("raw-glm, second moments", [*killed, *servers])
    assert outcome.problems == ()
    assert outcome.sent_again > 0


@pytest.mark.network
def test_strict_study_goes_on_with_the_same_noise_after_kills_between_sharing_and_opening(
    faulty: FaultyNetwork,
) -> None:
    points = (("shares", "drawn"), ("proof coefficients", "stored"), ("proof openings", "answered"), ("sums", "stored"))
    killed = [Fault("middle", "kill", name, point) for name, point in points]
    outcome = faulty.run_with_faults("strict", [*killed, Fault(SERVER, "kill", "sums", "answered")])
    assert outcome.problems == ()
    assert outcome.sent_again > 0


def test_party_is_named_while_it_is_stopped_and_the_study_resumed(faulty: FaultyNetwork) -> None:
    outcome = faulty.run_with_faults("refined", [Fault("right", "stop", "release", "asked")])
    assert outcome.problems == ()
    assert outcome.resumed == 1
    assert outcome.injected[0].named_after is not None


@pytest.mark.parametrize("point", ["unrecorded", "half recorded", "drawn"])
def test_full_disk_of_a_party_is_an_error_that_says_so_and_loses_nothing(faulty: FaultyNetwork, point: str) -> None:
    outcome = faulty.run_with_faults("vcds", [Fault("left", "full disk", "release", point)])
    assert outcome.problems == ()
    assert outcome.resumed == 1


def test_party_that_comes_back_with_another_table_is_refused_by_name(faulty: FaultyNetwork) -> None:
    reference, start = faulty.reference("vcds"), time.time()
    study = faulty.begin("vcds", [Fault("left", "kill", "release", "asked")])
    faulty.net.wait_for_end("left")
    own = faulty.net.folder / "left.csv"
    kept = shutil.copy(own, faulty.net.folder / "left.kept")
    small_tables(seed=4)["left"].write_csv(own)
    faulty.start("left")
    failed = faulty.wait_until(study, "failed", "done")
    assert failed.note.startswith("party 'left': its table")
    assert "changed since this study was opened" in failed.note
    assert faulty.entries("left", study) == []
    shutil.move(kept, own)
    faulty.stop("left")
    faulty.start("left")
    faulty.resume(study)
    assert faulty.wait_until(study, "failed", "done").state == "done"
    assert faulty.check_budget(reference, study, start) + faulty.check_tables(reference, study) == []


def test_wrong_id_key_is_named_and_nothing_is_spent_on_it(faulty: FaultyNetwork) -> None:
    study = faulty.begin("vcds", [Fault("right", "kill", "begin", "asked")])
    faulty.net.wait_for_end("right")
    key = faulty.net.folder / "kits" / "right" / "id.key"
    kept = key.read_text("ascii")
    key.write_text(new_id_key(), "ascii")
    faulty.start("right")
    failed = faulty.wait_until(study, "failed", "done")
    assert "the id key of 'right' differs from that of 'left'" in failed.note
    key.write_text(kept, "ascii")
    faulty.stop("right")
    faulty.start("right")
    assert all(faulty.entries(party, study) == [] for party in PARTIES)
    assert faulty.run_with_faults("vcds", []).problems == ()
