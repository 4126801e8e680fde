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
from verticopula.stats.strict.latent_scores import LatentScore
from verticopula.stats.strict.score_plan import share_weights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class NoisyMoments:
    """One pattern's mean products, with noise.

    Attributes
    ----------
    seen, missing : variables; the last of `seen` is the appended 1
    count : people
    products : (o, o) noised mean products, of scores cut to their bounds
    noise : (o, o) standard deviation of each
    weights : (o,) what scores were multiplied by before they were cut; 1 for the appended 1
    limits : (parties,) largest squared norms of the parties' weighted parts; 0 for a party without a part
    """

    seen: Ints
    missing: Ints
    count: float
    products: Floats
    noise: Floats
    weights: Floats
    limits: Floats


def read_sums(sums: Sequence[PatternSums], plan: SumsPlan, scores: Sequence[LatentScore]) -> list[NoisyMoments]:
    """Every pattern's mean products of scores at variance 1; latents that say nothing are taken out."""
    q = len(scores)
    flat = np.array([score.is_flat for score in scores])
    ends = np.cumsum(plan.widths).tolist()
    weights = np.hstack(
        [
            share_weights(plan, p, scores[end - w : end])
            for p, w, end in zip(plan.parties, plan.widths, ends, strict=True)
        ]
    )
    found = []
    for index, pattern in enumerate(sums):
        kept = ~flat[pattern.columns]
        columns = pattern.columns[kept]
        scale = np.append(weights[index, columns], 1.0)
        whole = np.ones((columns.size + 1, columns.size + 1))
        whole[:-1, :-1] = pattern.products[np.ix_(kept, kept)] / pattern.n_subjects
        whole[:-1, -1] = whole[-1, :-1] = pattern.sums[kept] / pattern.n_subjects
        noise = np.full(whole.shape, pattern.deviation_off / pattern.n_subjects)
        np.fill_diagonal(noise, pattern.deviation_on / pattern.n_subjects)
        noise[-1, -1] = 0.0
        seen = np.append(columns, q)
        found.append(
            NoisyMoments(
                seen,
                np.setdiff1d(np.flatnonzero(~flat), columns),
                float(pattern.n_subjects),
                whole / np.outer(scale, scale),
                noise / np.outer(scale, scale),
                scale,
                plan.bounds[index] / 4.0**plan.bits,
            )
        )
    return found
