"""Messages in files: the same bytes, the same message, and never both of them in memory."""

from __future__ import annotations

import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.test_wire import KINDS, large_reply
from verticopula.errors import WireError
from verticopula.protocol import array_bytes
from verticopula.protocol.consent_messages import PresenceReply
from verticopula.protocol.message_files import body_size, encode_or_write
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.rank_messages import CompletedRanksReply
from verticopula.protocol.strict_messages import SumsShareReply
from verticopula.protocol.wire import decode, encode

SIZE = 20_000_000
LONG = {
    "bytes": SumsShareReply("left", (b"a" * 1_000,), np.zeros(SIZE, dtype=np.uint8), np.zeros((0, 0), dtype=np.int64)),
    "wide numbers": CompletedRanksReply("left", (np.arange(SIZE // 8) * 2**40,)),
    "narrow numbers": CompletedRanksReply("left", (np.arange(SIZE // 8),)),
    "bits": PresenceReply("left", np.arange(SIZE) % 3 == 0, b""),
}


def peak(work: Callable[[], Any]) -> tuple[Any, int]:
    """What comes of it, and the most bytes that it had above what there was."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_short_message_is_bytes_and_a_long_one_a_private_file(tmp_path: Path) -> None:
    message = large_reply(2_000)
    data, path = encode(message), tmp_path / "folder" / "file"
    assert encode_or_write(message, path, len(data)) == data
    assert not path.exists()
    assert encode_or_write(message, path, len(data) - 1) == path
    assert (path.read_bytes(), body_size(path), body_size(data)) == (data, len(data), len(data))
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    assert fingerprint(decode(path, KINDS)) == fingerprint(message)


@pytest.mark.parametrize("block", [8, 64, 2**20])
def test_blocks_make_no_difference(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    message = large_reply(1_003)
    mask = PresenceReply("left", np.arange(1_003) % 3 == 0, b"")
    before = [encode(message), encode(mask)]
    monkeypatch.setattr(array_bytes, "BLOCK", block)
    assert [encode(message), encode(mask)] == before
    assert [fingerprint(decode(data, KINDS)) for data in before] == [fingerprint(message), fingerprint(mask)]


@pytest.mark.parametrize("name", LONG)
def test_writing_takes_a_block_and_reading_takes_the_message(name: str, tmp_path: Path) -> None:
    message, path = LONG[name], tmp_path / "file"
    _, writing = peak(lambda: encode_or_write(message, path, 1_000))
    assert writing < 0.7 * SIZE  # a block in two widths
    found, reading = peak(lambda: decode(path, KINDS))
    assert fingerprint(found) == fingerprint(message)
    assert reading < 1.6 * SIZE


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:9]])
def test_a_file_of_another_length_is_no_message(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(change(encode(large_reply(500))))
    with pytest.raises(WireError):
        decode(path, KINDS)


def test_a_file_is_read_no_further_than_a_message_may_be(tmp_path: Path) -> None:
    data = encode(PresenceReply("left", np.ones(80_000, dtype=bool), b""))
    path = tmp_path / "file"
    path.write_bytes(data.replace(b'"shape":[80000]', b'"shape":[8e9]00', 1))
    with pytest.raises(WireError):
        decode(path, KINDS)
