"""One organisation's side of whole studies: it opens them, finds its place, and writes its own synthetic block.

Everything in between is answered by the study's `LocalParty`. What was agreed is in the vault before it is answered, so
a member made anew on the same vault goes on where the last one stopped.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from verticopula.data.tables import OwnTable, RawTable
from verticopula.errors import (
    BudgetExceeded,
    EngineError,
    PolicyRefused,
    ProtocolError,
    SchemaError,
    SettingsError,
    VersionMismatch,
)
from verticopula.matching.private_intersection import new_mask
from verticopula.mpc.sealed_messages import Authenticity, shared_authenticity
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise
from verticopula.privacy.policy import CappedEpsilons, Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.statement import state_privacy
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.charging import Charging
from verticopula.protocol.party.column_work import ColumnWork
from verticopula.protocol.party.consent_question import AskedSteward, ConsentQuestion, NobodyAsked
from verticopula.protocol.party.joined_study import JoinedStudy
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.membership import Membership
from verticopula.protocol.party.party_store import PartyStore, StudyStores
from verticopula.protocol.party.party_terms import PartyTerms, said_by
from verticopula.protocol.party.ready_studies import ReadyStudies
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.party.row_alignment import MOST_CELLS, RowAlignment
from verticopula.protocol.party.study_admission import StudyAdmission
from verticopula.protocol.party.study_consents import StudyConsents
from verticopula.protocol.party.study_refusals import StudyRefusals
from verticopula.protocol.party.synthetic_block import write_block
from verticopula.protocol.study_messages import (
    BeginReply,
    BeginRequest,
    BlockReply,
    BlockRequest,
    CloseReply,
    CloseRequest,
    MaskReply,
    MaskRequest,
    PlaceReply,
    PlaceRequest,
)
from verticopula.protocol.study_proposal import (
    StudyContext,
    federation_fingerprint,
)
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.schema.federation import Federation, seeded_study_name
from verticopula.schema.methods import RAW_REGRESSION

logger = logging.getLogger(__name__)


class Member:
    """A party in all of its studies, with one table: it makes a `LocalParty` for each.

    Parameters
    ----------
    federation : the party's own copy; a coordinator with another one is refused
    table : its raw table, here or with the workers of an engine; SchemaError lists everything that does not fit. Who
        has withdrawn consent, as the vault knows, is left out before anything else
    key : the id key, which all parties of a study hold and no coordinator; None for studies aligned by `psi` only
    vault : ledger, replies and study records
    policy : what it allows; a `PolicyFile` is read again for every request, and the vault remembers its rules
    out : folder for its own synthetic blocks; None if it wants none
    authenticity : how it signs, and how it knows what others signed; by default with the id key
    executor : where columns are worked on in parallel; None for one after the other
    steward : decides about studies, before they begin and about all of their releases, and is not asked again after a
        no (`StudyRefusals`); None where nobody is asked
    clock : seconds since 1970
    withdrawals : as of how many lines of the vault's history people are left out, for studies that began then; None
        for all of them

    Attributes
    ----------
    subjects : how many people its table has
    left_out : how many rows belong to people who withdrew
    withdrawals : as of how many lines of that history
    """

    def __init__(
        self,
        federation: Federation,
        party: str,
        table: RawTable,
        *,
        key: bytes | None,
        vault: PartyStore,
        policy: Policy | PolicyFile | None = None,
        out: Path | None = None,
        authenticity: Authenticity | None = None,
        executor: Executor | None = None,
        steward: AskedSteward | None = None,
        clock: Callable[[], float] = time.time,
        withdrawals: int | None = None,
    ) -> None:
        if party not in {p.name for p in federation.parties}:
            raise SettingsError(f"no party {party!r} in the federation")
        self.name = party
        self.federation = federation
        self.policy = Policy() if policy is None else policy
        self.vault = vault
        known: RawTable
        known, self.withdrawals = vault.without_withdrawn(table, federation.id.name, withdrawals)
        self._table = OwnTable.check(federation.party(party), known, federation.id)
        self.subjects, self.left_out = known.height, table.height - known.height
        self.notes = self._table.notes()  # about single cells: for this party's own log, and for no message
        self._out, self._steward = out, NobodyAsked() if steward is None else steward
        self._authenticity = authenticity
        if authenticity is None and key is not None:  # the coordinator, who relays public keys, does not have it
            self._authenticity = shared_authenticity(key)
        self._executor = executor
        self._fingerprint = federation_fingerprint(federation)
        self._rows = RowAlignment(party, federation, self._fingerprint, self._table, key, self._authenticity)
        self._terms = PartyTerms(
            party, federation, self._fingerprint, self._table, self._rows, vault, self._authenticity
        )
        self._account = vault.account_of(self._table)
        refusals = StudyRefusals(
            party,
            vault.studies,
            lambda: self.policy.consent_days,
            clock,
            tuple(self._account.table.split("+")),
            self._fingerprint,
        )
        self._admission = StudyAdmission(refusals, vault.ledger, self.policy, self._steward.request)
        self._clock = clock
        if isinstance(self.policy, PolicyFile):
            self.policy.remember(vault.studies, self._account.table, self._account.overlapping)
        self._lock = threading.RLock()
        self._parties: ReadyStudies[LocalParty] = ReadyStudies(
            lambda one: one.control.table.n_subjects * len(one.control.table.columns), MOST_CELLS
        )

    @property
    def snapshot(self) -> str:
        """Digest of the table, as the ledger has it; "" where the vault makes none."""
        return self._account.snapshot

    def has_joined(self, study: str) -> bool:
        """Whether the study was opened here before, by this process or an earlier one.

        Parameters
        ----------
        study : its name
        """
        return self._read(study) is not None

    def begun_with(self, study: str) -> int | None:
        """As of how many lines of the history of withdrawals a study began here; None if it did not.

        Parameters
        ----------
        study : its name
        """
        record = self._read(study)
        return None if record is None else record.withdrawals

    @property
    def has_new_withdrawals(self) -> bool:
        """Whether people have withdrawn, or were taken in again, since this member has had its table."""
        return self.vault.count_withdrawals() != self.withdrawals

    def handle(self, request: Request) -> Reply:
        """Answer a request, or refuse it with a reason.

        Privacy
        -------
        A refusal by a cap says at which unit, and no number: what was spent includes other studies about some of these
        people, and who is in those tables is not for this coordinator to know. That the cap is reached still tells it.
        """
        try:
            return self._handle(request)
        except (EngineError, SchemaError) as error:
            if self._table.source is None:
                raise
            logger.error("%s", error)  # in this party's own log: it names hosts and files
            raise ProtocolError(
                f"party {self.name!r} cannot compute at the moment; nothing was spent beyond its ledger, and once it "
                "can, the study can be resumed"
            ) from None
        except BudgetExceeded as error:
            logger.warning("refused: %s", error)  # in this party's own log
            raise BudgetExceeded(
                f"party {self.name!r}: epsilon per {error.unit or 'unit'} would go above its cap; nothing was drawn",
                error.unit,
            ) from None

    def _handle(self, request: Request) -> Reply:
        if request.version != MESSAGE_VERSION:
            raise VersionMismatch(
                f"party {self.name!r} speaks message version {MESSAGE_VERSION}, the coordinator {request.version}"
            )
        if isinstance(request, BeginRequest):
            return self._begin(request)
        if isinstance(request, MaskRequest):
            return self._mask(request)
        if isinstance(request, PlaceRequest):
            return self._place(request)
        if isinstance(request, BlockRequest):
            return self._write_block(request)
        if isinstance(request, CloseRequest):
            return self._close(request)
        if isinstance(request, ConsentRequest):  # a steward may take their time, and keeps nobody waiting
            return self._party(request).handle(request)
        with self._lock:  # a study that is closed meanwhile would lose sight of the noise that it has drawn
            return self._party(request).handle(request)

    def count_against_caps(self) -> CappedEpsilons:
        """What counts against the caps at this moment, about this table's people; it stays in house."""
        return self.policy.current().count(*self._charging().counted(self.name, self.vault.ledger))

    def _charging(self, **asked_by: Any) -> Charging:
        return Charging(self.vault.ledger, self._account, partial(self.vault.overlapping, self._account), asked_by)

    # ---- beginning -------------------------------------------------------------------------

    def _begin(self, request: BeginRequest) -> BeginReply:
        """Keyed hashes of the subject ids, or points masked by this party.

        Privacy
        -------
        To the coordinator, which has neither key nor mask: how many subjects, and which of them other parties have
        too. Public in this setting; no epsilon covers it. In the order of the hashes, so not even the table's order
        is told.
        """
        self._terms.check(request, self.policy)
        table = self._rows.digest(request.alignment, seeded=request.seed is not None)
        record = JoinedStudy(
            request.method,
            request.alignment,
            request.seed,
            table,
            federation=self._fingerprint,
            requester=request.requester,
            purpose=request.purpose,
            withdrawals=self.withdrawals,
            **said_by(request),
        )
        if self._agreed_before(request.study, record) is None:
            # Without the lock: a steward may take their time, and keeps nobody waiting.
            self._admission.allow(request, table)
            self._terms.check(request, self.policy)  # the policy may have changed meanwhile
        with self._lock:
            known = self._agreed_before(request.study, record)
            if known is None:
                mask = new_mask().hex() if request.alignment == "psi" else ""
                record = replace(record, mask=mask, begun=self._clock())
                self._terms.use_token(request)
                self._write(request.study, record)
            else:
                record = known
            hashes, order = self._rows.hashes(request.study, record)
            keeps = self.policy.synthetic == "keep"
            if record.keeps != keeps:
                record = replace(record, keeps=keeps)
                self._write(request.study, record)
        check = self._rows.prove_key(request.study, record)
        signature = self._rows.sign_points(request.study, record, hashes[order])
        count, head = self.vault.head()
        return BeginReply(self.name, check, hashes[order], keeps, count, head, signature=signature)

    def _agreed_before(self, study: str, record: JoinedStudy) -> JoinedStudy | None:
        """What was agreed when the study began before; None if it was not, ProtocolError if it was otherwise."""
        known = self._read(study)
        if known is not None:
            self._check_kept(known)
        if known is not None and not known.agrees(record):
            raise ProtocolError(
                f"party {self.name!r}: a study of this name was opened before, on other terms or with another "
                "table; choose another name"
            )
        return known

    def _check_unchanged(self, record: JoinedStudy) -> None:
        if self._rows.digest(record.alignment, seeded=record.seed is not None) != record.table:
            raise self._changed()

    def _check_people(self, record: JoinedStudy) -> None:
        """ProtocolError where people withdrew since a study began that began longer ago than a consent lives.

        A study keeps its people so that nobody has paid in vain. A coordinator that begins studies to use them much
        later would keep people in for ever. The reason is that of any other change: nobody is told that they withdrew.
        """
        is_old = self._clock() > record.begun + self.policy.consent_days * SECONDS_PER_DAY
        if is_old and self.vault.count_withdrawals() != record.withdrawals:
            raise self._changed()

    def _changed(self) -> ProtocolError:
        return ProtocolError(f"party {self.name!r}: its table, or its id key, has changed since this study was opened")

    def _mask(self, request: MaskRequest) -> MaskReply:
        """Another party's points, masked by this one.

        Privacy
        -------
        To the coordinator: points that mean nothing before every party has masked them. Who could put points of
        their own in a list could test as many ids as the list is long: a guess that this party has masked equals one
        of its own points, or none. So a list has to be signed by the party that masked it last, is no longer than the
        cohort that the response party signed, and there is one list a party, and none once the cohort is confirmed. A
        coordinator together with a party that signs what it likes can still test as many ids as the cohort is large.
        """
        with self._lock:
            record = self._known(request.study)
            self._terms.check_alignment(record.alignment, self.policy)
            noted = self._rows.note_list(request, record)
            if noted is not record:
                self._write(request.study, noted)
        reply = self._rows.mask(request, record)
        n_points = len(reply.points)
        logger.info("party %s: study %s: masked %d points of %s", self.name, request.study, n_points, request.origin)
        return reply

    # ---- finding the place ---------------------------------------------------------------

    def _place(self, request: PlaceRequest) -> PlaceReply:
        with self._lock:
            record = self._known(request.study)
            self._check_unchanged(record)
            placed = self._rows.place(request, record)
            if not record.is_placed:
                self._write(request.study, placed)
        return PlaceReply(self.name, placed.n_subjects, placed.cohort)

    # ---- the study itself ----------------------------------------------------------------

    def _party(self, request: Request) -> LocalParty:
        """Who answers this request: the study's party, made ready if need be."""
        study = request.proposal.study if isinstance(request, ConsentRequest) else getattr(request, "study", "")
        with self._lock:
            record = self._known(study)
            if not record.is_placed:
                raise ProtocolError(f"party {self.name!r}: this study has no cohort yet")
            self._steward.check_standing(study)
            self._check_people(record)
            if record.seed is not None and not self.policy.allow_seeded:
                raise PolicyRefused(f"party {self.name!r} does not take part in seeded studies any more")
            self._terms.check_alignment(record.alignment, self.policy)
            if record.keeps is False and self.policy.synthetic == "keep":
                raise PolicyRefused(
                    f"party {self.name!r} keeps its synthetic block by now, and said otherwise when this study was "
                    "opened; open another one"
                )
            if _method_of(request) != record.method:
                raise ProtocolError(f"party {self.name!r}: this study was opened for another method")
            if study not in self._parties:
                self._parties[study] = self._make_ready(record)
            return self._parties[study]

    def _make_ready(self, record: JoinedStudy) -> LocalParty:
        self._check_unchanged(record)
        charging = self._charging(**_asked_by(record), requester=record.requester, purpose=record.purpose)
        return LocalParty(
            ReleaseControl(
                self._rows.in_cohort(record),
                self._noise(record.seed),
                self.policy,
                charging,
                self.federation.bounds_from_data,
            ),
            stores=StudyStores.of(self.vault),
            membership=Membership(self.federation, self._authenticity, partial(self._rows.ids_of, record)),
            consents=self._consents(record),
            ask_steward=partial(self._ask_about, record),
            work=ColumnWork(self._executor),
        )

    def _noise(self, seed: int | None) -> Noise:
        if seed is None:
            return SecureNoise()
        return SeededNoise(seed, study=seeded_study_name(self.federation)).derive(self.name)

    def _ask_about(self, record: JoinedStudy, question: ConsentQuestion) -> None:
        """Ask the steward about a study's releases, with what was said when it began."""
        self._admission.ask(replace(question, table=record.table, **_asked_by(record)))

    def _consents(self, record: JoinedStudy) -> StudyConsents:
        if self._authenticity is None:
            raise ProtocolError(f"party {self.name!r} has no key to sign with, so it cannot consent to a study")
        return StudyConsents(
            self.name,
            self.federation,
            self.vault.studies,
            self._authenticity,
            StudyContext(record.requester, record.purpose, record.alignment, record.cohort, record.seed),
            lambda: self.policy.consent_days,
            self._clock,
        )

    def _known(self, study: str) -> JoinedStudy:
        record = self._read(study)
        if record is None:
            raise ProtocolError(f"party {self.name!r} was not asked to open this study")
        if record.federation != self._fingerprint:
            raise ProtocolError(f"party {self.name!r}: a study of this name belongs to another federation")
        self._check_kept(record)
        return record

    def _check_kept(self, record: JoinedStudy) -> None:
        """ProtocolError where what was stored of a study was removed: nothing of it is made a second time."""
        if record.removed:
            raise ProtocolError(
                f"party {self.name!r}: this study ended long ago, and what was stored of it was removed "
                "(retention_days in its policy); it cannot go on. Begin another one"
            )

    def _record_name(self, study: str) -> str:
        return JoinedStudy.record_name(self.name, study)

    def _read(self, study: str) -> JoinedStudy | None:
        raw = self.vault.studies.get(self._record_name(study))
        return None if raw is None else JoinedStudy.from_dict(raw)

    def _write(self, study: str, record: JoinedStudy) -> None:
        self.vault.studies.put(self._record_name(study), record.to_dict())
        self._parties.pop(study, None)

    def _close(self, request: CloseRequest) -> CloseReply:
        """The study is over: what is kept for its regressions goes; its releases and their entries stay."""
        self._steward.close(request.study)
        with self._lock:
            record = self._known(request.study)
            party = self._parties.pop(request.study, None)
            if party is None and record.is_placed:  # a process before this one may have kept something
                with contextlib.suppress(ProtocolError):  # of a table that has changed since, nothing is left to use
                    party = self._make_ready(record)
            if party is not None:
                party.close(request.study)
            if not record.closed:
                self._write(request.study, replace(record, closed=self._clock()))
        return CloseReply(self.name, *self.vault.head())

    # ---- the synthetic block -------------------------------------------------------------

    def _write_block(self, request: BlockRequest) -> BlockReply:
        record = self._known(request.study)
        if not record.is_placed:
            raise ProtocolError(f"party {self.name!r}: this study has no cohort yet")
        self._steward.check_standing(request.study)
        self._consents(record).agreed(request.study)
        if self._out is None:
            return BlockReply(self.name, 0)
        cost = state_privacy(e for e in self.vault.ledger if e.study == request.study and e.party == self.name)
        rows = write_block(request, self._table.party, self._out, record.method, cost)
        return BlockReply(self.name, rows)


def _asked_by(record: JoinedStudy) -> dict[str, Any]:
    """The same, as it was kept."""
    return {"lead": record.lead, "contact": record.contact, "use": record.use}


def _method_of(request: Request) -> str:
    """The method that a request belongs to; those of a regression on raw columns do not say it."""
    asked = request.proposal if isinstance(request, ConsentRequest) else request
    return str(getattr(asked, "method", RAW_REGRESSION))
