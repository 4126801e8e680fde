"""VFL-ADMM-DP: Gaussian noise on the local coefficients in every round of Algorithm 4.

Hu, Liu, Kong and Niu (2020), "Learning privately over distributed features: an ADMM sharing approach". In every round
party k solves Eq. (6-1), adds xi ~ N(0, sigma_k^2 (X_k' X_k)^-1) to its coefficients and sends X_k (beta_k + xi). The
noise follows their Gaussian mechanism for one round, as we read it:

    sigma_k = C_k sqrt(2 log(1.25 / delta)) / epsilon,    C_k = 3 / (d_k rho) [lambda c_1 + (1 + K rho) b_1],

with the sum (not the mean) of the losses, d_k the smallest eigenvalue of X_k' X_k, c_1 a bound on the penalty's
gradient (sqrt(p_k) for SCAD, whose slope is at most lambda) and b_1 a bound on a subject's embedding and multiplier.
Columns are scaled to unit standard deviation, b_1 = 1. The paper does not say how it set any of these.

What that is worth. The epsilon is claimed for one round, and every round of every strength on the path spends it
again. The claim itself does not hold: the noise lies in the column space of X_k, so what is sent for X_k and for an X_k
with one row replaced has supports that meet in a set of probability 0. Whoever sees one round can tell the two
apart, and p_k rounds show the column space itself. Hence epsilon is infinite at `client`, `block` and `person`,
whatever was asked for; the note says what the claim would compose to if it held.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from experiments.study import Outcome, Spent, Study, keep_common, stack_numbers
from verticopula.glm.families import Family, find_family
from verticopula.glm.lasso import group_curvatures, solve_lasso
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import choose_point, information_criterion
from verticopula.privacy.statement import format_epsilon
from verticopula.schema.defaults import DEFAULT_DELTA

Floats = NDArray[np.float64]

ROUNDS = 30
STRENGTHS = 8
STRENGTH_RATIO = 0.02
EMBEDDING_BOUND = 1.0
_LLA_STEPS = 3
_SWEEPS = 1000


def fit(study: Study) -> Outcome:
    """The coefficients of the last round at the strength that BIC chooses; zero where the local SCAD step is zero."""
    tables = keep_common(study.federation, study.tables)
    x, y = stack_numbers(study.federation, tables)
    scale = x.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    holders = [key.party for key in study.federation.keys if key != study.federation.response]
    blocks = [np.flatnonzero(np.array(holders) == name) for name in dict.fromkeys(holders)]
    rng, family = np.random.default_rng(study.seed), find_family(study.family)
    columns = x / scale
    largest = float(np.max(np.abs(columns.T @ family.residual(np.zeros(y.size), y)))) / y.size
    found, scores = [], []
    for strength in np.geomspace(largest, STRENGTH_RATIO * largest, STRENGTHS):
        coef = run_rounds(columns, y, blocks, family, strength, study.epsilon, DEFAULT_DELTA, rng)
        found.append(coef / scale)
        loss = family.loss(columns @ coef, y)
        scores.append(information_criterion(family, loss, int((coef != 0).sum()), y.size, log(y.size)))
    spent = what_it_is_worth(study.epsilon, DEFAULT_DELTA, ROUNDS * STRENGTHS, len(blocks))
    return Outcome(spent, y.size, coef=found[choose_point(scores)])


@dataclass(frozen=True)
class NoisyParty:
    """One party's scaled columns and its side of a round."""

    columns: Floats
    rho: float  # per row, in units of the mean loss

    @cached_property
    def gram(self) -> Floats:
        return np.ascontiguousarray(self.columns.T @ self.columns / len(self.columns))

    @cached_property
    def _root(self) -> Floats:
        """L with L L' = (X'X)^-1, for noise of that covariance."""
        return np.linalg.cholesky(np.linalg.inv(self.gram * len(self.columns)))

    def sensitivity(self, strength: float, n_parties: int) -> float:
        """C_k of the module's formula; `strength` is of the mean loss."""
        n, p = self.columns.shape
        smallest = float(np.linalg.eigvalsh(self.gram)[0]) * n
        return 3.0 / (smallest * self.rho) * (n * strength * sqrt(p) + (1.0 + n_parties * self.rho) * EMBEDDING_BOUND)

    def solve(self, asked: Floats, start: Floats, strength: float) -> Floats:
        """Eq. (6-1): SCAD by weighted lassos around `start`."""
        penalty, p = Penalty.build("scad"), self.columns.shape[1]
        starts, own = np.arange(p + 1), np.full(p, strength)
        gram = self.rho * self.gram
        linear = self.rho * (self.columns.T @ asked) / len(asked)
        coef = start.copy()
        for _ in range(_LLA_STEPS):
            weights = penalty.slope(np.abs(coef), own)
            solve_lasso(gram, linear, weights, starts, group_curvatures(gram, starts), coef, 1e-4 * strength, _SWEEPS)
        return coef

    def noise(self, sigma: float, rng: np.random.Generator) -> Floats:
        """xi."""
        return sigma * (self._root @ rng.standard_normal(self.columns.shape[1]))


