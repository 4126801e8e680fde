"""What a study leaves on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from verticopula.data.csv_files import write_csv
from verticopula.data.synthetic_marks import METADATA_ENDING, METADATA_KEY, SyntheticMark, write_marked
from verticopula.data.table_files import read_table
from verticopula.errors import SchemaError, SettingsError
from verticopula.privacy.mark_statement import mark_synthetic
from verticopula.privacy.statement import NOTICE_FILE
from verticopula.schema.defaults import REPORT_FILE
from verticopula.schema.federation import JOINED, Federation
from verticopula.stats.fit_result import FitResult
from verticopula.stats.posterior_draws import PosteriorDraws
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.saved_study import load_study, save_study
from verticopula.study.synthetic_tables import SyntheticTables
from verticopula.study.text_summary import margins_table

STUDY_FILE = "study.json"
LEDGER_FILE = "ledger.jsonl"
SUMMARY_FILE = "summary.txt"
MARGINS_FILE = "margins.csv"  # observed and corrected distribution function of every column
MISSINGNESS_FILE = "missingness.json"
POSTERIOR_FILE = "posterior.npz"  # posterior draws of the correlations
EARLIER_POSTERIOR_FILE = "certainty.npz"  # read, never written
MOST_LATENTS = 300  # with which it is kept: 144 MB of draws, 36 MB on disk at most
REGRESSION_FOLDER = "regression"
DIAGNOSTICS_FOLDER = "diagnostics"
REGRESSION_FILE = "regression.json"  # in that folder: what the report shows of it
COEFFICIENTS_FILE, REGRESSION_PAGE, PATH_FILE = "coefficients.csv", "summary.html", "path.html"  # beside it
SYNTHETIC_FOLDER = "synthetic"

_TABLE_ENDINGS = (".csv", f".csv{METADATA_ENDING}", ".parquet")
_POSTERIOR_FILES = (POSTERIOR_FILE, EARLIER_POSTERIOR_FILE)
_DIAGNOSTICS = (MARGINS_FILE, MISSINGNESS_FILE, *_POSTERIOR_FILES)


def file_names(federation: Federation) -> frozenset[str]:
    """Everything that a study, or a regression on raw columns, may leave in its folder; nothing else is accepted."""
    tables = [*(party.name for party in federation.parties), JOINED]
    return frozenset(
        [
            *(f"{SYNTHETIC_FOLDER}/{name}{suffix}" for name in tables for suffix in _TABLE_ENDINGS),
            f"{SYNTHETIC_FOLDER}/{NOTICE_FILE}",
            *(f"{DIAGNOSTICS_FOLDER}/{name}" for name in _DIAGNOSTICS),
            *(STUDY_FILE, LEDGER_FILE, SUMMARY_FILE, REPORT_FILE),
            *(COEFFICIENTS_FILE, REGRESSION_PAGE, PATH_FILE, REGRESSION_FILE),
        ]
    )


def check_folder(out: Path, *, overwrite: bool) -> None:
    """SettingsError if the folder holds a study that must not be overwritten, or cannot be written; makes nothing."""
    if out.exists() and not out.is_dir():
        raise SettingsError(f"{out} is a file; --out needs a folder")
    if (out / STUDY_FILE).exists() and not overwrite:
        raise SettingsError(
            f"{out} already holds a study; choose another --out, or --overwrite to replace its tables "
            "(its ledger is kept: what was spent stays spent)"
        )
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise SettingsError(f"{out} cannot be made or written; choose another --out")


def prepare_folder(out: Path, *, overwrite: bool) -> None:
    """Make the folder; SettingsError if it already holds a study that must not be overwritten."""
    check_folder(out, overwrite=overwrite)
    out.mkdir(parents=True, exist_ok=True)


@contextmanager
def new_folder(out: Path, *, overwrite: bool) -> Iterator[None]:
    """`prepare_folder`; if what follows fails, folders that it made and that are empty are gone again."""
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    prepare_folder(out, overwrite=overwrite)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something was written there: it stays
            for folder in made:
                folder.rmdir()
        raise


def write_study(
    out: Path,
    fitted: FittedStudy,
    tables: Mapping[str, pl.DataFrame],
    summary: str,
    notes: tuple[str, ...] = (),
) -> list[Path]:
    """Each party's table and the joined one as CSV and Parquet, marked as synthetic; the fitted study, the summary."""
    folder = out / SYNTHETIC_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in (SUMMARY_FILE, COEFFICIENTS_FILE, REGRESSION_PAGE, PATH_FILE, REGRESSION_FILE):
        (out / REGRESSION_FOLDER / name).unlink(missing_ok=True)  # on an earlier study's tables
    named = [table.rename({name: f"{party}.{name}" for name in table.columns}) for party, table in tables.items()]
    joined = {JOINED: pl.concat(named, how="horizontal")} if named else {}
    written: list[Path] = []
    mark = mark_study(fitted)
    for name, table in {**tables, **joined}.items():
        written += write_marked(table, folder, name, mark)
    notice = folder / NOTICE_FILE
    notice.unlink(missing_ok=True)
    warnings = (*fitted.privacy.warnings, *notes)  # beside the tables: a copied folder takes them along
    if warnings:
        notice.write_text("\n".join(warnings) + "\n", encoding="utf-8")
        written.append(notice)
    diagnostics = out / DIAGNOSTICS_FOLDER
    diagnostics.mkdir(exist_ok=True)
    for name in _POSTERIOR_FILES:
        (diagnostics / name).unlink(missing_ok=True)  # an earlier study's, gone before this one is there
    write_csv(margins_table(fitted.result), diagnostics / MARGINS_FILE)
    missingness = json.dumps(fitted.result.missingness.to_dict(), indent=1)
    (diagnostics / MISSINGNESS_FILE).write_text(missingness + "\n", encoding="utf-8")
    written += [diagnostics / MARGINS_FILE, diagnostics / MISSINGNESS_FILE]
    save_study(out / STUDY_FILE, fitted)
    (out / SUMMARY_FILE).write_text(summary, encoding="utf-8")
    written += _write_posterior_draws(diagnostics / POSTERIOR_FILE, fitted.result)
    return [*written, out / STUDY_FILE, out / SUMMARY_FILE, out / LEDGER_FILE]


