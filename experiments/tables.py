"""Tables 1 to 8 made anew, beside what the paper prints. What is kept in the folder is not computed again."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments import one_reading, sme, sme_table
from experiments.draws import Cell
from experiments.judge import JUDGE_NAMES
from experiments.methods import HEADLINE, MECHANISMS, METHODS, NEEDS_TORCH, TABLES, YARDSTICKS
from experiments.open_choices import list_effects, mean_errors
from experiments.page_readings import Readings
from experiments.paper import Printed, PrintedKey, read_tables
from experiments.results import (
    NOISELESS,
    SETS_OF_OTHERS,
    CellRows,
    Figure,
    complete_shares,
    count_verdicts,
    read_cells,
    sum_hours,
    summarise,
    write_csv,
)
from experiments.runner import SMALL_DESIGN, Settings, list_tasks, list_wanted, run_tasks
from experiments.tables_page import Contents, render
from reporting.catalogue import Measured, Places
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.errors import SettingsError

SME = "table8"
QUICK_SIZE, QUICK_EPSILON, QUICK_SUBJECTS = 100, 2.0, 1_500
FEWEST_REPLICATIONS = SETS_OF_OTHERS
UNIFORM, FRESH = "effects-uniform", "seeds-from-1000"  # folders of other data sets that the page shows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", type=int, help="N; default: the paper's 1000 3000 5000")
    parser.add_argument("--epsilons", nargs="+", type=float, help="of unit variable; default: the paper's")
    parser.add_argument(
        "--methods", nargs="+", metavar="METHOD", help="row labels; default: the table's, less Vertigan"
    )
    parser.add_argument("--headline", action="store_true", help=f"the methods {', '.join(HEADLINE)}")
    parser.add_argument("--models", nargs="+", choices=["linear", "logistic"])
    parser.add_argument(
        "--mechanisms", nargs="+", choices=MECHANISMS, help="how blocks go missing in tables 4 to 7; default: all"
    )
    parser.add_argument(
        "--replications",
        type=int,
        help=f"data sets per cell ({FEWEST_REPLICATIONS}); splits in table8 (at most {sme.SPLITS})",
    )
    parser.add_argument("--judges", nargs="+", choices=JUDGE_NAMES, default=list(JUDGE_NAMES), help="default: all")
    parser.add_argument(
        "--seed-offset", type=int, default=0, help="number of the first data set: others are other data sets"
    )
    parser.add_argument(
        "--effects", choices=["equal", "uniform"], default="equal", help="sizes of the coefficients; the paper's: equal"
    )
    parser.add_argument("--gan", action="store_true", help="with Vertigan (slow; pip install 'verticopula[gan]')")
    parser.add_argument("--subjects", type=int, help=f"of table8; default: {sme.SUBJECTS:,}")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse what cannot be run, and fill in defaults: small ones of a quick run."""
    if options.headline and options.methods:
        parser.error("--headline names methods: leave --methods out")
    options.methods = list(HEADLINE) if options.headline else options.methods
    for name in options.methods or ():
        if name not in METHODS:
            parser.error(f"unknown method {name!r}; known: {', '.join(METHODS)}")
    if options.names == [SME] and options.epsilons:
        parser.error(f"{SME} has one epsilon, {sme.EPSILON:g}")
    if options.replications is None:
        options.replications = 1 if options.quick else FEWEST_REPLICATIONS
    if options.subjects is None:
        options.subjects = QUICK_SUBJECTS if options.quick else sme.SUBJECTS
    if options.quick:
        options.sizes, options.epsilons = options.sizes or [QUICK_SIZE], options.epsilons or [QUICK_EPSILON]
    if min(options.replications, *(options.sizes or (1,))) < 1 or options.seed_offset < 0:
        parser.error("sizes, replications and jobs are whole numbers of at least 1, the seed offset of at least 0")
    if any(not 0.0 < epsilon < NOISELESS for epsilon in options.epsilons or ()):
        parser.error(f"epsilons lie between 0 and {NOISELESS:g}, from where on no coin flips")


def find_folder(folder: Path, effects: str, seed_offset: int) -> Path:
    """Where replications are kept: other data sets than the tables' own have folders of their own."""
    if effects != "equal":
        folder = folder / f"effects-{effects}"
    return folder / f"seeds-from-{seed_offset}" if seed_offset else folder


