"""What the benchmarks of the regression share: data, and both solvers in a few lines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks import ROOT
from experiments.central_path import trace_path
from experiments.designs import FAMILY_OF_MODEL, Model, SimulationDesign, make_complete
from verticopula.glm.central_solver import largest_strength, null_point, violations
from verticopula.glm.families import Family, find_family
from verticopula.glm.feature_design import Features, Standardised, standardise
from verticopula.glm.lasso import group_norms
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import PathPoint, RefitRule, choose_point, geometric_strengths, information_criterion
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.regression_handler import RegressionHandler
from verticopula.protocol.regression_path import FederatedPath, RegressionSettings, SentColumns, federated_path
from verticopula.protocol.wire import encode
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

Floats = NDArray[np.float64]
_CURVATURE = {"gaussian": 1.0, "binomial": 0.25}  # the largest


@dataclass(frozen=True)
class Problem:
    """A regression whose columns lie side by side, party after party."""

    x: Floats
    y: Floats
    blocks: tuple[slice, ...]
    family: Family
    fit_intercept: bool = True

    def features(self, columns: slice = slice(None)) -> Features:
        return Features.plain(self.x[:, columns], [f"x{j}" for j in range(self.x.shape[1])[columns]])

    def standardised(self) -> Standardised:
        return standardise(self.features(), centre=self.fit_intercept)

    def largest_strength(self) -> float:
        """The least strength at which no column enters."""
        design = self.standardised()
        null = null_point(design, self.y, self.family, fit_intercept=self.fit_intercept)
        residual = self.family.residual(np.full(self.y.size, null.intercept), self.y)
        return largest_strength(design.columns, residual, design.starts, design.factors)

    def strengths(self) -> Floats:
        """The usual path of 40."""
        return geometric_strengths(self.largest_strength())

    def bic(self) -> RefitRule:
        return RefitRule(float(np.log(self.y.size)), self.y.size)


def make_section_5_1(model: Model, n: int, seed: int, *, fit_intercept: bool = True) -> tuple[Problem, Floats]:
    """Complete data of Section 5.1, and the true coefficients."""
    rng = np.random.default_rng([seed, n, list(FAMILY_OF_MODEL).index(model)])
    data = make_complete(SimulationDesign(model=model), n, rng=rng)
    return Problem(data.x, data.y, data.blocks, find_family(FAMILY_OF_MODEL[model]), fit_intercept), data.coef


def make_correlated(
    family: str,
    sizes: Sequence[int],
    correlation: float,
    n: int,
    rng: np.random.Generator,
    *,
    size: float = 0.5,
    intercept: float = 0.0,
) -> Problem:
    """Normal columns that all have the same correlation, inside the parties and across; every third has an effect."""
    p = sum(sizes)
    x = np.sqrt(correlation) * rng.standard_normal((n, 1)) + np.sqrt(1.0 - correlation) * rng.standard_normal((n, p))
    j = np.arange(p)
    eta = intercept + x @ (np.where(j % 3 == 0, size, 0.0) * np.where(j % 2 == 0, 1.0, -1.0))
    if family == "gaussian":
        y = eta + rng.standard_normal(n)
    elif family == "binomial":
        y = (rng.random(n) < expit(eta)).astype(np.float64)
    else:
        y = rng.poisson(np.exp(np.clip(0.5 * eta, -3.0, 2.0))).astype(np.float64)
    ends = np.cumsum([0, *sizes]).tolist()
    blocks = tuple(slice(first, last) for first, last in pairwise(ends))
    return Problem(x, y, blocks, find_family(family))


def fit_central(
    problem: Problem, penalty: str, strengths: Floats, tolerance: float = 1e-3, refit: RefitRule | None = None
) -> list[PathPoint]:
    """All columns in one place."""
    return list(
        trace_path(
            problem.standardised(),
            problem.y,
            problem.family,
            Penalty.build(penalty),
            strengths,
            fit_intercept=problem.fit_intercept,
            tolerance=tolerance,
            refit=refit,
        )
    )


class MeteredTransport(InProcessTransport):
    """Counts the bytes of messages as they would be sent."""

    sent = 0

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies = super().deliver(requests)
        self.sent += sum(len(encode(message)) for message in (*requests.values(), *replies.values()))
        return replies


def fit_federated(
    problem: Problem,
    penalty: str,
    strengths: Floats,
    tolerance: float = 1e-3,
    refit: RefitRule | None = None,
    sent: SentColumns | None = None,
) -> FederatedPath:
    """Every party's columns behind a handler of its own; traffic is in bytes as they are sent."""
    handlers = {
        f"party{k}": RegressionHandler.holding(f"party{k}", problem.features(block))
        for k, block in enumerate(problem.blocks)
    }
    settings = RegressionSettings(problem.family, Penalty.build(penalty), problem.fit_intercept, tolerance, refit=refit)
    transport = MeteredTransport(handlers)
    rounds = federated_path(list(handlers), problem.y, settings, lambda top: strengths, study="bench", sent=sent)
    path = drive(rounds, transport)
    return replace(path, traffic=replace(path.traffic, bytes=transport.sent))


