"""Theorem 1: what flipped comparisons do to the correlation matrix, with and without debiasing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.theory.theory_findings import (
    Check,
    MeasuredPoint,
    Panel,
    Verdict,
    fit_slope,
    judge_equal,
    judge_plateau,
    judge_rate,
    of_series,
    point,
    points_of,
)
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.ranks import debias_ranks, flip_comparisons

Floats = NDArray[np.float64]

DECAY = 0.5  # r_jk = DECAY^|j-k|
EPSILON = 0.5  # per comparison
COLUMNS = 6
RAW, SCALE_FREE, DEBIASED = "raw ranks, known scale", "raw ranks, own scale", "debiased ranks (ours)"
RAW_TAU, DEBIASED_TAU = "raw comparisons (Kendall)", "debiased comparisons (Kendall)"


def run(*, quick: bool = False) -> Check:
    """All of Theorem 1."""
    replications = 4 if quick else 40
    sizes = (100, 200, 400) if quick else (250, 500, 1_000, 2_000, 4_000, 8_000)
    epsilons = (0.25, 0.5, 1.0) if quick else (0.15, 0.25, 0.5, 1.0, 2.0, 4.0)
    widths = (4, 8) if quick else (4, 8, 16, 32)
    most = 400 if quick else 2_000  # comparisons are stored for Kendall
    at = 200 if quick else 1_000
    by_size = [p for n in sizes for p in measure("N", n, n, EPSILON, COLUMNS, replications, kendall=n <= most)]
    by_epsilon = [p for e in epsilons for p in measure("epsilon", e, at, e, COLUMNS, replications, kendall=True)]
    by_width = [p for q in widths for p in measure("p + 1", q, at, EPSILON, q, replications, kendall=False)]
    return Check(
        "Theorem 1",
        "From raw perturbed ranks the correlation matrix is inconsistent: its relative error is O(θ + √(p log 1/δ)/N), "
        "a plateau of the order of θ. From debiased ranks it is consistent: "
        "‖Ω^ − Ω~d‖_F = O(C(θ) p/N), C(θ) = (2θ² − 2θ + 1)/(1 − 2θ)², which grows like 2/a² as a = ε1 K/(p + 1), the "
        "epsilon of one comparison, goes to 0.",
        f"Normal columns with r_jk = {DECAY:g}^|j−k|; {COLUMNS} columns and a = {EPSILON:g} unless varied; "
        f"N = {at:,} where a or p is varied; {replications} replications. Ω^ is the same statistic "
        "without noise. Spearman is the inner product of centred ranks over n(n² − 1)/12 ('known scale'), or over its "
        "own variances ('own scale'); Kendall multiplies comparisons.",
        [
            Panel("Relative error of raw Ω~", points_of(by_size, "relative"), "N", "‖Ω^ − Ω~‖ / ‖Ω^‖", slope=0.0),
            Panel("Error of debiased Ω~d", points_of(by_size, "absolute"), "N", "‖Ω^ − Ω~d‖", slope=-1.0),
            Panel(
                "Error against privacy",
                points_of(by_epsilon, "absolute"),
                "a, epsilon per comparison",
                "‖Ω^ − Ω~d‖",
                slope=-2.0,
            ),
            Panel("Error against columns", points_of(by_width, "absolute"), "p + 1", "‖Ω^ − Ω~d‖", slope=1.0),
        ],
        [*judge_raw(by_size, by_epsilon), *judge_debiased(by_size, by_epsilon, by_width)],
        "The first bound is an upper one: it allows a plateau and does not require it. That raw ranks are inconsistent "
        "is what the text below the theorem reads into it. "
        "The inconsistency belongs to the normaliser, not to the ranks: their noise is of order √N on a scale of N, so "
        "a statistic that divides by its own variances is consistent without any debiasing, and debiasing leaves it as "
        "it is. Multiplying comparisons reaches the bound; the inner product of debiased ranks stays below it, "
        "growing like 1/a. All errors vanish as a grows, where the bound stays at p/N.",
    )


def flip_prob(epsilon: float) -> float:
    return float(1.0 / (1.0 + np.exp(epsilon)))


def variance_factor(epsilon: float) -> float:
    """C(θ)."""
    theta = flip_prob(epsilon)
    return (2.0 * theta**2 - 2.0 * theta + 1.0) / (1.0 - 2.0 * theta) ** 2


def measure(
    variable: str, x: float, n: int, epsilon: float, q: int, replications: int, *, kendall: bool
) -> list[MeasuredPoint]:
    """Frobenius errors of all estimators at one setting."""
    found: dict[str, list[float]] = {}
    for replication in range(replications):
        rng = np.random.default_rng([1, replication, n, q])
        values = draw_columns(n, q, rng)
        estimates = correlate_ranks(values, epsilon, replication)
        if kendall:
            estimates |= correlate_comparisons(values, epsilon, rng)
        for name, (clean, noisy) in estimates.items():
            distance = float(np.linalg.norm(clean - noisy))
            relative = name in (RAW, SCALE_FREE, RAW_TAU)
            found.setdefault(name, []).append(distance / float(np.linalg.norm(clean)) if relative else distance)
    return [
        point(name, variable, x, "relative" if name in (RAW, SCALE_FREE, RAW_TAU) else "absolute", values)
        for name, values in found.items()
    ]


def draw_columns(n: int, q: int, rng: np.random.Generator) -> Floats:
    """(n, q) standard normal columns, correlations DECAY^|j-k|."""
    distance = np.abs(np.subtract.outer(np.arange(q), np.arange(q)))
    return np.asarray(rng.standard_normal((n, q)) @ np.linalg.cholesky(DECAY**distance).T)


def correlate_ranks(values: Floats, epsilon: float, seed: int) -> dict[str, tuple[Floats, Floats]]:
    """(without noise, with noise) for the three statistics of ranks."""
    q = values.shape[1]
    source = SeededNoise(seed).derive("theorem1")
    true = np.argsort(np.argsort(values, axis=0), axis=0) + 1.0
    noisy = np.column_stack(
        [flip_comparisons(np.ascontiguousarray(values[:, j]), epsilon, source.stream(str(j))) for j in range(q)]
    )
    debiased = np.column_stack([debias_ranks(noisy[:, j], flip_prob(epsilon)) for j in range(q)])
    known = correlate_known_scale(true)
    return {
        RAW: (known, correlate_known_scale(noisy.astype(np.float64))),
        SCALE_FREE: (known, to_latent(np.corrcoef(noisy.T))),
        DEBIASED: (known, correlate_known_scale(debiased)),
    }


def correlate_known_scale(ranks: Floats) -> Floats:
    """Spearman's rho with the known normaliser, then 2 sin(pi rho / 6)."""
    n = ranks.shape[0]
    centred = ranks - (n + 1) / 2.0
    return to_latent(12.0 / (n * (n**2 - 1.0)) * centred.T @ centred)


