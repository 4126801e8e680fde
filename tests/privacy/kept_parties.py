"""Three parties on vaults, which can be started again, and what they replied."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tests.members import KEY, SEEDED
from tests.network.harness import small_federation, small_tables
from verticopula import NotPrivateWarning, Policy, Synthesizer
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.refreshed_member import RefreshedMember
from verticopula.storage.vault import Vault
from verticopula.storage.withdrawals import Withdrawals
from verticopula.transport.in_process_transport import InProcessTransport

FEDERATION, TABLES = small_federation(), small_tables(80)


class Parties:
    """Members on vaults, each of which can be made anew; what they reply is kept."""

    def __init__(self, base: Path, tables: dict[str, pl.DataFrame], policy: Policy = SEEDED, **own: Any) -> None:
        self.tables, self.folders = tables, {name: base / name for name in tables}
        self._policy, self._own = policy, own
        self.vaults: dict[str, Vault] = {}
        self.replies: list[tuple[str, Request, Reply]] = []
        self.start()

    def start(self) -> None:
        self.close()
        self.vaults = {name: Vault.open(folder) for name, folder in self.folders.items()}
        self.members = {
            name: RefreshedMember(_Frame(self, name), self._make(name), self.tables[name]) for name in self.tables
        }

    def _make(self, name: str) -> Any:
        common = {
            "key": KEY,
            "authenticity": shared_authenticity(KEY),
            "policy": self._policy,
            **self._own.get(name, {}),
        }
        return partial(Member, FEDERATION, name, vault=self.vaults[name], **common)

    def withdraw(self, party: str, *ids: str) -> None:
        Withdrawals(self.folders[party]).record("withdrawn", ids, "", "anna")

    def deliver(self, requests: Any) -> dict[str, Reply]:
        found = InProcessTransport(self.members).deliver(requests)
        self.replies += [(name, requests[name], reply) for name, reply in found.items()]
        return found

    def fit(self, method: str, study: str = "study", seed: int | None = 5) -> Synthesizer:
        unit = {"unit": "person", "delta": 1e-6} if method == "strict" else {"unit": "variable"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            return Synthesizer(FEDERATION, method, epsilon=8.0, random_state=seed, **unit).fit_transport(
                self, study=study
            )

    def close(self) -> None:
        for vault in self.vaults.values():
            vault.close()


class _Frame:
    def __init__(self, parties: Parties, name: str) -> None:
        self._parties, self._name = parties, name

    def version(self) -> object:
        return id(self._parties.tables[self._name])

    def read(self) -> pl.DataFrame:
        return self._parties.tables[self._name]
