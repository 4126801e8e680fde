"""Strict mode against the truth of `make_sme`: correlations, margins, seconds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import verticopula.protocol.strict_method as rounds
from reporting.tables import Table, verdict
from verticopula import Synthesizer
from verticopula.data.tables import align_tables
from verticopula.datasets import SmeStudy, make_sme
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.stats.margin_cells import to_cells
from verticopula.stats.marginals import Marginal, project_to_simplex
from verticopula.stats.strict.gaussian_margins import estimate_margin, gaussian_cell_count, release_gaussian_cells
from verticopula.stats.strict.noise_budget import plan_strict_budget
from verticopula.stats.strict.strict_fit import StrictFit
from verticopula.stats.strict_report import by_parties

Floats = NDArray[np.float64]

DELTA = 1e-6
MOST_RMSE = {1.0: 0.04, 3.0: 0.022}
MOST_DISTANCE = 0.02
MOST_SECONDS = 4.0


def measure_accuracy(n: int, epsilon: float, seeds: Iterable[int]) -> dict[str, Any]:
    """Means over studies, each with a population and noise of its own."""
    runs = [_measure(make_sme(n, random_state=seed), epsilon, seed) for seed in seeds]
    return {
        "epsilon": epsilon,
        "parties": runs[0]["parties"],
        **{
            name: [run[name] for run in runs]
            for name in ("rmse", "ordered", "categories", "distance", "observed_distance", "fit", "kernel")
        },
        **{
            name: np.sqrt(np.mean([np.square(run[name]) for run in runs], axis=0)).tolist()
            for name in ("by_parties", "expected", "raw")
        },
        "rank": [run["rank"] for run in runs],
        "tables": [run["tables"] for run in runs],
    }


def _measure(study: SmeStudy, epsilon: float, seed: int) -> dict[str, Any]:
    seconds = 0.0
    original = rounds.fit_strict

    def timed(*args: Any, **kwargs: Any) -> StrictFit:
        nonlocal seconds
        start = time.process_time()
        fit = original(*args, **kwargs)
        seconds = time.process_time() - start
        return fit

    start = time.process_time()
    with mock.patch.object(rounds, "fit_strict", timed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seeded: not private
        synthesizer = Synthesizer(
            study.federation, method="strict", epsilon=epsilon, delta=DELTA, unit="person", random_state=seed
        ).fit(study.tables)
    whole = time.process_time() - start
    assert seconds > 0.0, "the fit was not timed"
    result = synthesizer.result_
    report = result.strict
    assert report is not None
    layout = result.copula.layout
    counted = ~np.eye(len(layout.labels), dtype=bool) & ~layout.nominal_blocks()
    squares = np.square(result.copula.correlation - study.truth.correlation)
    owners = np.repeat(
        [report.parties.index(key.party) for key in layout.keys], [s.stop - s.start for s in layout.slices]
    )
    values = complete_values(study)
    several = np.repeat([s.stop - s.start > 1 for s in layout.slices], [s.stop - s.start for s in layout.slices])
    ordered = counted & ~several[:, None] & ~several
    return {
        "parties": list(report.parties),
        "rmse": float(np.sqrt(np.mean(squares[counted]))),
        "ordered": float(np.sqrt(np.mean(squares[ordered]))),
        "categories": float(np.sqrt(np.mean(squares[counted & ~ordered]))),
        "by_parties": by_parties(squares, ordered, owners, len(report.parties)),
        "expected": report.expected_error,
        "raw": report.raw_error,
        "distance": mean(distances(result.copula.margins, values).values()),
        "observed_distance": mean(distances(result.observed_margins, values).values()),
        "rank": report.rank,
        "tables": sum(pair.opened for pair in report.pairs),
        "fit": whole,
        "kernel": seconds,
    }


def complete_values(study: SmeStudy) -> dict[ColumnKey, Floats]:
    """Every column of everybody, as numbers."""
    whole = align_tables(study.federation, study.truth.complete)
    return {key: whole[key.party].columns[key.column].values for key in study.federation.keys}


def distances(margins: Mapping[ColumnKey, Marginal], values: Mapping[ColumnKey, Floats]) -> dict[ColumnKey, float]:
    """Kolmogorov's, between every margin and that of all the values; categories in the schema's order."""
    found = {}
    for key, margin in margins.items():
        points = np.unique(values[key])
        if points.size > 2_000:
            points = np.quantile(points, np.linspace(0.0, 1.0, 2_001))
        share = np.searchsorted(np.sort(values[key]), points, side="right") / values[key].size
        found[key] = float(np.max(np.abs(share - margin.cdf(points))))
    return found


def tabulate_accuracy(found: Sequence[Mapping[str, Any]]) -> list[Table]:
    rows = [
        (
            f"{run['epsilon']:g}",
            f"{mean(run['rmse']):.4f}",
            f"≤ {MOST_RMSE[run['epsilon']]:g}: {verdict(mean(run['rmse']), MOST_RMSE[run['epsilon']])}",
            f"{mean(run['distance']):.4f} ({mean(run['observed_distance']):.4f})",
            verdict(mean(run["distance"]), MOST_DISTANCE),
            f"{mean(run['ordered']):.4f}; {mean(run['categories']):.3f}",
            f"{mean(run['kernel']):.1f}: {verdict(mean(run['kernel']), MOST_SECONDS)}",
            f"{mean(run['fit']):.1f}",
            ", ".join(map(str, run["rank"])),
            ", ".join(map(str, run["tables"])),
        )
        for run in found
    ]
    header = (
        "ε per person",
        "RMSE of the latent correlation, all pairs",
        "target",
        "mean Kolmogorov distance of the margins (of the observed)",
        f"≤ {MOST_DISTANCE:g}",
        "of pairs of ordered columns; of pairs with a nominal column's category",
        f"s to fit, ≤ {MOST_SECONDS:g}",
        "s of everybody together",
        "factors",
        "tables",
    )
    tables = [Table(f"make_sme, δ = {DELTA:g}, mean of {len(found[0]['rmse'])} studies", header, tuple(rows))]
    for run in found:
        names = run["parties"]
        cells = [
            (
                name,
                *(
                    f"{run['by_parties'][a][b]:.3f} ({run['expected'][a][b]:.3f}; {run['raw'][a][b]:.3f})"
                    for b in range(len(names))
                ),
            )
            for a, name in enumerate(names)
        ]
        title = (
            f"ε = {run['epsilon']:g}: RMSE by pair of parties (expected by the report; from noise and overlap alone)"
        )
        tables.append(Table(title, ("", *names), tuple(cells)))
    return tables


# ---- what settling brings ----------------------------------------------------------------


def measure_margins(n: int, epsilon: float, seeds: Iterable[int]) -> dict[str, Any]:
    """Distance of noisy margins to the observed ones, for columns that few or many people have."""
    kinds: dict[str, list[tuple[float, float, float]]] = {}
    for seed in seeds:
        study = make_sme(n, random_state=seed)
        tables = align_tables(study.federation, study.tables, need_overlap=False)
        observed = {key: tables[key.party].columns[key.column].observed for key in study.federation.keys}
        request = StudyBudget.build(study.federation, unit="person", epsilon=epsilon, delta=DELTA)
        counts = {key: int(mask.sum()) for key, mask in observed.items()}
        budget = plan_strict_budget(study.federation, request, counts, n)
        for key in study.federation.keys:
            column = study.federation.column(key)
            if column.kind not in ("continuous", "count"):
                continue
            values = tables[key.party].columns[key.column].values[observed[key]]
            rare = "at most a third of the people" if observed[key].mean() < 1 / 3 else "more"
            kinds.setdefault(f"{column.kind}, {rare}", []).append(
                _settling(study.federation, key, values, budget.deviations[key], seed)
            )
    return {"epsilon": epsilon, "kinds": {name: np.mean(rows, axis=0).tolist() for name, rows in kinds.items()}}


def _settling(
    federation: Federation, key: ColumnKey, values: Floats, deviation: float, seed: int
) -> tuple[float, float, float]:
    """Distances at the cells' ends: noisy counts as they are, nearest probabilities, tails settled first."""
    column = federation.column(key)
    count = gaussian_cell_count(column, values.size, deviation)
    cells = to_cells(values, column, count)
    noisy = release_gaussian_cells(cells, count, deviation, SeededNoise(seed), *key)
    truth = np.cumsum(np.bincount(cells, minlength=count) / values.size)
    raw = noisy / values.size
    settled = estimate_margin(column, noisy, values.size, deviation).probabilities
    first, second, third = (
        float(np.max(np.abs(np.cumsum(p) - truth))) for p in (raw, project_to_simplex(raw), settled)
    )
    return first, second, third


def tabulate_margins(found: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (f"{run['epsilon']:g}", name, *(f"{value:.4f}" for value in run["kinds"][name]))
        for run in found
        for name in sorted(run["kinds"])
    ]
    header = ("ε per person", "columns", "noisy cells as they are", "nearest probabilities", "tails settled first")
    return Table("What settling brings: mean Kolmogorov distance to the observed margin", header, tuple(rows))
