"""A party checks, records, draws, in this order; and answers the same request once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.builders import CONTINUOUS, make_federation, make_party
from verticopula.errors import BudgetExceeded, PolicyRefused, VersionMismatch
from verticopula.privacy.noise import Keystream, SecureNoise, SeededNoise
from verticopula.privacy.policy import Caps, Policy, capped_epsilons
from verticopula.privacy.release import Release
from verticopula.privacy.statement import state_privacy
from verticopula.protocol.consent_messages import PresenceReply, PresenceRequest
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseReply, ReleaseRequest
from verticopula.schema.federation import Federation
from verticopula.schema.units import Unit
from verticopula.storage.ledger import Ledger, read_ledger

N = 50
VALUES = {
    "a": np.linspace(-1, 1, N),
    "b": np.arange(N) % 2,
    "c": np.arange(N) % 3,
}


class Touched(Exception):
    """Somebody asked for randomness."""


class Untouchable:
    """A source of noise that nobody may ask."""

    is_private = True

    def stream(self, *label: str) -> Keystream:
        raise Touched

    def discrete_laplace(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        raise Touched


class FullLedger(Ledger):
    """A ledger that cannot be written."""

    def append(self, *args: object, **kwargs: object) -> None:
        raise OSError("no space left on device")


def federation() -> Federation:
    return make_federation(
        {"left": {"a": CONTINUOUS, "b": {"kind": "binary"}, "c": {"kind": "nominal", "categories": ["x", "y", "z"]}}}
    )


def party(**settings: Any) -> LocalParty:
    return make_party(federation(), "left", VALUES, **settings)


def request(
    study: str = "one", columns: str = "abc", ranks: float = 0.5, margin: float = 0.25, **extra: Any
) -> ReleaseRequest:
    orders = tuple(ColumnQuery(name, ranks, margin) for name in columns)
    return ReleaseRequest(study, "vcds", extra.pop("sampler", "exact"), orders, **extra)


def released(reply: Any) -> ReleaseReply:
    assert isinstance(reply, ReleaseReply)
    return reply


# ---- what is answered --------------------------------------------------------------------


def test_the_same_request_gets_the_same_answer_and_is_charged_once() -> None:
    local = party()
    first, second = released(local.handle(request())), released(local.handle(request()))
    for one, two in zip(first.columns, second.columns, strict=True):
        np.testing.assert_array_equal(one.ranks, two.ranks)
        np.testing.assert_array_equal(one.cells, two.cells)
    assert len(local.control.ledger) == 6
    other = released(local.handle(request(study="two")))
    assert len(local.control.ledger) == 12
    assert any(not np.array_equal(o.ranks, f.ranks) for o, f in zip(other.columns, first.columns, strict=True))


def test_releases_have_the_promised_shapes() -> None:
    columns = {c.column: c for c in released(party().handle(request())).columns}
    assert {name: c.ranks.shape for name, c in columns.items()} == {"a": (N, 1), "b": (N, 1), "c": (N, 3)}
    assert columns["b"].cells.sum() == N  # one noisy count; the other follows from the public number
    assert columns["c"].cells.shape == (3,)
    for column in columns.values():
        np.testing.assert_array_equal(column.ranks.sum(axis=0), N * (N + 1) // 2)


def test_presence_says_who_is_observed_and_costs_nothing() -> None:
    local = party(noise=Untouchable())
    reply = local.handle(PresenceRequest("one", "vcds"))
    assert isinstance(reply, PresenceReply)
    assert reply.observed.shape == (N, 3)
    assert len(local.control.ledger) == 0


def test_the_ledger_says_what_was_spent() -> None:
    local = party()
    local.handle(request())
    by_column = {(entry.column, entry.what): entry for entry in local.control.ledger}
    assert by_column["a", "ranks"].coins_count == N - 1
    assert by_column["a", "ranks"].coins_epsilon == 0.5
    assert by_column["c", "ranks"].coins_count == 2 * (N - 1)
    assert by_column["c", "ranks"].coins_epsilon == 0.25
    assert by_column["b", "marginal"].coins_count == 1
    assert by_column["b", "marginal"].epsilon == 0.25
    assert {entry.noise for entry in local.control.ledger} == {"secure"}
    statement = state_privacy(local.control.ledger)
    assert statement.epsilon(Unit.VARIABLE) == pytest.approx(0.75)
    assert statement.epsilon(Unit.CLIENT) == pytest.approx(2.25)
    assert statement.epsilon(Unit.BLOCK) == statement.epsilon(Unit.PERSON) == statement.parties["left"].block
    assert "block" in str(statement)


def test_a_seed_and_bounds_from_data_are_written_down() -> None:
    local = party(noise=SeededNoise(1))
    local.control.bounds_from_data = True
    local.handle(request())
    statement = state_privacy(local.control.ledger)
    assert not statement.is_private
    assert all(statement.epsilon(unit) == float("inf") for unit in Unit)
    assert len(statement.warnings) == 2


def test_one_seeded_entry_among_others_makes_a_study_not_private() -> None:
    ledger = Ledger()
    party(ledger=ledger).handle(request())
    assert state_privacy(ledger).is_private
    party(ledger=ledger, noise=SeededNoise(1)).handle(request(study="two"))
    assert not state_privacy(ledger).is_private


# ---- the order of things -----------------------------------------------------------------


def test_an_entry_is_on_disk_before_anything_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    local = party(noise=Untouchable(), ledger=Ledger(path))
    with pytest.raises(Touched):
        local.handle(request())
    assert len(read_ledger(path)) == 6


def test_nothing_is_drawn_if_the_ledger_cannot_be_written() -> None:
    local = party(noise=Untouchable(), ledger=FullLedger())
    with pytest.raises(OSError, match="space"):
        local.handle(request())


def test_a_failed_release_is_not_kept_as_an_answer() -> None:
    local = party(noise=Untouchable())
    for _ in range(2):
        with pytest.raises(Touched):
            local.handle(request())
    assert len(local.control.ledger) == 12  # both attempts are charged: the first may have been seen


# ---- refusals, all before anything is drawn or recorded ----------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        request(columns="ax"),
        request(columns="aa"),
        request(sampler="quick"),
        request(ranks=0.0),
        request(ranks=-1.0),
        request(ranks=float("nan")),
        request(ranks=float("inf")),
        request(margin=0.0),
        request(margin=float("nan")),
        request(margin=-0.1),
        request(margin=float("inf")),
    ],
    ids=lambda r: (
        f"{[o.column for o in r.queries]}-{r.sampler}-{r.queries[0].epsilon_ranks}-{r.queries[0].epsilon_marginal}"
    ),
)
def test_requests_that_make_no_sense_are_refused(bad: ReleaseRequest) -> None:
    local = party(noise=Untouchable())
    with pytest.raises(PolicyRefused):
        local.handle(bad)
    assert len(local.control.ledger) == 0


@pytest.mark.parametrize(
    "message",
    [request(version=MESSAGE_VERSION + 1), PresenceRequest("one", "vcds", version=0)],
    ids=["new", "old"],
)
def test_another_version_is_refused(message: Any) -> None:
    with pytest.raises(VersionMismatch):
        party(noise=Untouchable()).handle(message)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(columns=("a", "b")),
        Policy(methods=("evcds",)),
        Policy(min_subjects=N + 1),
    ],
    ids=["columns", "methods", "subjects"],
)
def test_a_policy_refuses(policy: Policy) -> None:
    local = party(noise=Untouchable(), policy=policy)
    with pytest.raises(PolicyRefused):
        local.handle(request())
    assert len(local.control.ledger) == 0


@pytest.mark.parametrize("policy", [Policy(columns=()), Policy(methods=())], ids=["columns", "methods"])
def test_an_empty_list_allows_nothing(policy: Policy) -> None:
    local = party(noise=Untouchable(), policy=policy)
    for asked in (request(), PresenceRequest("one", "vcds")):
        with pytest.raises(PolicyRefused):
            local.handle(asked)
    assert len(local.control.ledger) == 0


def test_who_has_a_value_in_a_column_that_is_not_shared_is_not_told() -> None:
    with pytest.raises(PolicyRefused, match="does not share column 'c'"):
        party(policy=Policy(columns=("a", "b"))).handle(PresenceRequest("one", "vcds"))


def test_a_policy_allows_what_it_lists() -> None:
    local = party(policy=Policy(columns=("a", "b"), methods=("vcds",), min_subjects=N))
    assert len(released(local.handle(request(columns="ab"))).columns) == 2


def counted_after(times: int, unit: str) -> float:
    local = party()
    for k in range(times):
        local.handle(request(study=str(k)))
    return float(getattr(capped_epsilons(local.control.ledger, 1e-6), unit))


@pytest.mark.parametrize("unit", ["variable", "client", "block", "person"])
def test_caps_hold_over_all_studies_in_the_ledger(unit: str, tmp_path: Path) -> None:
    cap = {"variable": 1.5, "client": 4.5}.get(unit) or counted_after(2, unit)
    policy = Policy(caps=Caps(**{unit: cap}))
    path = tmp_path / "ledger.jsonl"
    for study in ("one", "two"):  # a new process each time: only the file remembers
        party(ledger=Ledger(path), policy=policy).handle(request(study=study))
    local = party(noise=Untouchable(), ledger=Ledger(path), policy=policy)
    with pytest.raises(BudgetExceeded, match=unit):
        local.handle(request(study="three"))
    assert len(read_ledger(path)) == 12
    with pytest.raises(BudgetExceeded):
        local.handle(request(study="three", columns="c", ranks=1e-3, margin=1e-3))


def test_another_party_s_releases_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    elsewhere = make_federation({"right": {"a": CONTINUOUS}})
    make_party(elsewhere, "right", VALUES, ledger=Ledger(path)).handle(request(columns="a"))
    party(ledger=Ledger(path), policy=Policy(caps=Caps(variable=0.75))).handle(request())
    assert len(read_ledger(path)) == 8


def test_one_request_beyond_the_cap_is_refused_as_a_whole() -> None:
    local = party(noise=Untouchable(), policy=Policy(caps=Caps(client=2.0)))
    with pytest.raises(BudgetExceeded, match="nothing was drawn"):
        local.handle(request())
    assert len(local.control.ledger) == 0


def test_the_binomial_sampler_is_charged_at_the_block() -> None:
    """The same epsilon per comparison, twice the coins of half the strength: cheaper per coin, more of them."""
    local = party()
    local.handle(request(columns="a", sampler="binomial"))
    ranks = next(entry for entry in local.control.ledger if entry.what == "ranks")
    assert (ranks.coins_epsilon, ranks.coins_count) == (0.25, 2 * (N - 1))


class WatchedLock:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, waits: threading.Event) -> None:
        self._lock, self._waits = threading.Lock(), waits

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waits.set()
            self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


class MeetingPolicy(Policy):
    """Who has passed the check goes on once the other has passed it too, or waits for the ledger."""

    def check(self, *args: Any) -> None:
        super().check(*args)
        PASSED.append(threading.get_ident())
        if len(set(PASSED)) == 2:
            MET.set()
        MET.wait()


MET, PASSED = threading.Event(), list[int]()


def test_two_requests_at_once_cannot_both_take_the_last_of_the_budget() -> None:
    local = party(noise=SecureNoise(), policy=MeetingPolicy(caps=Caps(client=3.0)))
    local.control.ledger._lock = WatchedLock(MET)  # type: ignore[attr-defined]
    outcomes: list[str] = []

    def ask(study: str) -> None:
        try:
            local.handle(request(study=study))
            outcomes.append("released")
        except BudgetExceeded:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask, args=(study,)) for study in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused", "released"]


def test_releases_are_immutable_records() -> None:
    local = party()
    local.handle(request())
    entry = next(iter(local.control.ledger))
    assert isinstance(entry, Release)
    with pytest.raises(AttributeError):
        entry.epsilon = 0.0  # type: ignore[misc]
