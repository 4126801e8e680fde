"""A party over crashes and restarts: charged once, drawn once, and the ledger never says less than what left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import CONTINUOUS, identify, make_federation
from tests.members import MemoryBlobs
from tests.privacy.durable import ENTRIES, OTHERS, POINTS, REQUEST, N, answer_and_die, make
from tests.study_parties import make_study_party
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import AlignedTable
from verticopula.errors import BudgetExceeded, LedgerError, PolicyRefused, ProtocolError
from verticopula.glm.families import FAMILIES
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import RefitRule
from verticopula.privacy.noise import Keystream, SecureNoise
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.statement import party_epsilons
from verticopula.protocol.messages import Reply, Request, fingerprint
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.party_store import StudyStores
from verticopula.protocol.rank_messages import ReleaseReply, ReleaseRequest
from verticopula.protocol.regression_messages import DesignRequest, EnteringColumnsRequest
from verticopula.protocol.regression_path import FederatedPath, RegressionSettings, federated_path
from verticopula.protocol.wire import encode
from verticopula.schema.methods import RAW_REGRESSION
from verticopula.storage.known_tables import NO_ACCOUNT, TableAccount
from verticopula.storage.ledger import read_ledger
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import inspect_vault
from verticopula.transport.delivery import drive

PRICE = 2 * (0.5 + 0.25)


def spent(folder: Path) -> float:
    return party_epsilons(read_ledger(folder / "ledger.jsonl"), 1e-6).client


# ---- crashes -----------------------------------------------------------------------------------


def crash(folder: Path, point: str) -> None:
    """Another process answers the request on this vault, and is killed."""
    other = OTHERS.Process(target=answer_and_die, args=(folder, point))
    other.start()
    other.join()
    assert other.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_costs_the_price_once(tmp_path: Path, point: str) -> None:
    folder, sent = tmp_path / "vault", tmp_path / "sent"
    crash(folder, point)
    stored = list((folder / "replies").glob("*.bin"))
    assert len(stored) == (point in ("after storing", "after sending"))
    assert sent.exists() == (point == "after sending")
    if stored:  # what may have left is on the ledger already
        assert spent(folder) == pytest.approx(PRICE)
    before = stored[0].read_bytes()[32:] if stored else None
    with Vault.open(folder) as vault:
        reply = encode(make(vault).handle(REQUEST))
        assert spent(folder) == pytest.approx(PRICE)
        assert len(vault.ledger) == ENTRIES
        assert encode(make(vault).handle(REQUEST)) == reply
    if before is not None:
        assert reply == before
    if sent.exists():
        assert reply == sent.read_bytes()
    with Vault.open(folder) as vault:
        assert encode(make(vault).handle(REQUEST)) == reply
        assert len(vault.ledger) == ENTRIES
    assert inspect_vault(folder) == (ENTRIES, 1)


def test_two_crashes_cost_the_price_once(tmp_path: Path) -> None:
    for point in ("third line torn", "after append", "while storing", "after draw"):
        crash(tmp_path / "v", point)
    with Vault.open(tmp_path / "v") as vault:
        make(vault).handle(REQUEST)
    assert spent(tmp_path / "v") == pytest.approx(PRICE)


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes beyond this size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("whole", range(1, ENTRIES))
def test_an_append_that_fails_half_way_and_cannot_be_taken_back_is_paid_once(tmp_path: Path, whole: int) -> None:
    """The kernel refuses both the rest of the lines and to cut them off."""
    folder = tmp_path / "vault"
    with Vault.open(tmp_path / "other") as other:
        make(other).handle(REQUEST)
    lines = (tmp_path / "other" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    Vault.open(folder).close()
    file = os.memfd_create("ledger", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # it can grow, and nobody can cut it
    (folder / "ledger.jsonl").unlink()
    (folder / "ledger.jsonl").symlink_to(f"/proc/{os.getpid()}/fd/{file}")
    with Vault.open(folder) as vault:
        party = make(vault)
        with largest_file(sum(map(len, lines[:whole]))), pytest.raises(PermissionError):
            party.handle(REQUEST)
        assert len(read_ledger(folder / "ledger.jsonl")) == whole
        party.handle(REQUEST)
        assert len(vault.ledger) == ENTRIES
        assert spent(folder) == pytest.approx(PRICE)
    os.close(file)


# ---- once --------------------------------------------------------------------------------------


class Touched(Exception):
    """Somebody asked for randomness."""


class Untouchable(SecureNoise):
    def stream(self, *label: str) -> Keystream:
        raise Touched


def test_a_stored_reply_is_not_drawn_again(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        reply = encode(make(vault).handle(REQUEST))
    with Vault.open(tmp_path) as vault:
        assert encode(make(vault, noise=Untouchable()).handle(REQUEST)) == reply
        with pytest.raises(Touched):
            make(vault, noise=Untouchable()).handle(replace(REQUEST, study="another"))


def test_a_damaged_reply_is_not_drawn_again(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        make(vault).handle(REQUEST)
        (path,) = (tmp_path / "replies").glob("*.bin")
        path.write_bytes(path.read_bytes()[:-1] + b"\x00")
        with pytest.raises(LedgerError, match="damaged"):
            make(vault, noise=Untouchable()).handle(REQUEST)
        assert len(vault.ledger) == ENTRIES


def test_a_failed_draw_is_not_charged_twice(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        for _ in range(2):
            with pytest.raises(Touched):
                make(vault, noise=Untouchable()).handle(REQUEST)
        make(vault).handle(REQUEST)
        assert len(vault.ledger) == ENTRIES


def test_without_a_store_that_lasts_every_draw_is_charged(tmp_path: Path) -> None:
    """The replies of the first process are gone, but may have left: the second one draws anew, and pays."""
    with Vault.open(tmp_path) as vault:
        for _ in range(2):
            make(vault, stores=StudyStores(MemoryBlobs())).handle(REQUEST)
        assert len(vault.ledger) == 2 * ENTRIES


def test_another_price_is_charged(tmp_path: Path) -> None:
    """Recorded for fewer subjects, and then the table changed: what was paid does not cover it."""
    with Vault.open(tmp_path) as vault:
        party = make(vault, noise=Untouchable())
        party.control.table.columns["a"].observed[:10] = False
        with pytest.raises(Touched):
            party.handle(REQUEST)
        make(vault).handle(REQUEST)
        assert len(vault.ledger) == ENTRIES + 1  # a's ranks again; the price of its marginal is the same
        assert spent(tmp_path) >= PRICE


def test_a_request_without_orders_leaves_nothing(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        make(vault).handle(ReleaseRequest("s", "vcds", "exact", ()))
    Vault.open(tmp_path).close()


def test_copies_of_a_request_at_once_are_charged_and_drawn_once(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        slow = {"on_column": lambda comparisons: time.sleep(0.05)}  # between the ledger and the stored reply
        parties = [make(vault, **slow), make(vault, **slow)]  # the same one, made twice
        replies: list[bytes] = []
        threads = [
            threading.Thread(target=lambda p=party: replies.append(encode(p.handle(REQUEST))))  # type: ignore[misc]
            for party in parties * 4
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(replies) == 8
        assert len(set(replies)) == 1
        assert len(vault.ledger) == ENTRIES
        assert not vault.replies._busy


def test_two_parties_of_one_organisation_are_asked_the_same(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        left, right = make(vault).handle(REQUEST), make(vault, "right").handle(REQUEST)
        assert isinstance(left, ReleaseReply)
        assert isinstance(right, ReleaseReply)
        assert (left.party, right.party) == ("left", "right")
        assert len(vault.ledger) == 2 * ENTRIES


# ---- the cap is the table's ----------------------------------------------------------------------


def test_a_cap_holds_whatever_the_party_is_called(tmp_path: Path) -> None:
    policy = Policy(caps=Caps(client=2.0 * PRICE))
    with Vault.open(tmp_path) as vault:
        make(vault, "left", policy=policy).handle(REQUEST)
    with Vault.open(tmp_path) as vault:
        make(vault, "right", policy=policy).handle(REQUEST)
        for name in ("left", "right", "third"):
            with pytest.raises(BudgetExceeded, match="nothing was drawn"):
                make(vault, name, policy=policy, noise=Untouchable()).handle(replace(REQUEST, study="more"))
        other = identify(vault, (f"other{i}" for i in range(N)))
        make(vault, "third", policy=policy, account=TableAccount(other, {})).handle(replace(REQUEST, study="more"))
        assert {entry.table for entry in vault.ledger} == {other, make(vault).control.charging.account.table}


def test_entries_of_nobody_s_table_count_for_the_party(tmp_path: Path) -> None:
    policy = Policy(caps=Caps(client=2.5 * PRICE))  # the other party's entry and a new one would still fit
    with Vault.open(tmp_path) as vault:
        make(vault, account=NO_ACCOUNT).handle(REQUEST)
        make(vault, "right", policy=policy).handle(REQUEST)
        with pytest.raises(BudgetExceeded):
            make(vault, policy=policy).handle(replace(REQUEST, study="more"))


def test_a_crash_near_the_cap_does_not_lock_the_party_out(tmp_path: Path) -> None:
    """What was recorded and not drawn is drawn, though nothing more would fit."""
    policy = Policy(caps=Caps(client=PRICE))
    with Vault.open(tmp_path) as vault:
        with pytest.raises(Touched):
            make(vault, policy=policy, noise=Untouchable()).handle(REQUEST)
        make(vault, policy=policy).handle(REQUEST)
        with pytest.raises(BudgetExceeded):
            make(vault, policy=policy).handle(replace(REQUEST, study="more"))


# ---- regressions ---------------------------------------------------------------------------------

ROWS = 120


class Restarting:
    """Parties on vaults that are closed, thrown away and made again at every k-th delivery; 0 for never."""

    def __init__(self, folder: Path, every: int, *, copies: bool = False) -> None:
        rng = np.random.default_rng(4)
        x = rng.standard_normal((ROWS, 6)) + 0.7 * rng.standard_normal((ROWS, 1))
        self.y = x[:, 0] - 0.8 * x[:, 3] + 0.3 * rng.standard_normal(ROWS)
        self.federation = make_federation(
            {name: {f"{name}{j}": CONTINUOUS for j in range(3)} for name in ("left", "right")}
        )
        self._values = {
            name: np.clip(part, -8, 8) for name, part in zip(("left", "right"), (x[:, :3], x[:, 3:]), strict=True)
        }
        self._folder, self._every, self._copies = folder, every, copies
        self._vaults: dict[str, Vault] = {}
        self.deliveries = 0
        self.restart()

    def restart(self) -> None:
        self.close()
        self._vaults = {name: Vault.open(self._folder / name) for name in self._values}
        self.parties = {name: self._party(name) for name in self._values}

    def close(self) -> None:
        for vault in self._vaults.values():
            vault.close()

    def _party(self, name: str) -> LocalParty:
        columns = {
            f"{name}{j}": EncodedColumn(column.copy(), np.ones(ROWS, dtype=bool))
            for j, column in enumerate(self._values[name].T)
        }
        vault = self._vaults[name]
        return make_study_party(
            AlignedTable(self.federation.party(name), columns),
            noise=SecureNoise(),
            ledger=vault.ledger,
            policy=Policy(methods=(RAW_REGRESSION,)),
            stores=StudyStores(vault.replies, vault.fits),
            account=TableAccount(identify(vault, (f"s{i}" for i in range(ROWS))), {}),
        )

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        self.deliveries += 1
        restart = self._every and self.deliveries % self._every == 0
        if restart:
            self.restart()
        replies = {name: self.parties[name].handle(request) for name, request in requests.items()}
        if restart and self._copies:  # lost on the way, and asked for again from another process
            self.restart()
            for name, request in requests.items():
                assert fingerprint(self.parties[name].handle(request)) == fingerprint(replies[name])
        return replies

    def fit(self) -> FederatedPath:
        chosen = RegressionSettings(
            FAMILIES["gaussian"], Penalty.build("scad"), tolerance=1e-6, refit=RefitRule(np.log(ROWS), ROWS)
        )
        return drive(
            federated_path(["left", "right"], self.y, chosen, lambda top: top * np.array([0.5, 0.1, 0.02]), study="s"),
            self,
        )


def coefficients(path: FederatedPath) -> np.ndarray:
    """With those fitted again without a penalty."""
    found = [[*point.coef, point.intercept] for point in path.points]
    return np.array(found + [[*p.refit.coef, p.refit.intercept] for p in path.points if p.refit is not None])


@pytest.mark.parametrize("every", [1, 2, 7])
@pytest.mark.parametrize("copies", [False, True], ids=["", "copies"])
def test_a_fit_over_restarts_is_the_same_to_the_last_bit(tmp_path: Path, every: int, copies: bool) -> None:
    steady = Restarting(tmp_path / "steady", 0)
    shaken = Restarting(tmp_path / "shaken", every, copies=copies)
    one, two = steady.fit(), shaken.fit()
    assert steady.deliveries == shaken.deliveries > 5
    np.testing.assert_array_equal(coefficients(one), coefficients(two))
    np.testing.assert_array_equal(one.predictions, two.predictions)
    for name in ("left", "right"):
        entries = read_ledger(tmp_path / "shaken" / name / "ledger.jsonl")
        assert [entry.column for entry in entries] == [f"{name}{j}" for j in range(3)]  # once
    steady.close()
    shaken.close()


def design(**changes: Any) -> DesignRequest:
    return replace(DesignRequest("s", "f", None, None, True, None, None), **changes)


def ask(number: int, **changes: Any) -> EnteringColumnsRequest:
    residual = np.random.default_rng(number).standard_normal(ROWS)
    return replace(EnteringColumnsRequest("s", "f", number, 0.01, np.zeros(3, dtype=bool), residual), **changes)


def test_a_fit_can_be_run_again_from_its_beginning(tmp_path: Path) -> None:
    parties = Restarting(tmp_path, 0)
    requests = (design(), ask(0), ask(1))
    first = [fingerprint(parties.parties["left"].handle(r)) for r in requests]
    for _ in range(2):
        parties.restart()
        assert [fingerprint(parties.parties["left"].handle(r)) for r in requests] == first
    assert len(parties.parties["left"].control.ledger) == 3
    parties.close()


def test_a_table_that_changed_is_noticed(tmp_path: Path) -> None:
    parties = Restarting(tmp_path, 0)
    parties.parties["left"].handle(design())
    parties.parties["left"].handle(ask(0))
    parties._values["left"] = parties._values["left"] + 0.01
    parties.restart()
    with pytest.raises(ProtocolError, match="its table has changed"):
        parties.parties["left"].handle(ask(1))
    parties.close()


def test_a_state_that_cannot_be_read_is_prepared_again(tmp_path: Path) -> None:
    """It is written without waiting for the disk, so a power cut may damage it; nothing is charged for that."""
    parties = Restarting(tmp_path, 0)
    reply = fingerprint([parties.parties["left"].handle(request) for request in (design(), ask(0))][1])
    (path,) = (tmp_path / "left" / "fits").iterdir()
    path.write_bytes(b"")
    parties.restart()
    with pytest.raises(ProtocolError, match="was not asked to prepare"):
        parties.parties["left"].handle(ask(1))
    assert fingerprint([parties.parties["left"].handle(request) for request in (design(), ask(0))][1]) == reply
    assert len(parties.parties["left"].control.ledger) == 3
    parties.close()


def test_a_policy_that_changed_is_obeyed(tmp_path: Path) -> None:
    parties = Restarting(tmp_path, 0)
    parties.parties["left"].handle(design())
    parties.restart()
    parties.parties["left"].control.policy = Policy()
    with pytest.raises(PolicyRefused, match="raw-glm"):
        parties.parties["left"].handle(ask(0))
    parties.close()


def test_a_fit_nobody_prepared_is_unknown_after_a_restart_too(tmp_path: Path) -> None:
    parties = Restarting(tmp_path, 0)
    with pytest.raises(ProtocolError, match="was not asked to prepare"):
        parties.parties["left"].handle(ask(0))
    for fit in ("one", "two", "three"):
        parties.parties["left"].handle(design(fit=fit))
    parties.restart()
    with pytest.raises(ProtocolError, match="was not asked to prepare"):
        parties.parties["left"].handle(ask(0, fit="one"))  # closed by the two after it
    parties.parties["left"].handle(ask(0, fit="two"))
    assert len(list((tmp_path / "left" / "fits").iterdir())) == 2
    parties.close()
