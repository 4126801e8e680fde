"""What is said about a message that travels in parts: that it is there, which part is wanted, and the part.

The receiver asks for one part after the other. So it never holds more than one, a sender that ignores this is noticed
at once, and after an interruption the receiver asks for what it lacks and for nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.protocol.message_files import Body, body_size
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.wire import encode

DIGEST_BYTES = 32
LEAST_PART = 1 << 20  # bytes; of shorter ones there would be many, so nobody asks for them, and nobody gets them


@dataclass(frozen=True)
class PartsNotice:
    """A message can be asked for, part by part. The envelope has the key of its request.

    Attributes
    ----------
    topic : of the message
    study : which it is about, so that it is forgotten when the study ends; "" for none
    size : bytes of the whole message
    part_bytes : of every part but the last, which has the rest
    digests : (parts, 32) SHA-256 of every part
    """

    topic: Literal["ask", "answer"]
    study: str
    size: int
    part_bytes: int
    digests: NDArray[np.uint8]
    version: int = MESSAGE_VERSION

    @cached_property
    def name(self) -> str:
        """A hash of everything above: equal messages that are cut in the same way have equal ones."""
        return hashlib.sha256(encode(self)).hexdigest()

    @property
    def parts(self) -> int:
        return len(self.digests)

    def length(self, number: int) -> int:
        """How many bytes a part has."""
        return min(self.part_bytes, self.size - number * self.part_bytes)

    def check(self, most_part: int, most_bytes: int) -> None:
        """ProtocolError unless its numbers fit together, and its receiver takes such a message.

        Parameters
        ----------
        most_part : bytes of a part, where none is shorter than `LEAST_PART` unless this is
        most_bytes : of a message
        """
        if self.size > most_bytes:
            raise ProtocolError(f"a message of {self.size:,} bytes is announced, and at most {most_bytes:,} are taken")
        if not min(LEAST_PART, most_part) <= self.part_bytes <= most_part or self.size <= self.part_bytes:
            raise ProtocolError(
                "a message is announced in parts that are no parts, or shorter or longer than one may be"
            )
        if self.digests.shape != (-(-self.size // self.part_bytes), DIGEST_BYTES):
            raise ProtocolError("a message is announced with more or fewer parts than its size has")


@dataclass(frozen=True)
class PartRequest:
    """Send this part. The number after the last one says that nothing is lacking any more.

    `name` : of the message, as its notice has it
    """

    name: str
    number: int
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class MessagePart:
    """One part of a message."""

    name: str
    number: int
    data: NDArray[np.uint8]
    version: int = MESSAGE_VERSION


def announce(topic: Literal["ask", "answer"], study: str, body: Body, part_bytes: int) -> PartsNotice:
    """The notice of a message.

    Parameters
    ----------
    topic, study, part_bytes : as the notice has them
    body : the message
    """
    digests = b"".join(hashlib.sha256(part).digest() for part in _parts_of(body, part_bytes))
    table = np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    return PartsNotice(topic, study, body_size(body), part_bytes, table)


def read_part(body: Body, notice: PartsNotice, number: int) -> bytes:
    """One part's bytes.

    Parameters
    ----------
    body : the message
    notice : of it
    number : of the part, from 0
    """
    start = number * notice.part_bytes
    if isinstance(body, bytes):
        return body[start : start + notice.length(number)]
    with body.open("rb") as file:
        file.seek(start)
        return file.read(notice.length(number))


def _parts_of(body: Body, part_bytes: int) -> Iterator[bytes]:
    if isinstance(body, Path):
        with body.open("rb") as file:
            while part := file.read(part_bytes):
                yield part
    else:
        yield from (body[start : start + part_bytes] for start in range(0, len(body), part_bytes))
