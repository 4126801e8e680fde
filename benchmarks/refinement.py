"""The server-side refinement: what it recovers, what it costs and how that grows.

1. Theorem 3's toy, where the truth is known: two columns with correlation 0.7, the first missing
   where the second is high.
2. Everything that `refined` does beyond the releases, in seconds, in rank releases and in memory;
   and IEVCDS, which buys its correction with ten rank releases.
3. Its growth in subjects, columns and missing patterns, and that of Eq. (6)'s adjustment in subjects.

All seconds are processor time of one thread.
"""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from joblib import Parallel, delayed, parallel_config
from matplotlib.axes import Axes
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.growth import fit_exponent
from benchmarks.plotting import COLORS, INK, new_figure, save_figure, use_log_axes
from benchmarks.record import Places, Report, Table, verdict
from benchmarks.timing import Timing, time_interleaved
from experiments.designs import SimulatedData, SimulationDesign, make_complete, mask_mar, mask_mcar
from verticopula import Synthesizer
from verticopula.copula import latent_count
from verticopula.datasets import make_sme
from verticopula.latent import adjust_to_order
from verticopula.privacy.budget import BudgetRequest, coins_per_comparison
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.party import LocalParty
from verticopula.protocol.refined import latent_correlation
from verticopula.protocol.rounds import collect
from verticopula.ranks import flip_comparisons
from verticopula.refine import MOST_ROUNDS, TOLERANCE, em_step, find_patterns, gather_moments, refine
from verticopula.released import Released
from verticopula.schema import ColumnKey, Federation
from verticopula.synthesizer import NotPrivateWarning
from verticopula.tables import AlignedTable, align_tables
from verticopula.transport.base import drive
from verticopula.transport.inprocess import InProcessTransport

METHODS = ("vcds", "evcds", "ievcds", "refined")
UNIT, EPSILON = "variable", 1.0
ROUNDS = 10
PROCESSES = 2

TOY_SUBJECTS, TOY_CORRELATION, TOY_MARGIN = 5_000, 0.7, 0.5
TOY_TARGETS = {0.5: (0.04, 0.02), 3.0: (0.02, 0.01)}  # epsilon per comparison: bias of correlation, of F1(0)
MOST_SECONDS = {"design, 2 clients maskable": 2.0, "design, 4 clients maskable": 2.0, "SME": 30.0}
MOST_PER_RELEASES = 1.3
GROWTH_MISSING_RATE, GROWTH_ROUNDS = 0.3, 20

Tables = Mapping[str, pl.DataFrame]


# ---- Theorem 3's toy -----------------------------------------------------------------------


@dataclass(frozen=True)
class ToyResult:
    """Mean and standard deviation over runs, and the bias's verdict."""

    method: str
    epsilon: float
    correlation: tuple[float, float]
    margin: tuple[float, float]

    @property
    def biases(self) -> tuple[float, float]:
        return abs(self.correlation[0] - TOY_CORRELATION), abs(self.margin[0] - TOY_MARGIN)


def make_toy(seed: int) -> tuple[Federation, dict[str, pl.DataFrame]]:
    """Two standard normal columns at two parties; X1 is missing where X2 is above a N(0, 1/4) draw."""
    columns = {name: [{"name": name, "kind": "continuous", "bounds": (-5, 5), "clamp": True}] for name in ("x1", "x2")}
    parties = [{"name": f"holds_{name}", "column": column} for name, column in columns.items()]
    federation = Federation.from_dict({"name": "toy", "response": "holds_x2.x2", "id": "id", "party": parties})
    rng = np.random.default_rng(seed)
    x2, rest = rng.standard_normal((2, TOY_SUBJECTS))
    x1 = TOY_CORRELATION * x2 + np.sqrt(1.0 - TOY_CORRELATION**2) * rest
    known = x2 <= 0.5 * rng.standard_normal(TOY_SUBJECTS)
    ids = pl.Series("id", [f"s{i}" for i in range(TOY_SUBJECTS)])
    first = pl.DataFrame([ids, pl.Series("x1", x1)]).filter(pl.Series(known))
    return federation, {"holds_x1": first, "holds_x2": pl.DataFrame([ids, pl.Series("x2", x2)])}


