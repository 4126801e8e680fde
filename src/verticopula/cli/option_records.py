"""Options that belong together: fields of a dataclass, which a command takes as one argument.

Typer reads a command's signature. `with_options` shows it one in which every such argument stands as its fields.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer is to see it: with the fields of a dataclass in place of the argument.

    Parameters
    ----------
    command : some of whose arguments are dataclasses of options
    """
    own = inspect.signature(command, eval_str=True).parameters
    shown = inspect.Signature([each for argument in own.values() for each in _shown(argument)])

    @functools.wraps(command)
    def call(*arguments: Any, **options: Any) -> None:
        bound = shown.bind(*arguments, **options)
        bound.apply_defaults()
        given = bound.arguments
        command(**{name: _put_together(argument, given) for name, argument in own.items()})

    call.__signature__ = shown  # type: ignore[attr-defined]
    return call


def _shown(argument: inspect.Parameter) -> Iterator[inspect.Parameter]:
    if not is_dataclass(argument.annotation):
        yield argument
        return
    types = get_type_hints(argument.annotation, include_extras=True)
    for one in fields(argument.annotation):
        yield inspect.Parameter(one.name, argument.kind, default=one.default, annotation=types[one.name])


def _put_together(argument: inspect.Parameter, given: Mapping[str, Any]) -> Any:
    if not is_dataclass(argument.annotation):
        return given[argument.name]
    make: Callable[..., Any] = argument.annotation  # type: ignore[assignment]
    return make(**{one.name: given[one.name] for one in fields(argument.annotation)})
