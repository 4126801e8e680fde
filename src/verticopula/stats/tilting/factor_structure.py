"""What correlations are expected to look like: a few factors between parties, and something of their own inside them.

A noisy correlation is modelled as r_jk = l_j'l_k + u_jk + e_jk: factors; a residual u with variance tau^2, one for
pairs inside a party and one for pairs of two; and noise e of known variance v_jk. Loadings and both tau^2 maximise the
likelihood of all noisy correlations at once, with loadings of factor f around 0 with a variance of its own (automatic
relevance determination): a factor that does not stand out of the noise is pruned, which chooses the rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LEAST_SPREAD = 1e-6  # tau^2
_STEPS = 200


@dataclass(frozen=True)
class StructureStart:
    """Where the search for loadings and spreads begins. The likelihood decides where it ends: no tuning is on record.

    Attributes
    ----------
    damping : variance of correlations around 0 by which noisy ones are shrunk first
    share : of a column's variance that factors explain before the first pass
    shares : between which that stays
    least_value : eigenvalue that a factor counts with at least
    passes : of principal factors
    columns_a_factor : there are no more factors than one for so many columns
    spreads : tau^2 of two columns of one party, and of two parties
    """

    damping: float = 0.05
    share: float = 0.5
    shares: tuple[float, float] = (0.05, 0.95)
    least_value: float = 1e-3
    passes: int = 10
    columns_a_factor: int = 3
    spreads: tuple[float, float] = (0.01, 0.001)


START_AT = StructureStart()


@dataclass(frozen=True)
class FactorStructure:
    """The expectation, as it stands.

    Attributes
    ----------
    loadings : (q, factors)
    spread : (groups,) tau^2
    groups : (q, q) which tau^2 a pair has; -1 for pairs without any (inside one nominal column, flat latents, j = k)
    """

    loadings: Floats
    spread: Floats
    groups: Ints

    @property
    def rank(self) -> int:
        """Factors that explain at least a hundredth of a column on average."""
        if not len(self.loadings):  # no column has anything to say
            return 0
        return int(np.sum(np.mean(self.loadings**2, axis=0) > TUNING.real_factor))

    @property
    def expected(self) -> Floats:
        return np.asarray(self.loadings @ self.loadings.T)

    @property
    def variance(self) -> Floats:
        """(q, q) tau^2 of every pair."""
        return np.asarray(np.append(self.spread, 1.0)[self.groups])

    def blend(self, correlation: Floats, variance: Floats) -> Floats:
        """Posterior means of all correlations: noisy ones moved towards the expectation as far as their noise says."""
        known = np.isfinite(variance)
        weight = np.where(known, self.variance / (self.variance + np.where(known, variance, 1.0)), 0.0)
        return self.expected + weight * (np.where(known, correlation, 0.0) - self.expected)


def posterior_variance(structure: FactorStructure, variance: Floats) -> Floats:
    """(q, q) of the correlations that `blend` gives, with that of the loadings from the likelihood's curvature.

    A pair's own noise and residual leave tau^2 v/(tau^2 + v); where it leans on the factors, their error comes on top:
    J H^-1 J' with H the Gauss-Newton Hessian of all pairs and J the derivative of l_j'l_k. tau^2 is taken one standard
    error larger than found: in much noise one cannot tell whether there is anything but the factors, or any of them.
    """
    if not variance.size:  # no column has anything to say
        return variance
    structure = replace(structure, spread=structure.spread + _spread_errors(structure, variance))
    used = structure.loadings[:, np.mean(structure.loadings**2, axis=0) > TUNING.least_loading]
    q, factors = used.shape
    known = (structure.groups >= 0) & np.isfinite(variance)
    noise = np.where(known, variance, 1.0)
    counts = np.where(
        known, np.where(structure.groups == 0, TUNING.inside_weight, 1.0) / (structure.variance + noise), 0.0
    )
    of_factors = np.zeros((q, q))
    if factors:
        hessian = np.einsum("jk,ka,jb->jakb", counts, used, used)  # block (j, k): counts * l_k l_j'
        diagonal = np.einsum("jk,ka,kb->jab", counts, used, used)
        prior = 1.0 / (np.mean(used**2, axis=0) + TUNING.least_loading)
        for j in range(q):
            hessian[j, :, j, :] = diagonal[j] + np.diag(prior)
        inverse = np.linalg.pinv(hessian.reshape(q * factors, -1), hermitian=True).reshape(q, factors, q, factors)
        own = np.einsum("jajb->jab", inverse)
        of_own = np.einsum("ka,jab,kb->jk", used, own, used)
        of_both = np.einsum("ka,jakb,jb->jk", used, inverse, used)
        of_factors = np.maximum(of_own + of_own.T + 2.0 * of_both, 0.0)
    leaning = np.where(known, noise / (structure.variance + noise), 1.0)
    alone = np.where(known, structure.variance * leaning, structure.variance)
    return np.where(structure.groups >= 0, alone + leaning**2 * of_factors, 0.0)


def _spread_errors(structure: FactorStructure, variance: Floats) -> Floats:
    """Standard error of every tau^2: its information is the sum over pairs of 1/(2 (tau^2 + v)^2)."""
    errors = np.full(structure.spread.size, TUNING.most_residual)
    for group, spread in enumerate(structure.spread):
        known = variance[(structure.groups == group) & np.isfinite(variance)]
        if known.size:  # every pair is in there twice
            errors[group] = min(1.0 / math.sqrt(float(np.sum(0.25 / (spread + known) ** 2))), TUNING.most_residual)
    return errors


def group_pairs(parties: Ints, apart: Bools) -> Ints:
    """0 for two latents of one party, 1 of two; -1 where `apart`, and on the diagonal."""
    groups = np.where(parties[:, None] == parties, 0, 1)
    groups[apart] = -1
    np.fill_diagonal(groups, -1)
    return groups


def start_structure(
    correlation: Floats, variance: Floats, groups: Ints, factors: int = TUNING.most_factors
) -> FactorStructure:
    """Principal factors of the damped correlations."""
    known = (groups >= 0) & np.isfinite(variance)
    shrunk = correlation * START_AT.damping / (START_AT.damping + np.where(known, variance, 1.0))
    damped = np.where(known, shrunk, 0.0)
    factors = min(factors, max(len(damped) // START_AT.columns_a_factor, 1))
    diagonal = np.full(len(damped), START_AT.share)
    loadings = np.zeros((len(damped), factors))
    for _ in range(START_AT.passes):
        np.fill_diagonal(damped, diagonal)
        values, vectors = np.linalg.eigh(damped)
        loadings = vectors[:, -factors:] * np.sqrt(np.maximum(values[-factors:], START_AT.least_value))
        diagonal = np.clip(np.sum(loadings**2, axis=1), *START_AT.shares)
    return FactorStructure(loadings, np.array(START_AT.spreads), groups)


def fit_structure(structure: FactorStructure, correlation: Floats, variance: Floats) -> FactorStructure:
    """Loadings and spreads that maximise the likelihood of the noisy correlations, from where they stand."""
    q, factors = structure.loadings.shape
    known = (structure.groups >= 0) & np.isfinite(variance)
    target = np.where(known, correlation, 0.0)
    noise = np.where(known, variance, 1.0)
    members = [known & (structure.groups == group) for group in range(structure.spread.size)]

    counts = np.where(structure.groups == 0, TUNING.inside_weight, 1.0)

    def lost(parameters: Floats) -> tuple[float, Floats]:
        loadings = parameters[: q * factors].reshape(q, factors)
        spread = np.exp(parameters[q * factors :])
        total = np.where(known, np.append(spread, 1.0)[structure.groups] + noise, 1.0)
        residual = np.where(known, target - loadings @ loadings.T, 0.0)
        weighted = counts * residual / total
        size = np.mean(loadings**2, axis=0) + TUNING.least_loading
        value = 0.25 * float(np.sum(weighted * residual + counts * np.log(total))) + 0.5 * q * float(
            np.sum(np.log(size))
        )
        by_loading = -(weighted @ loadings) + loadings / size
        by_total = 0.25 * counts * (1.0 / total - (residual / total) ** 2)
        by_spread = [s * float(np.sum(by_total[chosen])) for s, chosen in zip(spread, members, strict=True)]
        return value, np.concatenate([by_loading.ravel(), by_spread])

    start = np.concatenate([structure.loadings.ravel(), np.log(structure.spread)])
    bounds = [(-1.0, 1.0)] * (q * factors) + [(math.log(_LEAST_SPREAD), math.log(TUNING.most_residual))] * len(members)
    found = minimize(lost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS})
    return FactorStructure(found.x[: q * factors].reshape(q, factors), np.exp(found.x[q * factors :]), structure.groups)
