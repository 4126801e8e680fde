"""Applies one small mistake at a time to a copy of the sources, and says which ones no test notices.

`python -m tests.mutation [--only NAME ...]` exits with 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "verticopula"
_LONGEST = 1200  # seconds; a mutant that runs out of time was not killed by a test
_MARKERS = "not slow and not network and not gan and not install"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes
    ----------
    file : inside the package
    old, new : `old` occurs once in the file, and is replaced
    why : what the mistake would cost
    tests : files, or single tests, of which one must fail
    equivalent : the argument that nobody can tell the difference; such a mutant is listed and not run
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    equivalent: str = field(default="", kw_only=True)


class Verdict(NamedTuple):
    """`killed`, `survived`, or `failed`, where something else than a test stopped the run; and what it was."""

    what: str
    by: str


def one_of(files: tuple[str, ...], name: str) -> tuple[str, ...]:
    """One test of a file that takes long."""
    return (f"{files[0]}::test_{name}",)


class MutantError(Exception):
    """A mutant does not fit the sources, or the tests fail without any."""


def mutate(text: str, mutant: Mutant) -> str:
    """The file's text with the mistake in it; MutantError unless the old text occurs exactly once."""
    count = text.count(mutant.old)
    if count != 1:
        raise MutantError(f"{mutant.name}: its text occurs {count} times in {mutant.file}, not once")
    return text.replace(mutant.old, mutant.new)


def check_mutants(mutants: Sequence[Mutant], source: Path, root: Path) -> None:
    """MutantError lists every mutant that does not fit the sources, or names a test that is not there."""
    names = Counter(mutant.name for mutant in mutants)
    problems = [f"{name}: the name is taken" for name, count in names.items() if count > 1]
    for mutant in mutants:
        missing = (name for name in mutant.tests if not _is_test(root, name))
        problems += [f"{mutant.name}: there is no {name}" for name in missing]
        try:
            mutate((source / PACKAGE / mutant.file).read_text(encoding="utf-8"), mutant)
        except (MutantError, OSError) as error:
            problems.append(str(error))
    if problems:
        raise MutantError("\n".join(problems))


def _is_test(root: Path, name: str) -> bool:
    """Whether there is this test file, or this function in it (pytest is silent on one that its file's name covers)."""
    file, _, function = name.partition("::")
    path = root / file
    return path.is_file() and (not function or f"def {function}(" in path.read_text(encoding="utf-8"))


def copy_source(source: Path, folder: Path, mutant: Mutant | None = None) -> Path:
    """A copy of the sources with the mistake in it, and with what was compiled before, as far as it is still true."""
    target = folder / "src"
    shutil.copytree(source, target)
    if mutant is not None:
        path, text = target / PACKAGE / mutant.file, (source / PACKAGE / mutant.file).read_text(encoding="utf-8")
        path.write_text(mutate(text, mutant), encoding="utf-8")
        # Compiled functions of other files may have this one's inside, and are not renewed.
        for kept in target.rglob("*.nb[ic]") if "njit" in text else ():
            kept.unlink()
    return target


def run_tests(source: Path, tests: Sequence[str], root: Path, longest: float = _LONGEST) -> Verdict:
    """What the tests say about the sources in this folder."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", _MARKERS, *tests]
    try:
        done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=longest)
    except subprocess.TimeoutExpired:
        return Verdict("failed", f"no answer after {longest:g} seconds")
    failed = _FAILED.search(done.stdout)
    if done.returncode == 1 and failed:
        return Verdict("killed", failed[1])
    return Verdict("survived", "") if done.returncode == 0 else Verdict("failed", done.stdout[-2000:] + done.stderr)


def run_mutant(mutant: Mutant, source: Path, root: Path) -> Verdict:
    """What its tests say about one mutant."""
    with tempfile.TemporaryDirectory() as folder:
        return run_tests(copy_source(source, Path(folder), mutant), mutant.tests, root)


def main(mutants: Sequence[Mutant], arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """0 if every mutant is killed, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this mutant (may be repeated)")
    only = set(parser.parse_args(arguments).only)
    if only - {mutant.name for mutant in mutants}:
        parser.error("there is no such mutant")
    with tempfile.TemporaryDirectory() as folder:
        check_mutants(mutants, root / "src", root)
        chosen = [m for m in mutants if not m.equivalent and (not only or m.name in only)]
        plain = copy_source(root / "src", Path(folder))
        print(f"{len(chosen)} mutants; first their tests without any", flush=True)
        before = run_tests(plain, sorted({name for mutant in chosen for name in mutant.tests}), root, 10 * _LONGEST)
        if before.what != "survived":
            raise MutantError(f"the tests fail without any mutant: {before.by}")
        with ThreadPoolExecutor(max_workers=2) as pool:
            left, verdicts = [], pool.map(lambda mutant: run_mutant(mutant, plain, root), chosen)
            for mutant, verdict in zip(chosen, verdicts, strict=True):
                print(f"{verdict.what:<9}{mutant.name}  {verdict.by}", flush=True)
                if verdict.what != "killed":
                    left.append(mutant)
    for mutant in left:
        print(f"NOT KILLED {mutant.name} ({mutant.file}): {mutant.why}")
    killed, equivalent = len(chosen) - len(left), sum(bool(mutant.equivalent) for mutant in mutants)
    spent = os.times().children_user + os.times().children_system
    print(f"{killed} of {len(chosen)} killed, {equivalent} equivalent; {spent:.0f} s of processor time")
    return 1 if left else 0