def run(options: argparse.Namespace) -> Measured:
    """Compute what is missing."""
    design = {"effects": options.effects} if options.effects != "equal" else {}
    settings = Settings(design | (SMALL_DESIGN if options.quick else {}), tuple(options.judges))
    folder = find_folder(options.places.results, options.effects, options.seed_offset)
    names = [name for name in TABLES if name in options.names]
    wanted: dict[Cell, tuple[tuple[str, float | None], ...]] = {}
    for name in names:
        for cell, pairs in choose_cells(name, options).items():
            wanted[cell] = tuple(dict.fromkeys((*wanted.get(cell, ()), *pairs)))
    if names and not wanted:
        raise SettingsError(f"{', '.join(names)}: none has such a model, such methods or such mechanisms")
    methods = [m for m in sme.SME_METHODS if options.methods is None or m in options.methods]
    if options.names == [SME] and not methods:
        raise SettingsError(f"none of these methods is in {SME}; it has {', '.join(sme.SME_METHODS)}")
    read_cells(folder, settings.record)  # one page cannot show two designs
    numbers = range(options.seed_offset, options.seed_offset + options.replications)
    tasks = list_tasks(wanted, numbers, settings, folder)
    if wanted:
        total = len(wanted) * options.replications
        options.console.print(f"{total} data sets in {len(wanted)} cells, {len(tasks)} of them not finished yet")
    run_tasks(tasks, settings, folder, backend=options.backend, jobs=options.jobs)
    if SME in options.names:
        sme_table.run(
            options.places.results,
            subjects=options.subjects,
            splits=min(options.replications, sme.SPLITS),
            methods=methods,
            backend=options.backend,
            jobs=options.jobs,
        )
    cells = read_cells(folder)
    seconds = sum(entry.seconds for found in cells for row in found.rows for entry in row.entries.values())
    return {"small_design": options.quick, "subjects": options.subjects}, {"seconds": seconds}


def choose_cells(name: str, options: argparse.Namespace) -> dict[Cell, tuple[tuple[str, float | None], ...]]:
    """The table's cells that were asked for, with the methods wanted there."""
    design = TABLES[name]
    methods = [m for m in design.methods if m in options.methods] if options.methods else list(design.methods)
    if not options.methods and not options.gan:
        methods = [m for m in methods if m not in NEEDS_TORCH]
    if not methods:
        return {}
    if any(m in NEEDS_TORCH for m in methods) and importlib.util.find_spec("torch") is None:
        raise SettingsError("Vertigan needs torch: pip install 'verticopula[gan]'")
    pairs = list_wanted(methods, options.epsilons or design.epsilons)
    return {
        Cell(model, mechanism, n): pairs  # type: ignore[arg-type]
        for model in design.models
        if options.models is None or model in options.models
        for mechanism in design.mechanisms
        if mechanism == "complete" or options.mechanisms is None or mechanism in options.mechanisms
        for n in options.sizes or design.sizes
    }


def present(record: Record, places: Places) -> list[Table]:
    """CSV files and `results.html` of everything that the folder holds; the paper's beside its own design alone."""
    folder, said = places.results, record.settings
    paper = {} if said["small_design"] else read_tables()
    others = {name: summarise_folder(folder / name, paper) for name in (UNIFORM, FRESH) if (folder / name).exists()}
    cells, tables = summarise_folder(folder, paper)
    sme_table.write_csv(folder, said["subjects"])
    hours = {_label(name): spent for name, spent in sum_hours(cells).items()}
    if (spent := sum(sme_table.sum_hours(folder, n) for n in sme_table.list_sizes(folder, said["subjects"]))) > 0.0:
        hours["Table 8"] = spent
    labels = {UNIFORM: "effects of many sizes", FRESH: "fresh data sets"}
    hours |= {labels[name]: sum(sum_hours(found).values()) for name, (found, _) in others.items()}
    contents = Contents(
        tables,
        paper,
        others[UNIFORM][1] if UNIFORM in others else {},
        others[FRESH][1] if FRESH in others else {},
        complete_shares(cells),
        hours,
        {_label(name): spent for name, spent in sum_hours(cells, in_full=True).items()},
        sme_table.render_sizes(folder, said["subjects"]),
        read_readings(folder) if paper else Readings(),
    )
    made_by = record.describe() + " All that earlier runs left in the folder is shown and counted, too."
    write_text(places.pages / "results.html", render(contents, made_by))
    rows = []
    for name, figures in tables.items():
        own = [f for f in figures if f.judge == "paper"]
        counts = ", ".join(f"{count} {word}" for word, count in count_verdicts(own).items())
        rows.append((name, counts, str(sum(f.failures for f in own))))
    head = ("table", "cells, by the paper's judge", "answers missing: a method failed")
    return [Table("our cells against the paper's", head, rows)]


def _label(name: str) -> str:
    return "Tables 1 to 3" if name == "table1" else f"Table {name.removeprefix('table')}"


def read_readings(folder: Path) -> Readings:
    """What `open_choices` and `one_reading` left in the folder."""
    choices, one = folder / "open_choices.json", folder / "one_reading.json"
    record = Record.read(choices) if choices.exists() else None
    return Readings(
        {} if record is None else list_effects(record),
        {} if record is None else mean_errors(record),
        one_reading.read_cells(Record.read(one)) if one.exists() else (),
    )


def summarise_folder(
    folder: Path, paper: Mapping[PrintedKey, Printed]
) -> tuple[list[CellRows], dict[str, Sequence[Figure]]]:
    """Replications of a folder, and the tables that it has more of than yardsticks; their CSV files are written."""
    cells = read_cells(folder)
    found = {name: summarise(name, cells, paper) for name in TABLES}
    tables = {name: figures for name, figures in found.items() if any(f.key.method not in YARDSTICKS for f in figures)}
    for name, figures in tables.items():
        write_csv(folder / f"{name}.csv", figures)
    return cells, tables
