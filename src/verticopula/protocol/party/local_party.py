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
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.column_ranges import can_hold
from verticopula.data.tables import AlignedTable
from verticopula.errors import BudgetExceeded, PolicyRefused, ProtocolError, VersionMismatch
from verticopula.glm.feature_design import Features
from verticopula.glm.feature_encoding import code_schema_column, features_of
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.privacy.budget import LARGEST_EPSILON, SAMPLERS, SMALLEST_EPSILON, coins_per_comparison
from verticopula.privacy.noise import Noise
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release, spent_on, spent_on_people
from verticopula.protocol.messages import (
    MESSAGE_VERSION,
    AgreementReply,
    AgreementRequest,
    ColumnQuery,
    ColumnRelease,
    CompletedRanksReply,
    CompletedRanksRequest,
    ConsentReply,
    ConsentRequest,
    DesignRequest,
    GaussianMarginsReply,
    GaussianMarginsRequest,
    Imputation,
    PresenceReply,
    PresenceRequest,
    PrintedMarginsReply,
    PrintedRanksReply,
    PrintedRequest,
    RegressionRequest,
    ReleaseReply,
    ReleaseRequest,
    Reply,
    Request,
    ResponseReply,
    ResponseRequest,
    SecureRequest,
    SignedConsent,
    StudyProposal,
    fingerprint,
)
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.printed_handler import PrintedHandler
from verticopula.protocol.party.regression_handler import RegressionHandler
from verticopula.protocol.party.strict_handler import StrictHandler
from verticopula.protocol.party.study_consents import FIT_PLACE, StudyConsents
from verticopula.protocol.study_proposal import MOST_ROUNDS, own_columns_of, reported_presence
from verticopula.protocol.wire import decode, encode
from verticopula.schema.columns import Column
from verticopula.schema.federation import Federation
from verticopula.schema.methods import PRINTED_VARIANT, RAW_REGRESSION, STRICT, releases_sums
from verticopula.schema.printed_choices import DEFAULT_INTERPRETATION, PrintedChoices
from verticopula.stats.copula import latent_count
from verticopula.stats.margin_cells import cell_count, to_cells
from verticopula.stats.marginals import release_cells
from verticopula.stats.ranks import draw_binomial_ranks, flip_comparisons
from verticopula.storage.blobs import Blobs, MemoryBlobs
from verticopula.storage.known_tables import NO_ACCOUNT, TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import MemoryRecords, RecordStore

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
    """One organisation's side of every protocol.

    Attributes
    ----------
    bounds_from_data : True where ranges or categories were taken from the data
    executor : where columns are worked on in parallel; None for one after the other
    on_column : called with the number of comparisons after each column, for progress bars
    noise_label : what seeded streams are keyed by in place of the study's name, so that a simulation can be repeated
        under another name; secure streams do not depend on it
    replies, fits, records : where answers, the state of regressions, and a study's secrets are kept; a vault has all
    authenticity : how its public keys in secure sums are signed, and the others' are known; None for none
    federation : the party's own file, which says who takes part in secure sums and with which columns; without it the
        party takes no part in them
    account : whose budget is charged, so that caps hold whatever the party and its columns are called
    opened_since : names tables with some of its people again, when something is charged: another member of the same
        process may have opened one
    consents : what the party has consented to; without it nobody is asked, as where a mechanism is run on its own
    printed_choices : how it reads what the paper leaves open, in studies by its algorithms as printed
    ask_steward : about a whole study, after the policy agreed; may take its time, may raise PolicyRefused, or
        ConsentPending where the steward has to be asked again later
    asked_by : who asks and why, for every entry in the ledger: `lead`, `requester`, `purpose`, `contact`, `use`
    """

    table: AlignedTable
    noise: Noise
    ledger: Ledger = field(default_factory=Ledger)
    policy: Policy | PolicyFile = field(default_factory=Policy)
    bounds_from_data: bool = False
    executor: Executor | None = None
    on_column: Callable[[int], None] = lambda comparisons: None
    noise_label: str = ""
    replies: Blobs = field(default_factory=MemoryBlobs)
    fits: Blobs | None = None
    records: RecordStore = field(default_factory=MemoryRecords)
    authenticity: Authenticity | None = None
    federation: Federation | None = None
    account: TableAccount = NO_ACCOUNT
    opened_since: Callable[[], tuple[str, ...]] = lambda: ()
    consents: StudyConsents | None = None
    ask_steward: Callable[[ConsentQuestion], None] = lambda question: None
    asked_by: Mapping[str, Any] = field(default_factory=dict)
    printed_choices: PrintedChoices = DEFAULT_INTERPRETATION
    _regression: RegressionHandler = field(init=False)
    _strict: StrictHandler = field(init=False)
    _printed: PrintedHandler = field(init=False)

    def __post_init__(self) -> None:
        self._regression = RegressionHandler(self.name, self._raw_features, self.fits)
        self._strict = StrictHandler(
            self.table,
            lambda: self._check_method(STRICT.name),
            self.noise,
            self.records,
            self.authenticity,
            self.federation,
            self.consents,
            self._pricing,
            lambda entries, key: self._record(STRICT.name, entries, key, once=self.replies.is_durable),
            self._stored_margins,
            self.noise_label,
        )
        self._printed = PrintedHandler(
            self.table, self.noise, self.printed_choices, self._pricing, self.on_column, self.noise_label
        )

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
            self.policy.check(self.name, RAW_REGRESSION, (), ())
            if self.consents is not None:
                self.consents.agreed(request.study)
            return self._regression.handle(request)
        if isinstance(request, SecureRequest):
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
            spent = approve()
            about = self.name, self.account.table, self._overlapping()
            self.ask_steward(
                ConsentQuestion(
                    proposal.study,
                    proposal.method,
                    proposal.requester,
                    proposal.purpose,
                    proposal.alignment,
                    tuple(entries),
                    tuple(spent_on(spent, *about)),
                    proposal.variant,
                    not self.noise.is_private,
                    tuple(spent_on_people(spent, *about, self.account.same_people)),
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
        if proposal.method == RAW_REGRESSION:
            names = [column.name for column in self.table.party.columns]
            return self._price_raw(proposal.study, names, proposal.subjects)[0]
        if releases_sums(proposal.method):
            return self._strict.price_all(proposal)
        if proposal.variant == PRINTED_VARIANT:
            return self._printed.price_all(proposal)
        first = self._planned_release(proposal)
        entries = self._price(first)  # checks the queries, so what follows knows its columns
        if not 1 <= proposal.rounds <= MOST_ROUNDS:
            raise PolicyRefused(f"party {self.name!r}: a protocol has 1 to {MOST_ROUNDS} rounds")
        for query in first.queries if proposal.rounds > 1 else ():
            entry = self._completed_entry(first, query.column, query.epsilon_ranks)
            entries += [entry] * (proposal.rounds - 1)
        return entries

    def _planned_release(self, proposal: StudyProposal) -> ReleaseRequest:
        """The one request for first releases that a proposal allows."""
        own, columns = own_columns_of(proposal, self.name), self.table.party.columns
        if not len(proposal.ranks[own]) == len(proposal.marginals[own]) == len(columns):
            raise ProtocolError(f"party {self.name!r}: the study asks for no ranks of its columns")
        parts = zip(columns, proposal.ranks[own], proposal.marginals[own], strict=True)
        queries = tuple(ColumnQuery(column.name, float(ranks), float(margin)) for column, ranks, margin in parts)
        return ReleaseRequest(proposal.study, proposal.method, proposal.sampler, queries)

    def _check_agreed(self, request: OnceRequest) -> None:
        """ProtocolError unless everybody consented to this study, and it is exactly what was consented to."""
        if self.consents is None:
            return
        proposal = self.consents.agreed(request.study)
        if isinstance(request, ResponseRequest):
            self._check_subjects(proposal, request.subjects)
            return
        if isinstance(request, PrintedRequest):
            place, fits = self._printed.place_of(request), proposal.variant == PRINTED_VARIANT
            fits = fits and self._printed.is_planned(proposal, request)
        elif proposal.variant == PRINTED_VARIANT:
            place, fits = "", False
        elif isinstance(request, GaussianMarginsRequest):
            place, fits = "margins", request.queries == self._strict.planned_queries(proposal)
        else:
            planned = self._planned_release(proposal)
            if isinstance(request, ReleaseRequest):
                place, fits = "release", request == planned
            else:
                place, number = f"round {request.round_number}", request.round_number
                asked = tuple((item.column, item.epsilon_ranks) for item in request.imputations)
                fits = asked == tuple((query.column, query.epsilon_ranks) for query in planned.queries)
                fits = fits and request.sampler == proposal.sampler and 2 <= number <= proposal.rounds
        if not fits:
            raise ProtocolError(f"party {self.name!r}: this is not what was consented to in this study")
        self.consents.bind(request.study, place, self._key(request))

    def _check_subjects(self, proposal: StudyProposal, subjects: NDArray[np.bool_] | None) -> None:
        """ProtocolError unless raw values are asked for subjects that were consented to."""
        allowed = proposal.subjects
        asked = np.ones(proposal.n_subjects, dtype=bool) if subjects is None else subjects
        if allowed is None or asked.shape != allowed.shape or bool((asked & ~allowed).any()):
            raise ProtocolError(f"party {self.name!r}: exact values of these subjects were not consented to")

    # ---- releases ------------------------------------------------------------------------

    def _release_once(self, request: OnceRequest) -> Reply:
        """In this query: on the ledger, drawn, stored, sent; and from the store if it is asked for again."""
        key = self._key(request)
        with self.replies.alone(key):  # the store's, not the party's: a study may be opened twice on one vault
            stored = self.replies.get(key)
            if stored is not None:
                reply: Reply = decode(stored, _ONCE_REPLIES)
                return reply
            self._check_agreed(request)
            method, entries, draw = self._prepare(request)
            # What is not stored has not left; where nothing outlives the process, nobody can know.
            self._record(method, entries, key, once=self.replies.is_durable)
            reply = draw()
            if entries:
                self.replies.put(key, encode(reply))
            return reply

    def _key(self, request: Request) -> str:
        """One organisation may be several parties of a study, all of them asked the same."""
        return fingerprint((self.name, request))

    def _stored_margins(self, key: str) -> GaussianMarginsReply | None:
        stored = self.replies.get(key)
        return None if stored is None else decode(stored, (GaussianMarginsReply,))

    def _prepare(self, request: OnceRequest) -> tuple[str, list[Release], Callable[[], Reply]]:
        """The method, the ledger entries, and what draws the answer once they are written."""
        if isinstance(request, GaussianMarginsRequest):
            key, entries = self._key(request), self._strict.price_margins(request)
            self._strict.check_margins(request, key)
            return STRICT.name, entries, lambda: self._strict.release_margins(request, key)
        if isinstance(request, PrintedRequest):
            self.policy.check_printed(self.name)  # for ranks, too: it may have been forbidden since consent
            self._check_columns([query.column for query in request.queries], "exact")
            for query in request.queries:
                self._check_epsilon(query.column, query.epsilon)
            run = map if self.executor is None else self.executor.map
            return request.method, self._printed.price(request), lambda: self._printed.answer(request, run)
        if isinstance(request, ReleaseRequest):
            return request.method, self._price(request), lambda: self._release(request)
        if isinstance(request, CompletedRanksRequest):
            self._check_completion(request)
            entries = [self._completed_entry(request, item.column, item.epsilon_ranks) for item in request.imputations]
            return request.method, entries, lambda: self._rank_completed(request)
        entries, asked = self._price_raw(request.study, [request.column], request.subjects)
        values = self.table.columns[request.column].values
        return RAW_REGRESSION, entries, lambda: ResponseReply(self.name, values[asked])

    def _release(self, request: ReleaseRequest) -> ReleaseReply:
        run = map if self.executor is None else self.executor.map
        return ReleaseReply(self.name, tuple(run(lambda query: self._release_column(request, query), request.queries)))

    def _rank_completed(self, request: CompletedRanksRequest) -> CompletedRanksReply:
        run = map if self.executor is None else self.executor.map
        return CompletedRanksReply(
            self.name, tuple(run(lambda item: self._rank_completed_column(request, item), request.imputations))
        )

    def _raw_features(self, request: DesignRequest) -> tuple[int, Callable[[], Features]]:
        """How many rows, and the raw columns of a regression once it is certain that they are wanted.

        Privacy
        -------
        The coordinator will see X_k beta_k of every round, exactly: with as many rounds as columns, the columns
        themselves. Epsilon is infinite; refused unless the party's policy names the method.
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

    def _price_raw(
        self, study: str, names: list[str], subjects: NDArray[np.bool_] | None
    ) -> tuple[list[Release], NDArray[np.bool_]]:
        """The ledger entries of raw columns, and which subjects they are about."""
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
        entries = [pricing.raw(self.table.party.column(name), int(asked.sum())) for name in names]
        return entries, asked

    def _record(self, method: str, entries: list[Release], key: str, *, once: bool) -> None:
        """In the ledger before anything is drawn, if the policy allows it.

        `once`: what the ledger holds for this request already, after a crash, is not charged again.
        """
        wanted = [replace(entry, request=key, **self.asked_by) for entry in entries]
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

    def _price(self, request: ReleaseRequest) -> list[Release]:
        """The ledger entries that answering would cost."""
        self._check_queries(request)
        return [entry for query in request.queries for entry in self._entries(request, query)]

    def _approve(self, method: str, proposed: list[Release], spent: list[Release]) -> None:
        about = self.name, self.account.table, self._overlapping()
        people = spent_on_people(spent, *about, self.account.same_people)
        self.policy.check(self.name, method, proposed, spent_on(spent, *about), people)

    def _overlapping(self) -> tuple[str, ...]:
        """Other tables with some of these people, also those that were opened after this one."""
        return (*self.account.overlapping, *self.opened_since())

    def _check_queries(self, request: ReleaseRequest) -> None:
        self._check_columns([query.column for query in request.queries], request.sampler)
        for query in request.queries:
            for epsilon in (query.epsilon_ranks, query.epsilon_marginal):
                self._check_epsilon(query.column, epsilon)

    def _check_completion(self, request: CompletedRanksRequest) -> None:
        self._check_columns([item.column for item in request.imputations], request.sampler)
        for item in request.imputations:
            self._check_epsilon(item.column, item.epsilon_ranks)
            seen = self.table.columns[item.column].observed
            n_observed, n_missing = int(seen.sum()), int((~seen).sum())
            column = self.table.party.column(item.column)
            if column.is_discrete:
                fits = item.codes is not None and item.codes.shape == (n_missing,) and can_hold(column, item.codes)
            else:
                fits = item.codes is None and item.curve.shape == (n_observed,) and item.grades.shape == (n_missing,)
                fits = fits and bool(np.all(np.diff(item.curve) >= 0.0) and np.isfinite(item.curve).all())
                fits = fits and bool(np.isfinite(item.grades).all())
            if not fits:
                raise PolicyRefused(f"party {self.name!r}, column {item.column!r}: the completion does not fit")

    def _check_columns(self, asked: list[str], sampler: str) -> None:
        known = {column.name for column in self.table.party.columns}
        if len(set(asked)) != len(asked) or not set(asked) <= known:
            raise PolicyRefused(f"party {self.name!r}: the request names columns twice or columns it does not hold")
        if sampler not in SAMPLERS:
            raise PolicyRefused(f"party {self.name!r} does not know the sampler the request names")

    def _check_epsilon(self, column: str, epsilon: float) -> None:
        if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:  # False for NaN, too
            raise PolicyRefused(
                f"party {self.name!r}, column {column!r}: epsilon must be positive, and at most {LARGEST_EPSILON:g}; "
                f"below {SMALLEST_EPSILON:g} nothing would be learnt"
            )

    def _entries(self, request: ReleaseRequest, query: ColumnQuery) -> tuple[Release, Release]:
        column = self.table.party.column(query.column)
        n_observed = int(self.table.columns[query.column].observed.sum())
        return self._pricing(request.study).first_round(
            column, request.sampler, n_observed, query.epsilon_ranks, query.epsilon_marginal
        )

    def _completed_entry(self, request: ReleaseRequest | CompletedRanksRequest, name: str, epsilon: float) -> Release:
        """The ledger entry of one column's ranks in a round on completed columns."""
        seen = self.table.columns[name].observed
        n_observed, n_missing = int(seen.sum()), int((~seen).sum())
        column = self.table.party.column(name)
        return self._pricing(request.study).completed_round(column, request.sampler, n_observed, n_missing, epsilon)

    def _pricing(self, study: str) -> Pricing:
        about = self.account
        return Pricing(
            study,
            self.name,
            self.noise.is_private,
            self.bounds_from_data,
            about.table,
            about.columns,
            about.snapshot,
        )

    def _release_column(self, request: ReleaseRequest, query: ColumnQuery) -> ColumnRelease:
        column = self.table.party.column(query.column)
        encoded = self.table.columns[query.column]
        values = encoded.values[encoded.observed]
        study = self.noise_label or request.study
        ranks = self._noisy_ranks(values, column, query.epsilon_ranks, request.sampler, study)
        cells = cell_count(column, values.size, query.epsilon_marginal)
        noisy = release_cells(
            to_cells(values, column, cells),
            cells,
            query.epsilon_marginal,
            self.noise,
            study,
            column.name,
            "cells",
        )
        return ColumnRelease(column.name, ranks, noisy)

    def _rank_completed_column(self, request: CompletedRanksRequest, item: Imputation) -> NDArray[np.int64]:
        column = self.table.party.column(item.column)
        label = f"round {request.round_number}"
        study = self.noise_label or request.study
        keys = self.noise.stream(study, column.name, label, "ties").words(self.table.observed().shape[0])
        values = complete_column(self.table.columns[item.column], item, keys)
        return self._noisy_ranks(values, column, item.epsilon_ranks, request.sampler, study, label)

    def _noisy_ranks(
        self, values: NDArray[np.float64], column: Column, epsilon: float, sampler: str, study: str, *label: str
    ) -> NDArray[np.int64]:
        """(n, L) noisy ranks; the coins are labelled, so that no two releases share any."""
        draw = flip_comparisons if sampler == "exact" else draw_binomial_ranks
        per_coin = epsilon / coins_per_comparison(column, sampler)
        ranks = []
        for index, latent in enumerate(_latent_values(values, column)):
            ranks.append(draw(latent, per_coin, self.noise.stream(study, column.name, str(index), "coins", *label)))
            self.on_column(values.size * (values.size - 1) // 2)
        return np.column_stack(ranks)


def _price_of(entry: Release) -> tuple[object, ...]:
    price = entry.epsilon, entry.coins, entry.mu, entry.mu_person, entry.joint
    return entry.table, entry.column, entry.what, *price, entry.noise, entry.bounds


def complete_column(encoded: EncodedColumn, item: Imputation, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Where every subject stands in the completed column: places in it, or values of a discrete one.

    Stays inside the party. The coordinator names the missing values of a discrete column: it knows the margin as
    well as anybody outside may, and no completed value moves with an observed one.

    In a continuous column the k-th smallest observed value has the grade curve[k], so a subject
    without a value stands right after the observed values whose grades are below its own. That is all
    its imputed value would be used for, and given the curve it is public *which place* that is.
    Equal values stand in the random order of `keys`. Not by fair coins, as in the first round: one
    replaced value shifts those between its old and new place by one, and with ties that would move whole
    groups of completed subjects past whole groups of observed ones. In a strict order every completed
    subject changes its place with one observed subject at most, which is what the round is charged for.
    """
    if item.codes is not None:
        values = encoded.values.copy()
        values[~encoded.observed] = item.codes
        return values
    seen, unseen = np.flatnonzero(encoded.observed), np.flatnonzero(~encoded.observed)
    ordered = seen[np.lexsort((keys[seen], encoded.values[seen]))]
    by_grade = np.argsort(item.grades, kind="stable")
    passed = np.searchsorted(item.curve, item.grades[by_grade])  # observed values before each completed subject
    places = np.empty(encoded.observed.size)
    places[unseen[by_grade]] = passed + np.arange(unseen.size)
    places[ordered] = np.arange(seen.size) + np.searchsorted(passed, np.arange(1, seen.size + 1))
    return places


def _latent_values(values: NDArray[np.float64], column: Column) -> list[NDArray[np.float64]]:
    """The column itself, or one indicator per category of a nominal column."""
    count = latent_count(column)
    return [values] if count == 1 else [(values == code).astype(np.float64) for code in range(count)]