def to_latent(rho: Floats) -> Floats:
    """r = 2 sin(pi rho / 6), ones on the diagonal."""
    latent = 2.0 * np.sin(np.pi / 6.0 * np.clip(rho, -1.0, 1.0))
    np.fill_diagonal(latent, 1.0)
    return np.asarray(latent)


def correlate_comparisons(values: Floats, epsilon: float, rng: np.random.Generator) -> dict[str, tuple[Floats, Floats]]:
    """Kendall's tau from all pairs of subjects, as the paper defines it: plain, flipped, flipped and debiased."""
    first, second = np.triu_indices(values.shape[0], 1)
    signs = np.where(values[first] > values[second], np.float32(1.0), np.float32(-1.0))
    flips = np.where(rng.random(signs.shape, dtype=np.float32) < flip_prob(epsilon), np.float32(-1.0), np.float32(1.0))
    clean, noisy = (_tau(s) for s in (signs, signs * flips))
    honest = (1.0 - 2.0 * flip_prob(epsilon)) ** 2
    return {RAW_TAU: (_from_tau(clean), _from_tau(noisy)), DEBIASED_TAU: (_from_tau(clean), _from_tau(noisy / honest))}


def _tau(signs: NDArray[np.float32]) -> Floats:
    return np.asarray((signs.T @ signs / np.float32(len(signs))).astype(np.float64))


