"""Table 8's methods on a CSV file with blocks removed, against the fit to the complete data (`real/README.md`)."""

from __future__ import annotations

import argparse
import hashlib
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
from threadpoolctl import threadpool_limits

from experiments.methods import METHODS
from experiments.real.description import read_description, read_rows, remove_blocks, split_parties
from experiments.real.utility import CompleteDataModel
from experiments.sme import SME_METHODS, fit_tables
from experiments.store import plain_spent
from experiments.study import NOTHING_PROTECTED, MethodFailure, Outcome, Spent, Study, keep_common
from reporting.catalogue import Measured, Places
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table, csv_number, mean, standard_error, to_csv
from verticopula import Synthesizer
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.privacy.statement import format_epsilon
from verticopula.schema.federation import Federation

REAL_METHODS = (*SME_METHODS, "Refined-aligned")
COMPLETE, COMPLETE_CASES = "Complete data", "Complete cases, no noise"
ALIGNED = {"EVCDS": "evcds", "IEVCDS": "ievcds", "Refined-aligned": "refined"}
MEASURES = ("auc", "n_selected", "found", "invented", "rmse", "signs", "margins")
Kept = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--csv", type=Path, required=True, help="one row per subject, all parties' columns")
    parser.add_argument(
        "--study", type=Path, required=True, help="parties, columns, bounds, what to remove; see the README"
    )
    parser.add_argument("--methods", nargs="+", choices=REAL_METHODS, default=list(REAL_METHODS), metavar="METHOD")
    parser.add_argument("--epsilon", type=float, default=1.0, help="of unit variable")
    parser.add_argument("--splits", type=int, help="test sets, removals and noise; default 5")
    parser.add_argument("--test-cases", type=int, default=2_000, help="complete rows put aside in each")
    parser.add_argument("--rows", type=int, help="of the CSV, the first so many; default: all")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse what cannot be run; a quick run has one split."""
    if options.splits is None:
        options.splits = 1 if options.quick else 5
    if min(options.splits, options.test_cases, 1 if options.rows is None else options.rows) < 1:
        parser.error("splits, test cases, rows and jobs are whole numbers of at least 1")
    if not 0.0 < options.epsilon < math.inf:
        parser.error("epsilon is above 0")


def run(options: argparse.Namespace) -> Measured:
    """Compute what is missing."""
    description = read_description(options.study)
    if description.federation.column(description.federation.response).kind != "binary":
        raise SettingsError("the response must be binary: the study is judged by prediction of cases")
    settings, folder = Real.of(options), options.places.results / "replications" / f"real_{options.study.stem}"
    methods = [COMPLETE, COMPLETE_CASES, *options.methods]
    pairs = [(method, split) for split in range(options.splits) for method in methods]
    left = [pair for pair in pairs if not _is_kept(_locate(folder, *pair), settings.record)]
    for _ in run_all(run_one, left, settings, folder, label="fits", backend=options.backend, jobs=options.jobs):
        pass
    said = {**settings.record, "methods": methods, "splits": options.splits, "folder": folder.name}
    return said, {}


def present(record: Record, places: Places) -> list[Table]:
    """`real.csv`, the table `real.md`, and which fits failed."""
    folder, said = places.results / "replications" / record.settings["folder"], record.settings
    kept = {m: [Record.read(_locate(folder, m, s)).results for s in range(said["splits"])] for m in said["methods"]}
    write_text(places.results / "real.csv", lines_to_csv(kept))
    table = tabulate(kept)
    write_text(places.pages / "real.md", table.to_markdown() + "\n")
    failures = [(method, row["failure"]) for method, rows in kept.items() for row in rows if "failure" in row]
    return [table, *tabulate_spreads(kept), *([Table("failures", ("method", "why"), failures)] if failures else [])]


@dataclass(frozen=True)
class Real:
    """What a figure depends on besides its method and split; `record` as it is kept."""

    data: Path
    study: Path
    rows: int | None
    test_cases: int
    record: Kept

    @classmethod
    def of(cls, options: argparse.Namespace) -> Real:
        texts = {"csv": options.csv.read_bytes(), "study": options.study.read_bytes()}
        hashes = {name: hashlib.sha256(text).hexdigest()[:16] for name, text in texts.items()}
        said = {"epsilon": options.epsilon, "test_cases": options.test_cases, "rows": options.rows}
        return cls(options.csv, options.study, options.rows, options.test_cases, hashes | said)


def _locate(folder: Path, method: str, split: int) -> Path:
    name = method.lower().replace(" ", "_").replace(",", "")
    return folder / f"{name}.{split:02d}.json"


def _is_kept(path: Path, settings: Kept) -> bool:
    return path.exists() and bool(Record.read(path, settings))


def run_one(pair: tuple[str, int], settings: Real, folder: Path) -> None:
    """One method on one split, kept in a file of its own."""
    method, split = pair
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare(settings.data, settings.study, settings.rows, split, settings.test_cases)
        began = time.process_time()
        try:
            found = measure(prepared, method, split, settings.record["epsilon"])
        except (MethodFailure, VerticopulaError, np.linalg.LinAlgError) as error:
            found = {"failure": f"{type(error).__name__}: {error}"}
    found["seconds"] = round(time.process_time() - began, 1)
    Record("real", settings.record, found).save(_locate(folder, method, split))


@dataclass(frozen=True)
class Prepared:
    """A split: what the parties hold, and the model of the complete data to compare with."""

    federation: Federation
    observed: dict[str, pl.DataFrame]
    complete: Outcome
    yardstick: CompleteDataModel


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
    yardstick = CompleteDataModel(federation, train, test, fit_tables(federation, plain))
    return Prepared(federation, observed, plain, yardstick)


def measure(prepared: Prepared, method: str, split: int, epsilon: float) -> Kept:
    """Utility of one method, and what it spent."""
    federation, observed, spreads = prepared.federation, prepared.observed, None
    if method == COMPLETE:
        outcome = prepared.complete
    elif method == COMPLETE_CASES:
        common = keep_common(federation, observed)
        outcome = Outcome(NOTHING_PROTECTED, common[federation.response.party].height, common)
    else:
        study = Study(federation, observed, "binomial", epsilon, split)
        outcome = METHODS[method](study)
        if method in ALIGNED:
            spreads = measure_spreads(study.fitted[ALIGNED[method]], split)
    fitted = fit_tables(federation, outcome)
    spent: Spent = outcome.spent
    shares = {party: 1.0 - observed[party].height / prepared.complete.n_subjects for party in observed}
    return {
        **prepared.yardstick.measure(outcome, fitted).to_dict(),
        "selected": list(fitted.selected),
        "missing": shares,
        "complete_cases": keep_common(federation, observed)[federation.response.party].height,
        "spent": plain_spent(spent),
        **({} if spreads is None else {"spreads": spreads}),
    }


def measure_spreads(fitted: Synthesizer, seed: int) -> dict[str, float]:
    """Standard deviation of every column's latents in aligned rows, observed and redrawn ones together."""
    result = fitted.result_
    assert result.draw_aligned is not None
    spreads = result.draw_aligned(np.random.default_rng(seed)).std(axis=0)
    return {label: round(float(s), 4) for label, s in zip(result.copula.layout.labels, spreads, strict=True)}


