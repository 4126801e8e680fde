"""The linear cells of `missing` once more, without noise: what the masks alone leave.

Same data sets and masks, the refined method at an epsilon so large that no coin flips. Where its G-Means
are below a printed cell, no amount of budget would have reached it in our reading of the design.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from joblib import Parallel, delayed, parallel_config

from benchmarks.accuracy import FITS, UNIT, Scores, score
from benchmarks.missing import (
    CASES,
    MODELS,
    PROCESSES,
    REPLICATIONS,
    ROWS_PER_SUBJECT,
    RULES,
    SIZES,
    Cell,
    Pair,
    draw_usable,
    mean_and_error,
    read_paper,
)
from benchmarks.record import Places, Report, Table
from experiments.designs import RESPONSE, SERVER
from verticopula import Synthesizer
from verticopula.synthesizer import AlignedWarning, NotPrivateWarning

EPSILON = 70.0  # half of it per comparison: one coin in 10^15 flips


def replicate(cell: Cell, replication: int) -> Scores:
    """The refined method's aligned rows on one data set of `missing`."""
    key = [replication, cell.n_subjects, MODELS.index(cell.model), CASES.index(cell.case)]
    data, observed, _ = draw_usable(cell, np.random.default_rng(key))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", AlignedWarning)
        synthesizer = Synthesizer(data.federation(), "refined", EPSILON, unit=UNIT, random_state=replication)
        rows = ROWS_PER_SUBJECT[cell.n_subjects] * cell.n_subjects
        tables = synthesizer.fit(data.tables(observed)).sample(rows, aligned=True)
    x = np.column_stack([tables[client].to_numpy() for client in data.design.client_names]).astype(np.float64)
    y = tables[SERVER][RESPONSE].to_numpy().astype(np.float64)
    found = FITS[RULES[cell.model]](x, y, model=cell.model, n_effective=cell.n_subjects, fit_intercept=False)
    return score(found.coef, data.coef)


def run(places: Places, *, quick: bool) -> Report:
    """All linear cells; writes the page `missing_reference.md`."""
    sizes, replications = ((1_000,), 2) if quick else (SIZES, REPLICATIONS)
    cells = [Cell("linear", case, n) for case in CASES for n in sizes]
    tasks = [(cell, r) for cell in reversed(cells) for r in range(replications)]
    with parallel_config(backend="loky", n_jobs=PROCESSES, inner_max_num_threads=1):
        answers = Parallel()(delayed(replicate)(*task) for task in tasks)
    found = {cell: [a for (c, _), a in zip(tasks, answers, strict=True) if c == cell] for cell in cells}
    averages = {c: {m: mean_and_error([s[m] for s in own]) for m in ("rmse", "gmeans")} for c, own in found.items()}
    table = _tabulate(averages)
    page = [
        "# What the masks alone leave",
        "Written by `python -m benchmarks missing_reference`.",
        f"The linear cells of [missing.md](missing.md), same {replications} data sets and masks each, the refined "
        f"method's aligned rows at ε = {EPSILON:g} of unit `{UNIT}`, where no coin flips: what is left is what missing "
        "blocks and sampling do. A printed G-Means above this cannot be reached here by spending more.",
        table.to_markdown(),
    ]
    (places.pages / "missing_reference.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")
    results = [
        {"case": c.case, "n_subjects": c.n_subjects, **{m: list(p) for m, p in own.items()}}
        for c, own in averages.items()
    ]
    return Report(
        "missing_reference",
        {"replications": replications, "epsilon": EPSILON, "unit": UNIT},
        {"cells": results},
        [table],
    )


def _tabulate(averages: Mapping[Cell, Mapping[str, Pair]]) -> Table:
    paper = read_paper()
    rows: Sequence[tuple[str, ...]] = [
        (
            cell.case,
            str(cell.n_subjects),
            *(f"{own[metric][0]:.3f} ({own[metric][1]:.3f})" for metric in ("rmse", "gmeans")),
            *(f"{paper[cell, method, metric]:.3f}" for metric in ("rmse", "gmeans") for method in ("EVCDS", "IEVCDS")),
        )
        for cell, own in averages.items()
    ]
    printed = tuple(f"paper's {method}, {name}" for name in ("RMSE", "G-Means") for method in ("EVCDS", "IEVCDS"))
    return Table("Linear, without noise", ("case", "N", "RMSE", "G-Means", *printed), tuple(rows))