def run_toy(method: str, epsilon: float, seed: int) -> tuple[float, float]:
    """Correlation and F1(0) that one method finds in one run."""
    federation, tables = make_toy(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        copula = (
            Synthesizer(
                federation,
                method,
                unit=UNIT,
                random_state=seed,
                epsilon_ranks=epsilon,
                epsilon_marginals=epsilon,
                rounds=ROUNDS,
                per_round=method == "ievcds",
            )
            .fit(tables)
            .result_.copula
        )
    margin = copula.marginals[ColumnKey("holds_x1", "x1")].cdf(np.zeros(1))
    return float(copula.correlation[0, 1]), float(margin[0])


def measure_toy(runs: int) -> list[ToyResult]:
    """Every method at every epsilon."""
    settings = [(method, epsilon) for epsilon in TOY_TARGETS for method in METHODS]
    tasks = [(method, epsilon, seed) for method, epsilon in settings for seed in range(runs)]
    with parallel_config(backend="loky", n_jobs=PROCESSES, inner_max_num_threads=1):
        answers = Parallel()(delayed(run_toy)(*task) for task in tasks)
    found = np.array(answers).reshape(len(settings), runs, 2)
    means, deviations = found.mean(axis=1), found.std(axis=1)
    return [
        ToyResult(*setting, *((float(means[i, k]), float(deviations[i, k])) for k in (0, 1)))
        for i, setting in enumerate(settings)
    ]


def _tabulate_toy(results: Sequence[ToyResult], runs: int) -> Table:
    rows = []
    for r in results:
        targets = TOY_TARGETS[r.epsilon]
        shown = [f"{mean:.3f} ({deviation:.3f})" for mean, deviation in (r.correlation, r.margin)]
        verdicts = [verdict(bias, target) for bias, target in zip(r.biases, targets, strict=True)]
        rows.append((f"{r.epsilon:g}", r.method, *shown, f"{targets[0]:g} / {targets[1]:g}", *verdicts))
    header = ("ε per comparison", "method", "correlation (s.d.)", "F1(0) (s.d.)", "largest biases", "first", "second")
    return Table(f"Theorem 3's toy, truth 0.7 and 0.5, N = {TOY_SUBJECTS:,}, {runs} runs", header, tuple(rows))


# ---- cost ----------------------------------------------------------------------------------


def release(federation: Federation, tables: Tables, *, sampler: str = "exact") -> Released:
    """What the coordinator starts from."""
    request = BudgetRequest.build(federation, unit=UNIT, epsilon=EPSILON, delta=None, sampler=sampler)
    aligned = align_tables(federation, tables, need_overlap=False)
    parties = {name: LocalParty(table, noise=SecureNoise()) for name, table in aligned.items()}
    return drive(collect(federation, request, "benchmark", "refined"), InProcessTransport(parties)).released


def rank_all(aligned: Mapping[str, AlignedTable]) -> None:
    """One rank release of every column, all comparisons flipped, and nothing else."""
    noise = SecureNoise()
    for table in aligned.values():
        for column in table.party.columns:
            encoded = table.columns[column.name]
            values, count = encoded.values[encoded.observed], latent_count(column)
            latents = [values] if count == 1 else [(values == code).astype(np.float64) for code in range(count)]
            for latent in latents:
                flip_comparisons(latent, EPSILON / 2 / coins_per_comparison(column, "exact"), noise.stream())


def refine_fully(released: Released, *, rounds: int = MOST_ROUNDS, tolerance: float = TOLERANCE) -> None:
    """What `refined` does beyond the releases."""
    latent_correlation(released, refine(released, rounds=rounds, tolerance=tolerance))


@dataclass(frozen=True)
class Cost:
    """Of one refinement.

    Attributes
    ----------
    seconds, rank_seconds : of the refinement, and of one rank release of the same data
    rounds, patterns, converged : of the refinement
    peak_bytes : most memory in use during the refinement, above what it started from
    """

    n_subjects: int
    n_latents: int
    seconds: float
    rank_seconds: float
    rounds: int
    patterns: int
    converged: bool
    peak_bytes: int

    @property
    def releases(self) -> float:
        return self.seconds / self.rank_seconds

    @property
    def bytes_per_entry(self) -> float:
        return self.peak_bytes / (self.n_subjects * self.n_latents)


def measure_cost(federation: Federation, tables: Tables, repetitions: int) -> Cost:
    """Time the refinement and a rank release, taking turns; then the memory, apart."""
    released = release(federation, tables)
    report = refine(released).report
    aligned = align_tables(federation, tables, need_overlap=False)
    tasks = {"refine": partial(refine_fully, released), "ranks": partial(rank_all, aligned)}
    times = time_interleaved(tasks, repetitions)
    tracemalloc.start()
    refine_fully(released)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    n_subjects, n_latents = released.observed.shape
    return Cost(
        n_subjects,
        n_latents,
        times["refine"].minimum,
        times["ranks"].minimum,
        report.rounds,
        report.patterns,
        report.converged,
        peak,
    )


def make_design(n: int, maskable: Sequence[int]) -> tuple[Federation, dict[str, pl.DataFrame]]:
    """The paper's linear design with p = 100, MAR complex, and which clients are maskable."""
    rng = np.random.default_rng(0)
    data = make_complete(SimulationDesign(), n, rng=rng)
    chosen = np.isin(np.arange(data.design.n_clients) + 1, maskable)
    return data.federation(), data.tables(mask_mar(data, rng=rng, case="complex", maskable=chosen))


def _tabulate_costs(costs: Mapping[str, Cost]) -> Table:
    rows = tuple(
        (
            name,
            f"{cost.n_subjects:,}",
            str(cost.n_latents),
            str(cost.patterns),
            f"{cost.rounds}{'' if cost.converged else ' (not converged)'}",
            f"{cost.seconds:.2f}",
            f"{MOST_SECONDS[name]:g}",
            verdict(cost.seconds, MOST_SECONDS[name]),
            f"{cost.releases:.2f}",
            f"{cost.peak_bytes / 1e6:.0f}",
            f"{cost.bytes_per_entry:.0f}",
        )
        for name, cost in costs.items()
    )
    header = ("data", "N", "latents", "patterns", "rounds", "seconds", "target", "verdict", "rank releases")
    return Table("the refinement beyond the releases", (*header, "peak MB", "bytes per N × latents"), rows)


def measure_ievcds(n: int, repetitions: int) -> dict[str, Timing]:
    """IEVCDS with ten rounds, and one rank release of the same table without gaps."""
    study = make_sme(n)
    complete = align_tables(study.federation, study.truth.complete)

    def fit() -> None:
        Synthesizer(study.federation, "ievcds", EPSILON, unit=UNIT, rounds=ROUNDS, per_round=True).fit(study.tables)

    return time_interleaved({"fit": fit, "ranks": partial(rank_all, complete)}, repetitions)


def _compare_with_ranks(times: Mapping[str, Timing]) -> float:
    return times["fit"].minimum / (ROUNDS * times["ranks"].minimum)


def _tabulate_ievcds(measured: Mapping[int, Mapping[str, Timing]]) -> Table:
    rows = []
    for n, times in measured.items():
        seconds = [f"{times[name].minimum:.2f}" for name in ("fit", "ranks")]
        ratio = _compare_with_ranks(times)
        rows.append((f"{n:,}", *seconds, f"{ratio:.2f}", f"{MOST_PER_RELEASES:g}", verdict(ratio, MOST_PER_RELEASES)))
    header = (
        "N",
        "IEVCDS, seconds",
        "one rank release, seconds",
        f"IEVCDS / {ROUNDS} rank releases",
        "target",
        "verdict",
    )
    return Table(f"IEVCDS, {ROUNDS} rounds, on the SME study", header, tuple(rows))


# ---- growth --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One size and what it took.

    Attributes
    ----------
    size : what is varied: N, p or the number of patterns
    refine, em_step : seconds of a refinement of 20 rounds, of one step of EM
    """

    size: int
    refine: float
    em_step: float


def measure_point(n: int, n_columns: int, n_clients: int, repetitions: int, size: str) -> Point:
    """Time the refinement of one design with every client's blocks missing at 30 %.

    The number of rounds is fixed, so that it is their cost that is measured, and the noise does not
    matter: the ranks are those that are drawn fastest.
    """
    released = release(*_masked(n, n_columns, n_clients), sampler="binomial")
    refinement = refine(released, rounds=1)
    patterns = find_patterns(released.observed)
    moments = gather_moments(refinement.readings, patterns)
    tasks: dict[str, Callable[[], object]] = {
        "refine": partial(refine_fully, released, rounds=GROWTH_ROUNDS, tolerance=0.0),
        "em_step": partial(em_step, refinement.covariance, moments, refinement.report.prior_subjects),
    }
    times = {name: t.minimum for name, t in time_interleaved(tasks, repetitions).items()}
    sizes = {"N": n, "p": n_columns, "patterns": len(patterns)}
    return Point(sizes[size], times["refine"], times["em_step"])


def _masked(n: int, n_columns: int, n_clients: int) -> tuple[Federation, dict[str, pl.DataFrame]]:
    counts = np.bincount(np.arange(n_columns) % 4, minlength=4).tolist()
    design = SimulationDesign(kind_counts=(counts[0], counts[1], counts[2], counts[3]), n_clients=n_clients)
    rng = np.random.default_rng(0)
    data: SimulatedData = make_complete(design, n, rng=rng)
    observed = mask_mcar(n, rng=rng, missing_rates=(GROWTH_MISSING_RATE,) * n_clients)
    return data.federation(), data.tables(observed)


def measure_growth(*, quick: bool) -> dict[str, list[Point]]:
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


def find_exponents(growth: Mapping[str, Sequence[Point]], adjustment: Mapping[int, Timing]) -> dict[str, float]:
    """Slopes of log seconds on log size."""
    found = {
        f"{what} in {size}": fit_exponent([p.size for p in points], [getattr(p, what) for p in points])
        for size, points in growth.items()
        for what in ("refine", "em_step")
    }
    return found | {"adjustment in n": fit_exponent(list(adjustment), [t.minimum for t in adjustment.values()])}


def _tabulate_growth(growth: Mapping[str, Sequence[Point]]) -> Table:
    rows = tuple(
        (size, f"{p.size:,}", f"{p.refine:.3f}", f"{1e3 * p.em_step:.2f}")
        for size, points in growth.items()
        for p in points
    )
    return Table(f"growth of {GROWTH_ROUNDS} rounds", ("in", "size", "seconds", "ms per step of EM"), rows)


def _tabulate_adjustment(adjustment: Mapping[int, Timing]) -> Table:
    rows = tuple((f"{n:,}", f"{1e3 * t.minimum:.2f}", f"{1e9 * t.minimum / n:.0f}") for n, t in adjustment.items())
    return Table("Eq. (6)'s adjustment of one column", ("n", "ms", "ns per subject"), rows)


def _tabulate_exponents(exponents: Mapping[str, float]) -> Table:
    return Table("exponents", ("of", "exponent"), tuple((name, f"{value:.2f}") for name, value in exponents.items()))


def draw(
    growth: Mapping[str, Sequence[Point]],
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
    save_figure(figure, path)


def _plot(
    ax: Axes, sizes: Sequence[float], seconds: Sequence[float] | NDArray[np.float64], color: str, label: str
) -> None:
    ax.plot(sizes, seconds, "o-", color=color, label=label)


# ---- all of it -----------------------------------------------------------------------------


def run(places: Places, *, quick: bool) -> Report:
    """Toy, cost and growth; writes the page `refinement.md` and its figure."""
    runs, repetitions = (2, 1) if quick else (20, 3)
    sizes = {"design": 1_000, "SME": 2_000} if quick else {"design": 5_000, "SME": 71_827}
    ievcds_repetitions = {4_000: 1} if quick else {10_000: 3, sizes["SME"]: 1}
    toy = measure_toy(runs)
    with threadpool_limits(1):
        federation, compiling = _masked(500, 20, 5)
        rank_all(align_tables(federation, compiling))
        refine_fully(release(federation, compiling))
        sme = make_sme(sizes["SME"])
        costs = {
            "design, 2 clients maskable": measure_cost(*make_design(sizes["design"], (2, 4)), repetitions),
            "design, 4 clients maskable": measure_cost(*make_design(sizes["design"], (2, 3, 4, 5)), repetitions),
            "SME": measure_cost(sme.federation, sme.tables, repetitions),
        }
        ievcds = {n: measure_ievcds(n, times) for n, times in ievcds_repetitions.items()}
        growth = measure_growth(quick=quick)
        adjustment = measure_adjustment(
            (10_000, 100_000) if quick else (10_000, 30_000, 100_000, 300_000, 1_000_000), 5
        )
    ratios = {n: _compare_with_ranks(times) for n, times in ievcds.items()}
    exponents = find_exponents(growth, adjustment)
    draw(growth, adjustment, exponents, places.images / "refinement.png")
    tables = [
        _tabulate_toy(toy, runs),
        _tabulate_costs(costs),
        _tabulate_ievcds(ievcds),
        _tabulate_growth(growth),
        _tabulate_adjustment(adjustment),
        _tabulate_exponents(exponents),
    ]
    _write_page(places, tables)
    return Report(
        "refinement",
        {
            "unit": UNIT,
            "epsilon": EPSILON,
            "rounds": ROUNDS,
            "runs": runs,
            "repetitions": repetitions,
            "sizes": {**sizes, "ievcds": list(ievcds)},
            "growth_missing_rate": GROWTH_MISSING_RATE,
            "growth_rounds": GROWTH_ROUNDS,
        },
        {
            "toy": [{**asdict(r), "biases": r.biases, "largest_biases": TOY_TARGETS[r.epsilon]} for r in toy],
            "cost": {
                name: {**asdict(c), "rank_releases": c.releases, "bytes_per_entry": c.bytes_per_entry}
                for name, c in costs.items()
            },
            "ievcds": {
                n: {**{name: t.to_dict() for name, t in times.items()}, "rank_releases_ratio": ratios[n]}
                for n, times in ievcds.items()
            },
            "growth": {size: [asdict(p) for p in points] for size, points in growth.items()},
            "adjustment": {n: t.to_dict() for n, t in adjustment.items()},
            "exponent": exponents,
            "target": {
                "seconds": {name: c.seconds <= MOST_SECONDS[name] for name, c in costs.items()},
                "ievcds": ratios[max(ratios)] <= MOST_PER_RELEASES,
            },
        },
        tables,
    )


def _write_page(places: Places, tables: Sequence[Table]) -> None:
    figure = "refinement.png" if places.images == places.pages else "../images/refinement.png"
    parts = [
        "# The server-side refinement: what it recovers and what it costs",
        "Written by `python -m benchmarks refinement`.",
        "*The refinement* is everything that `refined` does beyond VCDS's releases (`refine` and "
        "`latent_correlation`). Seconds are processor time of one thread, the fastest run; *rank releases* is that "
        "time over that of flipping all comparisons of all columns of the same data once. Peak memory is what the "
        "refinement needs above the releases it starts from. IEVCDS is compared with rank releases of the table "
        "without gaps, which is what all but its first round make; the larger N is the one to judge by, because "
        "ranks take N² and the rest N.",
        f"![growth]({figure})",
    ]
    for table in tables:
        parts += [f"## {table.title[0].upper()}{table.title[1:]}", table.to_markdown()]
    (places.pages / "refinement.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
