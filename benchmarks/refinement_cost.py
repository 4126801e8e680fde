"""What the refinement costs beyond the releases: processor time of one thread, and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from benchmarks.timing import time_interleaved
from experiments.designs import SimulationDesign, make_complete, mask_mar
from reporting.tables import Table, verdict
from verticopula.data.tables import AlignedTable, align_tables
from verticopula.privacy.budget import StudyBudget, coins_per_comparison
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.shared_rounds import collect
from verticopula.schema.federation import Federation
from verticopula.stats.copula import latent_count
from verticopula.stats.margin_curves import apply_curves
from verticopula.stats.rank_release import RankRelease
from verticopula.stats.ranks import flip_comparisons
from verticopula.stats.refined_method import latent_correlation
from verticopula.stats.refinement import REFINEMENT_TUNING, refine
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

UNIT, EPSILON = "variable", 1.0
MOST_SECONDS = {"design, 2 clients maskable": 2.0, "design, 4 clients maskable": 2.0, "SME": 30.0}

Tables = Mapping[str, pl.DataFrame]


def release(federation: Federation, tables: Tables, *, sampler: str = "exact") -> RankRelease:
    """What the coordinator starts from."""
    request = StudyBudget.build(federation, unit=UNIT, epsilon=EPSILON, delta=None, sampler=sampler)
    aligned = align_tables(federation, tables, need_overlap=False)
    parties = {name: LocalParty(ReleaseControl(table, SecureNoise())) for name, table in aligned.items()}
    return drive(collect(federation, request, "benchmark", "refined"), InProcessTransport(parties)).release


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


def refine_fully(
    released: RankRelease,
    *,
    rounds: int = REFINEMENT_TUNING.most_rounds,
    tolerance: float = REFINEMENT_TUNING.tolerance,
) -> None:
    """What `refined` does beyond the releases."""
    refinement = refine(released, rounds=rounds, tolerance=tolerance)
    margins = apply_curves(released.layout, released.margins, refinement.curves)
    latent_correlation(released, refinement, margins)


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


def tabulate_costs(costs: Mapping[str, Cost]) -> Table:
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
    return Table("The refinement beyond the releases", (*header, "peak MB", "bytes per N × latents"), rows, heads=2)
