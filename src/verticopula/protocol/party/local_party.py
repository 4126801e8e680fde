"""A party of a study, in this process or over a network.

It holds its own table, its own policy, its own ledger and its own source of noise. It checks
every request against the policy before anything is drawn, writes every release to the ledger
before it is sent, and makes a release once: the same request gets the same answer again. With the stores of a
vault, all of this holds over crashes and restarts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from verticopula.errors import BudgetExceeded, ProtocolError, VersionMismatch
from verticopula.privacy.release import Release
from verticopula.protocol.consent_messages import (
    AgreementReply,
    AgreementRequest,
    ConsentReply,
    ConsentRequest,
    PresenceReply,
    PresenceRequest,
    SignedConsent,
    StudyProposal,
)
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import Reply, Request, fingerprint
from verticopula.protocol.party.column_work import ColumnWork
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.made_replies import MadeReplies, RepliesInMemory, RepliesInStore
from verticopula.protocol.party.membership import Membership
from verticopula.protocol.party.party_store import StudyStores
from verticopula.protocol.party.printed_handler import PrintedHandler
from verticopula.protocol.party.rank_handler import RankHandler, check_asked_columns, check_asked_epsilon
from verticopula.protocol.party.raw_regression_handler import RawRegressionHandler
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.party.strict_handler import StrictHandler
from verticopula.protocol.party.study_consents import StudyConsents
from verticopula.protocol.printed_messages import PrintedMarginsReply, PrintedRanksReply, PrintedRequest
from verticopula.protocol.rank_messages import CompletedRanksReply, CompletedRanksRequest, ReleaseReply, ReleaseRequest
from verticopula.protocol.regression_messages import (
    RegressionRequest,
    ResponseReply,
    ResponseRequest,
)
from verticopula.protocol.strict_messages import GaussianMarginsReply, GaussianMarginsRequest, SecureRequest
from verticopula.protocol.study_proposal import reported_presence
from verticopula.schema.methods import (
    OWN_VARIANT,
    PRINTED_VARIANT,
    RAW_REGRESSION,
    STRICT,
    releases_sums,
)
from verticopula.schema.printed_choices import DEFAULT_INTERPRETATION, PrintedChoices
from verticopula.schema.setting_choices import EXACT_SAMPLER

logger = logging.getLogger(__name__)

# Those that are answered once.
OnceRequest = ReleaseRequest | CompletedRanksRequest | PrintedRequest | ResponseRequest | GaussianMarginsRequest
_ONCE_REPLIES = (
    ReleaseReply,
    CompletedRanksReply,
    PrintedRanksReply,
    PrintedMarginsReply,
    ResponseReply,
    GaussianMarginsReply,
)


class LocalParty:
    """A party in one study; `Member` is the same party in all of its studies. No repr: it can reach data.

    Parameters
    ----------
    control : its columns, its noise, its policy and its ledger
    stores : where answers, the state of regressions, and a study's secrets are kept; a vault has all
    membership : its place among the others; without it the party takes no part in secure sums
    consents : what the party has consented to; without it nobody is asked, as where a mechanism is run on its own
    ask_steward : about a whole study, after the policy agreed; may take its time, may raise PolicyRefused, or
        ConsentPending where the steward has to be asked again later
    work : how columns are worked on
    printed_choices : how it reads what the paper leaves open, in studies by its algorithms as printed
    """

    def __init__(
        self,
        control: ReleaseControl,
        *,
        stores: StudyStores | None = None,
        membership: Membership | None = None,
        consents: StudyConsents | None = None,
        ask_steward: Callable[[ConsentQuestion], None] = lambda question: None,
        work: ColumnWork | None = None,
        printed_choices: PrintedChoices = DEFAULT_INTERPRETATION,
    ) -> None:
        stores, membership, work = stores or StudyStores(), membership or Membership(), work or ColumnWork()
        self.control, self.consents, self._ask_steward = control, consents, ask_steward
        self._made: MadeReplies = RepliesInMemory() if stores.replies is None else RepliesInStore(stores.replies)
        self._raw = RawRegressionHandler(control, membership, stores, consents)
        self._strict = StrictHandler(control, membership, stores.records, self._made, consents)
        self._ranks = RankHandler(control, work)
        self._printed = PrintedHandler(control, printed_choices, work)

    @property
    def name(self) -> str:
        return self.control.name

    def handle(self, request: Request) -> Reply:
        """Answer a request, or refuse it with a reason."""
        if request.version != MESSAGE_VERSION:
            raise VersionMismatch(
                f"party {self.name!r} speaks message version {MESSAGE_VERSION}, the coordinator {request.version}"
            )
        if isinstance(request, PresenceRequest):
            self.control.check_method(request.method)
            presence = reported_presence(self.control.table.observed(), request.method)
            logger.info("party %s: study %s is told who is observed, before consent", self.name, request.study)
            if self.consents is None:
                return PresenceReply(self.name, presence.mask, b"")
            return self.consents.sign_presence(request.study, presence)
        if isinstance(request, ConsentRequest):
            consent = self._consent_to(request.proposal)
            return ConsentReply(self.name, consent.until, consent.signature)
        if isinstance(request, AgreementRequest):
            self.control.check_method(request.method)
            if self.consents is not None:
                self.consents.agree(request.study, request.consents)
            return AgreementReply(self.name)
        if isinstance(request, OnceRequest):
            return self._release_once(request)
        if isinstance(request, RegressionRequest):
            return self._raw.handle(request)
        if isinstance(request, SecureRequest):
            self.control.check_engine(STRICT.name, OWN_VARIANT)
            return self._strict.handle(request)
        raise ProtocolError(f"party {self.name!r} does not know requests of type {type(request).__name__}")

    def close(self, study: str) -> None:
        """A study is over: forget its regressions and its sums."""
        self._raw.close(study)
        self._strict.close(study)

    # ---- consent -------------------------------------------------------------------------

    def _consent_to(self, proposal: StudyProposal) -> SignedConsent:
        """The party's signed consent to a whole study, if its policy and its steward agree. Nothing is charged."""
        if self.consents is not None:
            self.control.check_method(proposal.method)
            self.consents.check(proposal, reported_presence(self.control.table.observed(), proposal.method))
        entries = self._price_proposal(proposal)

        def approve() -> list[Release]:
            spent = self.control.spent()
            try:
                self.control.approve(proposal.method, entries, spent)
            except BudgetExceeded:
                if self.consents is not None:
                    self.consents.remember_excess(proposal)
                raise
            return spent

        def ask() -> None:
            counted, at_person = self.control.counted(approve())
            self._ask_steward(
                ConsentQuestion(
                    proposal.study,
                    proposal.method,
                    proposal.requester,
                    proposal.purpose,
                    proposal.alignment,
                    tuple(entries),
                    tuple(counted),
                    proposal.variant,
                    not self.control.noise.is_private,
                    tuple(at_person),
                    proposal=fingerprint(proposal),
                )
            )
            approve()  # a steward may take weeks: what was spent or forbidden meanwhile would cost the others something

        if self.consents is None:
            ask()
            return SignedConsent(self.name, math.inf, b"")
        return self.consents.consent(proposal, ask)

    def _price_proposal(self, proposal: StudyProposal) -> list[Release]:
        """The ledger entries of everything that a proposal asks of this party."""
        self.control.check_engine(proposal.method, proposal.variant)
        if proposal.method == RAW_REGRESSION:
            return self._raw.price_all(proposal)
        if releases_sums(proposal.method):
            return self._strict.price_all(proposal)
        if proposal.variant == PRINTED_VARIANT:
            return self._printed.price_all(proposal)
        return self._ranks.price_all(proposal)

    def _check_agreed(self, request: OnceRequest, key: str) -> None:
        """ProtocolError unless everybody consented to this study, and it is exactly what was consented to.

        Parameters
        ----------
        key : the request's
        """
        if self.consents is None:
            return
        proposal = self.consents.agreed(request.study)
        if isinstance(request, ResponseRequest):
            self._raw.check_agreed_response(proposal, request)
            self.consents.bind(request.study, f"response {request.column}", key)
            return
        if isinstance(request, PrintedRequest):
            place, fits = self._printed.place_of(request), proposal.variant == PRINTED_VARIANT
            fits = fits and self._printed.is_planned(proposal, request)
        elif proposal.variant == PRINTED_VARIANT:
            place, fits = "", False
        elif isinstance(request, GaussianMarginsRequest):
            place, fits = "margins", request.queries == self._strict.planned_queries(proposal)
        else:
            place, fits = self._ranks.place_of(request), self._ranks.is_planned(proposal, request)
        if not fits:
            raise ProtocolError(f"party {self.name!r}: this is not what was consented to in this study")
        self.consents.bind(request.study, place, key)

    # ---- releases ------------------------------------------------------------------------

    def _release_once(self, request: OnceRequest) -> Reply:
        """In this query: on the ledger, drawn, stored, sent; and from the store if it is asked for again."""
        key = self.control.key(request)
        with self._made.alone(key):  # the store's, not the party's: a study may be opened twice on one vault
            made = self._made.find(key, _ONCE_REPLIES)
            if made is not None:
                return made
            self._check_agreed(request, key)
            method, entries, draw = self._prepare(request)
            # What is not stored has not left; where nothing outlives the process, nobody can know.
            self.control.record(method, entries, key, once=self._made.is_durable)
            reply = draw()
            if entries:
                self._made.keep(key, reply)
            return reply

    def _prepare(self, request: OnceRequest) -> tuple[str, list[Release], Callable[[], Reply]]:
        """The method, the ledger entries, and what draws the answer once they are written."""
        variant = PRINTED_VARIANT if isinstance(request, PrintedRequest) else OWN_VARIANT
        self.control.check_engine(_method_of(request), variant)
        if isinstance(request, GaussianMarginsRequest):
            key, entries = self.control.key(request), self._strict.price_margins(request)
            self._strict.check_margins(request, key)
            return STRICT.name, entries, lambda: self._strict.release_margins(request, key)
        if isinstance(request, PrintedRequest):
            self.control.policy.check_printed(self.name)  # for ranks, too: it may have been forbidden since consent
            check_asked_columns(self.control.table.party, [query.column for query in request.queries], EXACT_SAMPLER)
            for query in request.queries:
                check_asked_epsilon(self.name, query.column, query.epsilon)
            return request.method, self._printed.price(request), lambda: self._printed.answer(request)
        if isinstance(request, ReleaseRequest | CompletedRanksRequest):
            return request.method, self._ranks.price(request), lambda: self._ranks.answer(request)
        return RAW_REGRESSION, *self._raw.prepare_response(request)


def _method_of(request: OnceRequest) -> str:
    return RAW_REGRESSION if isinstance(request, ResponseRequest) else request.method
