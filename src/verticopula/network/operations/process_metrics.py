"""What a process of a kit tells a monitoring system: metrics in Prometheus' format, and whether it is ready.

Labels have few values: units, states, kinds of errors, and the names in the federation file. No study, no person and no
text of a peer is in any of them.
"""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from verticopula.errors import VerticopulaError
from verticopula.network.connection.flare_link import peers_of
from verticopula.network.coordinator.coordinator_process import Coordinator
from verticopula.network.coordinator.study_records import State
from verticopula.network.kit.certificate_expiry import days_left
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.party.party_federations import FederationVersions
from verticopula.network.party.party_process import PartyProcess
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.refreshed_member import RefreshedMember
from verticopula.schema.defaults import COORDINATOR
from verticopula.schema.units import Unit
from verticopula.storage.request_store import RequestStore


@dataclass(frozen=True, eq=False)  # a registry asks for its hash
class ProcessMetrics:
    """Everything that is measured of one process.

    Attributes
    ----------
    state : the folder whose disk the process writes to
    clock : seconds since 1970
    """

    kit: Kit
    service: Coordinator | PartyProcess
    state: Path
    clock: Callable[[], float] = time.time

    def expose(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        return bytes(generate_latest(registry))

    def why_not_ready(self) -> str:
        """In a few words; empty where the process can take part in a study."""
        if isinstance(self.service, Coordinator):
            return ""
        if not self.service.sessions.connected(COORDINATOR):
            return "no session with the coordinator"
        try:
            if (member := _member_of(self.service)) is not None:
                member.policy.current()
        except VerticopulaError:
            return "the policy file cannot be read, or has lost a rule; the log says more"
        return ""

    def collect(self) -> Iterator[Metric]:
        """For `CollectorRegistry`; a part that cannot be measured is left out, and counted."""
        failed = 0
        for part in self._parts():
            try:
                yield from list(part())
            except (VerticopulaError, OSError, ValueError):
                failed += 1
        yield _gauge(
            "verticopula_scrape_errors", "Parts of this page that could not be measured; the log says why.", failed
        )

    def _parts(self) -> list[Callable[[], Iterable[Metric]]]:
        service = self.service
        own = (
            partial(_coordinator_metrics, service)
            if isinstance(service, Coordinator)
            else partial(_party_metrics, service)
        )
        return [self._about, self._traffic, self._certificates, self._disk, own]

    def _about(self) -> Iterator[Metric]:
        labels = {
            "version": version("verticopula"),
            "message_version": str(MESSAGE_VERSION),
            "python": platform.python_version(),
            "role": self.kit.role,
        }
        yield InfoMetricFamily("verticopula_build", "What runs here.", value=labels)  # verticopula_build_info
        yield _gauge(
            "verticopula_ready", "1 if the process can take part in a study.", 0 if self.why_not_ready() else 1
        )
        said = "Requests that were refused, by the kind of error."
        yield _counter("verticopula_refusals_total", said, dict(self.service.refusals), "kind")

    def _traffic(self) -> Iterator[Metric]:
        sessions = self.service.sessions
        totals = sessions.traffic.totals()
        messages: dict[str, float] = {name: count for name, (count, _) in totals.items()}
        n_bytes: dict[str, float] = {name: size for name, (_, size) in totals.items()}
        yield _counter(
            "verticopula_messages_total",
            "Messages to and from peers; refused ones were received.",
            messages,
            "direction",
        )
        yield _counter("verticopula_bytes_total", "Bytes of these messages.", n_bytes, "direction")
        peers = sorted(peers_of(self.kit))
        connected = {peer: float(sessions.connected(peer)) for peer in peers}
        silent = {peer: sessions.traffic.silent_for(peer) for peer in peers}
        yield _gauge("verticopula_connected", "1 if there is a session with this peer.", connected, "peer")
        said = "Seconds since a message of this peer was accepted, or since the start."
        yield _gauge("verticopula_last_contact_seconds", said, silent, "peer")

    def _certificates(self) -> Iterator[Metric]:
        names = {"certificate": "own", "root": "authority"}
        found = days_left(self.kit, datetime.fromtimestamp(self.clock(), UTC))
        days = {names.get(name, name): left for name, left in found.items()}
        yield _gauge(
            "verticopula_certificate_days_left", "Days until this certificate ends; below 0 after that.", days, "of"
        )

    def _disk(self) -> Iterator[Metric]:
        free = shutil.disk_usage(self.state).free
        yield _gauge("verticopula_disk_free_bytes", "Free on the disk that the process writes to.", free)


def _coordinator_metrics(coordinator: Coordinator) -> Iterator[Metric]:
    states: dict[str, int] = dict.fromkeys(get_args(State), 0)
    for record in coordinator.records.all():
        states[record.state] += 1
    yield _gauge("verticopula_studies", "Studies by state.", states, "state")
    yield _counter("verticopula_rounds_total", "Rounds that all parties answered, since the start.", coordinator.rounds)
    waiting = coordinator.waiting()
    names = sorted(peers_of(coordinator.kit) - {"lead"})
    said = "Studies whose open round lacks this party's answer."
    yield _gauge("verticopula_waiting_for", said, {name: waiting[name] for name in names}, "peer")


def _member_of(process: PartyProcess) -> Member | None:
    """The party with data that a process is; None for one that only computes."""
    found = process.member.current if isinstance(process.member, FederationVersions) else process.member
    found = found.current if isinstance(found, RefreshedMember) else found
    return found if isinstance(found, Member) else None


def _party_metrics(process: PartyProcess) -> Iterator[Metric]:
    store = RequestStore.of_kit(process.kit.folder)
    pending = len(store.all("pending")) if store.path.exists() else process.questions
    yield _gauge("verticopula_requests_pending", "Requests that wait for a steward.", pending)
    member = _member_of(process)
    if member is None:
        return
    yield _gauge("verticopula_ledger_entries", "Releases in the ledger.", len(member.vault.ledger))
    policy, counted = member.policy.current(), member.count_against_caps()
    spent = {unit.value: float(getattr(counted, unit.value)) for unit in Unit}
    caps = {unit: float(cap) for unit, cap in policy.caps.model_dump(exclude_none=True).items()}
    left = {unit: max(cap - spent[unit], 0.0) for unit, cap in caps.items()}
    what = "about the people of this table, as it counts against caps"
    yield _gauge("verticopula_epsilon_spent", f"Epsilon spent {what}.", spent, "unit")
    yield _gauge(
        "verticopula_epsilon_cap", "The policy's cap; there is none at a unit that is not listed.", caps, "unit"
    )
    yield _gauge("verticopula_epsilon_left", "What is left of each cap.", left, "unit")
    yield _gauge("verticopula_epsilon_delta", "The delta at which these epsilons are counted.", policy.delta)


def _gauge(name: str, said: str, values: float | Mapping[str, float], label: str = "") -> Metric:
    return _fill(GaugeMetricFamily, name, said, values, label)


def _counter(name: str, said: str, values: float | Mapping[str, float], label: str = "") -> Metric:
    return _fill(CounterMetricFamily, name, said, values, label)


def _fill(family: Any, name: str, said: str, values: float | Mapping[str, float], label: str) -> Metric:
    filled = family(name, said, labels=[label] if label else [])
    for key, value in (values if isinstance(values, Mapping) else {"": values}).items():
        filled.add_metric([key] if label else [], value)
    return filled  # type: ignore[no-any-return]
