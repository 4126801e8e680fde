"""The cells of `missing` once more, without noise: what the masks alone leave.

Same data sets and masks, the methods at an epsilon so large that no coin flips. Where one of them misses a
printed cell here, no budget would have reached it in our reading of the design. `missing` reads what this
finds, so this runs first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.accuracy import UNIT
from benchmarks.missing import (
    JUDGE_NAMES,
    PARTS,
    QUICK,
    REPLICATIONS,
    draw_replication,
    list_cells,
    measure,
    record_cell,
    run_method,
)
from benchmarks.missing_verdicts import Answer, Cell, Pair, average_scores, name_part, read_paper
from benchmarks.record import Places, Report, Table

__all__ = ["PARTS", "run"]

EPSILON = 70.0  # half of it per comparison: one coin in 10^15 flips
SOURCES = ("refined/free", "refined/aligned", "evcds/aligned", "ievcds/aligned")


def replicate(cell: Cell, replication: int) -> Answer:
    """The methods without noise on one data set of `missing`."""
    data, observed, drawn_again = draw_replication(cell, replication)
    answer = Answer(float(observed.all(axis=1).mean()), float(observed.mean()), drawn_again)
    for method in dict.fromkeys(source.partition("/")[0] for source in SOURCES):
        sources = [source for source in SOURCES if source.startswith(f"{method}/")]
        run_method(answer, method, sources, data, observed, replication, epsilon=EPSILON)
    return answer


def run(places: Places, *, quick: bool, parts: Sequence[str] = ()) -> Report:
    """All cells; writes the page `missing_reference.md`.

    With `parts`, only those (of PARTS) are measured; the others are kept from the last results.
    """
    replications = QUICK if quick else REPLICATIONS
    kept_in = places.results / "missing_reference.json"
    measured = measure(list_cells(replications), replications, parts, kept_in, replicate)
    averages = {
        cell: {s: average_scores(found.answers, s) for s in SOURCES if s in found.answers[0].scores}
        for cell, found in measured.items()
    }
    absent = [f"{c.model}/{c.case}/{c.n_subjects}" for c in list_cells(replications) if c not in measured]
    tables = [_tabulate(metric, title, averages) for metric, title in (("rmse", "RMSE"), ("gmeans", "G-Means"))]
    times = {name_part(cell): f"{len(found.answers)}, {found.date}" for cell, found in measured.items()}
    page = [
        "# What the masks alone leave",
        "Written by `python -m benchmarks missing_reference`.",
        f"The cells of [missing.md](missing.md), same data sets, masks and judges, at ε = {EPSILON:g} of unit "
        f"`{UNIT}`, where no coin flips: what is left is what missing blocks and sampling do. A printed figure that "
        "is better than this cannot be reached here by spending more.",
        f"Replications, and when they were made: {'; '.join(f'{part}: {run}' for part, run in times.items())}. "
        f"Cells not measured: {', '.join(absent) or 'none'}; what falls short there would count as short, not as out "
        "of reach.",
    ]
    for table in tables:
        page += [f"## {table.title}", table.to_markdown()]
    (places.pages / "missing_reference.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return Report(
        "missing_reference",
        {
            "replications": dict(replications),
            "epsilon": EPSILON,
            "unit": UNIT,
            "fit": dict(JUDGE_NAMES),
        },
        {"cells": [{**record_cell(c, found), "scores": averages[c]} for c, found in measured.items()]},
        tables,
    )


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