def write_parts(folder: Path, parts: Iterable[Mapping[str, pl.DataFrame]], mark: SyntheticMark) -> list[Path]:
    """Tables that come some rows at a time: a folder `party.parquet` for each, with one marked file for each part.

    Parameters
    ----------
    folder : where to; parts of earlier tables there are replaced. SettingsError if there is anything else
    parts : party -> rows that belong together
    """
    written: list[Path] = []
    for number, tables in enumerate(parts):
        for name, table in tables.items():
            place = folder / f"{name}.parquet"
            if number == 0:
                _empty_parts(place)
            written.append(place / f"part-{number:06d}.parquet")
            table.write_parquet(written[-1], metadata={METADATA_KEY: mark.to_json()})
    return written


def _empty_parts(place: Path) -> None:
    """Make a folder for parts, or empty the one that is there."""
    if place.exists() and not (place.is_dir() and all(part.match("part-*.parquet") for part in place.iterdir())):
        raise SettingsError(f"{place} is not a folder of parts as they are written here: take another folder")
    place.mkdir(parents=True, exist_ok=True)
    for part in place.iterdir():
        part.unlink()


def mark_study(fitted: FittedStudy) -> SyntheticMark:
    """What the synthetic tables of a study say of themselves."""
    return mark_synthetic(fitted.name, fitted.settings.method, fitted.privacy, fitted.unit)


def _write_posterior_draws(path: Path, result: FitResult) -> list[Path]:
    """Kept beside the tables, because the releases it comes from are not; without it, regressions take them as data."""
    find = result.posterior_draws
    if find is None or result.copula.correlation.shape[0] > MOST_LATENTS:
        return []
    try:
        find().save(path)
    except np.linalg.LinAlgError:  # the study has been paid for: it is not lost for want of this
        return []
    return [path]


def withhold_study(out: Path) -> None:
    """Take away everything from which a synthetic block that stays with its party could be drawn or described."""
    (out / STUDY_FILE).unlink()
    for name in (MARGINS_FILE, *_POSTERIOR_FILES):
        (out / DIAGNOSTICS_FOLDER / name).unlink(missing_ok=True)


def read_study(folder: Path) -> tuple[FittedStudy, SyntheticTables]:
    """A study that `write_study` wrote: what was fitted, and its synthetic tables."""
    study = read_fitted(folder)
    try:
        tables = {p.name: read_table(folder / SYNTHETIC_FOLDER / f"{p.name}.parquet") for p in study.federation.parties}
    except SchemaError as error:
        raise SettingsError(f"{folder}: its synthetic tables cannot be read ({error.problems[0].where})") from None
    kept = [folder / DIAGNOSTICS_FOLDER / name for name in _POSTERIOR_FILES]
    found = next((path for path in kept if path.is_file()), None)
    find = None if found is None else partial(PosteriorDraws.load, found, study.result.copula)
    return study, SyntheticTables(tables, study.federation, study.n_subjects, find, study)


def read_fitted(folder: Path) -> FittedStudy:
    """What was fitted; SettingsError where the folder holds no study."""
    if not (folder / STUDY_FILE).is_file():
        raise SettingsError(f"{folder} holds no study: give the folder that `run`, `demo` or `submit` wrote")
    return load_study(folder / STUDY_FILE)


def read_regression(folder: Path) -> dict[str, Any] | None:
    """What `write_regression` wrote into a study's folder; None if there is none."""
    path = folder / REGRESSION_FOLDER / REGRESSION_FILE
    if not path.is_file():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        wanted = {"response", "family", "intercept", "level", "converged", "heading", "warnings", "notes", "rows"}
        if not wanted <= set(raw) or not all(
            {"party", "column", "feature", "coefficient"} <= set(r) for r in raw["rows"]
        ):
            raise ValueError
    except (OSError, ValueError, TypeError):
        raise SettingsError(f"{path}: cannot be read as a regression; fit it again with `verticopula glm`") from None
    return dict(raw)
