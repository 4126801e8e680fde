"""`python -m benchmarks [names...] [--quick]`."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys

from rich.console import Console

from benchmarks.record import Places, save, show

# Those in DEFAULT need nothing but the development environment and half an hour; `missing` takes as
# long again, and `sdv` makes an environment of its own.
DEFAULT = ("coins", "memory", "growth", "errors", "accuracy", "refinement")
ALL = (*DEFAULT, "missing", "missing_reference", "sdv")


def main(argv: list[str] | None = None) -> None:
    """Run the named benchmarks, print their tables and keep their results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(ALL)}; default: the first six")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.names) - set(ALL))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(ALL)}")
    console = Console(width=None if sys.stdout.isatty() else 160)
    places = Places.of(quick=arguments.quick)
    for name in arguments.names or DEFAULT:
        console.rule(name)
        report = importlib.import_module(f"benchmarks.{name}").run(places, quick=arguments.quick)
        show(report, console)
        command = ["python", "-m", "benchmarks", name, *(["--quick"] if arguments.quick else [])]
        console.print(f"kept in {save(report, places, shlex.join(command)).name}")


if __name__ == "__main__":
    main()
