"""What every transport must do, and what the protocol does with parties that misbehave."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.network.harness import Net
from tests.study_parties import make_study_party
from verticopula import Federation, Policy, Synthesizer
from verticopula.data.tables import align_tables
from verticopula.errors import NotPrivateWarning, PartyUnavailable, PolicyRefused, ProtocolError, VersionMismatch
from verticopula.mpc.sealed_messages import SealedChannel
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.coordinator.network_transport import NetworkTransport, PendingRequests
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.network.network_demo import free_port
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.consent_messages import ConsentReply, PresenceReply, PresenceRequest
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.rank_messages import ReleaseReply, ReleaseRequest
from verticopula.protocol.rank_methods import vcds
from verticopula.protocol.strict_messages import SumsKeyReply
from verticopula.protocol.study_lifecycle import begin_study
from verticopula.protocol.study_proposal import NO_CONTEXT, StudyContext
from verticopula.schema.federation import seeded_study_name
from verticopula.stats.fit_result import FitResult
from verticopula.storage.record_store import FolderRecords
from verticopula.storage.round_journal import Journal
from verticopula.transport.delivery import Transport, drive
from verticopula.transport.in_process_transport import InProcessTransport

FEDERATION = Federation.from_dict(
    {
        "response": "a.y",
        "network": {"operator": "office"},
        "party": [
            {"name": "a", "column": [{"name": "y", "kind": "binary"}]},
            {"name": "b", "column": [{"name": "x", "kind": "continuous", "bounds": [-6, 6]}]},
        ],
    }
)
BUDGET = StudyBudget.build(FEDERATION, unit="variable", epsilon=2.0, delta=None)


def tables() -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=200)
    return {
        "a": pl.DataFrame({"subject_id": range(200), "y": (x + rng.normal(size=200) > 0).astype(int)}),
        "b": pl.DataFrame({"subject_id": range(150), "x": x[:150]}),
    }


def parties(seed: int = 0) -> dict[str, LocalParty]:
    aligned = align_tables(FEDERATION, tables())
    return {name: make_study_party(table, SeededNoise(seed).derive(name)) for name, table in aligned.items()}


def run(transport: Transport, study: str = "study", context: StudyContext = NO_CONTEXT) -> FitResult:
    side = CoordinatorSide(np.random.default_rng(0), context=context)
    return drive(vcds(FEDERATION, BUDGET, study, side), transport)


class InProcess:
    """All parties in this process."""

    study, context = "study", NO_CONTEXT

    def open(self, seed: int = 0, without: str | None = None) -> Transport:
        """A transport to the parties of one study."""
        return InProcessTransport({name: party for name, party in parties(seed).items() if name != without})


class OverTheNetwork:
    """Every party in a process of its own, with mutual TLS between them and this one, which coordinates."""

    def __init__(self, folder: Path) -> None:
        here = {"operator": "office", "port": free_port(), "deadline": 60.0}
        federation = Federation.from_dict({**FEDERATION.to_dict(), "network": here})
        self.net = Net.prepare(folder, federation, tables())
        self.sessions = PeerSessions(
            self.net.kit("server"),
            lambda *message: self.pending.on_message(*message),
            lambda peer: self.pending.on_session(peer),
        )
        self.pending = PendingRequests(self.sessions)
        self.study, self.context = "", NO_CONTEXT
        self.journals: list[Journal] = []

    def start(self) -> None:
        self.sessions.start()
        self.net.start("a", "b")
        end = time.monotonic() + 1200.0
        while not (self.sessions.connected("a") and self.sessions.connected("b")):
            assert time.monotonic() < end, "the parties did not connect"
            time.sleep(0.05)

    def stop(self) -> None:
        self.net.close()
        self.sessions.stop()
        for journal in self.journals:
            journal.close()

    def transport(self, seconds: float = 240.0) -> NetworkTransport:
        self.journals.append(Journal(self.net.folder / f"{time.monotonic_ns()}.journal"))
        return NetworkTransport(self.pending, self.journals[-1], seconds)

    def open(self, seed: int = 0, without: str | None = None) -> Transport:
        self.study = f"study-{time.monotonic_ns()}"
        transport = self.transport()
        self.context = drive(begin_study(FEDERATION, self.study, "vcds", seed=seed), transport).context
        if without is not None:
            self.net.signal(without, signal.SIGKILL)
            transport.seconds = 2.0
        return transport


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverTheNetwork]:
    over = OverTheNetwork(tmp_path_factory.mktemp("network"))
    over.start()
    yield over
    over.stop()


Kind = InProcess | OverTheNetwork
KINDS = ["in process", pytest.param("network", marks=pytest.mark.network)]


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "network":
        found: Kind = request.getfixturevalue("network")
        return found
    return InProcess()


def test_the_same_arrays_on_every_transport(network: OverTheNetwork) -> None:
    """The short case of the network in the ordinary suite."""
    there = run(network.open(seed=5), network.study, network.context)
    here = run(InProcess().open(seed=5), seeded_study_name(FEDERATION))
    np.testing.assert_array_equal(there.copula.correlation, here.copula.correlation)


def test_a_strict_study_makes_the_same_arrays_on_every_transport(network: OverTheNetwork, tmp_path: Path) -> None:
    """Two parties in their own processes and the coordinator in this one compute together, known by certificates."""
    here, there = (Synthesizer(FEDERATION, "strict", 6.0, 1e-6, random_state=5) for _ in range(2))
    handler = there.make_compute_handler(
        FolderRecords(tmp_path / "compute"), certificate_authenticity(network.net.kit("server"))
    )
    with pytest.warns(NotPrivateWarning):
        there.fit_transport(network.transport(), study=f"strict-{time.monotonic_ns()}", compute_handler=handler)
    with pytest.warns(NotPrivateWarning):
        here.fit(tables())
    np.testing.assert_array_equal(there.result_.copula.correlation, here.result_.copula.correlation)
    assert there.privacy_ == here.privacy_


def test_the_coordinator_cannot_put_its_own_key_in_place_of_a_party_s(network: OverTheNetwork, tmp_path: Path) -> None:
    """It relays public keys, so it might: it cannot sign them in the party's name."""
    asked = Synthesizer(FEDERATION, "strict", 6.0, 1e-6, random_state=5)
    own = certificate_authenticity(network.net.kit("server"))
    handler = asked.make_compute_handler(FolderRecords(tmp_path / "compute"), own)

    def swap(reply: Reply) -> Reply:
        if not isinstance(reply, SumsKeyReply):
            return reply
        return replace(reply, key=SealedChannel(network.study, "b", bytes(32), own).sign_public_key())

    network.study = f"swapped-{time.monotonic_ns()}"
    with pytest.raises(ProtocolError, match="public key of 'b' is not signed by it"):
        asked.fit_transport(Tampering(network.transport(), swap), study=network.study, compute_handler=handler)


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_same_seed_same_arrays(kind: Kind) -> None:
    first, second, other = (run(kind.open(seed), kind.study, kind.context) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.copula.correlation, second.copula.correlation)
    assert not np.array_equal(first.copula.correlation, other.copula.correlation)


