"""The most telling faults, on real processes; `test_faults` has all of them."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator

import pytest

from tests.network.faults import (
    RELEASE_POINTS,
    SERVER,
    STEP_POINTS,
    Fault,
    Ward,
    is_named,
    ward,
)
from tests.network.harness import PARTIES, small_tables
from verticopula.network.startup_kit import new_id_key

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def hurt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with ward(tmp_path_factory.mktemp("ward")) as found:
        yield found


@pytest.mark.parametrize("points", RELEASE_POINTS, ids=lambda points: points[0])
def test_party_killed_at_every_step_of_a_release_pays_once_and_sends_the_same_bytes(
    hurt: Ward, points: tuple[str, ...]
) -> None:
    story = hurt.suffer("vcds", [Fault("left", "kill", "release", point) for point in points])
    assert story.problems == ()


@pytest.mark.parametrize("name", ["consent", "agreement"])
def test_party_killed_before_and_after_it_consents_says_the_same_again(hurt: Ward, name: str) -> None:
    killed = [Fault("right", "kill", name, point) for point in STEP_POINTS[0]]
    story = hurt.suffer("vcds", [*killed, Fault(SERVER, "kill", name, "answered")])
    assert story.problems == ()
    assert story.sent_again > 0


def test_all_killed_between_consent_and_the_first_release(hurt: Ward) -> None:
    killed = [Fault(party, "kill", name, "answered") for party in PARTIES for name in ("consent", "agreement")]
    servers = [Fault(SERVER, "kill", name, point) for name in ("consent", "agreement") for point in ("asked", "kept")]
    story = hurt.suffer("vcds", [*servers, *killed])
    assert story.problems == ()


def test_a_party_that_is_silent_when_asked_for_consent_costs_nobody_anything(hurt: Ward) -> None:
    hurt.reference("vcds")
    before = {party: hurt.net.ledger(party) for party in PARTIES}
    study = hurt.begin("vcds", [Fault("right", "stop", "consent", "asked")], 5.0)
    record, deadline = hurt.wait_for_silence(study, "right", 5.0)
    assert is_named(record.note, "right", deadline)
    assert {party: hurt.net.ledger(party) for party in PARTIES} == before
    hurt.net.signal("right", signal.SIGCONT)
    hurt.resume(study)
    assert hurt.wait_until(study, "failed", "done").state == "done"


def test_coordinator_killed_around_its_journal_and_its_result_goes_on_where_it_stood(hurt: Ward) -> None:
    points = [("release", "answered"), ("release", "half kept"), ("release", "kept"), ("result", "half written")]
    points += [("result", "renamed"), ("result", "done")]
    story = hurt.suffer("vcds", [Fault(SERVER, "kill", name, point) for name, point in points])
    assert story.problems == ()
    assert story.sent_again > 0


def test_all_killed_in_the_same_round(hurt: Ward) -> None:
    killed = [Fault(party, "kill", "ranks 2", "stored") for party in PARTIES]
    story = hurt.suffer("ievcds", [Fault(SERVER, "kill", "ranks 2", "asked"), *killed])
    assert story.problems == ()


def test_regression_goes_on_after_a_kill_at_every_step_of_an_update(hurt: Ward) -> None:
    story = hurt.suffer("raw-glm", [Fault("middle", "kill", "update 9", point) for point in STEP_POINTS[0]])
    assert story.problems == ()


@pytest.mark.network
def test_strict_study_goes_on_with_the_same_noise_after_kills_between_sharing_and_opening(hurt: Ward) -> None:
    points = (("shares", "drawn"), ("proof coefficients", "stored"), ("proof openings", "answered"), ("sums", "stored"))
    killed = [Fault("middle", "kill", name, point) for name, point in points]
    story = hurt.suffer("strict", [*killed, Fault(SERVER, "kill", "sums", "answered")])
    assert story.problems == ()
    assert story.sent_again > 0


def test_party_is_named_while_it_is_stopped_and_the_study_resumed(hurt: Ward) -> None:
    story = hurt.suffer("refined", [Fault("right", "stop", "release", "asked")])
    assert story.problems == ()
    assert story.resumed == 1
    assert story.suffered[0].named_after is not None


@pytest.mark.parametrize("point", ["unrecorded", "drawn"])
def test_full_disk_of_a_party_is_an_error_that_says_so_and_loses_nothing(hurt: Ward, point: str) -> None:
    story = hurt.suffer("vcds", [Fault("left", "full disk", "release", point)])
    assert story.problems == ()
    assert story.resumed == 1


def test_party_that_comes_back_with_another_table_is_refused_by_name(hurt: Ward) -> None:
    reference, start = hurt.reference("vcds"), time.time()
    study = hurt.begin("vcds", [Fault("left", "kill", "release", "asked")])
    hurt.net.wait_for_end("left")
    own = hurt.net.folder / "left.csv"
    kept = shutil.copy(own, hurt.net.folder / "left.kept")
    small_tables(seed=4)["left"].write_csv(own)
    hurt.start("left")
    failed = hurt.wait_until(study, "failed", "done")
    assert failed.note.startswith("party 'left': its table")
    assert "changed since this study was opened" in failed.note
    assert hurt.entries("left", study) == []
    shutil.move(kept, own)
    hurt.stop("left")
    hurt.start("left")
    hurt.resume(study)
    assert hurt.wait_until(study, "failed", "done").state == "done"
    assert hurt.check_budget(reference, study, start) + hurt.check_tables(reference, study) == []


def test_wrong_id_key_is_named_and_nothing_is_spent_on_it(hurt: Ward) -> None:
    study = hurt.begin("vcds", [Fault("right", "kill", "open", "asked")])
    hurt.net.wait_for_end("right")
    key = hurt.net.folder / "kits" / "right" / "id.key"
    kept = key.read_text("ascii")
    key.write_text(new_id_key(), "ascii")
    hurt.start("right")
    failed = hurt.wait_until(study, "failed", "done")
    assert "the id key of 'right' differs from that of 'left'" in failed.note
    key.write_text(kept, "ascii")
    hurt.stop("right")
    hurt.start("right")
    assert all(hurt.entries(party, study) == [] for party in PARTIES)
    assert hurt.suffer("vcds", []).problems == ()
