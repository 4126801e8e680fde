"""Replies that hold one part for every column of a party, in the federation's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from verticopula.errors import ProtocolError
from verticopula.protocol.messages import Reply
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation

ColumnsReply = TypeVar("ColumnsReply")
Part = TypeVar("Part")


def column_parts(
    federation: Federation,
    replies: Mapping[str, Reply],
    kind: type[ColumnsReply],
    parts_of: Callable[[ColumnsReply], Sequence[Part]],
    what: str,
) -> Iterator[tuple[ColumnKey, Part]]:
    """Every column and its part of the reply; ProtocolError for a party that did not answer for all of its columns.

    Parameters
    ----------
    kind : of reply that every party must give
    parts_of : reply -> its parts
    what : they were asked for, for the error
    """
    for party in federation.parties:
        reply = replies.get(party.name)
        parts = parts_of(reply) if isinstance(reply, kind) else ()
        if len(parts) != len(party.columns):
            raise ProtocolError(f"party {party.name!r} did not answer with {what}")
        for column, part in zip(party.columns, parts, strict=True):
            yield ColumnKey(party.name, column.name), part
