"""Studies that wait for a steward, of which a process dies at every step: the party, the coordinator, and the steward's
own command.

The steward answers by `verticopula approve`, once the coordinator has been told. What is checked is what `faults`
checks of every study, and that the steward was asked once about each of the two questions.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.network.faults import SERVER, STEWARD, Fault, FaultyNetwork, StudyOutcome, faulty_network
from tests.network.harness import POLICY
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_requests import StewardRequest

ASKED = "middle"  # the party whose steward is asked about everything
ROUNDS = ("begin", "consent")
PARTY_POINTS = (  # as far as they can follow one another: a decision that was told is not seen again
    (
        *("question unstored", "question half stored", "question stored", "question told", "decision seen"),
        *("yes unused", "yes half used", "yes used"),
    ),
    ("decision told",),
)
SERVER_POINTS = ("question heard", "question kept", "decision heard")
STEWARD_POINTS = ("undecided", "half decided", "decided")


def consent_plans() -> list[tuple[Fault, ...]]:
    """The faults of each study."""
    party = [tuple(Fault(ASKED, "kill", name, p) for name in ROUNDS for p in points) for points in PARTY_POINTS]
    others = ((SERVER, SERVER_POINTS), (STEWARD, STEWARD_POINTS))
    return [*party, *(tuple(Fault(who, "kill", name, p) for name in ROUNDS for p in points) for who, points in others)]


@dataclass
class DiligentSteward:
    """Answers yes to every question as soon as the coordinator knows that it waits."""

    found: FaultyNetwork

    @property
    def store(self) -> RequestStore:
        return RequestStore.of_kit(self.found.net.folder / "kits" / ASKED)

    def work(self, stopped: threading.Event) -> None:
        while not stopped.wait(0.05):
            for request in self.store.all("pending"):
                if self._is_known(request):
                    self._approve(request)

    def _is_known(self, request: StewardRequest) -> bool:
        """Whether the coordinator was told after the last fault, has set the study aside, and lives on."""
        if any(fault.point.startswith("question") for fault in self.found.next_faults()):
            return False
        happened = [one.time for one in self.found.happened() if one.fault.who != STEWARD]
        last = max(happened, default=0.0)
        told = [one for one in self.found.events(last) if one["what"] == "question told"]
        return bool(told) and self.found.records.get(request.content.study).state == "waiting"

    def _approve(self, request: StewardRequest) -> None:
        net, starter = self.found.net, self.found.process_starter
        assert starter is not None
        kit = net.folder / "kits" / ASKED
        starter.run(net, ["approve", str(kit), request.id, "--yes"], kit / "approve.txt").wait()

    def problems(self, study: str) -> list[str]:
        """What is wrong with what the store says about a study that is done."""
        self.store.verify()
        asked = self.store.all(study=study)
        stages = [one.content.stage for one in asked]
        found = [] if stages == ["beginning", "releases"] else [f"the steward was asked about {stages}"]
        return found + [f"{one.id} is {one.state}" for one in asked if one.state != "approved" or one.used is None]


@contextlib.contextmanager
def stewarded_network(folder: Path) -> Iterator[tuple[FaultyNetwork, DiligentSteward]]:
    """A running federation with a steward who answers."""
    policies = {ASKED: POLICY + 'review = "everything"\n'}
    stopped = threading.Event()
    with faulty_network(folder, policies=policies) as found:
        steward = DiligentSteward(found)
        thread = threading.Thread(target=steward.work, args=(stopped,))
        thread.start()
        try:
            yield found, steward
        finally:
            stopped.set()
            thread.join()


def measure_consent(plans: Sequence[Sequence[Fault]]) -> list[StudyOutcome]:
    """One study for every plan."""
    logging.getLogger("verticopula.network").setLevel(logging.ERROR)  # lost lines are what this is about
    with tempfile.TemporaryDirectory() as folder, stewarded_network(Path(folder)) as (found, steward):
        outcomes = [found.run_with_faults("vcds", faults) for faults in plans]
        return [
            replace(one, method="stewards", problems=(*one.problems, *steward.problems(one.study))) for one in outcomes
        ]
