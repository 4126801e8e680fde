"""Scores as whole numbers: fixed point in Z_2^64, clipped after rounding, with room for every sum.

A score z becomes the integer z * 2^bits, so a product of two is in units of 4^-bits. What bounds the sensitivity is
the squared norm of the *integer* vector: rounding comes first, clipping last, and it is checked without any float.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.mpc.gram_noise import gram_scales, share_scale

Ints = NDArray[np.int64]

ROOM = 2**62  # sums stay below it, half of what a signed 64-bit number holds
FEWEST_BITS, MOST_BITS = 8, 20
TAIL = 12.0  # standard deviations of noise that must fit too; beyond them lies less than 4e-33
_SHARES = 3
_MOST_SHRINKING = 64


def bound_of(bound: float, bits: int) -> int:
    """A bound on a squared norm of scores as one on integers: floor(bound * 4^bits), exactly."""
    if not (math.isfinite(bound) and bound >= 0.0):
        raise SettingsError("the bound of a squared norm is a finite number, and not below 0")
    numerator, denominator = float(bound).as_integer_ratio()
    return (numerator << 2 * bits) // denominator


def needed_room(n_subjects: int, bound: int, mu: float) -> int:
    """The largest absolute value that a noised sum over `n_subjects` records of squared norm `bound` can have.

    By Cauchy-Schwarz no entry of the Gram matrix exceeds n_subjects * bound; the noise is that of all three shares.
    """
    diagonal = share_scale(gram_scales(bound, mu)[1])
    return n_subjects * bound + math.ceil(TAIL * math.sqrt(_SHARES) * diagonal)


def check_room(n_subjects: int, bound: int, mu: float, width: int = 1) -> None:
    """SettingsError unless every noised sum fits; to be called before anything is shared.

    Privacy never depends on it: wrapping around is post-processing. The result does.
    """
    if not (math.isfinite(mu) and mu > 0.0):
        raise SettingsError("mu must be positive")
    if max(needed_room(n_subjects, bound, mu), width * bound) >= ROOM:
        raise SettingsError(
            f"the sums over {n_subjects} subjects do not fit in 64 bits with this bound and noise: use fewer "
            "fractional bits, or a smaller bound"
        )


def choose_bits(n_subjects: int, bound: float, mu: float, width: int = 1) -> int:
    """The most fractional bits for which sums over `n_subjects` records of squared norm `bound` fit; at most 20."""
    for bits in range(MOST_BITS, FEWEST_BITS - 1, -1):
        try:
            check_room(n_subjects, bound_of(bound, bits), mu, width)
        except SettingsError:
            continue
        return bits
    raise SettingsError(
        f"{n_subjects} subjects with squared norms of up to {bound:g} leave fewer than {FEWEST_BITS} fractional bits "
        "in 64-bit sums: the noise is too large, or the cohort"
    )


def encode_scores(scores: NDArray[np.float64], bits: int, bounds: Ints | int) -> Ints:
    """Every row as integers whose squared norm is at most its bound. A function of that row alone.

    Round to nearest; a row that is too long then is shrunk and rounded towards zero until it is not. The last step is
    checked in integers, whatever floats did before.

    Parameters
    ----------
    scores : (n, q) finite or infinite, not NaN
    bounds : (n,) or one for all, in units of 4^-bits
    """
    if scores.ndim != 2 or np.isnan(scores).any():
        raise SettingsError("scores are a matrix without empty cells")
    if not 0 <= bits <= MOST_BITS:
        raise SettingsError(f"fractional bits are 0 to {MOST_BITS}")
    limits = np.broadcast_to(np.asarray(bounds, dtype=np.int64), scores.shape[:1])
    if limits.size and (int(limits.min()) < 0 or int(limits.max()) * max(scores.shape[1], 1) >= ROOM):
        raise SettingsError("the bound of a squared norm is below 0, or too large for 64 bits")
    longest = np.sqrt(limits.astype(np.float64))[:, None]
    most = longest / 2.0**bits
    scaled = np.clip(scores, -most, most) * 2.0**bits  # leaves alone what is within the bound anyway
    rounded = np.rint(scaled).astype(np.int64)
    over = np.flatnonzero(squared_norms(rounded) > limits)
    for step in range(_MOST_SHRINKING):
        if not over.size:
            break
        lengths = np.sqrt(np.square(scaled[over]).sum(axis=1))
        shrink = np.minimum(longest[over, 0] / lengths, 1.0) * (1.0 - 2.0 ** (step - 52))
        rounded[over] = np.trunc(scaled[over] * shrink[:, None]).astype(np.int64)
        over = over[squared_norms(rounded[over]) > limits[over]]
    check_norms(rounded, limits)
    return rounded


def squared_norms(rows: Ints) -> Ints:
    """Of every row, exactly, where the caller knows that it fits in 64 bits."""
    return np.asarray((rows * rows).sum(axis=1))


def check_norms(rows: Ints, bounds: Ints) -> None:
    """SettingsError unless every integer row's squared norm is within its bound."""
    longest = max(int(rows.max(initial=0)), -int(rows.min(initial=0)))
    if longest**2 * max(rows.shape[1], 1) >= 2**63 or bool((squared_norms(rows) > bounds).any()):
        raise SettingsError("a record is longer than its bound: the noise would not cover it")


def decode_sums(sums: Ints, bits: int) -> NDArray[np.float64]:
    """Opened sums of products, in units of the scores."""
    return np.asarray(sums / 4.0**bits)
