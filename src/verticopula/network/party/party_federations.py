"""A party's side of a change of the federation file: its stewards are asked, and each study has the file it began with.

What the coordinator shows counts for nothing by itself. It has to be signed by the federation's authority, to be newer
than what is in force and than what was shown before, and to leave the party's role alone. Then the stewards are asked,
with all that differs. Their yes is in the request store, the agreed file in the kit; a process that is killed in
between finds the yes, and takes the file when it is shown the next time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verticopula.errors import ConsentPending, EngineError, PolicyRefused, ProtocolError, SchemaError, SettingsError
from verticopula.network.connection.control_messages import CHANGE_NAME, ChangeReply, ChangeRequest
from verticopula.network.connection.sanitizing import sanitize
from verticopula.network.kit.certificate_issuing import fingerprint_of
from verticopula.network.kit.key_signing import KitFiles
from verticopula.network.kit.signed_federation import (
    SIGNED_FEDERATION_FILE,
    KitFederations,
    SignedFederation,
    change_problem,
    read_kept,
    read_signed_federation,
    roles_of,
)
from verticopula.network.kit.startup_kit import Kit, write_private
from verticopula.network.party.federation_difference import describe_change
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.party.refreshed_member import RefreshedMember
from verticopula.protocol.study_messages import BeginRequest
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import federation_file_digest, federation_fingerprint
from verticopula.storage.request_store import RequestStore, standing_of
from verticopula.storage.steward_requests import RequestContent, StewardRequest
from verticopula.transport.delivery import RequestHandler

logger = logging.getLogger(__name__)

_MOST_VERSIONS = 40  # that stewards are asked about within the days that a question lives: nobody buries them


@dataclass
class PartyFederations:
    """The federation files of a party, or of who computes: in force, agreed to, and earlier ones.

    Attributes
    ----------
    store : where stewards are asked
    policy : who they are, and how many have to agree
    on_change : called with the file that studies begin with from now on
    clock : seconds since 1970
    agreed : a file that the stewards have agreed to, and that is not in force yet
    """

    kit: Kit
    store: RequestStore
    policy: Policy | PolicyFile
    on_change: Callable[[Federation], None] = lambda federation: None
    clock: Callable[[], float] = time.time
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    def __post_init__(self) -> None:
        self._certificates = KitFiles(self.kit)
        self.files = KitFederations(self.kit)
        self.agreed = self._read_agreed()

    def _read_agreed(self) -> SignedFederation | None:
        """The agreed file in the kit; one that nobody has agreed to, whoever put it there, is left alone."""
        try:
            kept = read_kept(self.kit.folder, self._certificates.trust().federation_roots)
        except SettingsError as error:
            logger.warning("%s", error)
            return None
        if kept is None or change_problem(self.files.in_force, kept.federation) or self._approved(kept) is None:
            return None
        return kept

    def consider(self, request: ChangeRequest, make_ready: Callable[[Federation], object]) -> ChangeReply:
        """The party's yes to a federation file; PolicyRefused for a no, ConsentPending where nobody has decided yet.

        Parameters
        ----------
        request : as the coordinator shows it
        make_ready : called before the file is taken; SchemaError where the party cannot take part with it
        """
        with self._lock:
            roots = self._certificates.trust().federation_roots
            try:
                shown = read_signed_federation(request.signed.decode("utf-8", "replace"), roots)
            except SettingsError as error:
                raise PolicyRefused(f"party {self.kit.name!r}: {error}") from None
            if shown.digest == federation_file_digest(self.files.in_force):
                self._note_in_force(shown)  # a process that was killed at that moment has not
                return self._reply(shown.digest, is_in_force=True)
            self._check(shown)
            approved = self._approved(shown)
            if self.agreed is None or self.agreed.digest != shown.digest or approved is None:
                self._ask(shown)
                self._take(shown, make_ready)
            else:
                self._mark_used(approved, shown)  # a process that was killed after it had the file has not
            if request.in_force:
                self._put_in_force(shown, make_ready)
            return self._reply(shown.digest, is_in_force=request.in_force)

    def was_asked_under(self, study: str, fingerprint: str) -> bool:
        """Whether stewards were asked to begin a study while that file was in force, and may still be thinking.

        Parameters
        ----------
        study : its name
        fingerprint : of a federation file
        """
        return any(
            (one.content.party, one.content.federation, one.content.stage) == (self.kit.name, fingerprint, "beginning")
            for one in self.store.all("pending", "approved", study=study)  # one that is over begins no study
        )

    # ---- what is checked here, whoever signed it --------------------------------------------------

    def _check(self, shown: SignedFederation) -> None:
        """PolicyRefused for a file that the stewards are not even asked about."""
        name, new = self.kit.name, shown.federation
        wrong = change_problem(self.files.in_force, new)
        if not wrong and roles_of(new).get(name) != self.kit.role:
            wrong = f"it does not name {name!r} as a {self.kit.role}: there is nothing to agree to"
        shown_before = [one for one in self.store.all(study=CHANGE_NAME) if one.content.stage == "federation"]
        newest = max((one.content.versions[1] for one in shown_before), default=0)
        since = self.clock() - self.policy.consent_days * SECONDS_PER_DAY
        lately = [one for one in shown_before if one.asked > since]
        others = {one.content.proposal for one in shown_before if one.content.versions[1] == shown.version}
        if not wrong and shown.version < newest:
            wrong = f"it is version {shown.version}, and version {newest} was shown before"
        if not wrong and others - {shown.digest}:
            wrong = f"another file of version {shown.version} was shown before: count the version up"
        if not wrong and not others and len(lately) >= _MOST_VERSIONS:
            wrong = f"{len(lately)} others were shown in the last {self.policy.consent_days:g} days, which is too many"
        if wrong:
            raise PolicyRefused(f"party {name!r}: the federation file was not taken: {wrong}")

    # ---- the stewards -----------------------------------------------------------------------------

    def _ask(self, shown: SignedFederation) -> None:
        """Return if the stewards have said yes."""
        policy, name = self.policy.current(), self.kit.name
        asked = self.store.ask(self._describe(shown, policy))
        state = standing_of(asked, policy.stewards, policy.approvals, self.clock())
        if state == "denied":
            why = asked.decisions[-1].reason
            raise PolicyRefused(f"party {name!r}: its steward said no{f': {sanitize(why)}' if why else ''}")
        if state == "withdrawn":
            raise PolicyRefused(f"party {name!r}: its steward has taken back their yes")
        if state != "approved":
            raise ConsentPending(
                f"party {name!r}: its stewards were asked about {shown.description} of the federation file",
                asked.asked,
            )

    def _describe(self, shown: SignedFederation, policy: Policy) -> RequestContent:
        present = self.files.in_force
        return RequestContent(
            self.kit.name,
            CHANGE_NAME,
            "federation",
            federation=self.files.fingerprint,
            proposal=shown.digest,
            policy=policy.digest,
            days=policy.consent_days,
            approvals=policy.approvals,
            stewards=policy.stewards,
            changes=tuple(describe_change(present, shown.federation, self.kit.name)),
            versions=(present.version, shown.version),
            authority=self._signer(shown),
        )

    def _signer(self, shown: SignedFederation) -> str:
        """Fingerprint of the root that signed the file."""
        for root in self._certificates.trust().federation_roots:
            try:
                read_signed_federation(shown.text, [root])
            except SettingsError:
                continue
            return fingerprint_of(root)
        return ""

    def _approved(self, shown: SignedFederation) -> StewardRequest | None:
        """The request about this file that stewards have approved, by their signatures and the policy of now."""
        policy, now = self.policy.current(), self.clock()
        for one in self.store.all(study=CHANGE_NAME):
            content = one.content
            asked = (content.party, content.stage, content.federation, content.proposal)
            if asked != (self.kit.name, "federation", self.files.fingerprint, shown.digest):
                continue
            if standing_of(one, policy.stewards, policy.approvals, now) == "approved":
                return one
        return None

    # ---- the files --------------------------------------------------------------------------------

    def _take(self, shown: SignedFederation, make_ready: Callable[[Federation], object]) -> None:
        """Keep a file that was agreed to, in the kit first."""
        self._make_ready(shown, make_ready)
        approved = self._approved(shown)
        assert approved is not None  # `_ask` has returned
        write_private(self.kit.folder / SIGNED_FEDERATION_FILE, shown.text)
        self._mark_used(approved, shown)
        self.agreed = shown
        logger.info("agreed to %s of the federation file; %s is in force", shown.description, self.files.description)

    def _mark_used(self, approved: StewardRequest, shown: SignedFederation) -> None:
        self.store.mark_used(approved, f"federation file {shown.description}, digest {shown.digest}")

    def _put_in_force(self, shown: SignedFederation, make_ready: Callable[[Federation], object]) -> None:
        """Let studies begin with the agreed file from now on."""
        self._make_ready(shown, make_ready)
        self.files.replace(shown.federation)
        self.agreed = None
        self._note_in_force(shown)
        logger.info("%s of the federation file is in force", shown.description)
        self.on_change(shown.federation)

    def _note_in_force(self, shown: SignedFederation) -> None:
        """Have the history say on the strength of which yes the file is in force."""
        for one in self.store.all(study=CHANGE_NAME):
            if one.content.proposal == shown.digest and one.used is not None:
                self.store.note(one, "in force", f"federation file {shown.description}, digest {shown.digest}")

    def _make_ready(self, shown: SignedFederation, make_ready: Callable[[Federation], object]) -> None:
        try:
            make_ready(shown.federation)
        except SchemaError as error:
            raise _unfit_table(self.kit.name, shown.federation, error, "The file is taken once it does") from None

    def _reply(self, digest: str, *, is_in_force: bool) -> ChangeReply:
        present = self.files.in_force
        return ChangeReply(self.kit.name, digest, is_in_force, self.files.fingerprint, present.version)


class FederationVersions:
    """Answers every study with the federation file that it began with here.

    Parameters
    ----------
    federations : the party's files
    make : what answers under a file; SchemaError where the table does not fit it
    begun_under : study -> fingerprint of the file that it began with here; None for a study that is new
    """

    def __init__(
        self,
        federations: PartyFederations,
        make: Callable[[Federation], RequestHandler],
        begun_under: Callable[[str], str | None],
    ) -> None:
        self.federations, self._make, self._begun_under = federations, make, begun_under
        self._lock = threading.Lock()
        self._handlers: dict[str, RequestHandler] = {}
        self._make_ready(federations.files.in_force)

    @property
    def current(self) -> RequestHandler:
        """What answers for studies that begin."""
        return self._handlers[self.federations.files.fingerprint]

    def refresh(self) -> None:
        """Read the table again, where there is one; what is wrong with it stands in the log."""
        if isinstance(self.current, RefreshedMember):
            try:
                is_new = self.current.refresh()
                logger.info("the table was read again: %s", "it has changed" if is_new else "it is the same")
            except SchemaError as error:
                logger.error("the table cannot be read: %s", error)

    def handle(self, request: Any) -> Any:
        """Answer a request, or refuse it with a reason.

        Parameters
        ----------
        request : of a study, or a `ChangeRequest`
        """
        try:
            if isinstance(request, ChangeRequest):
                return self.federations.consider(request, self._make_ready)
            return self._handler(request).handle(request)
        except EngineError as error:  # a table had to be read for a file, and the engine did not
            logger.error("%s", error)  # in the own log alone: it names hosts and ports
            raise ProtocolError(
                f"party {self.federations.kit.name!r} cannot read its table at the moment; nothing was spent, and "
                "once it can, the coordinator may ask again"
            ) from None

    def _make_ready(self, federation: Federation) -> RequestHandler:
        """What answers under a file, made if need be."""
        fingerprint = federation_fingerprint(federation)
        with self._lock:
            if fingerprint not in self._handlers:
                self._handlers[fingerprint] = self._make(federation)
            return self._handlers[fingerprint]

    def _handler(self, request: Any) -> RequestHandler:
        study = request.proposal.study if isinstance(request, ConsentRequest) else str(getattr(request, "study", ""))
        fingerprint = self._begun_under(study)
        is_new = fingerprint is None and isinstance(request, BeginRequest)
        if is_new and self.federations.was_asked_under(study, request.federation):
            fingerprint = request.federation
        if fingerprint is None or fingerprint == self.federations.files.fingerprint:
            return self.current
        federation = self.federations.files.find(fingerprint)
        if federation is None:
            return self.current  # it says that the study belongs to another federation
        try:
            return self._make_ready(federation)
        except SchemaError as error:
            after = "This study began with it, and nothing more is released in it"
            raise _unfit_table(self.federations.kit.name, federation, error, after) from None


def _unfit_table(party: str, federation: Federation, error: SchemaError, consequence: str) -> ProtocolError:
    """The refusal where a table does not fit a federation file; what is wrong stands in the own log alone."""
    logger.error("the table does not fit version %d of the federation file: %s", federation.version, error)
    return ProtocolError(
        f"party {party!r}: its table does not fit version {federation.version} of the federation file; its log says "
        f"why. {consequence}"
    )
