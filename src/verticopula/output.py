"""What a study leaves on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from verticopula.errors import SettingsError
from verticopula.synthesizer import Synthesizer

STUDY_FILE = "study.json"
LEDGER_FILE = "ledger.jsonl"
SUMMARY_FILE = "summary.txt"
MARGINS_FILE = "margins.csv"  # observed and corrected distribution function of every column
MISSINGNESS_FILE = "missingness.json"
NOTICE_FILE = "READ-ME-FIRST.txt"


def prepare_folder(out: Path, *, overwrite: bool) -> None:
    """Make the folder; SettingsError if it already holds a study that must not be overwritten."""
    if out.exists() and not out.is_dir():
        raise SettingsError(f"{out} is a file; --out needs a folder")
    if (out / STUDY_FILE).exists() and not overwrite:
        raise SettingsError(
            f"{out} already holds a study; choose another --out, or --overwrite to replace its tables "
            "(its ledger is kept and continued: what was spent stays spent)"
        )
    out.mkdir(parents=True, exist_ok=True)


def write_study(
    out: Path,
    synthesizer: Synthesizer,
    tables: Mapping[str, pl.DataFrame],
    summary: str,
    notes: tuple[str, ...] = (),
) -> list[Path]:
    """Each party's table and the joined one as CSV and Parquet, the fitted study and the summary."""
    folder = out / "synthetic"
    folder.mkdir(parents=True, exist_ok=True)
    joined = pl.concat(
        [table.rename({name: f"{party}.{name}" for name in table.columns}) for party, table in tables.items()],
        how="horizontal",
    )
    written: list[Path] = []
    for name, table in {**tables, "joined": joined}.items():
        table.write_csv(folder / f"{name}.csv")
        table.write_parquet(folder / f"{name}.parquet")
        written += [folder / f"{name}.csv", folder / f"{name}.parquet"]
    notice = folder / NOTICE_FILE
    notice.unlink(missing_ok=True)
    warnings = (*synthesizer.privacy_.warnings, *notes)  # beside the tables: a copied folder takes them along
    if warnings:
        notice.write_text("\n".join(warnings) + "\n", encoding="utf-8")
        written.append(notice)
    diagnostics = out / "diagnostics"
    diagnostics.mkdir(exist_ok=True)
    synthesizer.margins_.write_csv(diagnostics / MARGINS_FILE)
    missingness = json.dumps(synthesizer.missingness_.to_dict(), indent=1)
    (diagnostics / MISSINGNESS_FILE).write_text(missingness + "\n", encoding="utf-8")
    written += [diagnostics / MARGINS_FILE, diagnostics / MISSINGNESS_FILE]
    synthesizer.save(out / STUDY_FILE)
    (out / SUMMARY_FILE).write_text(summary, encoding="utf-8")
    return [*written, out / STUDY_FILE, out / SUMMARY_FILE, out / LEDGER_FILE]
