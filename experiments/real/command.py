"""`python -m experiments real --csv DATA.csv --study STUDY.toml`: Table 8's methods against the complete data's fit."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from joblib import delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

from experiments.methods import METHODS
from experiments.real.description import read_description, read_rows, remove_blocks, split_parties
from experiments.real.utility import Yardstick
from experiments.runner import BACKENDS, call_in_parallel
from experiments.sme import SME_METHODS, fit_tables
from experiments.store import read_json, write_text
from experiments.study import NOTHING_PROTECTED, MethodFailure, Outcome, Spent, Study, keep_common
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.privacy.statement import format_epsilon
from verticopula.schema.federation import Federation

REAL_METHODS = (*SME_METHODS, "Refined-aligned")
COMPLETE, COMPLETE_CASES = "Complete data", "Complete cases, no noise"
MEASURES = ("auc", "n_selected", "found", "invented", "rmse", "signs", "margins")
Kept = dict[str, Any]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments real", description=__doc__)
    parser.add_argument("--csv", type=Path, required=True, help="one row per subject, all parties' columns")
    parser.add_argument(
        "--study", type=Path, required=True, help="parties, columns, bounds, what to remove; see the README"
    )
    parser.add_argument("--methods", nargs="+", choices=REAL_METHODS, default=list(REAL_METHODS), metavar="METHOD")
    parser.add_argument("--epsilon", type=float, default=1.0, help="of unit variable")
    parser.add_argument("--splits", type=int, default=5, help="test sets, removals and noise")
    parser.add_argument("--test-cases", type=int, default=2_000, help="complete rows put aside in each")
    parser.add_argument("--rows", type=int, help="of the CSV, the first so many; default: all")
    parser.add_argument("--backend", choices=BACKENDS, default="loky", help="of joblib")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("experiments-out"), help="a folder; what is in it is kept")
    options = parser.parse_args(argv)
    if min(options.splits, options.test_cases, options.jobs, 1 if options.rows is None else options.rows) < 1:
        parser.error("splits, test cases, rows and jobs are whole numbers of at least 1")
    if not 0.0 < options.epsilon < math.inf:
        parser.error("epsilon is above 0")
    return options


def main(argv: Sequence[str], console: Console) -> int:
    options = parse(argv)
    description = read_description(options.study)
    if description.federation.column(description.federation.response).kind != "binary":
        raise SettingsError("the response must be binary: the study is judged by prediction of cases")
    methods = [COMPLETE, COMPLETE_CASES, *options.methods]
    settings = record(options)
    wanted = [(m, s) for s in range(options.splits) for m in methods if not _is_kept(_locate(options, m, s), settings)]
    calls = (delayed(run_one)(options, method, split) for method, split in wanted)
    if wanted:
        for _ in track(call_in_parallel(calls, options.backend, options.jobs), "real data", total=len(wanted)):
            pass
    kept = {m: [read_json(_locate(options, m, s)) for s in range(options.splits)] for m in methods}
    write_text(options.out / "real.csv", to_csv(kept))
    write_text(options.out / "real.md", to_markdown(kept))
    show(kept, console)
    console.print(f"written to {options.out}/: real.csv, real.md")
    return 0


def _locate(options: argparse.Namespace, method: str, split: int) -> Path:
    name = method.lower().replace(" ", "_").replace(",", "")
    return Path(options.out / "replications" / f"real_{options.study.stem}" / f"{name}.{split:02d}.json")


def record(options: argparse.Namespace) -> Kept:
    """What a figure depends on besides its method and split."""
    texts = {"csv": options.csv.read_bytes(), "study": options.study.read_bytes()}
    hashes = {name: hashlib.sha256(text).hexdigest()[:16] for name, text in texts.items()}
    return hashes | {"epsilon": options.epsilon, "test_cases": options.test_cases, "rows": options.rows}


def _is_kept(path: Path, settings: Kept) -> bool:
    return path.exists() and bool(read_json(path, settings))


def run_one(options: argparse.Namespace, method: str, split: int) -> None:
    """One method on one split, kept in a file of its own."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare(options.csv, options.study, options.rows, split, options.test_cases)
        began = time.process_time()
        try:
            found = measure(prepared, method, split, options.epsilon)
        except (MethodFailure, VerticopulaError, np.linalg.LinAlgError) as error:
            found = {"failure": f"{type(error).__name__}: {error}"}
    found |= {"seconds": round(time.process_time() - began, 1), "settings": record(options)}
    write_text(_locate(options, method, split), json.dumps(found, indent=1) + "\n")


@dataclass(frozen=True)
class Prepared:
    """A split: what the parties hold, and the model of the complete data to compare with."""

    federation: Federation
    observed: dict[str, pl.DataFrame]
    complete: Outcome
    yardstick: Yardstick


