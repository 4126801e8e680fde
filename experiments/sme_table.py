"""Table 8: runs the splits, keeps each, and writes the table and its part of the page."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments import sme
from experiments.methods import PAPERS_OWN
from experiments.page_cells import HtmlTable, join
from experiments.paper import read_sme
from experiments.store import plain_spent
from experiments.study import MethodFailure, Spent
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import csv_number, mean, standard_error, to_csv
from verticopula.datasets import make_sme
from verticopula.errors import VerticopulaError
from verticopula.privacy.statement import format_epsilon

COLUMNS = ("method", "recall", "recall_se", "auc", "auc_se", "n_selected", "recall_half", "relevant", "irrelevant")
ORDER = (  # as the paper's Table 8 has them, the better one first
    *(("VCDS", f"{other}-VCDS") for other in ("Single", "CC", "Impute")),
    *(("EVCDS", f"{other}-EVCDS") for other in ("Single", "CC", "Impute")),
    ("EVCDS", "VCDS"),
    ("IEVCDS", "EVCDS"),
)
FREE, ALIGNED = "-free", "-aligned"  # end the labels of a method's other rows
Kept = dict[str, Any]


def locate(folder: Path, subjects: int, method: str, split: int) -> Path:
    return folder / "replications" / f"sme_{subjects}" / f"{method}.{split:02d}.json"


def run(
    folder: Path, *, subjects: int, splits: int, methods: Sequence[str], backend: str = "loky", jobs: int = 1
) -> None:
    """What is not there yet."""
    tasks = []
    for split in range(splits):
        left: dict[str, list[str]] = {}
        for method in methods:
            if not locate(folder, subjects, method, split).exists():
                left.setdefault(method.removesuffix(FREE).removesuffix(ALIGNED), []).append(method)
        tasks += [(tuple(together), split) for together in left.values()]
    for _ in run_all(run_together, tasks, folder, subjects, label="fits of table 8", backend=backend, jobs=jobs):
        pass


def run_together(task: tuple[tuple[str, ...], int], folder: Path, subjects: int) -> None:
    """Methods that share a fit on one split, each kept in its own file with the seconds that it added."""
    (methods, number), made = task, make_sme(subjects)
    split = sme.split_study(made, number)
    study = sme.make_study(made.federation, split, number)
    for method in methods:
        began = time.process_time()
        try:
            found = sme.measure(study, split, method)
            results: Kept = {**asdict(found), "spent": plain_spent(found.spent)}
        except (MethodFailure, VerticopulaError, np.linalg.LinAlgError) as error:
            results = {"failure": f"{type(error).__name__}: {error}"}
        results["seconds"] = round(time.process_time() - began, 1)
        settings = {"subjects": subjects, "method": method, "split": number}
        Record("table8", settings, results).save(locate(folder, subjects, method, number))


def sum_hours(folder: Path, subjects: int) -> float:
    """Processor hours behind everything that is kept."""
    return sum(row.get("seconds", 0.0) for rows in read_kept(folder, subjects).values() for row in rows) / 3600.0


def list_sizes(folder: Path, first: int) -> list[int]:
    """Numbers of subjects that splits are kept of: the asked one, then the others, the largest first."""
    found = {int(path.name.removeprefix("sme_")) for path in (folder / "replications").glob("sme_[0-9]*")}
    return [first, *sorted(found - {first}, reverse=True)]


def read_kept(folder: Path, subjects: int) -> dict[str, list[Mapping[str, Any]]]:
    """All kept splits by method, in the table's order."""
    kept = {}
    for method in sme.SME_METHODS:
        files = sorted((folder / "replications" / f"sme_{subjects}").glob(f"{method}.[0-9]*.json"))
        if files:
            kept[method] = [Record.read(file).results for file in files]
    return kept