def average(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Means and standard errors over the splits that gave an answer."""
    good = [row for row in rows if "failure" not in row]
    values = {name: [row[name] for row in good] for name in MEASURES}
    return {name: (mean(own), standard_error(own)) for name, own in values.items()}


def _largest(rows: Sequence[Mapping[str, Any]], unit: str) -> float:
    """The largest epsilon at a unit; NaN where nothing gave an answer."""
    return max((float(row["spent"][unit]) for row in rows if "failure" not in row), default=math.nan)


def lines_to_csv(kept: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One line per method: every measure with its standard error."""
    head = [column for name in MEASURES for column in (name, f"{name}_se")]
    lines = []
    for method, rows in kept.items():
        failures = sum("failure" in row for row in rows)
        cells = [csv_number(v, 4) for pair in average(rows).values() for v in pair]
        spent = [f"{_largest(rows, unit):.6g}" for unit in ("client", "block", "person")]
        seconds = f"{mean([row['seconds'] for row in rows]):.1f}"
        lines.append([method, *cells, *spent, seconds, len(rows) - failures, failures])
    return to_csv(["method", *head, "client", "block", "person", "seconds", "splits", "failures"], lines)


def tabulate(kept: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """One line per method: means and standard errors."""
    labels = ("AUC", "selected", "of the complete data's", "others", "RMSE of effects", "signs kept", "margins")
    lines = []
    for method, rows in kept.items():
        person = _largest(rows, "person")
        cells = [_short(*pair) for pair in average(rows).values()]
        seconds = f"{mean([row['seconds'] for row in rows]):.0f}"
        lines.append((method, *cells, "" if math.isnan(person) else format_epsilon(person), seconds))
    return Table("means over splits (standard errors)", ("method", *labels, "person ε", "seconds"), lines)


def tabulate_spreads(kept: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Table]:
    """One line per method with aligned rows; nothing without any."""
    found = {m: [s for row in rows for s in row.get("spreads", {}).values()] for m, rows in kept.items()}
    lines = [(method, f"{min(own):.3f}", f"{max(own):.3f}") for method, own in found.items() if own]
    head = ("method", "smallest", "largest")
    title = "standard deviations of aligned latents, observed and redrawn together; 1 if right"
    return [Table(title, head, lines)] if lines else []


def _short(value: float, error: float) -> str:
    if math.isnan(value):
        return "none"
    digits = 3 if abs(value) < 2.0 else 1
    return f"{value:.{digits}f}" + ("" if math.isnan(error) or error == 0.0 else f" ({error:.{digits}f})")
