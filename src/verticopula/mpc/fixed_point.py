"""Scores as whole numbers: a score z stands for the integer z * 2^bits, and a product of two is in units of 4^-bits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.mpc.gram_noise import gram_scales, share_scale

Ints = NDArray[np.int64]

FEWEST_BITS, MOST_BITS = 8, 20
TAIL = 12.0  # standard deviations of noise that must fit too; beyond them lies less than 4e-33
_SHARES = 3


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


def decode_sums(sums: Ints, bits: int) -> NDArray[np.float64]:
    """Opened sums of products, in units of the scores."""
    return np.asarray(sums / 4.0**bits)
