"""Attacking the opened sums: do they tell a replaced person, or a replaced block, better than mu-Gaussian DP allows?

Secure sums are run as a study runs them: handlers, sealed shares, three noises, opening. One study holds many copies of
the same pattern, and every copy is a trial with shares and noise of its own. The attacker knows everybody but the
replaced person and both candidates, so what is left is noise and, in one of the two data sets, D. Against Gaussian
noise of the claimed deviations the best statistic is the projection on D in units of the noise: N(0, 1) against
N(|D/sigma|, 1). It is what is used, unless something learnt from other trials separates them clearly better.

The bound on mu needs no Gaussian: under mu-GDP no event has Phi^-1(P(second)) - Phi^-1(P(first)) > mu (Dong, Roth
and Su, "Gaussian differential privacy", 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.auditing.attacked_releases import own_noise
from verticopula.auditing.epsilon_bounds import clopper_pearson
from verticopula.auditing.guessing import Score, fit_scores
from verticopula.auditing.mechanism_audit import check_trials, separation
from verticopula.auditing.sums_neighbours import Cells, SumsNeighbours, claimed_deviations, repeat_plan
from verticopula.auditing.trials import AUDIT_STUDY, run_trials
from verticopula.errors import SettingsError
from verticopula.mpc.opened_sums import PatternSums
from verticopula.mpc.proof_rounds import CellsDealer
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import SumsPlan, own_columns, own_rows, plan_slack, score_cells
from verticopula.privacy.gaussian_dp import gaussian_epsilon
from verticopula.privacy.noise import Keystream, Noise
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import secure_sums
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.methods import STRICT
from verticopula.schema.units import Unit
from verticopula.storage.records import MemoryRecords
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COPIES = 100
_FIT, _CHOOSE = 0.1, 0.2  # where the first and the second part of the trials end
_CUTS = 100
_CLEARLY = 4.0  # standard errors by which another statistic must do better
_ERRORS = 3.0
_TOLERANCE = 1e-9
_POOL = 300
_KEY = bytes(32)  # authenticity among handlers of one process


@dataclass(frozen=True)
class SumsRelease:
    """Secure sums of one pattern, many times over in one study; what is opened, in claimed standard deviations.

    Attributes
    ----------
    known : exact sums of the data set that an attacker subtracts
    noises : compute party -> what becomes of its source of noise; for parties that do not do as they should
    dealers : party -> its side of the proof of its cells, in place of `CellsDealer`; for parties that lie
    """

    plan: SumsPlan
    known: Floats
    copies: int = COPIES
    noises: Mapping[str, Callable[[Noise], Noise]] = field(default_factory=dict)
    dealers: Mapping[str, Callable[..., CellsDealer]] = field(default_factory=dict)

    def __call__(self, cells: Cells, noise: Noise) -> Floats:
        """(copies * numbers,) of one study."""
        return np.concatenate([self.standardise(numbers) for numbers in self.open_copies(cells, noise)])

    def open_copies(self, cells: Cells, noise: Noise) -> list[Floats]:
        """What one study opens, copy by copy."""
        repeated = {name: np.tile(values, (self.copies, 1)) for name, values in cells.items()}
        plan = repeat_plan(self.plan, self.copies)
        handlers = {
            name: self._handler(name, repeated.get(name), noise) for name in dict.fromkeys(plan.parties + plan.compute)
        }
        outside = [name for name in handlers if name not in plan.parties]
        own = handlers.pop(outside[0]) if outside else None
        opened = drive(secure_sums(plan, AUDIT_STUDY, STRICT.name, own), InProcessTransport(handlers))
        return [_flat(sums) for sums in opened]

    def _handler(self, name: str, cells: Ints | None, noise: Noise) -> SumsHandler:
        change = self.noises.get(name)
        source = PooledNoise(noise) if noise.is_private else own_noise(noise, name)
        return SumsHandler(
            name,
            None if cells is None else lambda plan: cells,
            records=MemoryRecords(),
            noise=source if change is None else change(source),
            authenticity=shared_authenticity(_KEY),
            dealer=self.dealers.get(name, CellsDealer),
        )

    def standardise(self, numbers: Floats) -> Floats:
        """In units of the noise that is claimed, without what the attacker knows."""
        return np.asarray((numbers - self.known) / all_deviations(self.plan))


class PooledNoise:
    """Secure noise, drawn many numbers at a time and handed out one after the other.

    Single draws are independent, so it makes no difference whose they are; a call for few of them costs as much as one
    for many.
    """

    is_private = True

    def __init__(self, source: Noise) -> None:
        self._source = source
        self._left: dict[float, Ints] = {}

    def stream(self, *label: str) -> Keystream:
        return self._source.stream(*label)

    def discrete_laplace(self, values: Ints, scale: float, *label: str) -> Ints:
        return self._source.discrete_laplace(values, scale, *label)

    def discrete_gaussian(self, values: Ints, scale: float, *label: str) -> Ints:
        left = self._left.get(scale, np.zeros(0, dtype=np.int64))
        if left.size < values.size:
            fresh = np.zeros(max(_POOL, values.size), dtype=np.int64)
            left = np.concatenate([left, self._source.discrete_gaussian(fresh, scale, *label)])
        self._left[scale] = left[values.size :]
        return values + left[: values.size]


def all_deviations(plan: SumsPlan) -> Floats:
    """The standard deviation that is claimed for every opened number."""
    width = int(plan.columns[0].sum())
    off, diagonal = claimed_deviations(plan)
    rows, columns = np.triu_indices(width)
    return np.concatenate([np.where(rows == columns, diagonal, off), np.full(width, off)])


def exact_sums(plan: SumsPlan, cells: Cells) -> Floats:
    """What would be opened without noise: products, then sums."""
    whole = np.zeros((plan.pattern_of.size, sum(plan.widths)))
    for party in plan.parties:
        if own_rows(plan, party).any():
            whole[:, own_columns(plan, party)] = score_cells(plan, party, cells[party]) / 2.0**plan.bits
    rows = whole[:, plan.columns[0]]
    products = rows.T @ rows
    return np.concatenate([products[np.triu_indices(rows.shape[1])], rows.sum(axis=0)])


def _flat(sums: PatternSums) -> Floats:
    return np.concatenate([sums.products[np.triu_indices(sums.sums.size)], sums.sums])


@dataclass(frozen=True)
class MeasuredSums:
    """What an audit of opened sums found.

    Attributes
    ----------
    mu, mu_low : claimed, and what it is at least, with `confidence`
    mu_estimate : of the projection: difference of means over the standard deviation; no bound
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
    copies: int = COPIES,
    noises: Mapping[str, Callable[[Noise], Noise]] | None = None,
) -> MeasuredSums:
    """The largest mu that somebody who sees the opened sums can refute.

    Parameters
    ----------
    neighbours : from `sums_neighbours`: a replaced person, or a replaced block
    trials : opened patterns in all, half of them of each data set
    seed : makes it repeatable; None for cryptographic noise
    copies : trials in one study
    noises : as in `SumsRelease`, to audit parties that do not do as they should
    """
    check_trials(trials, confidence)
    if copies < 1:
        raise SettingsError("a study of the audit holds at least one trial")
    plan, pair = neighbours.plan, neighbours.pair
    known = exact_sums(plan, pair.first)
    release = SumsRelease(plan, known, copies, noises or {})
    direction = release.standardise(exact_sums(plan, pair.second))
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
    a, b = (int(min(len(first), len(second)) * part) for part in (_FIT, _CHOOSE))
    length = float(np.linalg.norm(direction))
    unit = direction / length if length > 0.0 else direction

    def projection(features: Floats) -> Floats:
        return np.asarray(features @ unit)

    choosing = (first[a:b], second[a:b])
    learnt = max(fit_scores(first[:a], second[:a]), key=lambda score: separation(score, *choosing))
    margin = _CLEARLY * math.sqrt(2.0 / max(b - a, 1))
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
    cuts = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0.02, 0.98, _CUTS)))
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
    return float(cuts[int(np.argmax(probits[1] - probits[0] - _ERRORS * (errors[0] + errors[1])))])
