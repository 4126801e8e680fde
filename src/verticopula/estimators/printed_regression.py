"""The path of Algorithm 4 as printed, as `VerticalGLM` keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.families import Family
from verticopula.glm.feature_design import Features
from verticopula.glm.penalties import Penalty
from verticopula.glm.printed_admm import printed_bic, solve_printed, summed_bic
from verticopula.glm.strength_path import PathPoint, geometric_strengths
from verticopula.protocol.regression_messages import DesignReply
from verticopula.protocol.regression_path import FederatedPath, Traffic
from verticopula.schema.methods import PRINTED_VARIANT
from verticopula.schema.progress import Progress, show_nothing

Floats = NDArray[np.float64]

PRINTED_BIC = f"bic-{PRINTED_VARIANT}"
_NUMBERS_A_ROUND = 3  # for every row and party: ζ_k up, h and γ down


def trace_as_printed(
    features: Mapping[str, Features],
    y: Floats,
    family: Family,
    penalty: Penalty,
    select: str | float,
    n_subjects: float,
    *,
    rho: float,
    tolerance: float,
    max_rounds: int,
    n_strengths: int,
    strength_ratio: float,
    progress: Progress | None = None,
) -> tuple[FederatedPath, list[float]]:
    """All strengths' fits, each from zero, and the criterion of each; none for a strength of one's own.

    The paper does not say which strengths are compared: geometric ones, from where every coefficient is zero.
    """
    blocks = [own.values for own in features.values()]
    everything = np.column_stack(blocks)
    largest = float(np.max(np.abs(everything.T @ family.residual(np.zeros(y.size), y)))) / y.size
    chosen = isinstance(select, str)
    strengths = geometric_strengths(largest, n_strengths, strength_ratio) if chosen else np.array([float(select)])
    criterion = printed_bic if select == PRINTED_BIC else summed_bic
    points, scores, predictions, rounds = [], [], [], 0
    for number, strength in enumerate(map(float, strengths), start=1):
        found = solve_printed(blocks, y, family, penalty, strength, rho=rho, tolerance=tolerance, max_rounds=max_rounds)
        coef = np.concatenate(found.coef)
        eta, rounds = everything @ coef, rounds + found.rounds
        loss, df = family.loss(eta, y), int(np.count_nonzero(coef))
        value = float(penalty.value(np.abs(coef), strength).sum())
        points.append(PathPoint(strength, coef, 0.0, loss, value, df, found.converged))
        scores.append(criterion(loss, df, n_subjects))
        predictions.append(eta)
        (progress or show_nothing)("strengths", number, strengths.size)
    traffic = Traffic(rounds, rounds * len(blocks) * _NUMBERS_A_ROUND * 8 * y.size)
    designs = {name: _design(name, own) for name, own in features.items()}
    path = FederatedPath(tuple(points), np.array(predictions), designs, False, traffic)
    return path, scores if chosen else []


def _design(party: str, own: Features) -> DesignReply:
    sizes = np.diff(own.starts)
    constant = np.array([np.ptp(own.values[:, first:last]) == 0.0 for first, last in pairwise(own.starts)])
    return DesignReply(party, own.values.shape[0], own.names, own.sources, own.starts, sizes, constant)
