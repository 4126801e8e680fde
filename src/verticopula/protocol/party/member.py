"""One organisation's side of whole studies: it opens them, finds its place, and writes its own synthetic block.

Everything in between is answered by the study's `LocalParty`. What was agreed is in the vault before it is answered, so
a member made anew on the same vault goes on where the last one stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.column_encoding import EncodedColumn, decode_column
from verticopula.data.column_ranges import can_hold
from verticopula.data.synthetic_marks import write_marked
from verticopula.data.tables import OwnTable
from verticopula.errors import BudgetExceeded, PolicyRefused, ProtocolError, SettingsError, VersionMismatch
from verticopula.matching.keyed_hashes import (
    CHECK_BYTES,
    HASH_BYTES,
    cohort_digest,
    count_repeats,
    hash_ids,
    hash_order,
    key_check,
    study_key,
)
from verticopula.matching.private_intersection import POINT_BYTES, mask_points, new_mask, points_of
from verticopula.mpc.sealed_messages import Authenticity, shared_authenticity
from verticopula.privacy.mark_statement import mark_synthetic
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise
from verticopula.privacy.policy import CappedEpsilons, Caps, Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.release import spent_on, spent_on_people
from verticopula.privacy.statement import NOTICE_FILE, state_privacy
from verticopula.protocol.messages import (
    MESSAGE_VERSION,
    BeginReply,
    BeginRequest,
    BlockReply,
    BlockRequest,
    CloseReply,
    CloseRequest,
    ConsentRequest,
    MaskReply,
    MaskRequest,
    PlaceReply,
    PlaceRequest,
    Reply,
    Request,
    SignedAsking,
)
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.joined_study import JoinedStudy
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.point_signatures import PointSignatures
from verticopula.protocol.party.ready_studies import ReadyStudies
from verticopula.protocol.party.study_admission import StudyAdmission
from verticopula.protocol.party.study_consents import StudyConsents
from verticopula.protocol.party.study_refusals import StudyRefusals
from verticopula.protocol.study_lifecycle import Alignment, LedgerHead
from verticopula.protocol.study_proposal import (
    StudyContext,
    asking_statement,
    check_requester_and_purpose,
    check_study_name,
    federation_fingerprint,
)
from verticopula.schema.columns import Column
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.schema.federation import Federation, seeded_study_name
from verticopula.schema.methods import METHODS, RAW_REGRESSION
from verticopula.schema.study_settings import check_roles
from verticopula.schema.units import Unit
from verticopula.storage.blobs import Blobs
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import RecordStore

logger = logging.getLogger(__name__)

_MOST_SUBJECTS = 10_000_000
_MOST_CELLS = 2**26  # of a table among a cohort that is much larger: half a gigabyte, before anybody has consented
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")


class PartyStore(Protocol):
    """What a member keeps between runs; on disk it is a `storage.vault.PartyStore`."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def studies(self) -> RecordStore: ...

    @property
    def replies(self) -> Blobs: ...

    @property
    def fits(self) -> Blobs: ...

    def account(self, ids: Iterable[str], columns: Mapping[str, EncodedColumn]) -> TableAccount: ...

    def overlapping(self, account: TableAccount) -> tuple[str, ...]: ...

    def head(self) -> LedgerHead: ...

    def check_witness(self, count: int, digest: str) -> None: ...

    def count_withdrawals(self) -> int: ...

    def without_withdrawn(
        self, table: pl.DataFrame, column: str, until: int | None = None
    ) -> tuple[pl.DataFrame, int]: ...


