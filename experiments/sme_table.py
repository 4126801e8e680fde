"""Table 8: runs the splits, keeps each, and writes the table and its part of the page."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from joblib import delayed
from rich.progress import track

from experiments import sme
from experiments.page import describe_spent
from experiments.paper import read_sme
from experiments.runner import call_in_parallel
from experiments.store import read_json, write_text
from experiments.study import MethodFailure, Spent
from verticopula.datasets import make_sme
from verticopula.errors import VerticopulaError

COLUMNS = ("method", "recall", "recall_se", "auc", "auc_se", "n_selected", "recall_half", "relevant", "irrelevant")
Kept = dict[str, Any]


def locate(folder: Path, subjects: int, method: str, split: int) -> Path:
    return folder / "replications" / f"sme_{subjects}" / f"{method}.{split:02d}.json"


def run(
    folder: Path, *, subjects: int, splits: int, methods: Sequence[str], backend: str = "loky", jobs: int = 1
) -> None:
    """What is not there yet, then `table8.csv` and `table8_selected.csv`."""
    wanted = [(method, split) for split in range(splits) for method in methods]
    left = [pair for pair in wanted if not locate(folder, subjects, *pair).exists()]
    if left:
        calls = (delayed(run_one)(folder, subjects, method, split) for method, split in left)
        for _ in track(call_in_parallel(calls, backend, jobs), "table 8", total=len(left)):
            pass
    kept = read_kept(folder, subjects)
    write_text(folder / "table8.csv", to_csv(kept))
    write_text(folder / "table8_selected.csv", selections_to_csv(kept, subjects))


def run_one(folder: Path, subjects: int, method: str, split: int) -> None:
    """One method on one split, kept in a file of its own."""
    study = make_sme(subjects)
    try:
        found: Kept = asdict(sme.measure(study.federation, sme.split_study(study, split), method, split))
        found["spent"] = {k: "inf" if v == math.inf else v for k, v in found["spent"].items()}
    except (MethodFailure, VerticopulaError, np.linalg.LinAlgError) as error:
        found = {"failure": f"{type(error).__name__}: {error}"}
    write_text(locate(folder, subjects, method, split), json.dumps(found, indent=1) + "\n")


def read_kept(folder: Path, subjects: int) -> dict[str, list[Kept]]:
    """All kept splits by method, in the table's order."""
    kept: dict[str, list[Kept]] = {}
    for method in sme.SME_METHODS:
        files = sorted((folder / "replications" / f"sme_{subjects}").glob(f"{method}.[0-9]*.json"))
        if files:
            kept[method] = [read_json(file) for file in files]
    return kept


def average(rows: Sequence[Kept], relevant: Sequence[str]) -> dict[str, float]:
    """One line of the table: means and standard errors over the splits that gave an answer."""
    rows = [row for row in rows if "failure" not in row]
    line: dict[str, float] = {"replications": len(rows)}
    for name in ("recall", "auc", "recall_half"):
        values = [row[name] for row in rows]
        line[name] = float(np.mean(values)) if values else math.nan
        line[f"{name}_se"] = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan
    for name, count in (
        ("n_selected", lambda chosen: len(chosen)),
        ("relevant", lambda chosen: len(set(chosen) & set(relevant))),
        ("irrelevant", lambda chosen: len(set(chosen) - set(relevant))),
    ):
        line[name] = float(np.mean([count(row["selected"]) for row in rows])) if rows else math.nan
    return line


def relevant_variables() -> tuple[str, ...]:
    """Those with a coefficient in the truth."""
    return make_sme(50).truth.relevant


def to_csv(kept: Mapping[str, Sequence[Kept]]) -> str:
    """The paper's columns, then ours."""
    out, relevant = io.StringIO(), relevant_variables()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, "replications"])
    for method, rows in kept.items():
        line = average(rows, relevant)
        cells = ["" if math.isnan(line[c]) else f"{line[c]:.6g}" for c in (*COLUMNS[1:], "replications")]
        writer.writerow([method, *cells])
    return out.getvalue()


