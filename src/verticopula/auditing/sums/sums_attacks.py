"""Attacking both openings: do they tell a replaced person, or a replaced block, better than mu-Gaussian DP allows?

Secure sums are run as a study runs them: handlers, sealed shares, proofs, three noises, both openings. The proven
cells of one study are then opened again and again, each time with compute parties whose records of noise are taken
away: every opening is a trial with noise of its own. The attacker knows everybody but the replaced person and both
candidates, so what is left is noise and, in one of the two data sets, what the person moves. Against Gaussian noise of
the claimed deviations the best statistic is the projection on D in units of the noise: N(0, 1) against N(|D/sigma|,
1). It is what is used, unless something learnt from other trials separates them clearly better.

The bound on mu needs no Gaussian: under mu-GDP no event has Phi^-1(P(second)) - Phi^-1(P(first)) > mu (Dong, Roth
and Su, "Gaussian differential privacy", 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.auditing.bounds.epsilon_bounds import clopper_pearson
from verticopula.auditing.bounds.guessing import Score, fit_scores
from verticopula.auditing.bounds.mechanism_audit import check_trials, separation
from verticopula.auditing.bounds.trials import AUDIT_STUDY, run_trials
from verticopula.auditing.releases.attacked_releases import own_noise
from verticopula.auditing.sums.sums_neighbours import Cells, SumsNeighbours, claimed_deviations, no_pairs
from verticopula.errors import SettingsError
from verticopula.mpc.opened_sums import NoisyGram, OpenedCounts, open_counts, open_gram
from verticopula.mpc.proof_rounds import CellsDealer, VerifiedCells
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import SumsPlan, features_of_cells, own_columns, own_features, own_rows, plan_slack
from verticopula.mpc.table_noise import table_sizes
from verticopula.privacy.gaussian_dp import gaussian_epsilon
from verticopula.privacy.noise import Keystream, Noise
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import secure_sums
from verticopula.protocol.strict_messages import (
    SecureReply,
    SecureRequest,
    SumsReply,
    SumsRequest,
    TablesReply,
    TablesRequest,
)
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.methods import STRICT
from verticopula.schema.units import Unit
from verticopula.storage.record_store import MemoryRecords
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOLERANCE = 1e-9  # of mu computed in floating point
_KEY = bytes(32)  # authenticity among handlers of one process


@dataclass(frozen=True)
class SumsAttackTuning:
    """How an attack on opened sums is searched for. Chosen by hand, not tuned: any choice gives a valid bound.

    Attributes
    ----------
    copies : openings of one study's proven cells, each a trial
    learns, chooses : where the parts of the trials end that statistics are learnt on, and chosen by
    better_by : standard errors by which a learnt statistic must beat the projection
    cuts : of a statistic that are tried
    cut_errors : standard errors that a cut's bound is lowered by when they are compared
    noise_pool : Gaussian numbers drawn at a time, at least
    """

    copies: int = 100
    learns: float = 0.1
    chooses: float = 0.2
    better_by: float = 4.0
    cuts: int = 100
    cut_errors: float = 3.0
    noise_pool: int = 300


SUMS_ATTACK_TUNING = SumsAttackTuning()


@dataclass(frozen=True)
class SumsRelease:
    """Both openings of secure sums, many times over; what is opened, in claimed standard deviations.

    Attributes
    ----------
    known : exact sums of the data set that an attacker subtracts
    pairs : whose tables are opened; none for the first opening alone
    copies : openings of one study's proven cells
    noises : compute party -> what becomes of its source of noise; for parties that do not do as they should
    dealers : party -> its side of the proof of its cells, in place of `CellsDealer`; for parties that lie
    """

    plan: SumsPlan
    known: Floats
    pairs: Ints = field(default_factory=no_pairs)
    copies: int = SUMS_ATTACK_TUNING.copies
    noises: Mapping[str, Callable[[Noise], Noise]] = field(default_factory=dict)
    dealers: Mapping[str, Callable[..., CellsDealer]] = field(default_factory=dict)

    def __call__(self, cells: Cells, noise: Noise) -> Floats:
        """(copies * numbers,) of one study."""
        return np.concatenate([self.standardise(numbers) for numbers in self.open_copies(cells, noise)])

    def open_copies(self, cells: Cells, noise: Noise) -> list[Floats]:
        """What every opening of one study's proven cells says."""
        plan = self.plan
        names = dict.fromkeys(plan.parties + plan.compute)
        handlers = {name: self._handler(name, cells.get(name), noise) for name in names}
        outside = [name for name in handlers if name not in plan.parties]
        own = handlers[outside[0]] if outside else None
        rounds = secure_sums(plan, AUDIT_STUDY, STRICT.name, own, choose=lambda gram, selection: self.pairs)
        opened = drive(
            rounds, InProcessTransport({n: handler for n, handler in handlers.items() if handler is not own})
        )
        found = [_flat(opened.gram, opened.tables)]
        for _ in range(self.copies - 1):
            terms = [handlers[name].open_again() for name in plan.compute]
            tables = open_counts(plan, self.pairs, [term[1] for term in terms]) if len(self.pairs) else ()
            found.append(_flat(open_gram(plan, [term[0] for term in terms]), tables))
        return found

    def _handler(self, name: str, cells: Ints | None, noise: Noise) -> ReopeningHandler:
        change = self.noises.get(name)
        source = PooledNoise(noise if noise.is_private else own_noise(noise, name))
        return ReopeningHandler(
            name,
            None if cells is None else lambda plan: cells,
            records=MemoryRecords(),
            noise=source if change is None else change(source),
            authenticity=shared_authenticity(_KEY),
            dealer=self.dealers.get(name, CellsDealer),
        )

    def standardise(self, numbers: Floats) -> Floats:
        """In units of the noise that is claimed, without what the attacker knows."""
        return np.asarray((numbers - self.known) / all_deviations(self.plan, self.pairs))


