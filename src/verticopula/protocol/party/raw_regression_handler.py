"""A party's part in regressions on raw columns: which are wanted, what they cost, and whether they may be used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import PolicyRefused, ProtocolError
from verticopula.glm.feature_design import Features
from verticopula.glm.feature_encoding import code_schema_column, features_of
from verticopula.privacy.release import Release
from verticopula.protocol.consent_messages import StudyProposal
from verticopula.protocol.messages import Reply
from verticopula.protocol.party.earlier_sums import EarlierSums, SummedRows
from verticopula.protocol.party.membership import Membership
from verticopula.protocol.party.moments_handler import MomentsHandler
from verticopula.protocol.party.party_store import StudyStores
from verticopula.protocol.party.regression_handler import RegressionHandler
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.party.study_consents import FIT_PLACE, StudyConsents
from verticopula.protocol.regression_messages import (
    DesignRequest,
    MomentsRequest,
    RegressionRequest,
    ResponseReply,
    ResponseRequest,
    SecondMomentsRequest,
)
from verticopula.schema.federation import Party
from verticopula.schema.methods import MOMENTS_VARIANT, OWN_VARIANT, RAW_REGRESSION


class RawRegressionHandler:
    """One party's raw columns in the regressions of one study. No repr: it can reach data.

    Parameters
    ----------
    stores : where fits and secrets are kept
    consents : what the party has consented to; without it nobody is asked
    """

    def __init__(
        self, control: ReleaseControl, membership: Membership, stores: StudyStores, consents: StudyConsents | None
    ) -> None:
        federation = membership.federation
        self._control, self._membership, self._consents = control, membership, consents
        self._records = stores.records
        self._summed = ""  # key of the request whose sums were recorded last
        self._fits = RegressionHandler(control.name, self._fit_features, stores.fits)
        self._moments = MomentsHandler(
            control.name,
            self._moment_features,
            stores.records,
            membership.authenticity,
            self._record_moments,
            lambda: control.policy.min_subjects,
            None if federation is None else {p.name: _count_features(p) for p in federation.parties},
        )

    def handle(self, request: RegressionRequest) -> Reply:
        """Answer a round of a regression, or refuse it with a reason."""
        self._control.check_method(RAW_REGRESSION)
        self._control.check_engine(RAW_REGRESSION, OWN_VARIANT)
        if isinstance(request, SecondMomentsRequest):
            self._agreed_variant(request.study, moments=True)
            return self._moments.handle(request)
        self._agreed_variant(request.study, moments=False)
        return self._fits.handle(request)

    def close(self, study: str) -> None:
        """The study is over: its fits go, on disk too."""
        places = [] if self._consents is None else self._consents.places(study)
        self._fits.close(study, [name.removeprefix(FIT_PLACE) for name in places if name.startswith(FIT_PLACE)])
        self._moments.close(study)

    # ---- what was consented to -------------------------------------------------------------

    def price_all(self, proposal: StudyProposal) -> list[Release]:
        """The ledger entries of everything that a proposal asks of this party."""
        moments = proposal.variant == MOMENTS_VARIANT
        return self._price(proposal.study, self._names(), proposal.subjects, moments=moments)[0]

    def check_agreed_response(self, proposal: StudyProposal, request: ResponseRequest) -> None:
        """ProtocolError unless this response was consented to."""
        self._agreed_variant(request.study, moments=False)
        self._check_subjects(proposal, request.subjects)

    def _check_subjects(self, proposal: StudyProposal, subjects: NDArray[np.bool_] | None) -> None:
        """ProtocolError unless raw values are asked for subjects that were consented to."""
        allowed = proposal.subjects
        asked = np.ones(proposal.n_subjects, dtype=bool) if subjects is None else subjects
        if allowed is None or asked.shape != allowed.shape or bool((asked & ~allowed).any()):
            raise ProtocolError(f"party {self._control.name!r}: exact values of these subjects were not consented to")

    def _agreed_variant(self, study: str, *, moments: bool) -> None:
        """ProtocolError unless everybody consented to this variant of a regression on raw columns."""
        if self._consents is not None and (self._consents.agreed(study).variant == MOMENTS_VARIANT) != moments:
            raise ProtocolError(f"party {self._control.name!r}: this is not what was consented to in this study")

    # ---- releases --------------------------------------------------------------------------

    def prepare_response(self, request: ResponseRequest) -> tuple[list[Release], Callable[[], ResponseReply]]:
        """The ledger entries of a raw response, and what makes the answer once they are written."""
        entries, asked = self._price(request.study, [request.column], request.subjects)
        values = self._control.table.columns[request.column].values
        return entries, lambda: ResponseReply(self._control.name, values[asked])

    def _fit_features(self, request: DesignRequest) -> tuple[int, Callable[[], Features]]:
        """How many rows, and the raw columns of a regression once it is certain that they are wanted.

        Privacy
        -------
        The coordinator may ask for any of them, and gets those that models on its path want, exactly. Epsilon is
        infinite; refused unless the party's policy names the method.
        """
        control = self._control
        names = self._names() if request.columns is None else list(request.columns)
        names = [name for name in names if name != request.without]
        if self._consents is not None:
            self._check_subjects(self._consents.agreed(request.study), request.subjects)
        entries, asked = self._price(request.study, names, request.subjects)
        key = control.key(request)
        if self._consents is not None:
            self._consents.bind(request.study, f"{FIT_PLACE}{request.fit}", key)  # so that it is known when it is to go
        control.approve(RAW_REGRESSION, control.unpaid(entries, key), control.spent())

        def make() -> Features:
            control.record(RAW_REGRESSION, entries, key, once=True)  # raw values say no more the second time
            return self._features(names, asked)

        return int(asked.sum()), make

    def _moment_features(self, request: MomentsRequest) -> tuple[Features, NDArray[np.float64] | None]:
        """The raw features of a regression on second moments, and the response where it is here.

        Privacy
        -------
        The coordinator will have exact sums and products of all columns: epsilon is infinite. It sees no row. Refused
        unless the party's policy names the method; one set of sums is made in a study, because the difference of two
        could be one person.
        """
        name, names = self._control.name, self._names()
        if request.response is not None and request.response not in names:
            raise PolicyRefused(f"party {name!r}: the request names a response that it does not hold")
        _, asked = self._price(request.study, names, request.subjects, moments=True)
        if self._consents is not None:
            agreed = self._consents.agreed(request.study).subjects
            if agreed is None or not np.array_equal(agreed, request.subjects):
                raise ProtocolError(f"party {name!r}: sums over these subjects were not consented to")
            # Before anything is looked at: refusals that hang on values would tell them, one request after the other.
            self._consents.bind(request.study, "moments", self._control.key(request))
        features = self._features([name for name in names if name != request.response], asked)
        if request.response is None:
            return features, None
        return features, self._control.table.columns[request.response].values[asked]

    def _record_moments(self, request: MomentsRequest) -> None:
        """In the ledger, once nothing speaks against the sums of a request."""
        names = self._names()
        entries, asked = self._price(request.study, names, request.subjects, moments=True)
        key = self._control.key(request)
        if key == self._summed:  # its terms are asked for after its sums
            return
        with self._remembered(names, asked):
            self._control.record(RAW_REGRESSION, entries, key, once=True)
        self._summed = key

    def _remembered(self, names: list[str], asked: NDArray[np.bool_]) -> AbstractContextManager[None]:
        """What exact sums over these subjects are recorded in; PolicyRefused where they are nearly those of earlier
        ones."""
        if self._membership.ids is None:
            return nullcontext()
        values = np.column_stack([self._control.table.columns[name].values[asked] for name in names])
        rows = SummedRows(self._membership.ids(asked), values)
        return EarlierSums(self._records).adding(self._control.name, rows)

    def _price(
        self, study: str, names: list[str], subjects: NDArray[np.bool_] | None, *, moments: bool = False
    ) -> tuple[list[Release], NDArray[np.bool_]]:
        """The ledger entries of raw columns, or of their sums and products, and which subjects they are about."""
        name, table = self._control.name, self._control.table
        if len(set(names)) != len(names) or not set(names) <= set(self._names()):
            raise PolicyRefused(f"party {name!r}: the request names columns twice or columns it does not hold")
        # Before anything about the data is looked at.
        self._control.policy.check(name, RAW_REGRESSION, (), ())
        cohort = table.observed().shape[0]
        asked = np.ones(cohort, dtype=bool) if subjects is None else subjects
        if asked.dtype != np.bool_ or asked.shape != (cohort,):
            raise PolicyRefused(f"party {name!r}: subjects are named by a mask over the cohort")
        if not all(table.columns[column].observed[asked].all() for column in names):
            raise PolicyRefused(f"party {name!r}: the regression names subjects that it has no values for")
        pricing = self._control.pricing(study)
        price = pricing.raw_moments if moments else pricing.raw
        return [price(table.party.column(column), int(asked.sum())) for column in names], asked

    def _features(self, names: list[str], asked: NDArray[np.bool_]) -> Features:
        """The features of some columns' subjects."""
        table = self._control.table
        codings = [code_schema_column(table.party.column(name)) for name in names]
        return features_of([table.written(name)[asked] for name in names], codings, int(asked.sum()))

    def _names(self) -> list[str]:
        return [column.name for column in self._control.table.party.columns]


def _count_features(party: Party) -> int:
    """How many columns a party has in a regression."""
    return sum(len(code_schema_column(column).names) for column in party.columns)
