"""The page of `benchmarks missing`: scores, margins and verdicts as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy import UNIT
from benchmarks.missing_verdicts import (
    CHECKS,
    EPSILON,
    FEWEST_AT_PARTY,
    FEWEST_IN_COMMON,
    METHODS,
    ROUNDS,
    ROWS_PER_SUBJECT,
    SOURCES,
    Answer,
    Cell,
    Lead,
    Measured,
    Pair,
    average_margins,
    average_scores,
    name_part,
)
from benchmarks.record import Table

PAPERS = ("VCDS", "EVCDS", "IEVCDS")


def tabulate_scores(
    metric: str,
    title: str,
    grouped: Mapping[Cell, Sequence[Answer]],
    paper: Mapping[tuple[Cell, str, str], float],
    references: Sequence[str],
) -> Table:
    rows = []
    for cell, answers in grouped.items():
        ours = [_with_error(average_scores(answers, source)[metric]) for source in SOURCES]
        printed = [f"{paper[cell, method, metric]:.3f}" for method in PAPERS]
        known = [_with_error(average_scores(answers, source)[metric]) for source in references]
        rows.append((*_name_cell(cell), *ours, *printed, *known))
    names = [f"{method.upper() if 'vcds' in method else method} {draw}" for method, draw in map(_split, SOURCES)]
    header = ("model", "case", "N", *names, *(f"paper's {method}" for method in PAPERS), *references)
    return Table(title, header, tuple(rows))


def _split(source: str) -> tuple[str, str]:
    method, _, draw = source.partition("/")
    return method, draw


def tabulate_margins(grouped: Mapping[Cell, Sequence[Answer]]) -> Table:
    rows = tuple(
        (
            *_name_cell(cell),
            f"{100 * np.mean([a.complete_cases for a in answers]):.1f} %",
            f"{100 * np.mean([a.observed_blocks for a in answers]):.1f} %",
            str(sum(a.drawn_again for a in answers)),
            *(_with_error(average_margins(answers, method)) for method in METHODS),
        )
        for cell, answers in grouped.items()
    )
    header = ("model", "case", "N", "complete cases", "observed blocks", "drawn again", *METHODS)
    return Table("Missingness, and mean Kolmogorov distance of the covariates' margins", header, rows)


def tabulate_counts(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Table:
    rows = []
    for name, label in CHECKS.items():
        for model, own in counts[name].items():
            short = own["cells"] - own["met_adjusted"] - own["out_of_reach"]
            rows.append(
                (label, model, *(str(own[k]) for k in ("cells", "met", "met_adjusted", "out_of_reach")), str(short))
            )
    header = ("check", "model", "cells", "met", "met, against references too", "out of reach", "short")
    return Table("Verdicts: counts", header, tuple(rows))


def tabulate_misses(leads: Mapping[Cell, Mapping[str, Lead]]) -> Table:
    """Every cell that is not as good as what it is measured by, and what is known about why."""
    rows = []
    for name, label in CHECKS.items():
        for cell, own in leads.items():
            lead = own[name]
            if lead.met:
                continue
            compared = lead.without_noise is not None
            verdict = lead.verdict
            if verdict == "short" and lead.met_within_error:
                verdict += ", by less than two standard errors"
            rows.append(
                (
                    label,
                    *_name_cell(cell),
                    f"{lead.amount:+.4f} ({lead.standard_error:.4f})",
                    f"{lead.adjusted:+.4f}" if compared else "",
                    f"{lead.without_noise:+.4f}" if compared else "",
                    verdict,
                )
            )
    header = ("check", "model", "case", "N", "lead (standard error)", "with references", "without noise", "verdict")
    return Table("Cells not reached, and why", header, tuple(rows))


def tabulate_leads(leads: Mapping[Cell, Mapping[str, Lead]]) -> Table:
    rows = tuple((*_name_cell(cell), *(str(lead) for lead in own.values())) for cell, own in leads.items())
    return Table("Verdicts: by how much (standard error)", ("model", "case", "N", *CHECKS.values()), rows)


def _name_cell(cell: Cell) -> tuple[str, str, str]:
    return cell.model, cell.case, str(cell.n_subjects)


def _with_error(pair: Pair) -> str:
    return "" if math.isnan(pair[0]) else f"{pair[0]:.3f} ({pair[1]:.3f})"


def write_page(
    path: Path,
    tables: Sequence[Table],
    measured: Mapping[Cell, Measured],
    verdicts: str,
    failures: Mapping[str, int],
) -> None:
    rows = ", ".join(f"{ROWS_PER_SUBJECT[n]} N at N = {n}" for n in dict.fromkeys(c.n_subjects for c in measured))
    runs = {name_part(cell): f"{len(found.answers)}, {found.date}" for cell, found in measured.items()}
    failed = ", ".join(f"{source} on {count}" for source, count in failures.items()) or "none"
    parts = [
        "# Accuracy on the paper's designs, blocks missing at random",
        "Written by `python -m benchmarks missing`.",
        f"Section 5.2, ε = {EPSILON:g} of unit `{UNIT}` (IEVCDS: in each of {ROUNDS} "
        f"rounds), synthetic tables of {rows}. *Free* rows are independent draws; *aligned* ones "
        "follow the subjects one by one, as in the paper's Algorithms 2 and 3. *Oracle* and *original* see the "
        "complete data: maximum likelihood on the true support, and the same SCAD. "
        "*The paper's best* is the better of its EVCDS and IEVCDS.",
        "All tables, synthetic and original, are judged by SCAD without an intercept. Linear: the library's own "
        "regression ([regression.md](../regression.md)), the strength chosen by BIC on refits with the N of the study, "
        "the coefficients those of the refit. Logistic: with a ridge and chosen by gMDL, which also judges "
        "[accuracy.md](accuracy.md); BIC leaves out too much there on the complete data already.",
        f"Data sets in which a client has fewer than {FEWEST_AT_PARTY} subjects, or two have fewer than "
        f"{FEWEST_IN_COMMON} in common, are drawn again: VCDS cannot run there. Methods that gave no finite table "
        f"(number of data sets, left out of their averages): {failed}.",
        f"Replications, and when they were made: {'; '.join(f'{part}: {run}' for part, run in runs.items())}. "
        "Logistic tables take longest to make and to judge, so there are fewer.",
        verdicts,
        "A cell that falls short of the printed figure is judged a second time, against the worse of that figure and "
        "of the two references on the complete data (the oracle's median RMSE; *original*): *yes, as the "
        "references*. Cells still short are *out of reach* if nothing reaches the same bar without any noise on the "
        "same data sets and masks ([missing_reference.md](missing_reference.md)), neither the refined method, free or "
        "aligned, nor EVCDS nor IEVCDS, aligned; for our EVCDS and IEVCDS, if the same method does not. No budget "
        "would help there. The others are *short*: a shortfall of ours. In the table of cells not reached, *with "
        "references* is the lead over that second bar and *without noise* the same lead of the best table without "
        "noise. Verdicts compare means; many leads, with noise and without, are smaller than their standard errors.",
    ]
    for table in tables:
        parts += [f"## {table.title}", table.to_markdown()]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
