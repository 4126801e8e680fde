"""Messages that are too long to be held as bytes: written to a file piece by piece, and read from it likewise."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from verticopula.protocol.wire import bytes_of

Body = bytes | Path  # an encoded message: its bytes, or the file that has them


def encode_or_write(message: Any, path: Path, most_in_memory: int) -> Body:
    """A message's bytes; where there are more than so many, the path, with the bytes in the file.

    Nothing as long as the message is made in memory. Raises as `wire.encode` does.

    Parameters
    ----------
    message : as `wire.encode` takes it
    path : of a new file, in a folder that nobody else can read; it is made where there is none
    most_in_memory : bytes
    """
    size, pieces = bytes_of(message)
    if size <= most_in_memory:
        return b"".join(pieces)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        for piece in pieces:
            file.write(piece)
    return path


def body_size(body: Body) -> int:
    """How many bytes an encoded message has.

    Parameters
    ----------
    body : the bytes, or the file
    """
    return body.stat().st_size if isinstance(body, Path) else len(body)