def run_rounds(
    columns: Floats,
    y: Floats,
    blocks: list[NDArray[np.int64]],
    family: Family,
    strength: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    rounds: int = ROUNDS,
) -> Floats:
    """(p,) perturbed coefficients after so many rounds of the sharing form of Algorithm 4, no intercept.

    An infinite epsilon leaves the noise out.
    """
    n, k = y.size, len(blocks)
    rho = 0.8 * k * float(np.mean(family.curvature(np.zeros(n))))
    parties = [NoisyParty(np.ascontiguousarray(columns[:, block]), rho) for block in blocks]
    sigmas = [party.sensitivity(strength, k) * sqrt(2.0 * log(1.25 / delta)) / epsilon for party in parties]
    state, eta = np.zeros((k, n)), np.zeros(n)
    clean = [np.zeros(block.size) for block in blocks]
    sent = clean
    for _ in range(rounds):
        total = state.sum(axis=0)
        eta = family.minimise_near(total, y, rho / k, eta)
        z = state + (eta - total) / k
        clean = [
            party.solve(asked, old, strength) for party, asked, old in zip(parties, 2.0 * z - state, clean, strict=True)
        ]
        sent = [b + party.noise(sigma, rng) for b, party, sigma in zip(clean, parties, sigmas, strict=True)]
        state += np.array([party.columns @ b for party, b in zip(parties, sent, strict=True)]) - z
    coef = np.zeros(columns.shape[1])
    for block, own, kept in zip(blocks, sent, clean, strict=True):
        coef[block] = np.where(kept != 0.0, own, 0.0)
    return coef


def what_it_is_worth(epsilon: float, delta: float, rounds: int, n_parties: int) -> Spent:
    """Infinite, with what the claim for one round would compose to."""
    ratio = epsilon / sqrt(2.0 * log(1.25 / delta))
    block, person = (compose_gaussian(ratio * sqrt(times), delta) for times in (rounds, rounds * n_parties))
    return Spent(
        note=f"claimed: ({epsilon:g}, {delta:g}) a round; if that held, {rounds} rounds would be "
        f"{format_epsilon(block)} at block and {format_epsilon(person)} at person. It does not: the noise lies in the "
        "column space of the data"
    )


def compose_gaussian(mu: float, delta: float) -> float:
    """The epsilon of a Gaussian mechanism whose sensitivity is mu standard deviations (Balle and Wang 2018)."""

    def excess(epsilon: float) -> float:
        upper = norm.logcdf(-epsilon / mu + mu / 2.0)
        lower = epsilon + norm.logcdf(-epsilon / mu - mu / 2.0)
        return exp(upper) - exp(lower) - delta

    if excess(0.0) <= 0.0:
        return 0.0
    return float(brentq(excess, 0.0, mu**2 / 2.0 + 10.0 * mu + 10.0))
