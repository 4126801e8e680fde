"""What all commands share: options and the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

OnProgress = Callable[[str, int, int], None]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but errors.")]


@contextmanager
def progress_bar(quiet: bool) -> Iterator[OnProgress]:
    """A progress bar on standard error; none if quiet or not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bars:
        task = bars.add_task("starting", total=None)

        def show(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield show
