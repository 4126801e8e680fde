"""The cells of `missing` once more, without noise: what the masks alone leave.

Same data sets and masks, the methods at an epsilon so large that no coin flips. Where one of them misses a
printed cell here, no budget would have reached it in our reading of the design. `missing` reads what this
finds, so this runs first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from joblib import Parallel, delayed, parallel_config

from benchmarks.accuracy import UNIT, Scores
from benchmarks.missing import (
    CASES,
    MODELS,
    PROCESSES,
    REPLICATIONS,
    Answer,
    Cell,
    Pair,
    average_scores,
    draw_replication,
    read_paper,
    run_method,
)
from benchmarks.record import Places, Report, Table
from experiments.scad import Model

EPSILON = 70.0  # half of it per comparison: one coin in 10^15 flips
# EVCDS and IEVCDS reach all their linear cells with noise.
SOURCES: dict[Model, tuple[str, ...]] = {
    "linear": ("refined/free", "refined/aligned"),
    "logistic": ("refined/free", "refined/aligned", "evcds/aligned", "ievcds/aligned"),
}


def replicate(cell: Cell, replication: int) -> Answer:
    """The methods without noise on one data set of `missing`."""
    data, observed, drawn_again = draw_replication(cell, replication)
    answer = Answer(float(observed.all(axis=1).mean()), float(observed.mean()), drawn_again)
    for method in dict.fromkeys(source.partition("/")[0] for source in SOURCES[cell.model]):
        sources = [source for source in SOURCES[cell.model] if source.startswith(f"{method}/")]
        run_method(answer, method, sources, data, observed, replication, epsilon=EPSILON)
    return answer


def run(places: Places, *, quick: bool) -> Report:
    """All cells; writes the page `missing_reference.md`."""
    replications = {1_000: 1} if quick else REPLICATIONS
    cells = [Cell(model, case, n) for model in MODELS for case in CASES for n in replications]
    tasks = [(cell, r) for cell in reversed(cells) for r in range(replications[cell.n_subjects])]
    with parallel_config(backend="loky", n_jobs=PROCESSES, inner_max_num_threads=1):
        answers = Parallel()(delayed(replicate)(*task) for task in tasks)
    found = {cell: [a for (c, _), a in zip(tasks, answers, strict=True) if c == cell] for cell in cells}
    averages = {c: {s: average_scores(own, s) for s in own[0].scores} for c, own in found.items()}
    tables = [_tabulate(metric, title, averages) for metric, title in (("rmse", "RMSE"), ("gmeans", "G-Means"))]
    times = ", ".join(f"{times} at N = {n}" for n, times in replications.items())
    page = [
        "# What the masks alone leave",
        "Written by `python -m benchmarks missing_reference`.",
        f"The cells of [missing.md](missing.md), same data sets and masks ({times}), at ε = {EPSILON:g} of unit "
        f"`{UNIT}`, where no coin flips: what is left is what missing blocks and sampling do. A printed figure that "
        "is better than this cannot be reached here by spending more.",
    ]
    for table in tables:
        page += [f"## {table.title}", table.to_markdown()]
    (places.pages / "missing_reference.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return Report(
        "missing_reference",
        {"replications": {str(n): t for n, t in replications.items()}, "epsilon": EPSILON, "unit": UNIT},
        {
            "cells": [
                {
                    "model": cell.model,
                    "case": cell.case,
                    "n_subjects": cell.n_subjects,
                    "scores": averages[cell],
                    "replications": [_plain(answer) for answer in own],
                }
                for cell, own in found.items()
            ]
        },
        tables,
    )


def _plain(answer: Answer) -> dict[str, dict[str, Scores] | dict[str, str]]:
    return {"scores": answer.scores, "failures": answer.failures}


def _tabulate(metric: str, title: str, averages: Mapping[Cell, Mapping[str, Mapping[str, Pair]]]) -> Table:
    paper, sources = read_paper(), list(dict.fromkeys(s for own in averages.values() for s in own))
    rows: Sequence[tuple[str, ...]] = [
        (
            cell.model,
            cell.case,
            str(cell.n_subjects),
            *("" if s not in own else f"{own[s][metric][0]:.3f} ({own[s][metric][1]:.3f})" for s in sources),
            *(f"{paper[cell, method, metric]:.3f}" for method in ("EVCDS", "IEVCDS")),
        )
        for cell, own in averages.items()
    ]
    names = [source.replace("ievcds", "IEVCDS").replace("evcds", "EVCDS").replace("/", " ") for source in sources]
    return Table(
        f"{title}, without noise", ("model", "case", "N", *names, "paper's EVCDS", "paper's IEVCDS"), tuple(rows)
    )