class ReopeningHandler(SumsHandler):
    """A compute party whose record of openings is taken away, so that it opens the same proven cells with other noise.

    No party of a study does that: it would be a release of its own.
    """

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._asked: dict[type, SumsRequest | TablesRequest] = {}
        self._found: tuple[dict[str, VerifiedCells], str] | None = None

    def handle(self, request: SecureRequest) -> SecureReply:
        if isinstance(request, SumsRequest | TablesRequest):
            self._asked[type(request)] = request
        return super().handle(request)

    def _proven_cells(self, request: SumsRequest | TablesRequest) -> tuple[dict[str, VerifiedCells], str] | None:
        if self._found is None:
            self._found = super()._proven_cells(request)
        return self._found

    def open_again(self) -> list[Ints]:
        """Its terms of the openings that it was asked for, with fresh noise."""
        self._keep(AUDIT_STUDY, replace(self._kept(AUDIT_STUDY), inputs="", noise="", choice="", tables_noise=""))
        replies = [self.handle(request) for request in self._asked.values()]
        return [reply.term for reply in replies if isinstance(reply, SumsReply | TablesReply)]


class PooledNoise:
    """Noise that is drawn many numbers at a time and handed out one after the other.

    Single draws are independent, so it makes no difference whose they are; a call for few of them costs as much as one
    for many. Draws are numbered, so that seeded noise is never the same twice.
    """

    def __init__(self, source: Noise) -> None:
        self._source = source
        self._left: dict[float, Ints] = {}
        self._drawn = 0

    @property
    def is_private(self) -> bool:
        return self._source.is_private

    def stream(self, *label: str) -> Keystream:
        return self._source.stream(*label)

    def stream_key(self, *label: str) -> bytes:
        return self._source.stream_key(*label)

    def discrete_laplace(self, values: Ints, scale: float, *label: str) -> Ints:
        return self._source.discrete_laplace(values, scale, *label)

    def discrete_gaussian(self, values: Ints, scale: float, *label: str) -> Ints:
        left = self._left.get(scale, np.zeros(0, dtype=np.int64))
        if left.size < values.size:
            self._drawn += 1
            fresh = np.zeros(max(SUMS_ATTACK_TUNING.noise_pool, 20 * values.size), dtype=np.int64)
            left = np.concatenate([left, self._source.discrete_gaussian(fresh, scale, *label, str(self._drawn))])
        self._left[scale] = left[values.size :]
        return values + left[: values.size]


