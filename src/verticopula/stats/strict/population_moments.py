"""Who is in a pattern is not everybody: what that does to moments, and the moments of everybody from all patterns.

Conventions: augmented second moments K (q+1, q+1) as in `noisy_moments.py`. Blocks are missing at random given the
**base**, the latents that (all but) everybody has. Then a pattern's people differ from everybody in the base's moments,
by D say, and the others follow by regression on it, x_o = W (x_b, 1) + error, which is the same for everybody (Pearson
and Lawley). A pattern is therefore expected to have

    K_bb + D,    K_bo + D W',    K_oo + W D W'.

D is what the noisy moments of the base say, damped by their noise: its entries have a variance (one for sums, one for
products) estimated from all patterns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.em import PatternMoments, regress
from verticopula.stats.strict.noisy_moments import NoisyMoments
from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST_SHIFT = 1e-6


@dataclass(frozen=True)
class ExpectedMoments:
    """What a pattern is expected to have, given the model and what its base shows.

    Attributes
    ----------
    products : (o, o) mean products
    spread : (o, o) variance of the people's own mean products around them
    doubt : (o, o) variance of what is expected, since the base's shift is known with noise only
    inside : (b,) places of the base, the appended 1 among them
    """

    products: Floats
    spread: Floats
    doubt: Floats
    inside: Ints


def find_base(noisy: Sequence[NoisyMoments], q: int) -> Ints:
    """Latents that (all but) everybody has."""
    have = np.zeros(q)
    for pattern in noisy:
        have[pattern.seen[:-1]] += pattern.count
    return np.flatnonzero(have >= (1.0 - TUNING.base_lack) * sum(pattern.count for pattern in noisy))


def expect(noisy: Sequence[NoisyMoments], moments: Floats, base: Ints) -> list[ExpectedMoments]:
    """What every pattern is expected to have."""
    q = moments.shape[0] - 1
    places = [np.flatnonzero(np.isin(pattern.seen, base) | (pattern.seen == q)) for pattern in noisy]
    shifts = []
    for pattern, inside in zip(noisy, places, strict=True):
        own = pattern.seen[inside]
        shift = pattern.products[np.ix_(inside, inside)] - moments[np.ix_(own, own)]
        shifts.append((shift, pattern.noise[np.ix_(inside, inside)] ** 2 + 1.0 / pattern.count))
    of_products, of_sums = (_shift_variance(shifts, sums) for sums in (False, True))
    found = []
    for pattern, inside, (shift, noise) in zip(noisy, places, shifts, strict=True):
        size = np.full(shift.shape, of_products)
        size[-1, :] = size[:, -1] = of_sums
        size[-1, -1] = 0.0
        kept = size / (size + noise)
        found.append(_expect_one(pattern, moments, inside, kept * shift, kept * noise, size))
    return found


def _shift_variance(shifts: Sequence[tuple[Floats, Floats]], sums: bool) -> float:
    """Variance of the base's shifts beyond noise and sampling, from all patterns."""
    above = below = 0.0
    for shift, noise in shifts:
        square, own = (x[-1, :-1] if sums else x[:-1, :-1] for x in (shift**2 - noise, noise))
        weight = 1.0 / (TUNING.shift_noise + own) ** 2
        above += float(np.sum(weight * square))
        below += float(np.sum(weight))
    return max(above / below, _LEAST_SHIFT) if below > 0.0 else _LEAST_SHIFT


def _expect_one(
    pattern: NoisyMoments, moments: Floats, inside: Ints, shift: Floats, doubt: Floats, size: Floats
) -> ExpectedMoments:
    everybody = moments[np.ix_(pattern.seen, pattern.seen)]
    weights = regress(moments, pattern.seen[inside], pattern.seen)  # rows of the base itself are unit vectors
    products = everybody + weights @ shift @ weights.T
    # Noise must not make anybody's square negative.
    squares = np.maximum(np.diag(products), TUNING.least_square * np.diag(everybody))
    np.fill_diagonal(products, squares)
    products[-1, -1] = 1.0
    spread = (np.outer(squares, squares) + products**2) / pattern.count
    spread[-1, :] = spread[:, -1] = (
        np.maximum(squares - products[-1] ** 2, TUNING.least_square * squares) / pattern.count
    )
    spread[np.ix_(inside, inside)] += size
    spread[-1, -1] = 0.0
    return ExpectedMoments(products, spread, weights**2 @ doubt @ (weights**2).T, inside)


def settle(noisy: NoisyMoments, expected: ExpectedMoments) -> PatternMoments:
    """What the pattern's people have, given what is expected and the noised products: the mean given both.

    Without noise it is what was opened, whatever was expected: `em.em_step` on it is EM on the people's own rows.
    """
    total = expected.spread + noisy.noise**2
    weight = np.where(noisy.noise > 0.0, expected.spread / np.maximum(total, 1e-300), 1.0)
    products = expected.products + weight * (noisy.products - expected.products)
    products[-1, -1] = 1.0
    return PatternMoments(noisy.seen, noisy.missing, noisy.count, products)


def pool(noisy: Sequence[NoisyMoments], expected: Sequence[ExpectedMoments], moments: Floats) -> tuple[Floats, Floats]:
    """(moments of everybody, variance of each): the model's, plus the patterns' mean residual.

    Residuals are weighted by how well a pattern knows an entry; those of the base itself by people, since everybody is
    made up of all patterns. An entry that no pattern has stays as it is, with infinite variance.
    """
    total, weight, variance = (np.zeros(moments.shape) for _ in range(3))
    for pattern, model in zip(noisy, expected, strict=True):
        own = pattern.noise**2 + 1.0 / pattern.count + model.doubt
        residual = pattern.products - model.products
        counts = 1.0 / own
        base, among = np.ix_(model.inside, model.inside), pattern.seen[model.inside]
        residual[base] = model.products[base] - moments[np.ix_(among, among)]
        own[base] = model.doubt[base] + 1.0 / pattern.count
        counts[base] = pattern.count
        there = np.ix_(pattern.seen, pattern.seen)
        total[there] += counts * residual
        variance[there] += counts**2 * own
        weight[there] += counts
    seen = weight > 0.0
    sizes = np.where(seen, weight, 1.0)
    return moments + total / sizes, np.where(seen, variance / sizes**2, np.inf)
