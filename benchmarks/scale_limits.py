"""What parts of a fit take, beside what their arithmetic alone takes on the same machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from threadpoolctl import threadpool_limits

from benchmarks.coins import draw_bytes, draw_coins
from benchmarks.timing import time_interleaved
from verticopula import Synthesizer
from verticopula.datasets import make_sme
from verticopula.privacy.noise import SecureNoise
from verticopula.stats.correlation import spearman_pairwise
from verticopula.stats.em import PackedMoments, PatternMoments, em_step, find_patterns, gather_moments

Floats = NDArray[np.float64]

BITS_A_COIN = 4 + 8 / 2**4 + 64 / 2**12  # what `privacy/coins.py` draws for one, on average


def measure_limits(n: int, repetitions: int) -> dict[str, dict[str, float]]:
    """Part -> seconds of ours and of the limit."""
    with threadpool_limits(1):
        tasks: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "sampling": _sampling(n),
            "pairwise": _pairwise(n),
            "moments": _moments(n),
            "em": _em(n),
            "coins": _coins(5_000 * n),
        }
        found = {}
        for name, (ours, limit) in tasks.items():
            ours(), limit()
            times = time_interleaved({"ours": ours, "limit": limit}, repetitions)
            found[name] = {"ours": times["ours"].minimum, "limit": times["limit"].minimum}
        return found


def _sampling(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Rows of a fitted copula; normals, one product, one distribution function."""
    study = make_sme(2_000)
    fitted = Synthesizer(study.federation, "vcds", 1.0, unit="variable", random_state=0).fit(study.tables)
    copula, rng = fitted.result_.copula, np.random.default_rng(0)
    root = np.linalg.cholesky(copula.correlation)
    return lambda: copula.sample(n, rng), lambda: ndtr(rng.standard_normal((n, root.shape[0])) @ root.T)


def _masked(n: int) -> tuple[Floats, NDArray[np.bool_]]:
    """65 columns of five parties, a fifth of the blocks missing."""
    rng = np.random.default_rng(0)
    observed = np.asfortranarray(np.repeat(rng.random((n, 5)) < 0.8, 13, axis=1))
    return np.asfortranarray(np.where(observed, rng.standard_normal(observed.shape), 0.0)), observed


def _pairwise(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Pairwise-complete correlations; one product of the table with itself."""
    values, observed = _masked(n)
    noise, spread = np.full(values.shape[1], 0.01), np.full(values.shape[1], 1.0 / 12.0)
    return lambda: spearman_pairwise(values, observed, noise, spread), lambda: values.T @ values


def _moments(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Sufficient statistics of all patterns; one product of the table with itself."""
    values, observed = _masked(n)
    patterns = find_patterns(observed)
    return lambda: gather_moments(values, patterns), lambda: values.T @ values


def _em(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """A step of EM; its floating-point operations at the speed of a product of the same size."""
    values, observed = _masked(n)
    moments = gather_moments(values, find_patterns(observed))
    q = values.shape[1]
    covariance = 0.5 * np.eye(q) + 0.5
    square = np.random.default_rng(0).standard_normal((q, q))
    products = round(sum(count_operations(each) for each in moments) / (2.0 * q**3))

    def limit() -> None:
        for _ in range(products):
            np.matmul(square, square)

    packed = PackedMoments.of(moments)
    return lambda: em_step(covariance, packed), limit


def _coins(count: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Coins; the random bits that they need, as keystream."""
    noise = SecureNoise()
    return lambda: draw_coins(count, noise.stream()), lambda: draw_bytes(round(count * BITS_A_COIN / 8), noise.stream())


def count_operations(moments: PatternMoments) -> float:
    """Of one pattern in a step of EM: a factorisation, two triangular solutions, two products; none if complete."""
    o, m = moments.observed.size, moments.missing.size
    return o**3 / 3.0 + 2.0 * m * o**2 + 2.0 * m * o**2 + 2.0 * m**2 * o if m else 0.0
