"""How a function of a chunk is run on a worker: by the same versions as here, and without an error that quotes a cell.

A function that fails returns a `Failure`. An exception would be logged by the worker together with what the function
was given, and libraries put cells into their messages.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from verticopula.errors import EngineError, Problem, SchemaError, VerticopulaError


def describe_versions() -> str:
    """The versions that the numbers of a study may depend on."""
    python = ".".join(platform.python_version_tuple()[:2])
    own = importlib.metadata.version("verticopula")
    return f"verticopula {own}, Python {python}, numpy {np.__version__}, polars {pl.__version__}"


@dataclass(frozen=True, repr=False)
class Secret:
    """Bytes that a worker needs and nobody may see: without a repr, so that no log has them."""

    value: bytes = field(repr=False)


@dataclass(frozen=True)
class Failure:
    """Why a function of a chunk gave no result.

    Attributes
    ----------
    message : in words, without any cell
    problems : of the party's files, where they are the reason
    """

    message: str
    problems: tuple[Problem, ...] = ()

    def error(self) -> VerticopulaError:
        """To be raised where the result is wanted."""
        return SchemaError(self.problems) if self.problems else EngineError(self.message)


def run_task(versions: str, function: Callable[..., Any], *given: Any) -> Any:
    """What the function returns, or a `Failure`.

    Parameters
    ----------
    versions : those of the process that started the study
    function, given : what is to be computed
    """
    found = describe_versions()
    if found != versions:
        return Failure(tell_versions_apart(versions, {found}))
    failed = next(_failures(given), None)
    if failed is not None:
        return failed
    try:
        return function(*given)
    except SchemaError as error:
        return Failure("", error.problems)
    except VerticopulaError as error:
        return Failure(str(error))
    except Exception as error:
        kind = type(error).__name__  # its message may hold a cell
    return Failure(f"{function.__name__} failed on a worker ({kind}); more is not said, as it may hold a cell")


def tell_versions_apart(here: str, there: Iterable[str]) -> str:
    """What to do about workers that run something else.

    Parameters
    ----------
    here : versions of the process that started the study
    there : those of workers
    """
    others = "; ".join(sorted(set(there) - {here}))
    return f"workers of the engine have {others}, this process has {here}: numbers could differ. Install the same"


def _failures(given: Iterable[Any]) -> Iterator[Failure]:
    for value in given:
        if isinstance(value, Failure):
            yield value
        elif isinstance(value, list):
            yield from _failures(value)
