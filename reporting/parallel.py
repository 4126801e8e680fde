"""Many tasks in parallel processes, with a bar that knows how long the rest will take."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from verticopula.errors import SettingsError

BACKENDS = ("loky", "dask", "ray")
T = TypeVar("T")


def run_all(
    function: Callable[..., Any],
    tasks: Sequence[T],
    *settings: Any,
    label: str,
    backend: str = "loky",
    jobs: int = 1,
    cost: Callable[[T], float] = lambda task: 1.0,
) -> Iterator[Any]:
    """`function(task, *settings)` for every task; answers as they come. `cost` is roughly the processor time."""
    if not tasks:
        return
    calls = (delayed(_call)(function, number, task, settings) for number, task in enumerate(tasks))
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    # ray's back end hands answers over at the end only
    order = "list" if backend == "ray" else "generator_unordered"
    with (
        ready_backend(backend, jobs),
        parallel_config(backend=backend, n_jobs=jobs),
        Progress(*columns, TextColumn("left:"), TimeRemainingColumn(elapsed_when_finished=True)) as progress,
    ):
        bar = progress.add_task(f"0 of {len(tasks)} {label}", total=sum(map(cost, tasks)))
        for done, (number, answer) in enumerate(Parallel(return_as=order, batch_size=1)(calls), start=1):
            progress.update(bar, advance=cost(tasks[number]), description=f"{done} of {len(tasks)} {label}")
            yield answer


def _call(function: Callable[..., Any], number: int, task: object, settings: Sequence[Any]) -> tuple[int, Any]:
    return number, function(task, *settings)


@contextmanager
def ready_backend(backend: str, jobs: int) -> Iterator[None]:
    """A back end that joblib knows, with workers of its own unless the caller runs a cluster."""
    packages = {"dask": "distributed", "ray": "ray"}
    if backend not in BACKENDS:
        raise SettingsError(f"unknown back end {backend!r}; known: {', '.join(BACKENDS)}")
    if backend in packages and importlib.util.find_spec(packages[backend]) is None:
        raise SettingsError(f"back end {backend!r} needs another package: pip install 'verticopula[cluster]'")
    if backend == "dask":
        from distributed import Client, get_client  # type: ignore[import-not-found]

        try:
            get_client()
        except ValueError:
            with Client(n_workers=jobs, threads_per_worker=1):
                yield
            return
    elif backend == "ray":
        from ray.util.joblib import register_ray  # type: ignore[import-not-found]

        register_ray()
    yield
