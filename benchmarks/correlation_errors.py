"""What the coins do to the correlation: the debiased estimator, and the plain one of Theorem 1.

The error is the Frobenius distance to the Spearman correlations of the *true* ranks of the same
sample, as in Theorem 1: sampling error is no part of it. Both estimators take the inner product of
ranks with the known normaliser; the plain one does so on ranks that are not debiased.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.growth import fit_exponent
from reporting.catalogue import Measured
from reporting.figures import COLORS, INK, new_figure, save_png, use_log_axes
from reporting.tables import Table
from verticopula.privacy.coins import flip_probability
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.correlation import spearman_pairwise
from verticopula.stats.ranks import debias_ranks, flip_comparisons, rank_noise_variance

N_COLUMNS = 20
NEIGHBOUR_CORRELATION = 0.7  # latent correlation of columns j and k is this to the power |j - k|
ANCHOR = (5_000, 1.0)  # N and epsilon at which the constant of Theorem 1's rate is fitted

Floats = NDArray[np.float64]
Errors = dict[float, dict[int, float]]  # epsilon -> N -> mean error


def draw_values(n: int, rng: np.random.Generator) -> Floats:
    """(n, p) from a Gaussian copula with a known correlation."""
    position = np.arange(N_COLUMNS)
    correlation = NEIGHBOUR_CORRELATION ** np.abs(position[:, None] - position)
    return np.asarray(rng.standard_normal((n, N_COLUMNS)) @ np.linalg.cholesky(correlation).T)


def correlate_ranks(ranks: Floats, flip_prob: float) -> Floats:
    """Spearman correlations with the known normaliser from ranks that carry the coins' noise."""
    n = len(ranks)
    noise = np.full(N_COLUMNS, rank_noise_variance(n, flip_prob) / n**2)
    grades = (ranks - (n + 1) / 2) / n
    rho = spearman_pairwise(grades, np.ones(ranks.shape, dtype=bool), noise, np.full(N_COLUMNS, 1 / 12)).rho
    np.fill_diagonal(rho, 1.0)
    return rho


def measure_once(values: Floats, epsilon_ranks: float, noise: SeededNoise) -> dict[str, float]:
    """Frobenius errors of the debiased and of the plain estimator."""
    flip_prob = flip_probability(epsilon_ranks)
    columns = range(N_COLUMNS)
    true = rankdata(values, axis=0)
    noisy = np.column_stack([flip_comparisons(values[:, j], epsilon_ranks, noise.stream(str(j))) for j in columns])
    debiased = np.column_stack([debias_ranks(noisy[:, j], flip_prob) for j in columns])
    exact = correlate_ranks(true, 0.0)
    return {
        "debiased": float(np.linalg.norm(correlate_ranks(debiased, flip_prob) - exact)),
        "plain": float(np.linalg.norm(correlate_ranks(noisy.astype(np.float64), flip_prob) - exact)),
    }


def measure_all(sizes: Sequence[int], epsilons: Sequence[float], replications: int) -> dict[str, Errors]:
    """Mean errors by estimator, epsilon and N. Half of epsilon goes to the ranks."""
    errors: dict[str, Errors] = {name: {e: {} for e in epsilons} for name in ("debiased", "plain")}
    for n in sizes:
        samples = [draw_values(n, np.random.default_rng([n, r])) for r in range(replications)]
        for epsilon in epsilons:
            found = [
                measure_once(values, epsilon / 2, SeededNoise(r, str(n), str(epsilon)))
                for r, values in enumerate(samples)
            ]
            for name, by_epsilon in errors.items():
                by_epsilon[epsilon][n] = float(np.mean([f[name] for f in found]))
    return errors


def theorem_rate(n: int, epsilon: float) -> float:
    """p (2 theta^2 - 2 theta + 1) / ((1 - 2 theta)^2 N), the bound of Theorem 1 up to its constant."""
    theta = flip_probability(epsilon / 2)
    return N_COLUMNS * (2 * theta**2 - 2 * theta + 1) / ((1 - 2 * theta) ** 2 * n)


def predict_error(n: int, epsilon: float) -> float:
    """Root of the summed entry variances 24 c/n^2 + 144 c^2/n^3, c = theta(1-theta)/(1-2 theta)^2."""
    theta = flip_probability(epsilon / 2)
    c = theta * (1 - theta) / (1 - 2 * theta) ** 2
    return float(np.sqrt(N_COLUMNS * (N_COLUMNS - 1) * (24 * c / n**2 + 144 * c**2 / n**3)))


