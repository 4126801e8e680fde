"""What the coordinator sends of a finished study, as files in the study lead's folder.

The coordinator chooses neither where they go nor what they are called: names that a study does not make are refused
before anything is written, no link below the folder is followed, and a file is never written into, only replaced.
A ledger is not even that: an earlier study's copy is kept beside the new one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from verticopula.errors import ProtocolError
from verticopula.network.connection.control_messages import ResultReply

_MEGABYTE = 2**20
_MOST_TEXT = 16 * _MEGABYTE  # what is printed, and read whole
_MOST_PAGE = 256 * _MEGABYTE  # what is parsed, or opened in a browser
_MOST_TABLE = 16_384 * _MEGABYTE
_MOST_BYTES = {".txt": _MOST_TEXT, ".html": _MOST_PAGE, ".json": _MOST_PAGE, ".jsonl": _MOST_PAGE, ".npz": _MOST_PAGE}
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def write_result(reply: ResultReply, out: Path, names: Collection[str], *, keep: Collection[str] = ()) -> list[Path]:
    """The study's files below a folder, and under their new names the earlier files that were kept beside them.

    Parameters
    ----------
    out : the folder, as the lead named it; it may itself be reached through a link
    names : `study_folder.file_names`; ProtocolError for any other name, before anything is written
    keep : names of files that are never lost: an earlier one that the new one does not continue gets a number
    """
    sent = [file.name for file in reply.files]
    if not set(sent) <= set(names) or len(set(sent)) != len(sent):
        raise ProtocolError("the coordinator sent a file whose name is none of this study's; nothing was written")
    for file in reply.files:
        if file.content.ndim != 1 or file.content.nbytes > _MOST_BYTES.get(Path(file.name).suffix, _MOST_TABLE):
            raise ProtocolError("the coordinator sent a file that is too large; nothing was written")
    out.mkdir(parents=True, exist_ok=True)
    kept = []
    for file in reply.files:
        *folders, name = file.name.split("/")
        with _folder_below(out, folders) as folder:
            content = file.content.tobytes()
            if file.name in keep and (beside := _keep_beside(folder, name, content)):
                kept.append(out.joinpath(*folders, beside))
            _replace_file(folder, name, content)
    return [*(out / name for name in sent), *kept]


@contextlib.contextmanager
def _folder_below(out: Path, folders: list[str]) -> Iterator[int]:
    """A descriptor of the folder, which is made if need be; ProtocolError where a link or a file is in its place."""
    with contextlib.ExitStack() as stack:
        here = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, here)
        for name in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
            try:
                here = os.open(name, _OPEN_FOLDER, dir_fd=here)
            except OSError:
                raise ProtocolError(f"{out / name} is a link or a file, not a folder: nothing goes there") from None
            stack.callback(os.close, here)
        yield here


def _keep_beside(folder: int, name: str, content: bytes) -> str | None:
    """Rename the file of this name if the content does not begin with all of it; the new name, or None."""
    try:
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
            if content.startswith(file.read()):
                return None
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError:  # a link, or a file that cannot be read: it is kept, too
        pass
    taken, path = set(os.listdir(folder)), Path(name)
    beside = next(new for k in itertools.count(1) if (new := f"{path.stem}.{k}{path.suffix}") not in taken)
    os.rename(name, beside, src_dir_fd=folder, dst_dir_fd=folder)
    return beside


def _replace_file(folder: int, name: str, content: bytes) -> None:
    """A new file in place of whatever has the name: what a link points to stays as it is."""
    partly = f".{name}.{os.getpid()}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partly, dir_fd=folder)
    made = os.open(partly, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    with os.fdopen(made, "wb") as file:
        file.write(content)
    try:
        os.replace(partly, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(partly, dir_fd=folder)
        raise ProtocolError(f"a folder stands where the study's {name} belongs") from None


def list_result(out: Path, names: Collection[str]) -> list[tuple[str, int]]:
    """Which of a study's files are in a folder, and how many bytes each has; no link is followed.

    Parameters
    ----------
    out : the folder; nothing is there where it is none
    names : as for `write_result`
    """
    found = []
    for name in sorted(names):
        try:
            with open_result(out, name) as file:
                found.append((name, os.fstat(file.fileno()).st_size))
        except LookupError:
            continue
    return found


def open_result(out: Path, name: str) -> BinaryIO:
    """A study's file, open for reading; LookupError where there is none, or a link is on the way to it.

    Parameters
    ----------
    out : the study's folder
    name : one of `study_folder.file_names`
    """
    with contextlib.ExitStack() as stack:
        try:
            here = os.open(out, _OPEN_FOLDER)
            stack.callback(os.close, here)
            *folders, last = name.split("/")
            for folder in folders:
                here = os.open(folder, _OPEN_FOLDER, dir_fd=here)
                stack.callback(os.close, here)
            handle = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
        except (OSError, ValueError):
            raise LookupError(name) from None
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise LookupError(name)
    return file
