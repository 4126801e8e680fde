"""`python -m experiments NAME... [options]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from reporting.catalogue import Catalogue, Entry, Places

ABOUT = """The paper's tables and theorems, made anew. Everything goes to one folder, --out (experiments-out). What is
finished there is never computed again: an interrupted command goes on when it is called once more. The run's
record (command, machine, versions, settings) is saved as tables.json, missing.json and so on."""
OUT = Path("experiments-out")


def find_places(out: Path | None, quick: bool) -> Places:
    """One folder for everything; quick runs have one of their own."""
    return Places.together(out or (OUT / "quick" if quick else OUT))


def _table(number: int, shows: str, takes: str = "some hours of one core") -> Entry:
    writes = f"table{number}.csv, results.html" + (", table8_selected.csv" if number == 8 else "")
    return Entry("experiments.tables", "tables", f"{shows}, beside the paper's.", takes, writes)


ENTRIES = {
    "table1": _table(1, "RMSE of regressions on complete data"),
    "table2": _table(2, "G-Means of the same regressions", "seconds after table1"),
    "table3": _table(3, "FDR of the same regressions", "seconds after table1"),
    "table4": _table(4, "Linear regressions where blocks are missing: CC, Impute and VCDS"),
    "table5": _table(5, "The same, logistic"),
    "table6": _table(6, "Linear regressions where blocks are missing: EVCDS and IEVCDS"),
    "table7": _table(7, "The same, logistic"),
    "table8": _table(8, "All methods on the SME study", "hours"),
    "missing": Entry(
        "experiments.missing.missing_command",
        "missing",
        "Refined rows against the paper, EVCDS and IEVCDS where blocks are missing at random, by one judge.",
        "4 hours of one core",
        "missing.md",
    ),
    "open_choices": Entry(
        "experiments.open_choices",
        "open_choices",
        "What the paper's text leaves open in its algorithms as printed: our readings against others.",
        "half an hour of one core",
        "open_choices.md",
    ),
    "one_reading": Entry(
        "experiments.one_reading",
        "one_reading",
        "One other reading of the paper's text, Eq. 8 by index, in all cells of EVCDS.",
        "three minutes of one core",
        "one_reading.md",
    ),
    "judge_or_data": Entry(
        "experiments.judge_or_data",
        "judge_or_data",
        "Whether the paper's judge or the synthetic rows lose accuracy: logistic, N = 1000.",
        "three minutes of one core",
        "judge_or_data.md",
    ),
    "rows_per_subject": Entry(
        "experiments.rows_per_subject",
        "rows_per_subject",
        "What the number of synthetic rows costs the paper's judge.",
        "four minutes of one core",
        "rows_per_subject.md",
    ),
    "theory": Entry(
        "experiments.theory.theory_command",
        "theory",
        "Theorems 1 to 3 and 5 to 9 against simulation.",
        "6 minutes",
        "theory.html, theory/points.csv, theory/verdicts.csv",
    ),
    "person": Entry(
        "experiments.person.person_command",
        "person",
        "All methods at equal epsilon for a whole person.",
        "hours",
        "person.csv, person.html",
    ),
    "real": Entry(
        "experiments.real.real_command",
        "real",
        "Table 8's methods on a CSV file of your own.",
        "minutes to hours, by the file's size",
        "real.csv, real.md",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is named; the exit status."""
    return Catalogue("experiments", ABOUT, ENTRIES, find_places).main(argv)


if __name__ == "__main__":
    sys.exit(main())
