"""Opened sums as noisy mean products of unit scores.

Conventions: q latents; the appended 1 is variable number q, so that an "augmented" second-moment matrix K (q+1, q+1)
holds covariances and means at once: K = E[(x, 1)(x, 1)']. EM for K by `em.em_step` is then EM for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.opened_sums import PatternSums
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.stats.strict.latent_scores import SharedColumn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class NoisyMoments:
    """One pattern's mean products, with noise.

    Attributes
    ----------
    seen, missing : variables; the last of `seen` is the appended 1
    count : people
    products : (o, o) noised mean products
    noise : (o, o) standard deviation of each
    """

    seen: Ints
    missing: Ints
    count: float
    products: Floats
    noise: Floats


def read_sums(sums: Sequence[PatternSums], plan: SumsPlan, shared: Sequence[SharedColumn]) -> list[NoisyMoments]:
    """Every pattern's mean products of scores at variance 1; latents that say nothing are taken out.

    What was added up is y = a x + b of a score x, and x = (y - b)/a. The noise on x_j x_k is that on y_j y_k, and b_k
    times that on y_j, and b_j times that on y_k, all over a_j a_k.

    Parameters
    ----------
    shared : of every column, from the margins that the plan was made from
    """
    flat = np.array([score.is_flat for column in shared for score in column.scores])
    scales, offsets = _affine_maps(plan, shared)
    found = []
    for index, pattern in enumerate(sums):
        kept = ~flat[pattern.columns]
        columns, n = pattern.columns[kept], pattern.n_subjects
        a, b = scales[index, columns], offsets[index, columns]
        whole = np.ones((columns.size + 1, columns.size + 1))
        whole[:-1, :-1] = pattern.products[np.ix_(kept, kept)] / n
        whole[:-1, -1] = whole[-1, :-1] = pattern.sums[kept] / n
        undo = np.diag(np.append(1.0 / a, 1.0))
        undo[:-1, -1] = -b / a
        off, on = pattern.deviation_off / n, pattern.deviation_on / n
        noise = np.zeros(whole.shape)
        noise[:-1, :-1] = off * np.sqrt(1.0 + b[:, None] ** 2 + b**2) / np.outer(a, a)
        noise[np.arange(a.size), np.arange(a.size)] = np.sqrt(on**2 + (2.0 * b * off) ** 2) / a**2
        noise[:-1, -1] = noise[-1, :-1] = off / a
        missing = np.setdiff1d(np.flatnonzero(~flat), columns)
        products = undo @ whole @ undo.T
        found.append(NoisyMoments(np.append(columns, flat.size), missing, float(n), products, noise))
    return found


def _affine_maps(plan: SumsPlan, shared: Sequence[SharedColumn]) -> tuple[Floats, Floats]:
    """(P, q) a and b of y = a x + b, the shared scores in terms of unit scores; from the plan's own whole numbers."""
    scales, offsets = [], []
    for table, column in zip(plan.tables, shared, strict=True):
        unit, values = column.table, table / 2.0**plan.bits
        latents = np.arange(unit.shape[1])
        low, high = unit.argmin(axis=0), unit.argmax(axis=0)
        step = unit[high, latents] - unit[low, latents]
        moved = values[:, high, latents] - values[:, low, latents]
        scale = np.divide(moved, step, out=np.zeros_like(moved), where=step > 0.0)
        scales.append(scale)
        offsets.append(values[:, low, latents] - scale * unit[low, latents])
    return np.hstack(scales), np.hstack(offsets)
