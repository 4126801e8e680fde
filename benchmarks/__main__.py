"""`python -m benchmarks [names...] [--quick]`."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys

from rich.console import Console

from benchmarks.record import Places, save, show

# Those in DEFAULT need nothing but the development environment and half an hour; those in GLM take as
# long again, and `sdv` and `smartnoise` make environments of their own.
DEFAULT = ("coins", "memory", "growth", "errors", "refinement")
GLM = ("glm_agreement", "glm_rounds", "glm_speed", "glm_original", "glm_bayes", "glm_coverage")
PLANNING = ("forecast", "forecast_strict", "planning", "audit")
ALL = (
    *DEFAULT,
    *GLM,
    *PLANNING,
    "certainty",
    "network",
    "faults",
    "intruders",
    "secure_sums",
    "strict",
    "strict_audit",
    "strict_cost",
    "sdv",
    "smartnoise",
)


def main(argv: list[str] | None = None) -> None:
    """Run the named benchmarks, print their tables and keep their results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(ALL)}; default: the first five")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument(
        "--part",
        action="append",
        default=[],
        help="measure only this part of a benchmark that has parts, such as `ievcds` of `refinement`; may be "
        "repeated; the other parts are kept from the last results",
    )
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.names) - set(ALL))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(ALL)}")
    console = Console(width=None if sys.stdout.isatty() else 160)
    places = Places.of(quick=arguments.quick)
    for name in arguments.names or DEFAULT:
        console.rule(name)
        benchmark = importlib.import_module(f"benchmarks.{name}")
        foreign = sorted(set(arguments.part) - set(getattr(benchmark, "PARTS", ())))
        if foreign:
            parser.error(f"{name} has no part {', '.join(foreign)}")
        parts = {"parts": arguments.part} if arguments.part else {}
        report = benchmark.run(places, quick=arguments.quick, **parts)
        show(report, console)
        options = [*(["--quick"] if arguments.quick else []), *(f"--part={part}" for part in arguments.part)]
        command = ["python", "-m", "benchmarks", name, *options]
        console.print(f"kept in {save(report, places, shlex.join(command)).name}")


if __name__ == "__main__":
    main()
