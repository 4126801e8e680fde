"""`python -m experiments table1 ... table8`: the paper's tables made anew, beside what it prints.

Other commands, each with its own --help: theory, real, person, missing, figure.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from experiments import sme, sme_table
from experiments.draws import Cell
from experiments.judge import JUDGE_NAMES
from experiments.methods import MECHANISMS, METHODS, NEEDS_TORCH, ORACLE, TABLES
from experiments.missing import command as missing
from experiments.page import render
from experiments.paper import read_tables
from experiments.person import command as person
from experiments.provenance import describe_run
from experiments.readme_figure import main as make_figure
from experiments.real import command as real
from experiments.results import (
    NOISELESS,
    complete_shares,
    count_verdicts,
    read_cells,
    summarise,
    write_csv,
)
from experiments.runner import BACKENDS, SMALL_DESIGN, Settings, list_tasks, list_wanted, run_all
from experiments.store import write_text
from experiments.theory import command as theory
from verticopula.errors import SettingsError

SME = "table8"
COMMANDS: Mapping[str, Callable[[Sequence[str], Console], int]] = {
    "theory": theory.main,
    "real": real.main,
    "person": person.main,
    "missing": missing.main,
    "figure": make_figure,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, then write the CSV files and `results.html`; or one of the other commands."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        if given and given[0] in COMMANDS:
            return COMMANDS[given[0]](given[1:], console)
        options = parse(given)
        run(options, f"python -m experiments {shlex.join(given)}", console)
    except SettingsError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 2
    except OSError as error:  # a file that is not there, a folder that is a file
        console.print(f"error: {error.filename}: {error.strerror}", style="red", markup=False)
        return 2
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("tables", nargs="+", choices=[*TABLES, SME], metavar="table", help="table1 ... table8")
    parser.add_argument("--sizes", nargs="+", type=int, help="N; default: the paper's 1000 3000 5000")
    parser.add_argument("--epsilons", nargs="+", type=float, help="of unit variable; default: the paper's")
    parser.add_argument(
        "--methods", nargs="+", metavar="METHOD", help="row labels; default: the table's, less Vertigan"
    )
    parser.add_argument("--models", nargs="+", choices=["linear", "logistic"])
    parser.add_argument(
        "--mechanisms", nargs="+", choices=MECHANISMS, help="how blocks go missing in tables 4 to 7; default: all"
    )
    parser.add_argument(
        "--replications", type=int, default=30, help="data sets per cell; splits in table8 (at most 10)"
    )
    parser.add_argument(
        "--judge", choices=JUDGE_NAMES, default="bayes", help="which regression, of tables 1 to 7; see the README"
    )
    parser.add_argument("--gan", action="store_true", help="with Vertigan (slow; pip install 'verticopula[gan]')")
    parser.add_argument("--subjects", type=int, default=sme.SUBJECTS, help="of table8")
    parser.add_argument("--small-design", action="store_true", help="15 columns instead of 100: to see that all runs")
    parser.add_argument("--backend", choices=BACKENDS, default="loky", help="of joblib")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("experiments-out"), help="a folder; what is in it is kept")
    options = parser.parse_args(argv)
    for name in options.methods or ():
        if name not in METHODS:
            parser.error(f"unknown method {name!r}; known: {', '.join(METHODS)}")
    for number in (options.replications, options.jobs, *(options.sizes or ())):
        if number < 1:
            parser.error("sizes, replications and jobs are whole numbers of at least 1")
    if any(not 0.0 < epsilon < NOISELESS for epsilon in options.epsilons or ()):
        parser.error(f"epsilons lie between 0 and {NOISELESS:g}, from where on no coin flips")
    if options.tables == [SME] and options.epsilons:
        parser.error(f"{SME} has one epsilon, {sme.EPSILON:g}")
    return options


def run(options: argparse.Namespace, command: str, console: Console) -> None:
    """All that `main` does but for errors; the page shows the command."""
    settings = Settings(options.judge, SMALL_DESIGN if options.small_design else None)
    names = [name for name in TABLES if name in options.tables]
    wanted: dict[Cell, tuple[tuple[str, float | None], ...]] = {}
    for name in names:
        for cell, pairs in choose_cells(name, options).items():
            wanted[cell] = tuple(dict.fromkeys((*wanted.get(cell, ()), *pairs)))
    if names and not wanted:
        raise SettingsError(f"{', '.join(names)}: none has such a model, such methods or such mechanisms")
    methods = [m for m in sme.SME_METHODS if options.methods is None or m in options.methods]
    if options.tables == [SME] and not methods:
        raise SettingsError(f"none of these methods is in {SME}; it has {', '.join(sme.SME_METHODS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    read_cells(options.out, settings.record)  # one page cannot show two judges or designs
    tasks = list_tasks(wanted, options.replications, settings, options.out)
    total = len(wanted) * options.replications
    if wanted:
        console.print(f"{total} data sets in {len(wanted)} cells, {len(tasks)} of them not finished yet")
    run_all(tasks, settings, options.out, backend=options.backend, jobs=options.jobs)
    if SME in options.tables:
        sme_table.run(
            options.out,
            subjects=options.subjects,
            splits=min(options.replications, sme.SPLITS),
            methods=methods,
            backend=options.backend,
            jobs=options.jobs,
        )
    report(options.out, options.subjects, settings, command, console)


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


def report(folder: Path, subjects: int, settings: Settings, command: str, console: Console) -> None:
    """CSV files and the page, from everything that the folder holds; the paper's beside its own design alone."""
    cells, paper = read_cells(folder), {} if settings.design else read_tables()
    found = {name: summarise(name, cells, paper) for name in TABLES}
    tables = {name: figures for name, figures in found.items() if any(f.key.method != ORACLE for f in figures)}
    for name, figures in tables.items():
        write_csv(folder / f"{name}.csv", figures)
        counts = count_verdicts(figures)
        console.print(f"{name}: {', '.join(f'{count} {word}' for word, count in counts.items())}")
    seconds = sum(entry.seconds for found in cells for row in found.rows for entry in row.entries.values())
    made_by = describe_run(command, seconds) + " All that earlier runs left in the folder is shown and counted, too."
    page = render(tables, settings.judge, paper, made_by, sme_table.render(folder, subjects), complete_shares(cells))
    write_text(folder / "results.html", page)
    failed = sum(figure.failures for figures in tables.values() for figure in figures)
    if failed:
        console.print(f"{failed} answers are missing because a method failed on a data set; the page says where")
    written = sorted(path.name for path in folder.glob("table*.csv"))
    console.print(f"written to {folder}/: {', '.join(written)}, results.html")


if __name__ == "__main__":
    sys.exit(main())