@lru_cache(maxsize=1)
def prepare(data: Path, study: Path, n_rows: int | None, split: int, test_cases: int) -> Prepared:
    """Put test cases aside, fit the rest while it is complete, then remove blocks."""
    description = read_description(study)
    rows = read_rows(data, description)
    rows = rows if n_rows is None else rows.head(n_rows)
    federation, rng = description.federation, np.random.default_rng([split, rows.height])
    order = rng.permutation(rows.height)
    if test_cases >= rows.height:
        raise SettingsError(f"{test_cases} test cases of {rows.height} rows")
    test, train = (split_parties(federation, rows[np.sort(part)]) for part in (order[:test_cases], order[test_cases:]))
    observed = remove_blocks(description, train, rng)
    plain = Outcome(NOTHING_PROTECTED, rows.height - test_cases, train)
    yardstick = Yardstick(federation, train, test, fit_tables(federation, plain))
    return Prepared(federation, observed, plain, yardstick)


def measure(prepared: Prepared, method: str, split: int, epsilon: float) -> Kept:
    """Utility of one method, and what it spent."""
    federation, observed = prepared.federation, prepared.observed
    if method == COMPLETE:
        outcome = prepared.complete
    elif method == COMPLETE_CASES:
        common = keep_common(federation, observed)
        outcome = Outcome(NOTHING_PROTECTED, common[federation.response.party].height, common)
    else:
        outcome = METHODS[method](Study(federation, observed, "binomial", epsilon, split))
    fitted = fit_tables(federation, outcome)
    spent: Spent = outcome.spent
    shares = {party: 1.0 - observed[party].height / prepared.complete.n_subjects for party in observed}
    return {
        **prepared.yardstick.measure(outcome, fitted).to_dict(),
        "selected": list(fitted.selected),
        "missing": shares,
        "complete_cases": keep_common(federation, observed)[federation.response.party].height,
        "spent": {
            unit: "inf" if math.isinf(e := getattr(spent, unit)) else e for unit in ("client", "block", "person")
        },
    }


def average(rows: Sequence[Kept]) -> dict[str, tuple[float, float]]:
    """Means and standard errors over the splits that gave an answer."""
    good = [row for row in rows if "failure" not in row]
    line = {}
    for name in MEASURES:
        values = [row[name] for row in good]
        error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan
        line[name] = (float(np.mean(values)) if values else math.nan, error)
    return line


def to_csv(kept: Mapping[str, Sequence[Kept]]) -> str:
    """One line per method: every measure with its standard error."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = [column for name in MEASURES for column in (name, f"{name}_se")]
    writer.writerow(["method", *head, "client", "block", "person", "seconds", "splits", "failures"])
    for method, rows in kept.items():
        good = [row for row in rows if "failure" not in row]
        cells = [f"{v:.4g}" if math.isfinite(v) else "" for pair in average(rows).values() for v in pair]
        spent = [
            f"{max((float(r['spent'][u]) for r in good), default=math.nan):.6g}" for u in ("client", "block", "person")
        ]
        seconds = f"{np.mean([row['seconds'] for row in rows]):.1f}"
        writer.writerow([method, *cells, *spent, seconds, len(good), len(rows) - len(good)])
    return out.getvalue()


def to_markdown(kept: Mapping[str, Sequence[Kept]]) -> str:
    """The table for a page."""
    labels = (
        "AUC",
        "selected",
        "of the complete data's",
        "others",
        "RMSE of effects",
        "signs kept",
        "margins",
        "person ε",
    )
    lines = [f"| method | {' | '.join(labels)} | seconds |", f"|---|{'---|' * (len(labels) + 1)}"]
    for method, rows in kept.items():
        good = [row for row in rows if "failure" not in row]
        cells = [_short(*pair) for pair in average(rows).values()]
        person = format_epsilon(max((float(row["spent"]["person"]) for row in good), default=math.nan)) if good else ""
        seconds = f"{np.mean([row['seconds'] for row in rows]):.0f}"
        lines.append(f"| {method} | {' | '.join(cells)} | {person} | {seconds} |")
    return "\n".join(lines) + "\n"


def _short(mean: float, error: float) -> str:
    if math.isnan(mean):
        return "none"
    digits = 3 if abs(mean) < 2.0 else 1
    return f"{mean:.{digits}f}" + ("" if math.isnan(error) or error == 0.0 else f" ({error:.{digits}f})")


def show(kept: Mapping[str, Sequence[Kept]], console: Console) -> None:
    """The same for the eye."""
    table = Table("method", *MEASURES, "person ε", "seconds", title="means over splits (standard errors)")
    for method, rows in kept.items():
        good = [row for row in rows if "failure" not in row]
        cells = [f"{mean:.3f} ({error:.3f})" for mean, error in average(rows).values()]
        person = format_epsilon(max((float(row["spent"]["person"]) for row in good), default=math.nan)) if good else ""
        table.add_row(method, *cells, person, f"{np.mean([row['seconds'] for row in rows]):.0f}")
    console.print(table)
    for method, rows in kept.items():
        for row in rows:
            if "failure" in row:
                console.print(f"{method}: {row['failure']}", markup=False)