def write_csv(folder: Path, subjects: int) -> None:
    """`table8.csv` and `table8_selected.csv`, unless nothing is kept."""
    kept = read_kept(folder, subjects)
    if kept:
        write_text(folder / "table8.csv", lines_to_csv(kept))
        write_text(folder / "table8_selected.csv", selections_to_csv(kept))


def average(rows: Sequence[Mapping[str, Any]], relevant: Sequence[str]) -> dict[str, float]:
    """One line of the table: means and standard errors over the splits that gave an answer."""
    rows = [row for row in rows if "failure" not in row]
    line: dict[str, float] = {"replications": len(rows)}
    for name in ("recall", "auc", "recall_half"):
        values = [row[name] for row in rows]
        line[name], line[f"{name}_se"] = mean(values), standard_error(values)
    for name, count in (
        ("n_selected", lambda chosen: len(chosen)),
        ("relevant", lambda chosen: len(set(chosen) & set(relevant))),
        ("irrelevant", lambda chosen: len(set(chosen) - set(relevant))),
    ):
        line[name] = mean([count(row["selected"]) for row in rows])
    return line


def relevant_variables() -> tuple[str, ...]:
    """Those with a coefficient in the truth."""
    return make_sme(50).truth.relevant


def lines_to_csv(kept: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The paper's columns, then ours."""
    relevant = relevant_variables()
    lines = [(method, average(rows, relevant)) for method, rows in kept.items()]
    columns = (*COLUMNS[1:], "replications")
    return to_csv([*COLUMNS, "replications"], [[m, *(csv_number(line[c]) for c in columns)] for m, line in lines])


def selections_to_csv(kept: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Every method and variable: in which share of the splits it is selected."""
    relevant, lines = relevant_variables(), []
    for method, rows in kept.items():
        found = [row["selected"] for row in rows if "failure" not in row]
        for variable in dict.fromkeys([*relevant, *sorted({v for chosen in found for v in chosen})]):
            share = np.mean([variable in chosen for chosen in found]) if found else 0.0
            lines.append([method, variable, int(variable in relevant), f"{share:.3g}"])
    return to_csv(["method", "variable", "relevant", "share_of_splits"], lines)


def render_sizes(folder: Path, first: int) -> str:
    """Table 8's part of the page, for every number of subjects that splits are kept of."""
    return "".join(render(folder, subjects) for subjects in list_sizes(folder, first))


def render(folder: Path, subjects: int) -> str:
    """Table 8 for so many subjects; empty if nothing is kept."""
    kept, printed, relevant = read_kept(folder, subjects), read_sme(), relevant_variables()
    if not kept:
        return ""
    note = (
        f"<p>{subjects:,} made-up subjects (<code>make_sme</code>): the paper's parties, column counts and missing "
        f"rates, with a known truth of {len(relevant)} relevant variables. All methods are our variants; the "
        f"paper's figures stand beside for orientation. Epsilon is {sme.EPSILON:g} of unit <code>variable</code>.</p>"
    )
    if len({len(rows) for rows in kept.values()}) > 1:
        note += "<p>Splits differ in how hard they are: methods with different numbers of them cannot be compared.</p>"
    lines = []
    for method, rows in kept.items():
        line, paper = average(rows, relevant), printed.get(method, {})
        good = [row for row in rows if "failure" not in row]
        spent = Spent(*(float(good[0]["spent"][u]) for u in ("client", "block", "person"))) if good else Spent()
        cells = [
            _with_error(line["recall"], line["recall_se"]),
            f"{paper.get('recall', '')}",
            _with_error(line["auc"], line["auc_se"]),
            f"{paper.get('auc', '')}",
            _with_error(line["recall_half"], line["recall_half_se"]),
            *(f"{line[name]:.1f}" for name in ("n_selected", "relevant", "irrelevant")),
            f"{paper.get('n_selected', '')}",
            f"{len(good)}" + (f", {len(rows) - len(good)} failed" if len(good) < len(rows) else ""),
            format_epsilon(spent.person),
        ]
        lines.append((method, *cells))
    head = (
        *("method", "Recall", "printed", "AUC", "printed", "Recall at ½"),
        *("selected", "truly relevant", "others", "printed", "splits", "ε, person"),
    )
    caption = (
        "Judged by the library's default (SCAD with BIC of refits). Recall counts a case as risky above the share of "
        "risky rows that the regression saw. Selected: variables, those with a true effect and others among them."
    )
    pairs = _render_pairs(folder, subjects, printed)
    return (
        f"{note}{HtmlTable(caption, head, lines)}{pairs}{_explain_order(kept, relevant)}{_render_found(kept, relevant)}"
    )


def _render_pairs(folder: Path, subjects: int, printed: Mapping[str, Mapping[str, float]]) -> str:
    """The paper's order, split by split: splits differ far more than methods do."""
    rows = []
    for better, other in ORDER:
        both = pair_splits(folder, subjects, better, other)
        if both:
            gaps = [[one[name] - two[name] for one, two in both] for name in ("auc", "recall")]
            cells = [_with_error(mean(values), standard_error(values)) for values in gaps]
            said = [f"{printed[better][name] - printed[other][name]:+.3f}" for name in ("auc", "recall")]
            rows.append((f"{better} less {other}", f"{len(both)}", cells[0], said[0], cells[1], said[1]))
    if not rows:
        return ""
    caption = (
        "The paper's order, split by split, by the library's default (SCAD with BIC of refits): differences on the "
        "same splits, their standard errors, and the printed differences."
    )
    header = ("methods", "splits", "AUC", "printed", "Recall", "printed")
    return str(HtmlTable(caption, header, rows))


def _explain_order(kept: Mapping[str, Sequence[Mapping[str, Any]]], relevant: Sequence[str]) -> str:
    """Why AUC hardly tells our variants of the paper's methods apart; empty where it is not of two of them."""
    lines = {method: average(kept[method], relevant) for method in PAPERS_OWN if method in kept}
    if len(lines) < 2:
        return ""
    found = join([f"{line['relevant']:.1f} ({method})" for method, line in lines.items()])
    others = join([f"{line['irrelevant']:.1f} ({method})" for method, line in lines.items()])
    return (
        f"<p>Of the {len(relevant)} relevant variables our variants select {found} on average. Where all are "
        f"selected, nothing is left by which the AUC of one could be much above another's. They differ in what else "
        f"they select: {others}.</p>"
    )


def pair_splits(folder: Path, subjects: int, one: str, two: str) -> list[tuple[Kept, Kept]]:
    """What two methods found on the splits on which both have an answer."""
    found = []
    for split in range(sme.SPLITS):
        paths = [locate(folder, subjects, method, split) for method in (one, two)]
        if all(path.exists() for path in paths):
            first, second = (dict(Record.read(path).results) for path in paths)
            found += [(first, second)] if "failure" not in {*first, *second} else []
    return found


def _render_found(kept: Mapping[str, Sequence[Mapping[str, Any]]], relevant: Sequence[str]) -> str:
    """Which of the truly relevant variables each method finds, and how often."""
    rows = []
    for variable in relevant:
        cells = []
        for found in kept.values():
            selected = [variable in row["selected"] for row in found if "failure" not in row]
            share = float(np.mean(selected)) if selected else 0.0
            colour = "better" if share == 1.0 else "equal" if share > 0.5 else "worse" if share == 0.0 else "none"
            cells.append(f"<td class='{colour}'>{sum(selected)}</td>")
        rows.append((variable, *cells))
    caption = (
        "In how many splits each truly relevant variable is selected by the library's default (SCAD with BIC of "
        "refits); blue: in all, grey: in most, orange: in none. <code>table8_selected.csv</code> has the others, too."
    )
    return str(HtmlTable(caption, ("variable", *kept), rows))


def _with_error(value: float, error: float) -> str:
    text = "–" if math.isnan(value) else f"{value:.3f}"
    return text if math.isnan(error) else f"{text} ± {error:.3f}"
