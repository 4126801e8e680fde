"""What a message and its fields are called on the wire; without any message, so that it is imported in no time."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, get_args


def kind_name(kind: Any) -> str:
    """What a message type is called on the wire and in fingerprints: its own name, or its `WIRE_NAME`."""
    return str(getattr(kind, "WIRE_NAME", kind.__name__))


def sent_fields(message: Any) -> list[str]:
    """The names of a message's fields, without those that came later (`LATER`) and hold their default."""
    kind: Any = type(message)
    always, later = _split_fields(kind)
    if not later:
        return list(always)
    return [name for name in always if name not in later or getattr(message, name) != later[name]]


@cache
def _split_fields(kind: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of all fields of a message type, and the defaults of those that came later."""
    found = fields(kind)
    came_later = getattr(kind, "LATER", ())
    return tuple(f.name for f in found), {f.name: f.default for f in found if f.name in came_later}


def kinds_of(union: Any) -> tuple[type, ...]:
    """The types of a union, of unions in it too."""
    parts = get_args(union)
    return tuple(member for part in parts for member in kinds_of(part)) if parts else (union,)
