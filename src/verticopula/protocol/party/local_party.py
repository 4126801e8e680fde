"""A party of a study, in this process or over a network.

It holds its own table, its own policy, its own ledger and its own source of noise. It checks
every request against the policy before anything is drawn, writes every release to the ledger
before it is sent, and makes a release once: the same request gets the same answer again. With the stores of a
vault, all of this holds over crashes and restarts.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.data.tables import AlignedTable
from verticopula.errors import BudgetExceeded, PolicyRefused, ProtocolError, VersionMismatch
from verticopula.glm.feature_design import Features
from verticopula.glm.feature_encoding import code_schema_column, features_of
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.privacy.noise import Noise
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.pricing import Pricing
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
from verticopula.protocol.party.charging import Charging
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.earlier_sums import EarlierSums, SummedRows
from verticopula.protocol.party.made_replies import MadeReplies, RepliesInMemory, RepliesInStore
from verticopula.protocol.party.moments_handler import MomentsHandler
from verticopula.protocol.party.party_store import StudyStores
from verticopula.protocol.party.printed_handler import PrintedHandler
from verticopula.protocol.party.rank_handler import RankHandler, check_asked_columns, check_asked_epsilon
from verticopula.protocol.party.regression_handler import RegressionHandler
from verticopula.protocol.party.strict_handler import StrictHandler
from verticopula.protocol.party.study_consents import FIT_PLACE, StudyConsents
from verticopula.protocol.printed_messages import PrintedMarginsReply, PrintedRanksReply, PrintedRequest
from verticopula.protocol.rank_messages import CompletedRanksReply, CompletedRanksRequest, ReleaseReply, ReleaseRequest
from verticopula.protocol.regression_messages import (
    DesignRequest,
    MomentsRequest,
    RegressionRequest,
    ResponseReply,
    ResponseRequest,
    SecondMomentsRequest,
)
from verticopula.protocol.strict_messages import GaussianMarginsReply, GaussianMarginsRequest, SecureRequest
from verticopula.protocol.study_proposal import reported_presence
from verticopula.schema.federation import Federation, Party
from verticopula.schema.methods import (
    MOMENTS_VARIANT,
    OWN_VARIANT,
    PRINTED_VARIANT,
    RAW_REGRESSION,
    STRICT,
    releases_sums,
    runs_on_engine,
)
from verticopula.schema.printed_choices import DEFAULT_INTERPRETATION, PrintedChoices
from verticopula.schema.setting_choices import EXACT_SAMPLER
from verticopula.storage.ledger import Ledger

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


@dataclass(repr=False)
class LocalParty:
    """A party in one study; `Member` is the same party in all of its studies.

    Attributes
    ----------
    bounds_from_data : True where ranges or categories were taken from the data
    executor : where columns are worked on in parallel; None for one after the other
    on_column : called with the number of comparisons after each column, for progress bars
    stores : where answers, the state of regressions, and a study's secrets are kept; a vault has all
    authenticity : how its public keys in secure sums are signed, and the others' are known; None for none
    federation : the party's own file, which says who takes part in secure sums and with which columns; without it the
        party takes no part in them
    charging : whose budget is charged, and who asks
    consents : what the party has consented to; without it nobody is asked, as where a mechanism is run on its own
    printed_choices : how it reads what the paper leaves open, in studies by its algorithms as printed
    ids : the ids of some of the cohort's subjects, so that it is remembered over whom exact sums were made; None where
        nobody is to be remembered, as where a mechanism is run on its own
    ask_steward : about a whole study, after the policy agreed; may take its time, may raise PolicyRefused, or
        ConsentPending where the steward has to be asked again later
    """

    table: AlignedTable
    noise: Noise
    ledger: Ledger = field(default_factory=Ledger)
    policy: Policy | PolicyFile = field(default_factory=Policy)
    bounds_from_data: bool = False
    executor: Executor | None = None
    on_column: Callable[[int], None] = lambda comparisons: None
    stores: StudyStores = field(default_factory=StudyStores)
    authenticity: Authenticity | None = None
    federation: Federation | None = None
    charging: Charging = field(default_factory=Charging)
    consents: StudyConsents | None = None
    ask_steward: Callable[[ConsentQuestion], None] = lambda question: None
    printed_choices: PrintedChoices = DEFAULT_INTERPRETATION
    ids: Callable[[NDArray[np.bool_]], Sequence[str]] | None = None
    _summed: str = ""  # key of the request whose sums were recorded last
    _made: MadeReplies = field(init=False)
    _regression: RegressionHandler = field(init=False)
    _moments: MomentsHandler = field(init=False)
    _strict: StrictHandler = field(init=False)
    _ranks: RankHandler = field(init=False)
    _printed: PrintedHandler = field(init=False)

    def __post_init__(self) -> None:
        stores = self.stores
        self._made = RepliesInMemory() if stores.replies is None else RepliesInStore(stores.replies)
        self._regression = RegressionHandler(self.name, self._raw_features, stores.fits)
        self._moments = MomentsHandler(
            self.name,
            self._moment_features,
            stores.records,
            self.authenticity,
            self._record_moments,
            lambda: self.policy.min_subjects,
            None if self.federation is None else {p.name: _count_features(p) for p in self.federation.parties},
        )
        self._strict = StrictHandler(
            self.table,
            lambda: self._check_method(STRICT.name),
            self.noise,
            stores.records,
            self.authenticity,
            self.federation,
            self.consents,
            self._pricing,
            lambda entries, key: self._record(STRICT.name, entries, key, once=self._made.is_durable),
            self._stored_margins,
        )
        self._ranks = RankHandler(self.table, self.noise, self._pricing, self.on_column)
        self._printed = PrintedHandler(self.table, self.noise, self.printed_choices, self._pricing, self.on_column)

    @property
    def name(self) -> str:
        return self.table.party.name

    def handle(self, request: Request) -> Reply:
        """Answer a request, or refuse it with a reason."""
        if request.version != MESSAGE_VERSION:
            raise VersionMismatch(
                f"party {self.name!r} speaks message version {MESSAGE_VERSION}, the coordinator {request.version}"
            )
        if isinstance(request, PresenceRequest):
            self._check_method(request.method)
            presence = reported_presence(self.table.observed(), request.method)
            logger.info("party %s: study %s is told who is observed, before consent", self.name, request.study)
            if self.consents is None:
                return PresenceReply(self.name, presence.mask, b"")
            return self.consents.sign_presence(request.study, presence)
        if isinstance(request, ConsentRequest):
            consent = self._consent_to(request.proposal)
            return ConsentReply(self.name, consent.until, consent.signature)
        if isinstance(request, AgreementRequest):
            self._check_method(request.method)
            if self.consents is not None:
                self.consents.agree(request.study, request.consents)
            return AgreementReply(self.name)
        if isinstance(request, OnceRequest):
            return self._release_once(request)
        if isinstance(request, RegressionRequest):
            self._check_method(RAW_REGRESSION)
            self._check_engine(RAW_REGRESSION, OWN_VARIANT)
            if isinstance(request, SecondMomentsRequest):
                self._agreed_variant(request.study, moments=True)
                return self._moments.handle(request)
            self._agreed_variant(request.study, moments=False)
            return self._regression.handle(request)
        if isinstance(request, SecureRequest):
            self._check_engine(STRICT.name, OWN_VARIANT)
            return self._strict.handle(request)
        raise ProtocolError(f"party {self.name!r} does not know requests of type {type(request).__name__}")

    def _check_method(self, method: str) -> None:
        """PolicyRefused unless the party takes part in such studies, with all of its columns."""
        self.policy.check(self.name, method, (), ())
        self.policy.check_columns(self.name, (column.name for column in self.table.party.columns))

    def close(self, study: str) -> None:
        """A study is over: forget its regressions and its sums."""
        places = [] if self.consents is None else self.consents.places(study)
        self._regression.close(study, [name.removeprefix(FIT_PLACE) for name in places if name.startswith(FIT_PLACE)])
        self._moments.close(study)
        self._strict.close(study)

    # ---- consent -------------------------------------------------------------------------

    def _consent_to(self, proposal: StudyProposal) -> SignedConsent:
        """The party's signed consent to a whole study, if its policy and its steward agree. Nothing is charged."""
        if self.consents is not None:
            self._check_method(proposal.method)
            self.consents.check(proposal, reported_presence(self.table.observed(), proposal.method))
        entries = self._price_proposal(proposal)

        def approve() -> list[Release]:
            spent = list(self.ledger)
            try:
                self._approve(proposal.method, entries, spent)
            except BudgetExceeded:
                if self.consents is not None:
                    self.consents.remember_excess(proposal)
                raise
            return spent

        def ask() -> None:
            counted, at_person = self.charging.counted(self.name, approve())
            self.ask_steward(
                ConsentQuestion(
                    proposal.study,
                    proposal.method,
                    proposal.requester,
                    proposal.purpose,
                    proposal.alignment,
                    tuple(entries),
                    tuple(counted),
                    proposal.variant,
                    not self.noise.is_private,
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
        self._check_engine(proposal.method, proposal.variant)
        if proposal.method == RAW_REGRESSION:
            names, moments = [column.name for column in self.table.party.columns], proposal.variant == MOMENTS_VARIANT
            return self._price_raw(proposal.study, names, proposal.subjects, moments=moments)[0]
        if releases_sums(proposal.method):
            return self._strict.price_all(proposal)
        if proposal.variant == PRINTED_VARIANT:
            return self._printed.price_all(proposal)
        return self._ranks.price_all(proposal)

    def _check_engine(self, method: str, variant: str) -> None:
        """PolicyRefused where the party's engine cannot do what is asked: it does not bring the table here instead."""
        if self.table.source is not None and not runs_on_engine(method, variant):
            raise PolicyRefused(
                f"party {self.name!r} computes on an engine, which does not run method {method!r}"
                f"{' as printed' * (variant == PRINTED_VARIANT)}; it can do so with its local engine"
            )

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
            self._agreed_variant(request.study, moments=False)
            self._check_subjects(proposal, request.subjects)
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

    def _check_subjects(self, proposal: StudyProposal, subjects: NDArray[np.bool_] | None) -> None:
        """ProtocolError unless raw values are asked for subjects that were consented to."""
        allowed = proposal.subjects
        asked = np.ones(proposal.n_subjects, dtype=bool) if subjects is None else subjects
        if allowed is None or asked.shape != allowed.shape or bool((asked & ~allowed).any()):
            raise ProtocolError(f"party {self.name!r}: exact values of these subjects were not consented to")

    def _agreed_variant(self, study: str, *, moments: bool) -> None:
        """ProtocolError unless everybody consented to this variant of a regression on raw columns."""
        if self.consents is not None and (self.consents.agreed(study).variant == MOMENTS_VARIANT) != moments:
            raise ProtocolError(f"party {self.name!r}: this is not what was consented to in this study")

    # ---- releases ------------------------------------------------------------------------

    def _release_once(self, request: OnceRequest) -> Reply:
        """In this query: on the ledger, drawn, stored, sent; and from the store if it is asked for again."""
        key = self._key(request)
        with self._made.alone(key):  # the store's, not the party's: a study may be opened twice on one vault
            made = self._made.find(key, _ONCE_REPLIES)
            if made is not None:
                return made
            self._check_agreed(request, key)
            method, entries, draw = self._prepare(request)
            # What is not stored has not left; where nothing outlives the process, nobody can know.
            self._record(method, entries, key, once=self._made.is_durable)
            reply = draw()
            if entries:
                self._made.keep(key, reply)
            return reply

    def _key(self, request: Request) -> str:
        """One organisation may be several parties of a study, all of them asked the same."""
        return fingerprint((self.name, request))

    def _stored_margins(self, key: str) -> GaussianMarginsReply | None:
        made = self._made.find(key, (GaussianMarginsReply,))
        return made if isinstance(made, GaussianMarginsReply) else None

    def _prepare(self, request: OnceRequest) -> tuple[str, list[Release], Callable[[], Reply]]:
        """The method, the ledger entries, and what draws the answer once they are written."""
        variant = PRINTED_VARIANT if isinstance(request, PrintedRequest) else OWN_VARIANT
        self._check_engine(_method_of(request), variant)
        if isinstance(request, GaussianMarginsRequest):
            key, entries = self._key(request), self._strict.price_margins(request)
            self._strict.check_margins(request, key)
            return STRICT.name, entries, lambda: self._strict.release_margins(request, key)
        if isinstance(request, PrintedRequest):
            self.policy.check_printed(self.name)  # for ranks, too: it may have been forbidden since consent
            check_asked_columns(self.table.party, [query.column for query in request.queries], EXACT_SAMPLER)
            for query in request.queries:
                check_asked_epsilon(self.name, query.column, query.epsilon)
            run = map if self.executor is None else self.executor.map
            return request.method, self._printed.price(request), lambda: self._printed.answer(request, run)
        if isinstance(request, ReleaseRequest | CompletedRanksRequest):
            run = map if self.executor is None else self.executor.map
            return request.method, self._ranks.price(request), lambda: self._ranks.answer(request, run)
        entries, asked = self._price_raw(request.study, [request.column], request.subjects)
        values = self.table.columns[request.column].values
        return RAW_REGRESSION, entries, lambda: ResponseReply(self.name, values[asked])

    def _raw_features(self, request: DesignRequest) -> tuple[int, Callable[[], Features]]:
        """How many rows, and the raw columns of a regression once it is certain that they are wanted.

        Privacy
        -------
        The coordinator may ask for any of them, and gets those that models on its path want, exactly. Epsilon is
        infinite; refused unless the party's policy names the method.
        """
        names = [c.name for c in self.table.party.columns] if request.columns is None else list(request.columns)
        names = [name for name in names if name != request.without]
        if self.consents is not None:
            self._check_subjects(self.consents.agreed(request.study), request.subjects)
        entries, asked = self._price_raw(request.study, names, request.subjects)
        key = self._key(request)
        if self.consents is not None:
            self.consents.bind(request.study, f"{FIT_PLACE}{request.fit}", key)  # so that it is known when it is to go
        self._approve(RAW_REGRESSION, self._unpaid(entries, key), list(self.ledger))
        codings = [code_schema_column(self.table.party.column(name)) for name in names]

        def make() -> Features:
            self._record(RAW_REGRESSION, entries, key, once=True)  # raw values say no more the second time
            return features_of([self.table.written(name)[asked] for name in names], codings, int(asked.sum()))

        return int(asked.sum()), make

    def _moment_features(self, request: MomentsRequest) -> tuple[Features, NDArray[np.float64] | None]:
        """The raw features of a regression on second moments, and the response where it is here.

        Privacy
        -------
        The coordinator will have exact sums and products of all columns: epsilon is infinite. It sees no row. Refused
        unless the party's policy names the method; one set of sums is made in a study, because the difference of two
        could be one person.
        """
        names = [c.name for c in self.table.party.columns]
        if request.response is not None and request.response not in names:
            raise PolicyRefused(f"party {self.name!r}: the request names a response that it does not hold")
        _, asked = self._price_raw(request.study, names, request.subjects, moments=True)
        if self.consents is not None:
            agreed = self.consents.agreed(request.study).subjects
            if agreed is None or not np.array_equal(agreed, request.subjects):
                raise ProtocolError(f"party {self.name!r}: sums over these subjects were not consented to")
            # Before anything is looked at: refusals that hang on values would tell them, one request after the other.
            self.consents.bind(request.study, "moments", self._key(request))
        used = [name for name in names if name != request.response]
        codings = [code_schema_column(self.table.party.column(name)) for name in used]
        features = features_of([self.table.written(name)[asked] for name in used], codings, int(asked.sum()))
        return features, None if request.response is None else self.table.columns[request.response].values[asked]

    def _record_moments(self, request: MomentsRequest) -> None:
        """In the ledger, once nothing speaks against the sums of a request."""
        names = [column.name for column in self.table.party.columns]
        entries, asked = self._price_raw(request.study, names, request.subjects, moments=True)
        key = self._key(request)
        if key == self._summed:  # its terms are asked for after its sums
            return
        with self._remembered(names, asked):
            self._record(RAW_REGRESSION, entries, key, once=True)
        self._summed = key

    def _remembered(self, names: list[str], asked: NDArray[np.bool_]) -> AbstractContextManager[None]:
        """What exact sums over these subjects are recorded in; PolicyRefused where they are nearly those of earlier
        ones."""
        if self.ids is None:
            return nullcontext()
        values = np.column_stack([self.table.columns[name].values[asked] for name in names])
        return EarlierSums(self.stores.records).adding(self.name, SummedRows(self.ids(asked), values))

    def _price_raw(
        self, study: str, names: list[str], subjects: NDArray[np.bool_] | None, *, moments: bool = False
    ) -> tuple[list[Release], NDArray[np.bool_]]:
        """The ledger entries of raw columns, or of their sums and products, and which subjects they are about."""
        known = {column.name for column in self.table.party.columns}
        if len(set(names)) != len(names) or not set(names) <= known:
            raise PolicyRefused(f"party {self.name!r}: the request names columns twice or columns it does not hold")
        self.policy.check(self.name, RAW_REGRESSION, (), ())  # before anything about the data is looked at
        cohort = self.table.observed().shape[0]
        asked = np.ones(cohort, dtype=bool) if subjects is None else subjects
        if asked.dtype != np.bool_ or asked.shape != (cohort,):
            raise PolicyRefused(f"party {self.name!r}: subjects are named by a mask over the cohort")
        if not all(self.table.columns[name].observed[asked].all() for name in names):
            raise PolicyRefused(f"party {self.name!r}: the regression names subjects that it has no values for")
        pricing = self._pricing(study)
        price = pricing.raw_moments if moments else pricing.raw
        return [price(self.table.party.column(name), int(asked.sum())) for name in names], asked

    def _record(self, method: str, entries: list[Release], key: str, *, once: bool) -> None:
        """In the ledger before anything is drawn, if the policy allows it.

        `once`: what the ledger holds for this request already, after a crash, is not charged again.
        """
        wanted = [replace(entry, request=key, **self.charging.asked_by) for entry in entries]
        if once:
            wanted = self._unpaid(wanted, key)
            if not wanted:
                logger.info("party %s: recorded before, not charged again", self.name)
                return
        self.ledger.append(wanted, approve=lambda known: self._approve(method, wanted, known))
        logger.info("party %s: %d releases recorded", self.name, len(wanted))

    def _unpaid(self, entries: list[Release], key: str) -> list[Release]:
        """Those that the ledger does not hold for this request at this price; a crash may have cut off some of them."""
        self.ledger.catch_up()
        paid = Counter(_price_of(e) for e in self.ledger if e.request == key and e.party == self.name)
        left = []
        for entry in entries:
            if paid[_price_of(entry)] > 0:
                paid[_price_of(entry)] -= 1
            else:
                left.append(entry)
        return left

    def _approve(self, method: str, proposed: list[Release], spent: list[Release]) -> None:
        self.policy.check(self.name, method, proposed, *self.charging.counted(self.name, spent))

    def _pricing(self, study: str) -> Pricing:
        about = self.charging.account
        return Pricing(
            study,
            self.name,
            self.noise.is_private,
            self.bounds_from_data,
            about.table,
            about.columns,
            about.snapshot,
        )


def _method_of(request: OnceRequest) -> str:
    return RAW_REGRESSION if isinstance(request, ResponseRequest) else request.method


def _price_of(entry: Release) -> tuple[object, ...]:
    price = entry.epsilon, entry.coins, entry.mu, entry.mu_person, entry.joint
    return entry.table, entry.column, entry.what, *price, entry.noise, entry.bounds


def _count_features(party: Party) -> int:
    """How many columns a party has in a regression."""
    return sum(len(code_schema_column(column).names) for column in party.columns)
