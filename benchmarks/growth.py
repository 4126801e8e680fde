"""How the two rank releases grow with N: all pairs of coins, and one binomial draw a subject.

An exponent is the slope of log time on log N. For the binomial release the constant of N log N
is shown at every N as well: if the time grows like that, it stays put.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Timing, time_interleaved
from reporting.catalogue import Measured, Places
from reporting.figures import COLORS, INK, new_figure, save_png, use_log_axes
from reporting.records import Record
from reporting.tables import Table
from verticopula.privacy.noise import Keystream, SecureNoise
from verticopula.stats.binomial_ranks import draw_binomial_ranks
from verticopula.stats.ranks import flip_comparisons

EPSILON = 0.5  # per comparison
RankRelease = Callable[[NDArray[np.float64], float, Keystream], NDArray[np.int64]]


def draw_from_one_stream(values: NDArray[np.float64], epsilon: float, keystream: Keystream) -> NDArray[np.int32]:
    """Ranks by the binomial sampler, all of them from the same random bits."""
    return draw_binomial_ranks(values, epsilon, lambda label: keystream)


def time_sizes(release: RankRelease, sizes: Sequence[int], repetitions: int) -> dict[int, Timing]:
    """Time a release of standard normal values at each size, taking turns."""
    rng = np.random.default_rng(0)
    noise = SecureNoise()
    release(rng.standard_normal(500), EPSILON, noise.stream())  # compiles
    tasks = {str(n): partial(_release_once, release, rng.standard_normal(n), noise) for n in sizes}
    return {int(n): timing for n, timing in time_interleaved(tasks, repetitions).items()}


def _release_once(release: RankRelease, values: NDArray[np.float64], noise: SecureNoise) -> None:
    release(values, EPSILON, noise.stream())


def fit_exponent(sizes: Sequence[float], amounts: Sequence[float]) -> float:
    """Least-squares slope of log amount on log size."""
    return float(np.polyfit(np.log(sizes), np.log(amounts), 1)[0])


def run(options: Namespace) -> Measured:
    """Time both releases."""
    exact_sizes = (2_000, 4_000, 8_000) if options.quick else (10_000, 20_000, 40_000, 80_000)
    binomial_sizes = (20_000, 40_000, 80_000) if options.quick else tuple(10_000 * 2**k for k in range(7))
    repetitions = 3 if options.quick else 25
    measured = {
        "exact": time_sizes(flip_comparisons, exact_sizes, repetitions),
        "binomial": time_sizes(draw_from_one_stream, binomial_sizes, repetitions),
    }
    exponents = {
        name: {
            "of_minima": fit_exponent(list(timings), [t.minimum for t in timings.values()]),
            "of_medians": fit_exponent(list(timings), [t.median for t in timings.values()]),
        }
        for name, timings in measured.items()
    }
    per_n_log_n = {n: 1e9 * t.minimum / (n * np.log(n)) for n, t in measured["binomial"].items()}
    expected = fit_exponent(binomial_sizes, [n * np.log(n) for n in binomial_sizes])
    return (
        {
            "sizes": {"exact": exact_sizes, "binomial": binomial_sizes},
            "epsilon_per_comparison": EPSILON,
            "repetitions": repetitions,
        },
        {
            "timings": {name: {n: t.to_dict() for n, t in timings.items()} for name, timings in measured.items()},
            "exponent": exponents,
            "exponent_of_n_log_n": expected,
            "binomial_ns_per_n_log_n": per_n_log_n,
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """Two tables and a figure."""
    found = record.results
    measured = {
        name: {int(n): Timing.of(saved) for n, saved in timings.items()} for name, timings in found["timings"].items()
    }
    draw(measured, found["exponent"], places.images / "growth.png")
    per_n_log_n = {int(n): value for n, value in found["binomial_ns_per_n_log_n"].items()}
    return [
        _tabulate_times(measured, per_n_log_n),
        _tabulate_exponents(found["exponent"], found["exponent_of_n_log_n"]),
    ]


def _tabulate_times(measured: dict[str, dict[int, Timing]], per_n_log_n: dict[int, float]) -> Table:
    rows = []
    for name, timings in measured.items():
        smaller = 0
        for n, t in timings.items():
            local = fit_exponent([smaller, n], [timings[smaller].minimum, t.minimum]) if smaller else None
            rows.append(
                (
                    name,
                    f"{n:,}",
                    f"{t.minimum:.4f}",
                    f"{t.median:.4f}",
                    f"{2e9 * t.minimum / n**2:.3f}" if name == "exact" else "",
                    f"{per_n_log_n[n]:.2f}" if name == "binomial" else "",
                    f"{local:.2f}" if local else "",
                )
            )
            smaller = n
    header = ("release", "N", "min s", "median s", "ns per N²/2", "ns per N log N", "exponent since the row above")
    return Table("processor time of one rank release", header, tuple(rows))


def _tabulate_exponents(exponents: dict[str, dict[str, float]], expected: float) -> Table:
    theory = {"exact": "2", "binomial": f"{expected:.2f} (N log N over these N)"}
    rows = tuple(
        (name, f"{fit['of_minima']:.2f}", f"{fit['of_medians']:.2f}", theory[name]) for name, fit in exponents.items()
    )
    return Table("exponent of N", ("release", "from minima", "from medians", "expected"), rows)


def draw(measured: dict[str, dict[int, Timing]], exponents: dict[str, dict[str, float]], path: Path) -> None:
    """Times against N with the expected growth through the last point."""
    figure, (ax,) = new_figure(1, 1, width=6.4, height=4.2)
    laws = {"exact": "N²", "binomial": "N log N"}
    for color, (name, timings) in zip(COLORS, measured.items(), strict=False):
        sizes = np.array(list(timings), dtype=np.float64)
        seconds = np.array([t.minimum for t in timings.values()])
        expected = sizes**2 if name == "exact" else sizes * np.log(sizes)
        ax.plot(sizes, seconds[-1] * expected / expected[-1], ":", color=INK, linewidth=1.2)
        ax.annotate(f"  {laws[name]}", (sizes[-1], seconds[-1]), color=INK, va="center")
        ax.plot(sizes, seconds, "o-", color=color, label=f"{name}: exponent {exponents[name]['of_minima']:.2f}")
    use_log_axes(ax, sorted({float(n) for timings in measured.values() for n in timings}))
    ax.set_xlabel("subjects N")
    ax.set_ylabel("processor seconds (fastest run)")
    ax.set_title("One rank release; dotted: expected growth through the last point", loc="left", fontsize=10)
    ax.legend(frameon=False, loc="lower right")
    ax.margins(x=0.15)
    save_png(figure, path)
