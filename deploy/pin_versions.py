"""Writes `constraints.txt`: the version of everything that the image installs, as this environment has it.

`make deploy-constraints` runs it in the environment that the tests passed in.
"""

from __future__ import annotations

import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("nvflare", "operations")  # as the Containerfile installs it
FILE = Path(__file__).with_name("constraints.txt")


def requirements() -> list[Requirement]:
    """What the package and these extras ask for."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for e in EXTRAS for line in project["optional-dependencies"][e])]
    return [Requirement(line) for line in lines]


def installed_versions() -> dict[str, str]:
    """Name -> version of everything that is needed here."""
    found: dict[str, str] = {}
    waiting, seen = requirements(), set()
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        own = distribution(wanted.name)
        found[key[0]] = own.version
        for line in own.requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                waiting.append(needed)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    lines = [f"{name}=={version}\n" for name, version in installed_versions().items()]
    FILE.write_text("# Written by `make deploy-constraints`.\n" + "".join(lines), encoding="ascii")
