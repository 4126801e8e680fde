"""A party on a vault, for tests that end its process: it answers one request and dies at a point."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.builders import CONTINUOUS, identify, make_federation
from tests.study_parties import make_study_party
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import AlignedTable
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.party_store import StudyStores
from verticopula.protocol.party.rank_handler import RankHandler
from verticopula.protocol.party.study_removal import remove_study
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseRequest
from verticopula.protocol.wire import encode
from verticopula.schema.federation import Federation
from verticopula.storage.blobs import FolderBlobs
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import FolderRecords
from verticopula.storage.vault import Vault
from verticopula.storage.withdrawals import Withdrawals

N = 30
REQUEST = ReleaseRequest("s", "vcds", "exact", tuple(ColumnQuery(name, 0.5, 0.25) for name in "ab"))
ENTRIES = 4

# Other processes than that of the tests. They are forks of one that has imported this file, so they start at once.
OTHERS = multiprocessing.get_context("forkserver")
OTHERS.set_forkserver_preload([__name__])


def federation(name: str = "left") -> Federation:
    return make_federation({name: {"a": CONTINUOUS, "b": {"kind": "binary"}}})


def make(vault: Vault, name: str = "left", **settings: Any) -> LocalParty:
    values = {"a": np.linspace(-1.0, 1.0, N), "b": np.arange(N) % 2.0}
    columns = {key: EncodedColumn(value, np.ones(N, dtype=bool)) for key, value in values.items()}
    given = {
        "noise": SecureNoise(),
        "ledger": vault.ledger,
        "stores": StudyStores(vault.replies, vault.fits),
        "account": TableAccount(identify(vault, (f"s{i}" for i in range(N))), {}),
    }
    return make_study_party(AlignedTable(federation(name).party(name), columns), **{**given, **settings})


def die(*args: object, **kwargs: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def tear(length: Callable[[bytes], int]) -> None:
    """Die in the middle of writing to the ledger."""

    class Torn(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(data[: length(data)])
            die()
            return 0

    whole = Path.open

    def opened(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return Torn(str(self), mode) if mode == "ab" and self.suffix == ".jsonl" else whole(self, mode, *args, **kwargs)

    Path.open = opened  # type: ignore[method-assign, assignment]


def die_at(point: str) -> None:
    """Arrange to die there."""
    if point == "before append":
        Ledger.append = die  # type: ignore[method-assign]
    elif point == "nothing of a line":
        tear(lambda data: 0)
    elif point == "first line torn":
        tear(lambda data: 40)
    elif point == "third line torn":
        tear(lambda data: [i for i, c in enumerate(data) if c == 10][1] + 41)
    elif point == "end of line torn":
        tear(lambda data: len(data) - 1)
    elif point == "after append":
        Vault._write_head = die  # type: ignore[method-assign]
    elif point == "before draw":
        RankHandler.answer = die  # type: ignore[method-assign]
    elif point == "after draw":
        FolderBlobs.put = die  # type: ignore[method-assign]
    elif point == "while storing":
        whole = Path.replace
        Path.replace = lambda self, to: die() if self.parent.name == "replies" else whole(self, to)  # type: ignore[method-assign, assignment]
    elif point == "after storing":
        write_head = Vault._write_head
        Vault._write_head = lambda self, *head: die() if head[-1] else write_head(self, *head)  # type: ignore[method-assign]


POINTS = (
    "before append",
    "nothing of a line",
    "first line torn",
    "third line torn",
    "end of line torn",
    "after append",
    "before draw",
    "after draw",
    "while storing",
    "after storing",
    "after sending",
)


def answer_and_die(folder: Path, point: str) -> None:
    vault = Vault.open(folder)
    party = make(vault)
    die_at(point)
    (folder.parent / "sent").write_bytes(encode(party.handle(REQUEST)))
    die()


def open_and_close(folder: Path) -> None:
    Vault.open(folder).close()


def withdraw_people(folder: Path, first: int, count: int) -> None:
    for number in range(first, first + count):
        Withdrawals(folder).record("withdrawn", [f"p{number}"], "", "anna")


REMOVAL_POINTS = (
    "before the mark",
    "half a mark",
    "after the mark",
    "nothing of the line",
    "half a line",
    "after the line",
    "between replies",
    "after the replies",
    "before a record goes",
    "after a record has gone",
    "between records",
)


def _die_removing(point: str) -> None:
    """Arrange to die there."""
    write, discard, delete = os.write, FolderBlobs.discard, FolderRecords.discard
    gone: list[str] = []

    def dying_discard(self: FolderBlobs, key: str) -> None:
        if self.folder.name == "replies" and point == "between replies" and gone:
            die()
        if self.folder.name == "studies" and point == "before a record goes":
            die()
        discard(self, key)
        gone.append(key)
        if self.folder.name == "studies" and point == "after a record has gone":
            die()

    def dying_delete(self: FolderRecords, name: str) -> None:
        if point == "between records" and gone:
            die()
        delete(self, name)

    def torn(handle: int, data: bytes) -> int:
        write(handle, data[: 0 if point == "nothing of the line" else len(data) // 2])
        return die()  # type: ignore[no-any-return]

    FolderBlobs.discard, FolderRecords.discard = dying_discard, dying_delete  # type: ignore[method-assign]
    if point == "before the mark":
        FolderRecords.put = die  # type: ignore[method-assign]
    elif point == "half a mark":
        whole = Path.replace
        Path.replace = lambda self, to: die() if self.parent.name == "studies" else whole(self, to)  # type: ignore[method-assign, assignment]
    elif point == "after the mark":
        Vault.remove_replies = die  # type: ignore[method-assign]
    elif point in ("nothing of the line", "half a line"):
        os.write = torn
    elif point == "after the line":
        Vault._delete_removed = die  # type: ignore[method-assign]
    elif point == "after the replies":
        Vault._write_head = die  # type: ignore[method-assign]


def remove_and_die(folder: Path, party: str, study: str, point: str) -> None:
    vault = Vault.open(folder)
    _die_removing(point)
    remove_study(vault, party, study, "anna", 2.0e9)
    die()
