"""A file of JSON lines that only grows, in which each line holds the hash of the one before.

For small histories that several processes add to, such as who withdrew and what was removed. A line may hold something
that the hash covers by its digest alone: it can be left out of a copy for others, and the chain still holds.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from verticopula.errors import LedgerError
from verticopula.storage.blobs import sync_folder
from verticopula.storage.json_digest import digest_json

Line = tuple[Mapping[str, Any], Any]

_FIRST = "0" * 64
_HELD = "held"


class ChainedFile:
    """Use it from any number of threads and processes.

    Parameters
    ----------
    path : the file; it is made, for its owner's eyes, when something is appended
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        """All lines, from old to new; LedgerError where they are not one chain.

        A last line without its end was cut off by a crash: whoever wrote it was told nothing yet, and it is left out.
        """
        try:
            with self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)  # nobody is in the middle of a line
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError:
            raise LedgerError(f"{self.path.name}: cannot be read") from None
        return _parse(self.path.name, data)

    def head(self) -> tuple[int, str]:
        """The number of lines and the last one's hash."""
        return head_of(self.lines())

    def append(self, make: Callable[[list[dict[str, Any]]], Line | None]) -> None:
        """Add a line, and see it on disk before returning.

        Parameters
        ----------
        make : called with all lines so far, while nobody else can append: what the line says, and what it holds that
            only its digest is part of every copy of; None where there is nothing to add
        """
        is_new = not self.path.exists()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            data = self.path.read_bytes()
            end = data.rfind(b"\n") + 1
            known = _parse(self.path.name, data)
            made = make(known)
            if made is None:
                return
            (said, held), (count, previous) = made, head_of(known)
            line = {**said, "number": count + 1, "previous": previous}
            line |= {} if held is None else {"holds": digest_json(held), _HELD: held}
            line["hash"] = _seal(line)
            try:
                os.ftruncate(file.fileno(), end)  # what a crash has cut off
                rest = (json.dumps(line, sort_keys=True, ensure_ascii=True) + "\n").encode("ascii")
                while rest:
                    rest = rest[os.write(file.fileno(), rest) :]
                os.fsync(file.fileno())
            except BaseException:
                os.ftruncate(file.fileno(), end)
                raise
        if is_new:
            sync_folder(self.path.parent)


def head_of(lines: list[dict[str, Any]]) -> tuple[int, str]:
    """The number of lines and the last one's hash."""
    return len(lines), str(lines[-1]["hash"]) if lines else _FIRST


def without_held(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines for somebody else's eyes; they are a chain still."""
    return [{name: value for name, value in line.items() if name != _HELD} for line in lines]


def check_contains(name: str, lines: list[dict[str, Any]], count: int, digest: str) -> None:
    """LedgerError unless a history has the line that was once its last.

    Parameters
    ----------
    name : of the file, for the message
    lines : as `ChainedFile.lines` has them
    count, digest : what `head_of` gave then
    """
    if count > 0 and (count > len(lines) or lines[count - 1]["hash"] != digest):
        raise LedgerError(f"{name} was put back from an old copy, or replaced; put back the newest copy")


def parse_chain(name: str, data: bytes) -> list[dict[str, Any]]:
    """The lines of a copy; LedgerError where they are not one chain, or the last one has no end."""
    if data and not data.endswith(b"\n"):
        raise LedgerError(f"{name}: the last line is cut off")
    return _parse(name, data)


def _parse(name: str, data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    previous = _FIRST
    for number, text in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            line = dict(json.loads(text))
            kept = line.get(_HELD)
            whole = kept is None or line["holds"] == digest_json(kept)
            fits = (line["number"], line["previous"], line["hash"]) == (number, previous, _seal(line))
        except (ValueError, KeyError, TypeError):
            raise LedgerError(f"{name}: line {number} cannot be read") from None
        if not fits or not whole:
            raise LedgerError(f"{name}: line {number} was altered, or lines before it are missing")
        previous = line["hash"]
        found.append(line)
    return found


def _seal(line: Mapping[str, Any]) -> str:
    return digest_json({name: value for name, value in line.items() if name not in ("hash", _HELD)})