def measure(*, quick: bool) -> Measured:
    """Errors of both estimators, and their slopes in N."""
    sizes = (500, 1_000, 5_000) if quick else (500, 1_000, 2_000, 5_000, 10_000, 20_000)
    epsilons = (0.1, 1.0) if quick else (0.05, 0.1, 0.3, 1.0, 3.0)
    replications = 2 if quick else 10
    errors = measure_all(sizes, epsilons, replications)
    slopes = {
        name: {e: fit_exponent(list(by_n), list(by_n.values())) for e, by_n in by_epsilon.items()}
        for name, by_epsilon in errors.items()
    }
    return (
        {
            "sizes": sizes,
            "epsilons": epsilons,
            "unit": "variable",
            "share_of_ranks": 0.5,
            "n_columns": N_COLUMNS,
            "neighbour_correlation": NEIGHBOUR_CORRELATION,
            "replications": replications,
            "theorem_constant_fitted_at": {"n_subjects": ANCHOR[0], "epsilon": ANCHOR[1]},
        },
        {
            "frobenius_error": errors,
            "slope_in_n": slopes,
            "predicted": {e: {n: predict_error(n, e) for n in sizes} for e in epsilons},
            "theorem_1_scaled": {e: {n: _scale(errors) * theorem_rate(n, e) for n in sizes} for e in epsilons},
        },
    )


def present(results: Mapping[str, Any], image: Path) -> list[Table]:
    """A table and a figure of saved results."""
    errors = {name: read_errors(saved) for name, saved in results["frobenius_error"].items()}
    slopes = {name: {float(e): slope for e, slope in own.items()} for name, own in results["slope_in_n"].items()}
    draw(errors, slopes, image)
    return [_tabulate(errors, slopes)]


def read_errors(saved: Mapping[str, Mapping[str, float]]) -> dict[float, dict[int, float]]:
    """By epsilon and N, whose names are text in JSON."""
    return {float(e): {int(n): error for n, error in by_n.items()} for e, by_n in saved.items()}


def _scale(errors: dict[str, Errors]) -> float:
    n, epsilon = ANCHOR
    return errors["debiased"][epsilon][n] / theorem_rate(n, epsilon)


def _tabulate(errors: dict[str, Errors], slopes: dict[str, dict[float, float]]) -> Table:
    sizes = list(next(iter(errors["debiased"].values())))
    rows = []
    for epsilon in errors["debiased"]:
        for name, by_epsilon in errors.items():
            cells = (f"{by_epsilon[epsilon][n]:.4f}" for n in sizes)
            rows.append((f"{epsilon:g}", name, *cells, f"{slopes[name][epsilon]:.2f}"))
        rows.append((f"{epsilon:g}", "predicted, debiased", *(f"{predict_error(n, epsilon):.4f}" for n in sizes), ""))
    header = ("ε (unit variable)", "estimator", *(f"N = {n:,}" for n in sizes), "slope in N")
    return Table("Frobenius error of the correlation against true ranks", header, tuple(rows))


def draw(errors: dict[str, Errors], slopes: dict[str, dict[float, float]], path: Path) -> None:
    """Against N for every epsilon, and against epsilon for one N."""
    figure, (left, right) = new_figure(1, 2, width=5.6, height=4.6)
    _draw_sizes(left, errors, slopes)
    _draw_epsilons(right, errors)
    figure.suptitle(
        f"Error that the coins add to the correlation of {N_COLUMNS} columns (ε of unit `variable`, half on ranks)"
    )
    save_png(figure, path)


def _draw_sizes(ax: Axes, errors: dict[str, Errors], slopes: dict[str, dict[float, float]]) -> None:
    scale = _scale(errors)
    for color, epsilon in zip(COLORS, errors["debiased"], strict=False):
        sizes = list(errors["debiased"][epsilon])
        label = f"ε = {epsilon:g}, slope {slopes['debiased'][epsilon]:.2f}"
        ax.plot(sizes, list(errors["debiased"][epsilon].values()), "o-", color=color, label=label)
        ax.plot(sizes, list(errors["plain"][epsilon].values()), "s--", color=color, markersize=4, alpha=0.7)
        ax.plot(sizes, [scale * theorem_rate(n, epsilon) for n in sizes], ":", color=color, linewidth=1.2)
    _describe_lines(ax)
    use_log_axes(ax, [float(n) for n in sizes])
    ax.set_xlabel("subjects N")
    ax.set_ylabel("Frobenius distance to true ranks' correlation")


def _draw_epsilons(ax: Axes, errors: dict[str, Errors]) -> None:
    n, _ = ANCHOR
    scale = _scale(errors)
    epsilons = list(errors["debiased"])
    ax.plot(epsilons, [errors["debiased"][e][n] for e in epsilons], "o-", color=COLORS[0], label="debiased")
    ax.plot(
        epsilons, [predict_error(n, e) for e in epsilons], "-", color=INK, linewidth=0.8, label="its known variance"
    )
    ax.plot(epsilons, [errors["plain"][e][n] for e in epsilons], "s--", color=COLORS[1], label="plain (biased)")
    rate = [scale * theorem_rate(n, e) for e in epsilons]
    ax.plot(epsilons, rate, ":", color=COLORS[0], label=f"Theorem 1's rate through ε = {ANCHOR[1]:g}")
    use_log_axes(ax, epsilons)
    ax.set_xlabel("ε (unit: variable)")
    ax.set_title(f"N = {n:,}", loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8)


def _describe_lines(ax: Axes) -> None:
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    note = f"solid: debiased; dashed: plain; dotted: Theorem 1's rate, fitted at N = {ANCHOR[0]:,}, ε = {ANCHOR[1]:g}"
    ax.set_title(note, loc="left", fontsize=9)