class Member:
    """A party that takes part in studies with others it does not share a process with.

    Parameters
    ----------
    federation : the party's own copy; a coordinator with another one is refused
    table : its raw table; SchemaError lists everything that does not fit. Who has withdrawn consent, as the vault
        knows, is left out before anything else
    key : the id key, which all parties of a study hold and no coordinator; None for studies aligned by `psi` only
    vault : ledger, replies and study records
    policy : what it allows; a `PolicyFile` is read again for every request, and the vault remembers its rules
    out : folder for its own synthetic blocks; None if it wants none
    authenticity : how it signs, and how it knows what others signed; by default with the id key
    executor, on_column, ask_steward : as `LocalParty` has them; the steward is asked before a study begins, too,
        and not again after a no (`StudyRefusals`)
    check_standing : called with a study's name before anything is answered in it; raises PolicyRefused where the
        steward has taken back their yes
    on_close : called with a study's name once nothing more is asked in it
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
        table: pl.DataFrame,
        *,
        key: bytes | None,
        vault: PartyStore,
        policy: Policy | PolicyFile | None = None,
        out: Path | None = None,
        authenticity: Authenticity | None = None,
        executor: Executor | None = None,
        on_column: Callable[[int], None] = lambda comparisons: None,
        ask_steward: Callable[[ConsentQuestion], None] = lambda question: None,
        check_standing: Callable[[str], None] = lambda study: None,
        on_close: Callable[[str], None] = lambda study: None,
        clock: Callable[[], float] = time.time,
        withdrawals: int | None = None,
    ) -> None:
        if party not in {p.name for p in federation.parties}:
            raise SettingsError(f"no party {party!r} in the federation")
        if key is not None:
            study_key(key, "")  # a key that is too short is found now
        self.name = party
        self.federation = federation
        self.policy = Policy() if policy is None else policy
        self.vault = vault
        known, self.withdrawals = vault.without_withdrawn(table, federation.id.name, withdrawals)
        self._table = OwnTable.check(federation.party(party), known, federation.id)
        self.subjects, self.left_out = known.height, table.height - known.height
        self.notes = self._table.notes()  # about single cells: for this party's own log, and for no message
        self._by_id = self._table.ids.arg_sort().to_numpy().astype(np.int64)
        self._key = key
        self._out = out
        self._authenticity = authenticity
        if authenticity is None and key is not None:  # the coordinator, who relays public keys, does not have it
            self._authenticity = shared_authenticity(key)
        self._executor = executor
        self._on_column = on_column
        self._fingerprint = federation_fingerprint(federation)
        refusals = StudyRefusals(
            party,
            vault.studies,
            lambda: self.policy.consent_days,
            clock,
            lambda: tuple(self._account.table.split("+")),
            self._fingerprint,
        )
        self._admission = StudyAdmission(refusals, vault.ledger, self.policy, ask_steward)
        self._clock = clock
        self._check_standing, self._on_close = check_standing, on_close
        self._account = vault.account(self._table.ids.to_list(), self._table.columns)
        if isinstance(self.policy, PolicyFile):
            self.policy.remember(vault.studies, self._account.table, self._account.overlapping)
        self._lock = threading.RLock()
        self._parties: ReadyStudies[LocalParty] = ReadyStudies(
            lambda one: sum(column.values.size for column in one.table.columns.values()), _MOST_CELLS
        )
        self._points: dict[str, NDArray[np.uint8]] = {}  # the last study's, by its mask: they take a while

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
        overlapping = (*self._account.overlapping, *self.vault.overlapping(self._account))
        about = self.name, self._account.table, overlapping
        known = list(self.vault.ledger)
        people = spent_on_people(known, *about, self._account.same_people)
        return self.policy.current().count(spent_on(known, *about), people)

    # ---- beginning -------------------------------------------------------------------------

    def _begin(self, request: BeginRequest) -> BeginReply:
        """Keyed hashes of the subject ids, or points masked by this party.

        Privacy
        -------
        To the coordinator, which has neither key nor mask: how many subjects, and which of them other parties have
        too. Public in this setting; no epsilon covers it. In the order of the hashes, so not even the table's order
        is told.
        """
        self._check_terms(request)
        table = self._digest(request.alignment, seeded=request.seed is not None)
        record = JoinedStudy(
            request.method,
            request.alignment,
            request.seed,
            table,
            federation=self._fingerprint,
            requester=request.requester,
            purpose=request.purpose,
            withdrawals=self.withdrawals,
            **_said_by(request),
        )
        if self._agreed_before(request.study, record) is None:
            # Without the lock: a steward may take their time, and keeps nobody waiting.
            self._admission.allow(request, table)
            self._check_terms(request)  # the policy may have changed meanwhile
        with self._lock:
            known = self._agreed_before(request.study, record)
            if known is None:
                mask = new_mask().hex() if request.alignment == "psi" else ""
                record = replace(record, mask=mask, begun=self._clock())
                self._use_token(request)
                self._write(request.study, record)
            else:
                record = known
            hashes, order = self._hashes(request.study, record)
            keeps = self.policy.synthetic == "keep"
            if record.keeps != keeps:
                record = replace(record, keeps=keeps)
                self._write(request.study, record)
        check = np.zeros(CHECK_BYTES, dtype=np.uint8)
        if record.alignment == "hash":
            check = key_check(self._hash_key(), request.study)
        signature = b""
        if record.alignment == "psi":
            signature = self._signatures().sign(request.study, (self.name,), hashes[order])
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

    def _check_terms(self, request: BeginRequest) -> None:
        check_study_name(self.name, request.study)
        check_requester_and_purpose(request.requester, request.purpose, *_said_by(request).values())
        if request.asking is not None:
            self._check_asking(request, request.asking)
        if request.federation != self._fingerprint:
            raise PolicyRefused(
                f"party {self.name!r}: the coordinator's federation file is not the same as this party's own; parties, "
                f"columns, ranges, response and id rules must be equal in both. This party's is version "
                f"{self.federation.version} ({self._fingerprint[:12]}), that of the study is {request.federation[:12]}"
            )
        if request.method != RAW_REGRESSION and request.method not in METHODS:
            # A steward, and the log, would be shown what the coordinator likes.
            raise PolicyRefused(f"party {self.name!r} does not know the method that the study is to be opened for")
        self.policy.check(self.name, request.method, (), ())
        self.policy.check_columns(self.name, (column.name for column in self._table.party.columns))
        if len(self._table.ids) < self.policy.min_subjects:
            raise PolicyRefused(f"party {self.name!r} has fewer subjects than its policy asks for")
        if request.method != RAW_REGRESSION:
            try:
                check_roles(self.federation, METHODS[request.method])
            except SettingsError as error:
                raise PolicyRefused(f"party {self.name!r}: {error}") from None
        if request.alignment not in get_args(Alignment):
            raise PolicyRefused(f"party {self.name!r} does not know this way of alignment")
        self._check_alignment(request.alignment)
        if request.alignment == "hash":
            self._hash_key()
        if request.seed is not None and not self.policy.allow_seeded:
            raise PolicyRefused(
                f"party {self.name!r} does not take part in seeded studies: a seed that the coordinator knows undoes "
                "the noise (allow_seeded = true in its policy would allow it, for simulations)"
            )
        if request.seed is not None and self.policy.caps != Caps():
            raise PolicyRefused(
                f"party {self.name!r} does not take part in seeded studies: epsilon is infinite where the coordinator "
                "knows the noise, and its policy has caps"
            )
        if request.witness_count > 0:
            self.vault.check_witness(request.witness_count, request.witness_head)

    def _check_asking(self, request: BeginRequest, asking: SignedAsking) -> None:
        """ProtocolError unless a study lead of the federation has signed who asks, and for what method."""
        said = asking_statement(request.federation, request.method, request.requester, request.purpose, asking)
        known = asking.lead in self.federation.network.leads and self._authenticity is not None
        if not known or not self._verifies(asking.lead, said, asking.signature):
            raise ProtocolError(
                f"party {self.name!r}: who asks for this study is not signed by a lead of the federation"
            )
        self._check_token(request)

    def _verifies(self, signer: str, statement: bytes, signature: bytes) -> bool:
        return self._authenticity is not None and self._authenticity.verify(signer, statement, signature)

    def _check_token(self, request: BeginRequest) -> None:
        """A lead's signature is for one study; ProtocolError where the coordinator uses it for another."""
        known = None if request.asking is None else self.vault.studies.get(f"asking:{request.asking.token}")
        if known is not None and known["study"] != request.study:
            raise ProtocolError(f"party {self.name!r}: what the lead has signed belongs to another study")

    def _use_token(self, request: BeginRequest) -> None:
        self._check_token(request)
        if request.asking is not None:
            self.vault.studies.put(f"asking:{request.asking.token}", {"study": request.study})

    def _check_alignment(self, alignment: str) -> None:
        """PolicyRefused unless the policy allows this way to find who is who."""
        allowed = self.policy.alignments
        if allowed is not None and alignment not in allowed:
            raise PolicyRefused(f"party {self.name!r} does not take part in studies aligned by {alignment!r}")
        if alignment == "psi" and self._authenticity is None:
            raise PolicyRefused(f"party {self.name!r} has no key to sign its points with, which alignment 'psi' needs")

    def _hash_key(self) -> bytes:
        if self._key is None:
            raise PolicyRefused(f"party {self.name!r} has no id key, which alignment 'hash' needs")
        return self._key

    def _hashes(self, study: str, record: JoinedStudy) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Every row's hash, or its point, in the table's order; and the order in which they are sent."""
        if record.alignment == "hash":
            hashes = hash_ids(self._table.ids, study_key(self._hash_key(), study))
        else:
            if record.mask not in self._points:
                points = points_of(self._table.ids, study)
                self._points = {record.mask: mask_points(points, bytes.fromhex(record.mask))}
            hashes = self._points[record.mask]
        # A seeded study is no secret anyway, and in the table's order it equals one in a single process.
        return hashes, hash_order(hashes) if record.seed is None else np.arange(hashes.shape[0])

    def _digest(self, alignment: str, *, seeded: bool) -> str:
        """Of all that a study begins with: the table, and for `hash` the key. It stays in the vault."""
        rows = np.arange(self._by_id.size) if seeded else self._by_id  # only a seeded study sends its rows in order
        digest = hashlib.sha256(self._hash_key() if alignment == "hash" else b"")
        for text in self._table.ids.gather(rows).to_list():
            digest.update(f"{len(text)}:{text}".encode())
        for column in self._table.columns.values():
            seen = column.observed[rows]
            digest.update(seen.tobytes() + np.where(seen, column.values[rows], 0.0).tobytes())
        return digest.hexdigest()

    def _check_unchanged(self, record: JoinedStudy) -> None:
        if self._digest(record.alignment, seeded=record.seed is not None) != record.table:
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
            self._check_alignment(record.alignment)
            self._check_points(request, record)
            signed, cohort = self._signatures().check(request, record.listed)
            if record.masked.get(request.origin, signed.digest) != signed.digest:
                raise ProtocolError(f"party {self.name!r} has masked another list of {request.origin!r}")
            if record.masked.get(request.origin) != signed.digest:
                masked_lists = {**record.masked, request.origin: signed.digest}
                self._write(request.study, replace(record, masked=masked_lists, listed=cohort))
        try:
            masked = mask_points(request.points, bytes.fromhex(record.mask))
        except ValueError:
            raise ProtocolError(f"party {self.name!r}: a point among those of {request.origin!r} is none") from None
        signature = self._signatures().sign(request.study, (*signed.masked_by, self.name), masked)
        logger.info("party %s: study %s: masked %d points of %s", self.name, request.study, len(masked), request.origin)
        return MaskReply(self.name, request.origin, masked, signature=signature)

    def _signatures(self) -> PointSignatures:
        assert self._authenticity is not None  # `_check_alignment`
        return PointSignatures(self.name, self.federation, self._fingerprint, self._authenticity, len(self._table.ids))

    def _check_points(self, request: MaskRequest, record: JoinedStudy) -> None:
        late = record.is_placed and request.origin not in record.masked
        if record.alignment != "psi" or late:
            raise ProtocolError(f"party {self.name!r}: nothing is to be masked in this study, or no longer")
        if request.origin == self.name or request.origin not in {p.name for p in self.federation.parties}:
            raise ProtocolError(f"party {self.name!r} masks the points of the other parties only")
        points, n_rows = request.points, len(self._table.ids)
        if points.dtype != np.uint8 or points.ndim != 2 or points.shape[1] != POINT_BYTES:
            raise ProtocolError(f"party {self.name!r}: points have {POINT_BYTES} bytes each")
        cohort = self.federation.response.party
        least, most = n_rows if request.origin == cohort else 1, n_rows if self.name == cohort else _MOST_SUBJECTS
        if not least <= points.shape[0] <= most:
            raise ProtocolError(f"party {self.name!r}: {request.origin!r} cannot have so many subjects of this cohort")

    # ---- finding the place ---------------------------------------------------------------

    def _place(self, request: PlaceRequest) -> PlaceReply:
        with self._lock:
            record = self._known(request.study)
            self._check_unchanged(record)
            self._check_positions(request)
            if record.listed not in (0, request.n_subjects):
                raise ProtocolError(f"party {self.name!r}: the cohort has another size than was signed")
            hashes, order = self._hashes(request.study, record)
            self._check_cohort(request, record, hashes[order])
            by_row = np.empty_like(request.positions)
            by_row[order] = request.positions
            placed = replace(
                record,
                n_subjects=int(request.n_subjects),
                positions=by_row[self._by_id],
                cohort=cohort_digest(request.hashes),
            )
            if record.is_placed and not record.is_same_place(placed):
                raise ProtocolError(f"party {self.name!r}: the cohort of this study is settled, and it is another one")
            if not record.is_placed:
                self._write(request.study, placed)
        return PlaceReply(self.name, placed.n_subjects, placed.cohort)

    def _check_cohort(self, request: PlaceRequest, record: JoinedStudy, own: NDArray[np.uint8]) -> None:
        """ProtocolError unless the cohort's list has this party's rows where it is told they are, and nobody twice.

        With `hash`, whoever holds the key can tell from the list whether somebody is in the cohort. With `psi` a party
        cannot know its own rows in the list: a person's blocks may then stand in several rows, and secure sums are
        priced for that.
        """
        listed = request.hashes
        if listed.dtype != np.uint8 or listed.shape != (request.n_subjects, HASH_BYTES):
            raise ProtocolError(f"party {self.name!r}: the cohort's list does not have a hash for each subject")
        if count_repeats(listed):
            raise ProtocolError(f"party {self.name!r}: somebody is twice in the cohort's list")
        if record.alignment == "hash" and not np.array_equal(listed[request.positions], own):
            raise ProtocolError(f"party {self.name!r}: the cohort's list has other subjects in the places of its rows")

    def _check_positions(self, request: PlaceRequest) -> None:
        n, positions, n_rows = request.n_subjects, request.positions, len(self._table.ids)
        whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
        if not whole or not n_rows <= n <= max(_MOST_SUBJECTS, n_rows):
            raise ProtocolError(f"party {self.name!r}: the cohort cannot have this size")
        if n > 10 * n_rows and n * len(self._table.party.columns) > _MOST_CELLS:
            raise ProtocolError(f"party {self.name!r}: its table in a cohort of this size would not fit into memory")
        if self.federation.response.party == self.name and n != n_rows:
            raise ProtocolError(f"party {self.name!r}: its own {n_rows} subjects are the cohort")
        if not isinstance(positions, np.ndarray) or positions.dtype != np.int64 or positions.shape != (n_rows,):
            raise ProtocolError(f"party {self.name!r}: expected a place for each of its {n_rows} rows")
        if positions.min() < 0 or positions.max() >= n:
            raise ProtocolError(f"party {self.name!r}: a place lies outside the cohort")
        if np.bincount(positions, minlength=n).max() > 1:
            raise ProtocolError(f"party {self.name!r}: two rows have the same place in the cohort")

    # ---- the study itself ----------------------------------------------------------------

    def _party(self, request: Request) -> LocalParty:
        """Who answers this request: the study's party, made ready if need be."""
        study = request.proposal.study if isinstance(request, ConsentRequest) else getattr(request, "study", "")
        with self._lock:
            record = self._known(study)
            if not record.is_placed:
                raise ProtocolError(f"party {self.name!r}: this study has no cohort yet")
            self._check_standing(study)
            self._check_people(record)
            if record.seed is not None and not self.policy.allow_seeded:
                raise PolicyRefused(f"party {self.name!r} does not take part in seeded studies any more")
            self._check_alignment(record.alignment)
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
        positions = np.empty_like(record.positions)
        positions[self._by_id] = record.positions
        seeded = record.seed is not None
        noise: Noise = SecureNoise() if record.seed is None else SeededNoise(record.seed).derive(self.name)
        return LocalParty(
            self._table.in_cohort(record.n_subjects, positions),
            noise=noise,
            ledger=self.vault.ledger,
            policy=self.policy,
            bounds_from_data=self.federation.bounds_from_data,
            executor=self._executor,
            on_column=self._on_column,
            noise_label=seeded_study_name(self.federation) if seeded else "",
            replies=self.vault.replies,
            fits=self.vault.fits,
            records=self.vault.studies,
            authenticity=self._authenticity,
            federation=self.federation,
            account=self._account,
            opened_since=partial(self.vault.overlapping, self._account),
            consents=self._consents(record),
            ask_steward=partial(self._ask_about, record),
            asked_by={**_words_of(record), "requester": record.requester, "purpose": record.purpose},
        )

    def _ask_about(self, record: JoinedStudy, question: ConsentQuestion) -> None:
        """Ask the steward about a study's releases, with what was said when it began."""
        self._admission.ask(replace(question, table=record.table, **_words_of(record)))

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
        self._on_close(request.study)
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
        """The party's own synthetic columns as files; nobody else has them in this form."""
        record = self._known(request.study)
        if not record.is_placed:
            raise ProtocolError(f"party {self.name!r}: this study has no cohort yet")
        self._check_standing(request.study)
        self._consents(record).agreed(request.study)
        if self._out is None:
            return BlockReply(self.name, 0)
        columns = self._table.party.written_columns
        rows = len(request.values[0]) if request.values else 0
        fits = request.columns == tuple(c.name for c in columns) and len(request.values) == len(columns) and rows > 0
        if not fits or not _block_fits(request.values, columns, rows):
            raise ProtocolError(f"party {self.name!r}: the synthetic block does not fit its columns")
        frame = pl.DataFrame([decode_column(v, c) for v, c in zip(request.values, columns, strict=True)])
        folder = self._out / _file_name(request.study)
        folder.mkdir(parents=True, exist_ok=True)
        cost = state_privacy(e for e in self.vault.ledger if e.study == request.study and e.party == self.name)
        unit = METHODS[record.method].default_unit if record.method in METHODS else Unit.PERSON
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as partly:  # whole files or none
            for path in write_marked(
                frame, Path(partly), self.name, mark_synthetic(request.study, record.method, cost, unit)
            ):
                os.replace(path, folder / path.name)
        said = cost.warnings
        (folder / NOTICE_FILE).unlink(missing_ok=True)
        if said:
            (folder / NOTICE_FILE).write_text("\n".join(said) + "\n", encoding="utf-8")
        return BlockReply(self.name, rows)


