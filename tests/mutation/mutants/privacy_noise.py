"""Mistakes in coins and noise."""

from __future__ import annotations

from tests.mutation.judges import FLIP_RATES, GAUSSIAN_SHARES, PACKED_COINS, PARTY_RULES, REPRODUCIBILITY
from tests.mutation.runner import Mutant, one_of

MUTANTS = (
    Mutant(
        "coins-rounded-down",
        "privacy/coins.py",
        "math.ceil(math.ldexp(theta * (1.0 + 2.0**-50), 64))",
        "math.floor(math.ldexp(theta * (1.0 - 2.0**-50), 64))",
        "coins would flip less often than asked",
        PACKED_COINS,
    ),
    Mutant(
        "coins-flip-less",
        "privacy/coins.py",
        "theta = decay / (1.0 + decay)",
        "theta = decay / (1.0 + decay) / 2.0",
        "comparisons would flip half as often",
        FLIP_RATES,
    ),
    Mutant(
        "coins-last-bits-dropped",
        "privacy/coins.py",
        "self._rest = _U(threshold & (2**_REST - 1))",
        "self._rest = _U(0)",
        "theta would be cut to 12 bits",
        PACKED_COINS,
    ),
    Mutant(
        "coins-answers-used-twice",
        "privacy/coins.py",
        "word, shift = position >> 6, _U(position & 63)",
        "word, shift = position >> 7, _U(position & 63)",
        "undecided coins would share their answers",
        PACKED_COINS,
    ),
    Mutant(
        "noise-half-laplace",
        "privacy/noise.py",
        'l1_distance(T="i64"), scale=float(scale))',
        'l1_distance(T="i64"), scale=float(scale) / 2.0)',
        "Laplace noise would be halved",
        REPRODUCIBILITY,
    ),
    Mutant(
        "noise-half-gaussian",
        "privacy/noise.py",
        'l2_distance(T="f64"), scale=float(scale))',
        'l2_distance(T="f64"), scale=float(scale) / 2.0)',
        "Gaussian noise would be halved",
        GAUSSIAN_SHARES,
    ),
    Mutant(
        "noise-fixed-key",
        "privacy/noise.py",
        "return os.urandom(_AES_BLOCK)",
        "return bytes(_AES_BLOCK)",
        "everybody would know the coins",
        REPRODUCIBILITY,
    ),
    Mutant(
        "noise-labels-run-together",
        "privacy/noise.py",
        'digest.update(len(encoded).to_bytes(8, "little") + encoded)',
        "digest.update(encoded)",
        "two releases could share a stream",
        REPRODUCIBILITY,
    ),
    Mutant(
        "noise-seeded-is-private",
        "privacy/noise.py",
        "    is_private = False\n",
        "    is_private = True\n",
        "a seeded study would be called private",
        one_of(PARTY_RULES, "a_seed_and_bounds_from_data_are_written_down"),
    ),
)
