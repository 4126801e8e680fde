"""Growth of the refinement in subjects, columns and missing patterns, and of Eq. (6)'s adjustment in subjects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks.growth import fit_exponent
from benchmarks.refinement_cost import refine_fully, release
from benchmarks.timing import Timing, time_interleaved
from experiments.designs import SimulatedData, SimulationDesign, make_complete, mask_mcar
from reporting.figures import COLORS, INK, new_figure, save_png, use_log_axes
from reporting.tables import Table
from verticopula.schema.federation import Federation
from verticopula.stats.em import PackedMoments, em_step, gather_moments
from verticopula.stats.latent_draws import adjust_to_order
from verticopula.stats.refinement import refine

GROWTH_MISSING_RATE, GROWTH_ROUNDS = 0.3, 20


@dataclass(frozen=True)
class GrowthPoint:
    """One size and what it took.

    Attributes
    ----------
    size : what is varied: N, p or the number of patterns
    refine, em_step : seconds of a refinement of 20 rounds, of one step of EM
    """

    size: int
    refine: float
    em_step: float


def measure_point(n: int, n_columns: int, n_clients: int, repetitions: int, size: str) -> GrowthPoint:
    """Time the refinement of one design with every client's blocks missing at 30 %.

    The number of rounds is fixed, so that it is their cost that is measured, and the noise does not
    matter: the ranks are those that are drawn fastest.
    """
    released = release(*masked(n, n_columns, n_clients), sampler="binomial")
    refinement = refine(released, rounds=1)
    patterns = refinement.readings.table.patterns
    moments = PackedMoments.of(gather_moments(refinement.readings.table, patterns))
    tasks: dict[str, Callable[[], object]] = {
        "refine": partial(refine_fully, released, rounds=GROWTH_ROUNDS, tolerance=0.0),
        "em_step": partial(em_step, refinement.covariance, moments, refinement.report.prior_subjects),
    }
    times = {name: t.minimum for name, t in time_interleaved(tasks, repetitions).items()}
    sizes = {"N": n, "p": n_columns, "patterns": len(patterns)}
    return GrowthPoint(sizes[size], times["refine"], times["em_step"])


def masked(n: int, n_columns: int, n_clients: int) -> tuple[Federation, dict[str, pl.DataFrame]]:
    counts = np.bincount(np.arange(n_columns) % 4, minlength=4).tolist()
    design = SimulationDesign(kind_counts=(counts[0], counts[1], counts[2], counts[3]), n_clients=n_clients)
    rng = np.random.default_rng(0)
    data: SimulatedData = make_complete(design, n, rng=rng)
    observed = mask_mcar(n, rng=rng, missing_rates=(GROWTH_MISSING_RATE,) * n_clients)
    return data.federation(), data.tables(observed)


def measure_growth(*, quick: bool) -> dict[str, list[GrowthPoint]]:
    """Subjects at p = 50, columns and patterns at N = 5,000."""
    repetitions = 1 if quick else 2
    subjects = (1_000, 2_000, 4_000) if quick else (2_500, 5_000, 10_000, 20_000, 40_000)
    columns = (20, 40) if quick else (25, 50, 100, 200)
    clients = (2, 4) if quick else (2, 3, 4, 5, 6, 10)
    n = 1_000 if quick else 5_000
    return {
        "N": [measure_point(size, 50, 5, repetitions, "N") for size in subjects],
        "p": [measure_point(n, size, 5, repetitions, "p") for size in columns],
        "patterns": [measure_point(n, 60, size, repetitions, "patterns") for size in clients],
    }


def measure_adjustment(sizes: Sequence[int], repetitions: int) -> dict[int, Timing]:
    """Eq. (6): increasing values redrawn between their neighbours."""
    rng = np.random.default_rng(0)

    def task(n: int) -> Callable[[], object]:
        start, mean = np.sort(rng.standard_normal(n)), 0.5 * rng.standard_normal(n)
        return partial(adjust_to_order, start, mean, 0.8, rng)

    return {int(n): t for n, t in time_interleaved({str(n): task(n) for n in sizes}, repetitions).items()}


def find_exponents(growth: Mapping[str, Sequence[GrowthPoint]], adjustment: Mapping[int, Timing]) -> dict[str, float]:
    """Slopes of log seconds on log size."""
    found = {
        f"{what} in {size}": fit_exponent([p.size for p in points], [getattr(p, what) for p in points])
        for size, points in growth.items()
        for what in ("refine", "em_step")
    }
    return found | {"adjustment in n": fit_exponent(list(adjustment), [t.minimum for t in adjustment.values()])}


def tabulate_growth(growth: Mapping[str, Sequence[GrowthPoint]]) -> Table:
    rows = tuple(
        (size, f"{p.size:,}", f"{p.refine:.3f}", f"{1e3 * p.em_step:.2f}")
        for size, points in growth.items()
        for p in points
    )
    return Table(f"Growth of {GROWTH_ROUNDS} rounds", ("in", "size", "seconds", "ms per step of EM"), rows)


def tabulate_adjustment(adjustment: Mapping[int, Timing]) -> Table:
    rows = tuple((f"{n:,}", f"{1e3 * t.minimum:.2f}", f"{1e9 * t.minimum / n:.0f}") for n, t in adjustment.items())
    return Table("Eq. (6)'s adjustment of one column", ("n", "ms", "ns per subject"), rows)


def tabulate_exponents(exponents: Mapping[str, float]) -> Table:
    return Table("Exponents", ("of", "exponent"), tuple((name, f"{value:.2f}") for name, value in exponents.items()))


def draw(
    growth: Mapping[str, Sequence[GrowthPoint]],
    adjustment: Mapping[int, Timing],
    exponents: Mapping[str, float],
    path: Path,
) -> None:
    """Seconds against every size, with the fitted exponents."""
    figure, axes = new_figure(2, 2)
    titles = {
        "N": "subjects N (p = 50, 5 clients)",
        "p": "columns p (5 clients)",
        "patterns": "missing patterns (p = 60)",
    }
    for ax, (size, points) in zip(axes, growth.items(), strict=False):
        sizes = [float(p.size) for p in points]
        for color, (what, label) in zip(
            COLORS, {"refine": f"{GROWTH_ROUNDS} rounds", "em_step": "a step of EM"}.items(), strict=False
        ):
            name = f"{label}: {exponents[f'{what} in {size}']:.2f}"
            _plot(ax, sizes, [getattr(p, what) for p in points], color, name)
        use_log_axes(ax, sizes)
        ax.set_xlabel(titles[size])
    sizes = [float(n) for n in adjustment]
    label = f"adjustment: {exponents['adjustment in n']:.2f}"
    _plot(axes[3], sizes, [t.minimum for t in adjustment.values()], COLORS[3], label)
    use_log_axes(axes[3], sizes)
    axes[3].set_xlabel("subjects n of Eq. (6)'s adjustment")
    for ax in axes:
        ax.set_ylabel("processor seconds (fastest run)", color=INK)
        ax.legend(frameon=False, fontsize=8, title="exponent", title_fontsize=8)
    save_png(figure, path)


def _plot(
    ax: Axes, sizes: Sequence[float], seconds: Sequence[float] | NDArray[np.float64], color: str, label: str
) -> None:
    ax.plot(sizes, seconds, "o-", color=color, label=label)