def differences(found: Sequence[PathPoint], reference: Sequence[PathPoint]) -> Floats:
    """Relative differences of the objectives, strength by strength; positive where `found` is higher."""
    if len(found) != len(reference):
        raise ValueError(f"paths of {len(found)} and {len(reference)} strengths")
    return np.array([(a.objective - b.objective) / abs(b.objective) for a, b in zip(found, reference, strict=True)])


def other_supports(found: Sequence[PathPoint], reference: Sequence[PathPoint]) -> int:
    """At how many strengths the two select different columns."""
    return sum(bool(np.any((a.coef != 0) != (b.coef != 0))) for a, b in zip(found, reference, strict=True))


def choose_refit(problem: Problem, points: Sequence[PathPoint]) -> int:
    """The strength that BIC on refits chooses."""
    rule = problem.bic()
    return choose_point(
        [
            information_criterion(problem.family, p.refit.loss, p.degrees_of_freedom, rule.n_subjects, rule.charge)
            if p.refit
            else np.inf
            for p in points
        ]
    )


@dataclass(frozen=True)
class Polished:
    """Where descent on the penalised objective itself leads from a point of a path.

    Attributes
    ----------
    objective : there
    violation : of the optimality conditions there, relative to the strength
    """

    objective: float
    violation: float


def polish(problem: Problem, penalty: Penalty, point: PathPoint, steps: int = 5000) -> Polished:
    """Proximal gradient steps with the penalty's tangents, which never raise the objective."""
    design = problem.standardised()
    scale = np.array([transform[0, 0] for transform in design.transforms])
    coef = point.coef / scale
    rows = np.column_stack([design.columns, np.ones(problem.y.size)]) if problem.fit_intercept else design.columns
    full = np.append(coef, point.intercept + float(point.coef @ design.centre)) if problem.fit_intercept else coef
    p, own = coef.size, np.full(coef.size, point.strength)
    step = 1.0 / (_CURVATURE[problem.family.name] * float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]))
    for _ in range(steps):
        gradient = rows.T @ problem.family.residual(rows @ full, problem.y) / len(rows)
        weights = np.append(penalty.slope(np.abs(full[:p]), own), np.zeros(full.size - p))
        moved = full - step * gradient
        moved = np.sign(moved) * np.maximum(np.abs(moved) - step * weights, 0.0)
        small = np.max(np.abs(moved - full)) <= 1e-8 * step * point.strength
        full = moved
        if small:
            break
    gradient = rows.T @ problem.family.residual(rows @ full, problem.y) / len(rows)
    norms = group_norms(full[:p], design.starts)
    wrong = violations(full[:p], gradient[:p], penalty.slope(norms, own), design.starts)
    loss = problem.family.loss(rows @ full, problem.y)
    return Polished(loss + float(penalty.value(norms, own).sum()), float(wrong.max()) / point.strength)


def _mark_source() -> str:
    """The beginning of a hash of the solvers' source."""
    folder = ROOT / "src" / "verticopula"
    files = (*sorted((folder / "glm").glob("*.py")), folder / "protocol" / "regression_path.py")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


SOURCE = _mark_source()  # which solvers were measured; taken when they are loaded