def all_deviations(plan: SumsPlan, pairs: Ints) -> Floats:
    """The standard deviation that is claimed for every opened number."""
    off, diagonal, counts = claimed_deviations(plan, pairs)
    rows, columns = np.triu_indices(plan.width)
    sizes = table_sizes([len(table) for table in plan.features], pairs)
    return np.concatenate([np.where(rows == columns, diagonal, off), np.full(sum(sizes), counts)])


def exact_sums(plan: SumsPlan, cells: Cells, pairs: Ints) -> Floats:
    """What would be opened without noise: the Gram matrix, then tables."""
    records, codes = [], np.full((plan.pattern_of.size, len(plan.features)), -1)
    for party in plan.parties:
        rows = own_rows(plan, party)
        width = sum(table.shape[1] for table in own_features(plan, party))
        whole = np.zeros((rows.size, width))
        if rows.any():
            whole[rows] = features_of_cells(plan, party, cells[party]) / 2.0**plan.bits
            codes[np.ix_(rows, np.array(own_columns(plan, party)))] = cells[party]
        records.append(whole)
    everything = np.hstack(records)
    found = [(everything.T @ everything)[np.triu_indices(plan.width)]]
    for a, b in pairs.tolist():
        counts = np.zeros((len(plan.features[a]), len(plan.features[b])))
        both = (codes[:, a] >= 0) & (codes[:, b] >= 0)
        np.add.at(counts, (codes[both, a], codes[both, b]), 1.0)
        found.append(counts.reshape(-1))
    return np.concatenate(found)


def _flat(gram: NoisyGram, tables: Sequence[OpenedCounts]) -> Floats:
    upper = gram.matrix[np.triu_indices(len(gram.matrix))]
    return np.concatenate([upper, *(table.counts.reshape(-1) for table in tables)])


@dataclass(frozen=True)
class MeasuredSums:
    """What an audit of opened sums found.

    Attributes
    ----------
    unit : `person` or `block`
    mu, mu_low : claimed, and what it is at least, with `confidence`
    mu_estimate : of the projection: difference of means over the standard deviation; no bound
    delta, confidence : as they were asked for
    epsilon, epsilon_low : what mu and mu_low are at `delta`; the second as long as the noise is Gaussian in shape
    trials : of both data sets together
    statistic : `projection`, or `learnt`; `refused` where nothing was opened
    """

    unit: Unit
    mu: float
    mu_low: float
    mu_estimate: float
    delta: float
    epsilon: float
    epsilon_low: float
    trials: int
    confidence: float
    statistic: str

    @property
    def holds(self) -> bool:
        """False if the claim is refuted."""
        return self.mu_low <= self.mu * (1.0 + _TOLERANCE)


