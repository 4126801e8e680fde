"""A party's handler of second moments: sums and products of its columns, exact, and no row of anybody.

A party answers one request for second moments in a study (`LocalParty` binds itself to it). The mask's seed follows
from the party's secret in the study and from the columns, so the same request gets the same bytes, after a restart
too, and no mask ever hides two tables.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.glm.feature_design import FLAT, Features
from verticopula.mpc.masked_products import mask_columns, own_products, pair_term, product_bits, round_columns
from verticopula.mpc.prime_field import FIELD_SEED_BYTES
from verticopula.mpc.sealed_messages import SECRET_BYTES, Authenticity, SealedChannel
from verticopula.privacy.policy import FEWEST_IN_SUMS
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.party.exact_sums import (
    check_categories_in_sums,
    check_columns_in_sums,
    check_people_in_sums,
    check_subjects_in_sums,
)
from verticopula.protocol.regression_messages import (
    CrossMomentsReply,
    CrossMomentsRequest,
    MomentsKeyReply,
    MomentsKeyRequest,
    MomentsReply,
    MomentsRequest,
    SecondMomentsRequest,
)
from verticopula.storage.record_store import RecordStore

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_FOLDS = 100
_MOST_COLUMNS = 2**20
_PURPOSE = "second moments"


@dataclass(frozen=True, repr=False)
class _Columns:
    """A party's columns as they are multiplied.

    Attributes
    ----------
    values : (n, c) z in units of 2^-bits, the response last where the party has it
    parts : the rows of each fold
    """

    features: Features
    centre: Floats
    scale: Floats
    bits: int
    values: Ints
    parts: tuple[Ints, ...]


@dataclass(repr=False)
class MomentsHandler:
    """One party's side of a regression on second moments. No repr: it can reach raw columns.

    Attributes
    ----------
    features : for a request, the features and the response (None at other parties) of its subjects; it may refuse
    records : where a study's secret is kept
    authenticity : how its public keys are signed, and the others' are known; None for none
    record : records the release of a request that is answered, or refuses it
    fewest : the smallest number of subjects of a sum that the party's policy allows
    parties : each one, and how many columns it has, as the party's own federation file says; None for those that a
        request names
    """

    party: str
    features: Callable[[MomentsRequest], tuple[Features, Floats | None]]
    records: RecordStore
    authenticity: Authenticity | None
    record: Callable[[MomentsRequest], None] = lambda request: None
    fewest: Callable[[], int] = lambda: 0
    parties: Mapping[str, int] | None = None
    _channels: dict[str, SealedChannel] = field(default_factory=dict)

    def handle(self, request: SecondMomentsRequest) -> MomentsKeyReply | MomentsReply | CrossMomentsReply:
        """Answer a request, or refuse it with a reason; the same request gets the same bytes."""
        if isinstance(request, MomentsKeyRequest):
            return MomentsKeyReply(self.party, self._channel(request.study).sign_public_key())
        if isinstance(request, MomentsRequest):
            return self._send_own(request)
        return self._send_terms(request)

    def close(self, study: str) -> None:
        """The study is over: what is kept stays, what is in memory goes."""
        self._channels.pop(study, None)

    def _send_own(self, request: MomentsRequest) -> MomentsReply:
        """Sums and products of the party's own columns, and the columns masked.

        Privacy
        -------
        To the coordinator: means, standard deviations and products of the party's own columns, exact, in each fold;
        and uniform numbers. To every other party: a seed that does not depend on anybody's values. Epsilon is infinite.
        """
        others = self._others(request)
        columns = self._columns(request)
        scores = columns.values / 2.0**columns.bits
        seed = self._seed(request, columns)
        return MomentsReply(
            self.party,
            columns.features.names,
            columns.features.sources,
            columns.features.starts,
            columns.centre,
            columns.scale,
            np.array([scores[rows].sum(axis=0) for rows in columns.parts]),
            own_products(columns.values, columns.bits, columns.parts),
            mask_columns(columns.values, seed),
            tuple(self._channel(request.study).seal(name, _PURPOSE, 0, seed) for name in others),
        )

    def _send_terms(self, request: CrossMomentsRequest) -> CrossMomentsReply:
        """This party's terms of the products with the others' columns, each with a pad.

        Privacy
        -------
        To the coordinator, which gets both parties' terms: their sum, from which it has the products, and no more.
        """
        moments = request.moments
        if request.study != moments.study:
            raise ProtocolError(f"party {self.party!r}: the request belongs to another study")
        names, others = [key.party for key in moments.keys], self._others(moments)
        if len(request.widths) != len(names) or len(request.boxes) != len(others):
            raise ProtocolError(f"party {self.party!r}: the columns or the seed of a party are missing")
        columns, channel = self._columns(moments), self._channel(request.study)
        own, place, terms = self._seed(moments, columns), names.index(self.party), []
        # A response of one category has a column, and no feature.
        most = [_MOST_COLUMNS] * len(names) if self.parties is None else [count + 1 for count in self.parties.values()]
        possible = all(0 <= width <= limit for width, limit in zip(request.widths, most, strict=True))
        if request.widths[place] != columns.values.shape[1] or not possible:
            raise ProtocolError(f"party {self.party!r}: the request is about another number of columns")
        check_columns_in_sums(self.party, columns.parts, sum(request.widths))
        asked = (moments.subjects, moments.folds, moments.keys, request.widths)
        for name, box in zip(others, request.boxes, strict=True):
            seed, sent = channel.open(name, _PURPOSE, 0, box), channel.seal(name, _PURPOSE, 0, own)
            is_first = place < names.index(name)
            # A pad is for one set of sums: two parties that were asked for different ones have different pads.
            label = fingerprint((*asked, sent, box) if is_first else (*asked, box, sent))
            key = channel.common_key(name, _PURPOSE, label, size=FIELD_SEED_BYTES)
            width = request.widths[names.index(name)]
            terms.append(pair_term(columns.values, (own, seed), width, key, columns.parts, is_first=is_first))
        return CrossMomentsReply(self.party, tuple(terms))

    def _others(self, request: MomentsRequest) -> list[str]:
        """The other parties, whose keys are known from now on.

        The coordinator has a certificate, too, and so have the lead and whoever computes: a key that one of them signed
        is no party's, and a seed that is sealed for it would open all columns.
        """
        names = [key.party for key in request.keys]
        if self.parties is not None and names != list(self.parties):
            raise ProtocolError(f"party {self.party!r}: keys are those of the federation's parties, in their order")
        if len(set(names)) != len(names) or self.party not in names:
            raise ProtocolError(f"party {self.party!r}: expected one public key of each party with columns")
        self._channel(request.study).accept_keys(request.keys)
        return [name for name in names if name != self.party]

    def _columns(self, request: MomentsRequest) -> _Columns:
        parts = self._parts(request)
        features, response = self.features(request)
        values = features.values if response is None else np.column_stack([features.values, response])
        check_subjects_in_sums(self.party, parts, self.fewest())
        check_columns_in_sums(self.party, parts, max(values.shape[1], self._count_columns()))
        check_categories_in_sums(self.party, features, response, parts)
        centre, spread, scores = _standardise(values)
        check_people_in_sums(self.party, scores, parts)
        self.record(request)
        bits = product_bits(values.shape[0])
        return _Columns(features, centre, spread, bits, round_columns(scores, bits), tuple(parts))

    def _count_columns(self) -> int:
        """Of all parties, by the own federation file: a request could say less of them to every two, pair by pair."""
        return 0 if self.parties is None else sum(self.parties.values())

    def _parts(self, request: MomentsRequest) -> list[Ints]:
        """The rows of each fold; ProtocolError where a fold is so small that its sums all but name people."""
        n_rows, folds = int(request.subjects.sum()), request.folds
        if folds is None:
            return [np.arange(n_rows)]
        count = int(folds.max(initial=-1)) + 1
        if folds.shape != (n_rows,) or folds.min(initial=0) < 0 or not 2 <= count <= _MOST_FOLDS:
            raise ProtocolError(
                f"party {self.party!r}: folds are numbers from 0 to at most {_MOST_FOLDS - 1}, one for each subject"
            )
        if np.bincount(folds, minlength=count).min() < FEWEST_IN_SUMS:
            raise ProtocolError(f"party {self.party!r}: a fold has fewer than {FEWEST_IN_SUMS} subjects")
        return [np.flatnonzero(folds == fold) for fold in range(count)]

    def _seed(self, request: MomentsRequest, columns: _Columns) -> bytes:
        content = hashlib.sha256(columns.values.astype("<i8").tobytes()).hexdigest()
        return self._channel(request.study).derive(_PURPOSE, fingerprint(request), content, size=FIELD_SEED_BYTES)

    def _channel(self, study: str) -> SealedChannel:
        if self.authenticity is None:
            raise ProtocolError(f"party {self.party!r} has no key to sign with, so it sends no second moments")
        if study not in self._channels:
            name = self.record_name(self.party, study)
            kept = self.records.get(name)
            if kept is None:
                kept = {"secret": secrets.token_hex(SECRET_BYTES)}
                self.records.put(name, kept)
            self._channels[study] = SealedChannel(study, self.party, bytes.fromhex(kept["secret"]), self.authenticity)
        return self._channels[study]

    @staticmethod
    def record_name(party: str, study: str) -> str:
        """The name under which a party's secret of a study is kept."""
        return f"moments/{party}/{study}"


def _standardise(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Centre, spread (0 where a column does not vary) and z of each column.

    Sizes are divided by a power of two first, which is exact: squares of very large or small values are no numbers.
    """
    unit = 2.0 ** np.floor(np.log2(np.abs(values).max(axis=0), where=values.any(axis=0), out=np.zeros(values.shape[1])))
    sized = values / unit
    centre = sized.mean(axis=0)
    spread = np.sqrt(np.mean((sized - centre) ** 2, axis=0))
    flat = spread <= FLAT * np.sqrt(np.mean(sized**2, axis=0))
    scores = np.where(flat, 0.0, (sized - centre) / np.where(flat, 1.0, spread))
    return centre * unit, np.where(flat, 0.0, spread) * unit, scores