def _said_by(request: BeginRequest) -> dict[str, Any]:
    """Who has signed that they ask, how to reach them, and what for."""
    asking = request.asking
    return {} if asking is None else {"lead": asking.lead, "contact": asking.contact, "use": asking.use}


def _words_of(record: JoinedStudy) -> dict[str, Any]:
    """The same, as it was kept."""
    return {"lead": record.lead, "contact": record.contact, "use": record.use}


def _method_of(request: Request) -> str:
    """The method that a request belongs to; those of a regression on raw columns do not say it."""
    asked = request.proposal if isinstance(request, ConsentRequest) else request
    return str(getattr(asked, "method", RAW_REGRESSION))


def _block_fits(values: Sequence[NDArray[np.float64]], columns: Sequence[Column], rows: int) -> bool:
    """Whether these can be synthetic values, or category codes, of a party's columns; NaN is an empty one.

    A required column is empty only where the whole row is: there, the party does not know the synthetic person.
    """
    if not all(own.dtype == np.float64 and own.shape == (rows,) for own in values):
        return False
    empty = np.isnan(np.array(values))
    known = ~empty.all(axis=0)
    return all(
        can_hold(column, own[~gaps]) and not (column.required and gaps[known].any())
        for own, gaps, column in zip(values, empty, columns, strict=True)
    )


def _file_name(study: str) -> str:
    """A folder's name for a study, whatever the coordinator called it; two studies never share one."""
    if _FILE_NAME.fullmatch(study):
        return study
    digest = hashlib.sha256(study.encode()).hexdigest()[:16]
    return f"{re.sub('[^A-Za-z0-9_-]+', '_', study).strip('_-')[:80] or 'study'}~{digest}"  # ~ is in no plain name