def selections_to_csv(kept: Mapping[str, Sequence[Kept]], subjects: int) -> str:
    """Per method and variable, in which share of the splits it was selected, and whether it truly matters."""
    out, relevant = io.StringIO(), relevant_variables()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["method", "variable", "relevant", "share_of_splits"])
    for method, rows in kept.items():
        found = [row["selected"] for row in rows if "failure" not in row]
        for variable in dict.fromkeys([*relevant, *sorted({v for chosen in found for v in chosen})]):
            share = np.mean([variable in chosen for chosen in found]) if found else 0.0
            writer.writerow([method, variable, int(variable in relevant), f"{share:.3g}"])
    return out.getvalue()


def render(folder: Path, subjects: int) -> str:
    """Table 8's part of the page; empty if nothing is kept."""
    kept, printed, relevant = read_kept(folder, subjects), read_sme(), relevant_variables()
    if not kept:
        return ""
    head = (
        "method",
        "Recall",
        "AUC",
        "selected",
        "truly relevant",
        "others",
        "Recall at ½",
        "splits",
        "ε",
    )
    parts = [
        f"<h2>Table 8: the SME study, {subjects:,} subjects</h2>",
        "<p>Our data are made up (<code>make_sme</code>): the paper's parties, column counts and missing rates, with "
        f"a known truth of {len(relevant)} relevant variables. The paper's figures stand beside ours for orientation. "
        "All tables are judged by the package's SCAD with BIC on refits, whatever the rule above; epsilon is "
        f"{sme.EPSILON:g} of unit <code>variable</code>. Recall counts a case as risky above the share of risky rows "
        "that the regression saw.</p>",
        f"<table><tr>{''.join(f'<th>{label}</th>' for label in head)}</tr>",
    ]
    for method, rows in kept.items():
        line, paper = average(rows, relevant), printed.get(method, {})
        good = [row for row in rows if "failure" not in row]
        spent = Spent(*(float(good[0]["spent"][u]) for u in ("client", "block", "person"))) if good else Spent()
        cells = [
            _beside(line["recall"], line["recall_se"], paper.get("recall")),
            _beside(line["auc"], line["auc_se"], paper.get("auc")),
            _beside(line["n_selected"], math.nan, paper.get("n_selected"), digits=1),
            *(_beside(line[name], math.nan, None, digits=1) for name in ("relevant", "irrelevant")),
            _beside(line["recall_half"], line["recall_half_se"], None),
            f"{len(good)}" + (f", {len(rows) - len(good)} failed" if len(good) < len(rows) else ""),
            f"<small>{escape(describe_spent(spent))}</small>",
        ]
        parts.append(f"<tr><th>{escape(method)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return "\n".join([*parts, "</table>", _render_found(kept, relevant)])


def _render_found(kept: Mapping[str, Sequence[Kept]], relevant: Sequence[str]) -> str:
    """Which of the truly relevant variables each method finds, and how often."""
    head = "".join(f"<th>{escape(method)}</th>" for method in kept)
    rows = ""
    for variable in relevant:
        cells = ""
        for found in kept.values():
            selected = [variable in row["selected"] for row in found if "failure" not in row]
            share = float(np.mean(selected)) if selected else 0.0
            colour = "better" if share == 1.0 else "equal" if share > 0.5 else "worse" if share == 0.0 else "none"
            cells += f"<td class='{colour}'>{sum(selected)}</td>"
        rows += f"<tr><th>{escape(variable)}</th>{cells}</tr>"
    return (
        "<p>In how many splits each truly relevant variable is selected; green: in all, yellow: in most, red: in none. "
        "<code>table8_selected.csv</code> has the others, too.</p>"
        f"<table><tr><th>variable</th>{head}</tr>{rows}</table>"
    )


def _beside(value: float, error: float, paper: float | None, *, digits: int = 3) -> str:
    text = "none" if math.isnan(value) else f"<b>{value:.{digits}f}</b>"
    text += "" if math.isnan(error) else f" ({error:.{digits}f})"
    return text + ("" if paper is None else f"<small>paper {paper:g}</small>")
