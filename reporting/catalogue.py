"""The command line of `python -m benchmarks` and `python -m experiments`: what can be run, and how.

What can be run is a module with

- `run(options)`, which measures and returns settings and results (left out where all is made of saved results);
- `present(record, places)`, which writes pages, figures and CSV files from the saved record, and returns tables;
- optionally `PARTS`, parts that can be measured alone, `add_options(parser)` and `check(options, parser)`.

Pages are always made of what was saved, so `--page` makes them again without measuring anything.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from reporting.parallel import BACKENDS
from reporting.records import Record
from verticopula.errors import SettingsError

Measured = tuple[Mapping[str, Any], Mapping[str, Any]]  # settings and results
FLAGS = ("--quick", "--page")


@dataclass(frozen=True)
class Entry:
    """One name of the catalogue.

    Attributes
    ----------
    module : imported when it is needed; names that share a module run together
    saved_as : the name of the saved record, without `.json`
    measures, takes, writes : for the help
    """

    module: str
    saved_as: str
    measures: str
    takes: str
    writes: str


@dataclass(frozen=True)
class Places:
    """Folders for saved results, figures and pages."""

    results: Path
    images: Path
    pages: Path

    @classmethod
    def together(cls, folder: Path) -> Places:
        """Everything in one folder."""
        return cls(folder, folder, folder)


@dataclass(frozen=True)
class Catalogue:
    """Everything that one program can run.

    Attributes
    ----------
    default : the names that run if none is given
    find_places : from `--out` (None: not given) and `--quick`
    """

    program: str
    about: str
    entries: Mapping[str, Entry]
    find_places: Callable[[Path | None, bool], Places]
    default: tuple[str, ...] = ()

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run what is named; the exit status."""
        console = Console(width=None if sys.stdout.isatty() else 160)
        try:
            runs = self._parse(list(sys.argv[1:] if argv is None else argv))
            for module, options in runs:
                self._run(module, options, console)
        except SettingsError as error:
            console.print(f"error: {error}", style="red", markup=False)
            return 2
        except OSError as error:  # a file that is not there, a folder that is a file
            console.print(f"error: {error.filename}: {error.strerror}", style="red", markup=False)
            return 2
        return 0

    def _parse(self, words: list[str]) -> list[tuple[ModuleType, argparse.Namespace]]:
        """The modules to run with their options; exits with a message where something is wrong."""
        names: list[str] = []
        flags: list[str] = []
        while words and (words[0] in self.entries or words[0] in FLAGS):
            (flags if words[0] in FLAGS else names).append(words.pop(0))
        rest = flags + words
        if not names:
            overview = self._overview()
            if words and not words[0].startswith("-"):
                overview.error(f"unknown: {words[0]}; known: {', '.join(self.entries)}")
            if not self.default or words[:1] in (["-h"], ["--help"]):
                overview.parse_args(rest)
                overview.error("name what to run")
        groups: dict[str, list[str]] = {}
        for name in names or self.default:
            groups.setdefault(self.entries[name].module, []).append(name)
        return [self._parse_group(importlib.import_module(name), own, rest) for name, own in groups.items()]

    def _parse_group(
        self, module: ModuleType, names: list[str], rest: list[str]
    ) -> tuple[ModuleType, argparse.Namespace]:
        about = "\n\n".join(f"{name}: {self._describe(self.entries[name])}" for name in names)
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.program} {' '.join(names)}",
            description=f"{about}\n\n{module.__doc__ or ''}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_common(parser)
        if hasattr(module, "PARTS"):
            parser.add_argument(
                "--part",
                action="append",
                dest="parts",
                choices=module.PARTS,
                help="measure only this part; may be repeated; the others are kept from the last results",
            )
        if hasattr(module, "add_options"):
            module.add_options(parser)
        options = parser.parse_args(rest)
        options.names = names
        options.command = f"python -m {self.program} {shlex.join([*names, *rest])}"
        options.places = self.find_places(options.out, options.quick)
        if options.jobs < 1:
            parser.error("jobs is a whole number of at least 1")
        if hasattr(module, "check"):
            module.check(options, parser)
        return module, options

    def _run(self, module: ModuleType, options: argparse.Namespace, console: Console) -> None:
        options.console = console
        console.rule(" ".join(options.names))
        places: Places = options.places
        saved_as = self.entries[options.names[0]].saved_as
        path = places.results / f"{saved_as}.json"
        if hasattr(module, "PARTS"):
            options.kept = Record.read(path) if options.parts and path.exists() else Record(saved_as, {}, {})
            options.parts = options.parts or module.PARTS
        if hasattr(module, "run"):
            for folder in (places.results, places.images, places.pages):
                folder.mkdir(parents=True, exist_ok=True)
            if not options.page:
                Record.of_run(saved_as, *module.run(options), options.command).save(path)
            elif not path.exists():
                raise SettingsError(f"{path} is not there: measure first, without --page")
            record = Record.read(path)
            console.print(f"results: {path}", soft_wrap=True)
        else:
            record = Record(saved_as, vars(options), {})
        for table in module.present(record, places):
            table.show(console)

    def _overview(self) -> argparse.ArgumentParser:
        lines = [self.about.strip(), ""]
        for name, entry in self.entries.items():
            text = textwrap.wrap(self._describe(entry), 90, break_on_hyphens=False)
            lines.append(f"  {name:<15} " + f"\n{' ' * 18}".join(text))
        default = f"Without a name: {', '.join(self.default)}." if self.default else ""
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.program}",
            usage=f"python -m {self.program} NAME... [options]",
            description="\n".join(lines),
            epilog=f"{default} `python -m {self.program} NAME --help` has the other options of a name.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_common(parser)
        return parser

    @staticmethod
    def _describe(entry: Entry) -> str:
        return f"{entry.measures} Takes {entry.takes}. Writes {entry.writes}."


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--page", action="store_true", help="measure nothing: make pages and figures of saved results")
    parser.add_argument("--out", type=Path, help="one folder for everything that is written; what is in it is kept")
    parser.add_argument("--jobs", type=int, default=1, help="processes, where there are many tasks")
    parser.add_argument("--backend", choices=BACKENDS, default="loky", help="of joblib")
