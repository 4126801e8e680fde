"""A party's process put together: its table, policy, vault and stewards, under every version of the federation file."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verticopula.data.tables import RawTable
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.party.party_federations import FederationVersions, PartyFederations
from verticopula.network.party.party_process import PartyProcess
from verticopula.network.party.retention import Retention
from verticopula.network.party.stored_consent import StoredConsent, decided_by_all
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.party.joined_study import begun_under, subjects_of
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.refreshed_member import ReadableTable, RefreshedMember
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.schema.federation import Federation
from verticopula.storage.request_store import RequestStore
from verticopula.storage.vault import Vault


@dataclass(frozen=True)
class PartyParts:
    """What a party brings along to its process.

    Attributes
    ----------
    source : where its table is
    rules : its policy
    requests : what its stewards are asked
    vault : its ledger, and what it has sent
    out : folder for its own synthetic blocks
    review : whether stewards are asked about every study, whatever the policy says
    """

    kit: Kit
    source: ReadableTable
    rules: PolicyFile
    requests: RequestStore
    vault: Vault
    out: Path
    review: bool = False


class AssembledParty:
    """A party that is ready to run.

    Parameters
    ----------
    parts : what it brings along
    table, version : its table as it was read at first, and what the source said of it before that

    Attributes
    ----------
    process : answers the coordinator once it is started
    member : who answers in studies under the federation file in force at first, with the table of then
    """

    def __init__(self, parts: PartyParts, table: RawTable, version: object) -> None:
        self._parts, self._first = parts, (table, version)
        self._consents: list[StoredConsent] = []
        self._authenticity = certificate_authenticity(parts.kit)
        self._executor = ThreadPoolExecutor(os.cpu_count())
        files = PartyFederations(parts.kit, parts.requests, parts.rules)
        began = partial(begun_under, parts.vault.studies, parts.kit.name)
        versions = FederationVersions(files, self._make_party, began)
        folder = parts.vault.folder / "messages"
        self.process = PartyProcess(parts.kit, versions, self._look_for_decisions, self._subjects_of, folder)

    def start_retention(self, stopped: threading.Event) -> None:
        """Remove what is older than the policy allows, now and once a day until told to stop."""
        retention = Retention(self._parts.kit.name, self._parts.vault, self._parts.rules, self._parts.requests)
        threading.Thread(target=retention.run, args=(stopped,), name="retention", daemon=True).start()

    def _make_party(self, federation: Federation) -> RefreshedMember:
        """The party under one version of the federation file, with the table as it is now."""
        parts = self._parts
        consent = StoredConsent(
            parts.kit.name,
            parts.requests,
            parts.rules,
            federation_fingerprint(federation),
            always=parts.review,
            records=parts.vault.studies,
        )
        table, version = self._read_table()
        party = RefreshedMember(parts.source, self._member_maker(federation, consent), table, version)
        if not self._consents:
            self.member = party.current
        self._consents.append(consent)
        return party

    def _read_table(self) -> tuple[RawTable, object]:
        if not self._consents:
            return self._first
        version = self._parts.source.version()  # before it is read: a change in between is noticed later
        return self._parts.source.read(), version

    def _member_maker(self, federation: Federation, consent: StoredConsent) -> partial[Member]:
        parts = self._parts
        return partial(
            Member,
            federation,
            parts.kit.name,
            key=parts.kit.id_key(),
            vault=parts.vault,
            policy=parts.rules,
            out=parts.out,
            authenticity=self._authenticity,
            executor=self._executor,
            steward=consent,
        )

    def _subjects_of(self, study: str) -> int | None:
        """How many people a study has, or the table where that is more; None for a study that has not begun here."""
        joined = subjects_of(self._parts.vault.studies, self._parts.kit.name, study)
        return None if joined is None else max(joined, self.member.subjects)

    def _look_for_decisions(self, waiting: Collection[str]) -> set[str]:
        self._parts.vault.note_withdrawals()
        return decided_by_all(self._consents, waiting)
