"""How far private marginals are from the truth: ours, the paper's construction, and no privacy.

The error is the mean Kolmogorov distance to the true distribution function. The paper adds Laplace
noise of scale (l+1)/(n epsilon) to each of the l+1 values of the empirical distribution function,
with l of Corollary 1; ours adds it to the counts of cells and sums them up, so that a
coefficient's noise grows like sqrt(l) instead of l. Both use the same public range and scale, and
the paper's gets the same repair to a distribution function as ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy import stats

from benchmarks.correlation_errors import read_errors
from benchmarks.growth import fit_exponent
from reporting.catalogue import Measured
from reporting.figures import COLORS, new_figure, save_png, use_log_axes
from reporting.tables import Table
from verticopula.privacy.noise import SeededNoise
from verticopula.schema.columns import Column
from verticopula.stats.margin_cells import MARGIN_TUNING, continuous_cell_count, from_unit, to_cells, to_unit
from verticopula.stats.marginals import Marginal, iterate_bernstein, release_cells

PAPER_ORDER = 2  # h
PAPER_DELTA = 0.05  # of Corollary 1's l; the paper gives none
METHODS = {"ours": "ours", "paper": "paper's construction", "ecdf": "no privacy (ECDF)"}
DEGREE_FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
ANCHOR = (5_000, 1.0)

Floats = NDArray[np.float64]
Errors = dict[str, dict[float, dict[int, float]]]  # method -> epsilon -> N -> mean error


@dataclass(frozen=True)
class Margin:
    """A column and the distribution its values truly have."""

    title: str
    column: Column
    truth: Any

    def points(self) -> Floats:
        """Where distances are taken: true quantiles, and an even grid of the public range."""
        quantiles = self.truth.ppf(np.arange(1, 2_000) / 2_000)
        even = from_unit(np.linspace(0.0, 1.0, 2_001), self.column)
        low, high = self.column.bounds or (0.0, 1.0)
        return np.asarray(np.clip(np.concatenate([quantiles, even]), low, high))

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """n values within the public range."""
        low, high = self.column.bounds or (0.0, 1.0)
        return np.asarray(np.clip(self.truth.rvs(size=n, random_state=rng), low, high))


MARGINS = {
    "normal": Margin("normal on [-6, 6]", Column(name="normal", kind="continuous", bounds=(-6.0, 6.0)), stats.norm()),
    "lognormal": Margin(
        "lognormal (s = 2), log scale on [1e-4, 1e5]",
        Column(name="lognormal", kind="continuous", bounds=(1e-4, 1e5), scale="log"),
        stats.lognorm(s=2.0),
    ),
    "beta": Margin(
        "beta(0.5, 2) on [0, 1]", Column(name="beta", kind="continuous", bounds=(0.0, 1.0)), stats.beta(0.5, 2.0)
    ),
}


def private_cdf(
    values: Floats, column: Column, cells: int, epsilon: float, noise: SeededNoise, points: Floats
) -> Floats:
    """Our private distribution function at the points."""
    noisy = release_cells(to_cells(values, column, cells), cells, epsilon, noise, "cells")
    return Marginal.from_release(column, noisy, values.size, epsilon).cdf(points)


def paper_degree(n: int, epsilon: float) -> int:
    """l of Corollary 1."""
    return max(1, round(math.pow(epsilon * n / math.log(1 / PAPER_DELTA), 1 / (PAPER_ORDER + 1))))


def paper_cdf(values: Floats, column: Column, epsilon: float, rng: np.random.Generator, points: Floats) -> Floats:
    """Eq. (9): the iterated Bernstein polynomial of noisy values of the empirical distribution function."""
    degree = paper_degree(values.size, epsilon)
    cuts = np.arange(degree + 1) / degree
    exact = np.searchsorted(np.sort(to_unit(values, column)), cuts, side="right") / values.size
    noisy = exact + rng.laplace(scale=(degree + 1) / (values.size * epsilon), size=degree + 1)
    grid = np.linspace(0.0, 1.0, 1_025)
    basis = stats.binom.pmf(np.arange(degree + 1), degree, grid[:, None])
    raw = basis @ iterate_bernstein(noisy, PAPER_ORDER)
    repaired = np.clip(np.maximum.accumulate(raw), 0.0, 1.0)
    return np.asarray(np.interp(to_unit(points, column), grid, repaired))


def empirical_cdf(values: Floats, points: Floats) -> Floats:
    """Share of values up to each point."""
    return np.asarray(np.searchsorted(np.sort(values), points, side="right") / values.size)


def measure_once(margin: Margin, n: int, epsilon: float, replication: int) -> dict[str, float]:
    """Kolmogorov distances of the three; half of epsilon goes to the marginal."""
    rng = np.random.default_rng([n, replication])
    values = margin.draw(n, rng)
    points = margin.points()
    own = epsilon / 2
    noise = SeededNoise(replication, margin.title, str(n), str(epsilon))
    found = {
        "ours": private_cdf(values, margin.column, continuous_cell_count(n, own), own, noise, points),
        "paper": paper_cdf(values, margin.column, own, rng, points),
        "ecdf": empirical_cdf(values, points),
    }
    truth = margin.truth.cdf(points)
    return {method: float(np.max(np.abs(cdf - truth))) for method, cdf in found.items()}


def measure_all(margin: Margin, sizes: Sequence[int], epsilons: Sequence[float], replications: int) -> Errors:
    """Mean distances by method, epsilon and N."""
    errors: Errors = {method: {e: {} for e in epsilons} for method in METHODS}
    for n in sizes:
        for epsilon in epsilons:
            found = [measure_once(margin, n, epsilon, r) for r in range(replications)]
            for method in METHODS:
                errors[method][epsilon][n] = float(np.mean([f[method] for f in found]))
    return errors


def measure_degrees(
    sizes: Sequence[int], epsilons: Sequence[float], replications: int
) -> dict[float, dict[str, float]]:
    """Mean distance of ours per margin, over sizes and epsilons, for other constants in the number of cells."""
    return {
        factor: {
            name: float(
                np.mean(
                    [
                        _measure_degree(margin, factor, n, epsilon, r)
                        for n in sizes
                        for epsilon in epsilons
                        for r in range(replications)
                    ]
                )
            )
            for name, margin in MARGINS.items()
        }
        for factor in DEGREE_FACTORS
    }


def _measure_degree(margin: Margin, factor: float, n: int, epsilon: float, replication: int) -> float:
    values, points = margin.draw(n, np.random.default_rng([n, replication])), margin.points()
    own = epsilon / 2
    cells = replace(MARGIN_TUNING, cell_rate=factor).continuous_cells(own * n)
    noise = SeededNoise(replication, margin.title, str(n), str(epsilon), str(factor))
    cdf = private_cdf(values, margin.column, cells, own, noise, points)
    return float(np.max(np.abs(cdf - margin.truth.cdf(points))))


def measure(*, quick: bool) -> Measured:
    """Errors of three kinds of marginals, and their slopes in N."""
    sizes = (500, 5_000) if quick else (500, 1_000, 2_000, 5_000, 10_000, 20_000)
    epsilons = (0.1, 1.0) if quick else (0.05, 0.1, 0.3, 1.0, 3.0)
    replications = 3 if quick else 50
    errors = {name: measure_all(margin, sizes, epsilons, replications) for name, margin in MARGINS.items()}
    slopes = {
        name: {
            method: {e: fit_exponent(list(by_n), list(by_n.values())) for e, by_n in by_epsilon.items()}
            for method, by_epsilon in found.items()
        }
        for name, found in errors.items()
    }
    degrees = measure_degrees(sizes, epsilons, replications)
    return (
        {
            "sizes": sizes,
            "epsilons": epsilons,
            "unit": "variable",
            "share_of_marginals": 0.5,
            "replications": replications,
            "paper": {"order": PAPER_ORDER, "delta": PAPER_DELTA},
        },
        {"kolmogorov_distance": errors, "slope_in_n": slopes, "mean_distance_by_degree_factor": degrees},
    )


def present(results: Mapping[str, Any], image: Path) -> list[Table]:
    """Tables and a figure of saved results."""
    errors = {
        name: {method: read_errors(saved) for method, saved in own.items()}
        for name, own in results["kolmogorov_distance"].items()
    }
    slopes = {
        name: {method: {float(e): slope for e, slope in own.items()} for method, own in by_method.items()}
        for name, by_method in results["slope_in_n"].items()
    }
    degrees = {float(factor): own for factor, own in results["mean_distance_by_degree_factor"].items()}
    draw(errors, image)
    return [
        *(_tabulate(MARGINS[name].title, found, slopes[name]) for name, found in errors.items()),
        _tabulate_degrees(degrees),
    ]


def _tabulate(title: str, errors: Errors, slopes: dict[str, dict[float, float]]) -> Table:
    sizes = list(next(iter(errors["ours"].values())))
    rows = [
        (
            f"{epsilon:g}",
            label,
            *(f"{errors[method][epsilon][n]:.4f}" for n in sizes),
            f"{slopes[method][epsilon]:.2f}",
        )
        for epsilon in errors["ours"]
        for method, label in METHODS.items()
    ]
    header = ("ε (unit variable)", "method", *(f"N = {n:,}" for n in sizes), "slope in N")
    return Table(f"Kolmogorov distance, {title}", header, tuple(rows))


def _tabulate_degrees(degrees: dict[float, dict[str, float]]) -> Table:
    rows = tuple(
        (f"{factor:g}", *(f"{d:.4f}" for d in by_margin.values()), f"{np.mean(list(by_margin.values())):.4f}")
        for factor, by_margin in degrees.items()
    )
    header = ("factor of (εn)^(2/3)", *MARGINS, "mean")
    return Table("Mean Kolmogorov distance of ours by the constant in the number of cells", header, rows)


def draw(errors: dict[str, Errors], path: Path) -> None:
    """Above against N, below against epsilon, one column of panels per margin."""
    figure, axes = new_figure(2, len(errors), width=4.2, height=3.4)
    for index, (name, found) in enumerate(errors.items()):
        _draw_sizes(axes[index], found)
        axes[index].set_title(MARGINS[name].title, loc="left", fontsize=10)
        _draw_epsilons(axes[len(errors) + index], found)
    everything = [
        d for found in errors.values() for by_e in found.values() for by_n in by_e.values() for d in by_n.values()
    ]
    for ax in axes:
        ax.set_ylim(0.8 * min(everything), 1.25 * max(everything))
    axes[0].set_ylabel(f"Kolmogorov distance, ε = {ANCHOR[1]:g}")
    axes[len(errors)].set_ylabel(f"Kolmogorov distance, N = {ANCHOR[0]:,}")
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle("Error of private marginals (ε of unit `variable`, half of it on the marginal)")
    save_png(figure, path)


def _draw_sizes(ax: Axes, errors: Errors) -> None:
    for color, (method, label) in zip(COLORS, METHODS.items(), strict=False):
        by_n = errors[method][ANCHOR[1]]
        ax.plot(list(by_n), list(by_n.values()), "o-", color=color, label=label)
    use_log_axes(ax, [float(n) for n in by_n])
    ax.set_xlabel("subjects N")


def _draw_epsilons(ax: Axes, errors: Errors) -> None:
    epsilons = list(errors["ours"])
    for color, method in zip(COLORS, METHODS, strict=False):
        ax.plot(epsilons, [errors[method][e][ANCHOR[0]] for e in epsilons], "o-", color=color)
    use_log_axes(ax, epsilons)
    ax.set_xlabel("ε (unit: variable)")
