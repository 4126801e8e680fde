"""What several commands share: options, the progress bar, and whether FLARE is there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import progress as rich_progress
from rich.console import Console

from verticopula.errors import SettingsError
from verticopula.schema.dependence import COPULA_DEPENDENCE, TILTED_DEPENDENCE
from verticopula.schema.methods import (
    DEFAULT_METHOD,
    OWN_VARIANT,
    PRINTED_VARIANT,
    REFINED,
    STRICT,
    methods_help,
    printed_help,
)
from verticopula.schema.printed_choices import RANK_CORRELATIONS
from verticopula.schema.progress import Progress

FederationFile = Annotated[Path, typer.Argument(help="The federation file (TOML).", show_default=False)]
Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon", "-e", help="Privacy budget; what it bounds is said by --unit. Default 1, half for ranks, if any."
    ),
]
ConditionTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--condition",
        help="What all synthetic rows are to have in a column, such as agency.default=1 or bank.income=1000..5000; "
        "may be given several times.",
        metavar="PARTY.COLUMN=VALUE",
    ),
]
MissingName = Annotated[
    str | None,
    typer.Option(
        "--missing",
        help="Gaps in synthetic tables: complete for none, as-observed for as many as there are. Default: empty "
        f"values by method {STRICT.name}, no gaps by others.",
        show_default=False,
    ),
]
Delta = Annotated[float | None, typer.Option("--delta", help="Needed for units block and person, e.g. 1e-6.")]
UnitName = Annotated[
    str | None,
    typer.Option(
        "--unit",
        help="What epsilon bounds: variable (one comparison or value in one column), client (the same, over a party's "
        "columns), block (one person's whole block at a party), person (one person's data at all parties). "
        f"Default: person for method {STRICT.name}, client otherwise.",
        show_default=False,
    ),
]
MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        help=f"{methods_help()}.",
    ),
]
ChosenMethod = Annotated[
    str | None,
    typer.Option(
        "--method",
        help=f"{methods_help()}. Default: {REFINED.name} where blocks are missing, {DEFAULT_METHOD.name} otherwise.",
        show_default=False,
    ),
]
AsPrinted = Annotated[bool, typer.Option(f"--{PRINTED_VARIANT}", help=printed_help())]
RankCorrelationName = Annotated[
    str,
    typer.Option("--rank-correlation", help=f"With --{PRINTED_VARIANT}: {' or '.join(RANK_CORRELATIONS)}."),
]
DependenceName = Annotated[
    str,
    typer.Option(
        "--dependence",
        help=f"Methods that rank: {COPULA_DEPENDENCE}, or {TILTED_DEPENDENCE} by tables of the same ranks, at no cost.",
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Reproducible, and therefore NOT PRIVATE. For simulation only.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the tables of a study already in --out.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but errors.")]


def variant_of(as_printed: bool) -> str:
    """The variant that --as-printed asks for, or ours."""
    return PRINTED_VARIANT if as_printed else OWN_VARIANT


def whole_epsilon(epsilon: float | None, ranks: float | None, margins: float | None) -> float | None:
    """What --epsilon means beside its two parts: 1 if nothing is given; SettingsError if all are."""
    if epsilon is not None and (ranks is not None or margins is not None):
        raise SettingsError("give either --epsilon, or --epsilon-ranks and --epsilon-marginals")
    return 1.0 if epsilon is None and ranks is None and margins is None else epsilon


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress]:
    """A progress bar on standard error; none if quiet or not a terminal."""
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    # Not what the console thinks: notebooks and build servers ask for colours without being a terminal.
    hidden = quiet or not sys.stderr.isatty()
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bars:
        task = bars.add_task("starting", total=None)

        def show(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield show


def need_flare() -> None:
    """SettingsError unless NVIDIA FLARE is installed, which everything between organisations needs."""
    if importlib.util.find_spec("nvflare") is None:
        raise SettingsError("this needs NVIDIA FLARE: pip install 'verticopula[nvflare]'")
