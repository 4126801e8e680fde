"""Processes killed between two parts of a message: nothing is lost, and nothing that was kept is sent again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.network.breaking import LONG_REQUEST
from tests.network.faults import SERVER, Fault, FaultyNetwork, StudyOutcome, faulty_network
from verticopula.network.connection import part_messages

pytestmark = pytest.mark.processes

PART_BYTES = 400  # so that a release of 120 people has several


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyNetwork]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_messages, "LEAST_PART", 1)  # the lead's, in this process; that of others: `breaking`
        with faulty_network(tmp_path_factory.mktemp("faulty"), part_bytes=PART_BYTES) as found:
            yield found


def run(faulty: FaultyNetwork, *faults: Fault) -> StudyOutcome:
    """A disturbed study, in which no part was kept twice."""
    faulty.reference("vcds")
    start = time.time()
    outcome = faulty.run_with_faults("vcds", faults)
    kept = [event for event in faulty.events(start) if event["what"] == "part kept"]
    times = Counter((event["who"], event["key"], event["name"], event["number"]) for event in kept)
    assert len(times) > 20
    assert {at: count for at, count in times.items() if count > 1} == {}
    for name in ("server", "left", "middle", "right"):
        left = [path.name for path in (faulty.net.folder / "kits" / name).glob("*/messages/*")]
        assert left == [], name
    return outcome


def test_party_killed_between_the_parts_of_a_release_draws_nothing_twice(faulty: FaultyNetwork) -> None:
    points = ("part asked for", "part sent", "part asked for")
    outcome = run(faulty, *(Fault("left", "kill", "release", point) for point in points))
    assert outcome.problems == ()
    assert outcome.sent_again > 0


def test_coordinator_killed_between_the_parts_of_a_release_asks_for_the_rest(faulty: FaultyNetwork) -> None:
    points = ("part came", "part kept", "answered", "half kept")
    outcome = run(faulty, *(Fault(SERVER, "kill", "release", point) for point in points))
    assert outcome.problems == ()


def test_both_killed_between_the_parts_of_a_request(faulty: FaultyNetwork) -> None:
    party = [Fault("left", "kill", LONG_REQUEST, point) for point in ("part came", "part kept", "part kept")]
    server = [Fault(SERVER, "kill", "place", point) for point in ("part asked for", "part sent")]
    outcome = run(faulty, *party, *server, Fault("left", "kill", "place", "answered"))
    assert outcome.problems == ()


def test_processes_restarted_between_two_parts_go_on(faulty: FaultyNetwork) -> None:
    outcome = run(
        faulty, Fault("right", "restart", "release", "part sent"), Fault(SERVER, "restart", "release", "part kept")
    )
    assert outcome.problems == ()