def _from_tau(tau: Floats) -> Floats:
    latent = np.sin(np.pi / 2.0 * np.clip(tau, -1.0, 1.0))
    np.fill_diagonal(latent, 1.0)
    return np.asarray(latent)


def attenuated_error(q: int, epsilon: float) -> float:
    """The limit of the raw statistic's relative error: Spearman's rho is multiplied by (1 - 2 theta)^2."""
    distance = np.abs(np.subtract.outer(np.arange(q), np.arange(q)))
    truth = DECAY**distance
    rho = 6.0 / np.pi * np.arcsin(truth / 2.0)
    shrunk = to_latent((1.0 - 2.0 * flip_prob(epsilon)) ** 2 * rho)
    return float(np.linalg.norm(truth - shrunk) / np.linalg.norm(truth))


def judge_raw(by_size: Sequence[MeasuredPoint], by_epsilon: Sequence[MeasuredPoint]) -> list[Verdict]:
    raw, strengths = of_series(by_size, RAW), of_series(by_epsilon, RAW)
    mild = [p for p in strengths if p.x >= min(1.0, strengths[-2].x)]
    limit = attenuated_error(COLUMNS, EPSILON)
    return [
        judge_plateau("raw Ω~ has a plateau in N", raw, what="raw ranks, known scale"),
        judge_equal(
            "the plateau is that of correlations multiplied by (1 − 2θ)²",
            (raw[-1].mean, raw[-1].error),
            limit,
            what=f"at N = {raw[-1].x:,.0f}",
        ),
        judge_rate(
            "the plateau grows at most like θ",
            fit_slope(mild, [flip_prob(p.x) for p in mild]),
            1.0,
            what=f"raw ranks, known scale, against θ, a ≥ {mild[0].x:g}",
        ),
        judge_plateau("raw Ω~ has a plateau in N", of_series(by_size, RAW_TAU), what="raw comparisons (Kendall)"),
        judge_rate(
            "the relative error does not grow with N, whichever rank correlation it is",
            fit_slope(of_series(by_size, SCALE_FREE)),
            0.0,
            what="raw ranks, own scale",
        ),
        judge_plateau(
            "read into it by the text: raw Ω~ is inconsistent, whichever rank correlation it is",
            of_series(by_size, SCALE_FREE),
            what="raw ranks, own scale",
        ),
    ]


def judge_debiased(
    by_size: Sequence[MeasuredPoint], by_epsilon: Sequence[MeasuredPoint], by_width: Sequence[MeasuredPoint]
) -> list[Verdict]:
    strong = [p for p in by_epsilon if p.x <= 1.0]
    found = []
    for name in (DEBIASED, DEBIASED_TAU):
        found.append(judge_rate("the error falls like N⁻¹", fit_slope(of_series(by_size, name)), -1.0, what=name))
        chosen = of_series(strong, name)
        slope = fit_slope(chosen, [variance_factor(p.x) for p in chosen])
        found.append(
            judge_rate(
                "the error grows at most like C(θ) as a goes to 0", slope, 1.0, what=f"{name}, against C(θ), a ≤ 1"
            )
        )
    slope = fit_slope(of_series(by_width, DEBIASED), [p.x - 1.0 for p in of_series(by_width, DEBIASED)])
    found.append(judge_rate("the error grows at most like p", slope, 1.0, what=f"{DEBIASED}, against p"))
    return found
