"""What a message and its fields are called on the wire; without any message, so that it is imported in no time."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def kind_name(kind: Any) -> str:
    """What a message type is called on the wire and in fingerprints: its own name, or its `WIRE_NAME`."""
    return str(getattr(kind, "WIRE_NAME", kind.__name__))


def sent_fields(message: Any) -> list[str]:
    """The names of a message's fields, without those that came later (`LATER`) and hold their default."""
    later = getattr(message, "LATER", ())
    return [f.name for f in fields(message) if f.name not in later or getattr(message, f.name) != f.default]
