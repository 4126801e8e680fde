"""The public grid. `make bench-public DATA=FOLDER`, or `python -m benchmarks public --data FOLDER [--part TABLE ...]`.

Seven tables that nothing was tuned on and two that constants were chosen on (`public_cells.TUNED_ON`), two and four
parties, complete and with 30 % of people missing at random at every party but the last, epsilon 0.2 to 10 at delta 1e-5
for a whole person. Every cell is saved as soon as it is measured, and none is measured twice: `--again` does.
`--source`, `--epsilon`, `--parties`, `--gaps` and `--seeds` choose a part of the grid. The tables are not part of the
project; nothing of them is saved but results.

AIM and MST of a trusted curator and SDV get environments of their own (`.venv-mbi`, `.venv-sdv`), made when a cell asks
for them. One run of AIM takes from half a minute to an hour. VertiMRF is asked for by name only: its rows are made
elsewhere.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks.public_cells import (
    CODED,
    CURATOR_EPSILONS,
    CURATORS,
    DELTA,
    EPSILONS,
    INDEPENDENT,
    MISSING,
    PARTIES,
    REAL,
    RESAMPLED,
    SDV,
    SOURCES,
    STRICT,
    TABLES,
    VERTIMRF,
    PublicCell,
    PublicSetting,
    list_cells,
    locate,
    read_entries,
    write_entry,
)
from benchmarks.public_measures import measure_rows
from benchmarks.public_page import present
from benchmarks.public_rivals import MBI_VERSIONS, SDV_VERSIONS, find_kept
from benchmarks.public_studies import PublicStudy, draw_rows
from reporting.catalogue import Measured

__all__ = ["PARTS", "add_options", "check", "present", "run"]

PARTS = TABLES
SEEDS = 3
MADE_HERE = (REAL, RESAMPLED, INDEPENDENT, STRICT)  # without another environment
GAPS = {"complete": (False,), "missing": (True,), "both": (False, True)}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="folder with the tables (see benchmarks/public_tables.py)")
    parser.add_argument(
        "--source",
        action="append",
        dest="sources",
        choices=(*SOURCES, "curators"),
        help="rows from this source only; may be repeated; 'curators' for all of AIM and MST. Without it: first those "
        "that need no other environment, then SDV, then curators",
    )
    parser.add_argument("--epsilon", action="append", dest="epsilons", type=float, help="this epsilon only")
    parser.add_argument("--parties", action="append", type=int, choices=PARTIES, help="so many parties only")
    parser.add_argument("--gaps", choices=GAPS, default="both", help="data without or with missing blocks only")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds a cell (default {SEEDS})")
    parser.add_argument("--ready", action="store_true", help="of curators only what has been computed already")
    parser.add_argument("--again", action="store_true", help="measure also what is saved")


def check(options: Namespace, parser: ArgumentParser) -> None:
    if options.data is None and not options.page:
        parser.error("--data: which folder has the tables?")
    if options.seeds < 1:
        parser.error("--seeds: at least 1")
    # where the tables lie is nobody's business
    options.command = options.command.replace(str(options.data), "FOLDER")


def list_wanted(options: Namespace) -> list[PublicCell]:
    """The cells that the options name, in an order in which an interrupted run knows most."""
    sources = [s for one in options.sources or () for s in (CURATORS if one == "curators" else (one,))]
    if options.quick:
        sources, epsilons = sources or list(MADE_HERE), options.epsilons or CURATOR_EPSILONS
    else:
        sources, epsilons = sources or [*MADE_HERE, SDV, *CURATORS], options.epsilons
    return list(
        list_cells(
            options.parts,
            sources,
            seeds=1 if options.quick else options.seeds,
            parties=options.parties or (PARTIES[:1] if options.quick else PARTIES),
            missing=GAPS[options.gaps],
            epsilons=epsilons,
        )
    )


def run(options: Namespace) -> Measured:
    """All cells that are not saved, each saved as soon as it is measured."""
    folder: Path = options.places.results
    wanted = list_wanted(options)
    left = [c for c in wanted if options.again or c.entry not in read_entries(folder, c.setting, c.seed)]
    saved = len(wanted) - len(left)
    if options.ready:
        left = [c for c in left if c.source not in (*CURATORS, VERTIMRF) or find_kept(c).exists()]
    print(f"{len(wanted)} cells, {saved} of them saved, {len(left)} to measure", flush=True)
    kept: tuple[PublicSetting, int] | None = None
    study: PublicStudy | None = None
    for cell in left:
        if study is None or kept != (cell.setting, cell.seed):
            kept, study = (cell.setting, cell.seed), PublicStudy.read(options.data, cell.setting, cell.seed)
        start = time.process_time()
        rows, made = draw_rows(study, cell)
        seconds = round(time.process_time() - start, 1)
        found = {"shape": [len(study.train), len(study.coded)], **measure_rows(study, rows), "seconds": seconds, **made}
        write_entry(folder, cell, found)
        where = locate(folder, cell.setting, cell.seed).relative_to(folder)
        print(f"{where}: {cell.entry}, 3-way {found['tvd'][1]:.4f}", flush=True)
    settings = {
        "delta": DELTA,
        "unit": "person",
        "epsilons": list(EPSILONS),
        "missing": MISSING,
        "coded_tables": list(CODED),
        "curator_versions": MBI_VERSIONS,
        "sdv_versions": SDV_VERSIONS,
    }
    return settings, {"cells": len(wanted)}