class Tampering:
    """Delivers faithfully, but changes one party's replies on the way."""

    def __init__(self, inner: Transport, change: Callable[[Reply], Reply]) -> None:
        self._inner = inner
        self._change = change

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies = self._inner.deliver(requests)
        return {**replies, "b": self._change(replies["b"])}


def shorter_presence(reply: Reply) -> Reply:
    return replace(reply, observed=reply.observed[:-1]) if isinstance(reply, PresenceReply) else reply


def extra_presence_column(reply: Reply) -> Reply:
    return replace(reply, observed=np.tile(reply.observed, 2)) if isinstance(reply, PresenceReply) else reply


def no_release(reply: Reply) -> Reply:
    return replace(reply, columns=()) if isinstance(reply, ReleaseReply) else reply


def rank_out_of_range(reply: Reply) -> Reply:
    if isinstance(reply, ReleaseReply):
        return replace(reply, columns=tuple(replace(c, ranks=c.ranks + 10**6) for c in reply.columns))
    return reply


def too_few_cells(reply: Reply) -> Reply:
    if isinstance(reply, ReleaseReply):
        return replace(reply, columns=tuple(replace(c, cells=c.cells[:-1]) for c in reply.columns))
    return reply


def wrong_kind(reply: Reply) -> Reply:
    return PresenceReply("b", np.ones((200, 1), dtype=bool), b"") if isinstance(reply, ReleaseReply) else reply


def no_agreement(reply: Reply) -> Reply:
    return PresenceReply("b", np.ones((200, 1), dtype=bool), b"") if isinstance(reply, ConsentReply) else reply


@pytest.mark.parametrize(
    "change",
    [no_agreement, shorter_presence, extra_presence_column, no_release, rank_out_of_range, too_few_cells, wrong_kind],
)
@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_malformed_replies_are_errors_not_results(change: Callable[[Reply], Reply], kind: Kind) -> None:
    transport = Tampering(kind.open(), change)
    with pytest.raises(ProtocolError):
        run(transport, kind.study, kind.context)


@pytest.mark.network
def test_a_party_refuses_another_message_version_over_the_network(network: OverTheNetwork) -> None:
    for request in (PresenceRequest("s", "vcds", version=99), ReleaseRequest("s", "vcds", "exact", (), version=99)):
        with pytest.raises(VersionMismatch, match="message version"):
            network.transport().deliver({"a": request})


def test_a_party_refuses_another_message_version() -> None:
    party = parties()["a"]
    for request in (PresenceRequest("s", "vcds", version=99), ReleaseRequest("s", "vcds", "exact", (), version=99)):
        with pytest.raises(VersionMismatch, match="99"):
            party.handle(request)


def test_who_has_a_value_in_an_unshared_column_is_not_told() -> None:
    party = parties()["a"]
    party.control.policy = Policy(columns=("something else",))
    with pytest.raises(PolicyRefused, match="does not share column 'y'"):
        party.handle(PresenceRequest("s", "vcds"))


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_a_lost_party_raises_and_is_named(kind: Kind) -> None:
    transport = kind.open(without="b")  # over the network it is killed, and nothing can follow
    with pytest.raises(PartyUnavailable, match="'b'"):
        run(transport, kind.study, kind.context)