def audit_sums(
    neighbours: SumsNeighbours,
    trials: int = 20_000,
    *,
    delta: float = DEFAULT_DELTA,
    confidence: float = 0.95,
    seed: int | None = None,
    workers: int = 1,
    copies: int = SUMS_ATTACK_TUNING.copies,
    noises: Mapping[str, Callable[[Noise], Noise]] | None = None,
) -> MeasuredSums:
    """The largest mu that somebody who sees the opened sums can refute.

    Parameters
    ----------
    neighbours : from `sums_neighbours`: a replaced person, or a replaced block
    trials : openings in all, half of them of each data set
    delta : at which mu is told as an epsilon
    confidence : of the bound
    workers : processes that draw openings
    seed : makes it repeatable; None for cryptographic noise
    copies : trials in one study
    noises : as in `SumsRelease`, to audit parties that do not do as they should
    """
    check_trials(trials, confidence)
    if copies < 1:
        raise SettingsError("a study of the audit holds at least one trial")
    plan, pair = neighbours.plan, neighbours.pair
    known = exact_sums(plan, pair.first, neighbours.pairs)
    release = SumsRelease(plan, known, neighbours.pairs, copies, noises or {})
    direction = release.standardise(exact_sums(plan, pair.second, neighbours.pairs))
    each = -(-trials // 2)
    first, second = (
        run_trials(release, data, -(-each // copies), label=label, seed=seed, workers=workers).reshape(-1, known.size)[
            :each
        ]
        for label, data in (("first", pair.first), ("second", pair.second))
    )
    return describe_bound(neighbours, judge_sums(first, second, direction, confidence), delta, 2 * each, confidence)


def describe_bound(
    neighbours: SumsNeighbours, found: MuBound, delta: float, trials: int, confidence: float
) -> MeasuredSums:
    """A bound beside what is claimed."""
    return MeasuredSums(
        neighbours.unit,
        neighbours.mu,
        found.mu_low,
        found.mu_estimate,
        delta,
        gaussian_epsilon(neighbours.mu, delta, plan_slack(neighbours.plan)),
        gaussian_epsilon(found.mu_low, delta),
        trials,
        confidence,
        found.statistic,
    )


@dataclass(frozen=True)
class MuBound:
    """The bound on mu from trials; see `MeasuredSums`."""

    mu_low: float
    mu_estimate: float
    statistic: str


def judge_sums(first: Floats, second: Floats, direction: Floats, confidence: float) -> MuBound:
    """From (trials, numbers) of both data sets. A tenth learns, a tenth chooses, the rest is counted."""
    tuning = SUMS_ATTACK_TUNING
    a, b = (int(min(len(first), len(second)) * part) for part in (tuning.learns, tuning.chooses))
    length = float(np.linalg.norm(direction))
    direction = direction / length if length > 0.0 else direction

    def projection(features: Floats) -> Floats:
        return np.asarray(features @ direction)

    choosing = (first[a:b], second[a:b])
    learnt = max(fit_scores(first[:a], second[:a]), key=lambda score: separation(score, *choosing))
    margin = tuning.better_by * math.sqrt(2.0 / max(b - a, 1))
    clearly = separation(learnt, *choosing) > separation(projection, *choosing) + margin
    score: Score = learnt if clearly else projection
    cut = _best_cut(score(choosing[0]), score(choosing[1]))
    low = mu_low(
        int((score(second[b:]) >= cut).sum()),
        len(second) - b,
        int((score(first[b:]) >= cut).sum()),
        len(first) - b,
        1.0 - confidence,
    )
    return MuBound(low, separation(projection, first, second), "learnt" if clearly else "projection")


def mu_low(likely: int, likely_trials: int, unlikely: int, unlikely_trials: int, alpha: float) -> float:
    """Phi^-1(P_low) - Phi^-1(P'_high), the largest mu that these counts refute; never below zero.

    `alpha` : probability with which the bound may be wrong; half goes to each of the two probabilities
    """
    low, _ = clopper_pearson(likely, likely_trials, alpha / 2.0)
    _, high = clopper_pearson(unlikely, unlikely_trials, alpha / 2.0)
    if not (float(low) > 0.0 and float(high) < 1.0):
        return 0.0
    return max(0.0, float(ndtri(low) - ndtri(high)))


def _best_cut(first: Floats, second: Floats) -> float:
    """Where to cut so that, as far as these trials say, the bound on mu from many more of them is largest.

    The cut with the largest lower bound, at three standard errors of the two probits: in the middle, if in doubt.
    """
    cuts = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0.02, 0.98, SUMS_ATTACK_TUNING.cuts)))
    sizes = (first.size, second.size)
    shares = [
        (np.array([(part >= cut).sum() for cut in cuts]) + 0.5) / (size + 1.0)
        for part, size in zip((first, second), sizes, strict=True)
    ]
    probits = [ndtri(share) for share in shares]
    errors = [
        np.sqrt(share * (1.0 - share) / size) * math.sqrt(2.0 * math.pi) * np.exp(probit**2 / 2.0)
        for share, probit, size in zip(shares, probits, sizes, strict=True)
    ]
    lowered = probits[1] - probits[0] - SUMS_ATTACK_TUNING.cut_errors * (errors[0] + errors[1])
    return float(cuts[int(np.argmax(lowered))])
