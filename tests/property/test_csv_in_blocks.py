"""A CSV file that is read a block of rows at a time holds what it holds when it is read at once, errors included."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from verticopula.data import csv_reading
from verticopula.data.table_files import explain_errors
from verticopula.errors import SchemaError

CELL = st.sampled_from(["", "1", "2,5", '"a;b"', '"a\n""b"""', "é", '"', '5" x', " ", "sep=;", "a\r", "\t", '"\n;1"'])
LINE = st.builds(lambda mark, cells: mark.join(cells), st.sampled_from(";,\t"), st.lists(CELL, max_size=4))
TEXT = st.builds(
    lambda hint, header, lines, end: hint + "\n".join([header, *lines]) + end,
    st.sampled_from(["", "", "sep=;\n", '"sep=,"\r\n', "\n"]),
    st.sampled_from(["id;x", "id,x", 'id;"a ""b"", c"', "id", "id;x;x", ""]),
    st.lists(LINE, max_size=12),
    st.sampled_from(["", "\n", "\r\n", "\n\n"]),
)
BEGINNING = st.sampled_from([b"", b"\xef\xbb\xbf"])
BROKEN = st.sampled_from([b"", b"", b"", b"\xff", b"\n\n\xc3"])


def outcome(path: Path, *, in_blocks: bool) -> object:
    """The rows under their names, or what is said of the file."""
    try:
        with explain_errors(path):
            table = pl.concat(csv_reading.read_csv_blocks(path)) if in_blocks else csv_reading.read_csv(path)
    except SchemaError as error:
        return str(error)
    return table.columns, table.rows()


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BEGINNING, TEXT, BROKEN, st.integers(1, 40))
@example(b"", "id;x\n" + "1;2\n" * 5 + "1;2;3\n", b"\xff", 7)
@example(b"", "id;x\n" + "1,2\n" * 9, b"", 5)
def test_blocks_hold_what_the_whole_file_holds(
    tmp_path: Path, beginning: bytes, text: str, broken: bytes, block: int
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(beginning + text.encode() + broken)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reading, "_BLOCK", block)
        assert outcome(path, in_blocks=True) == outcome(path, in_blocks=False)


def test_a_file_of_many_blocks_is_cut_where_rows_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,x\n" + "".join(f'{k},"a\n{k}, ""b"""\n' for k in range(500)), "utf-8")
    monkeypatch.setattr(csv_reading, "_BLOCK", 64)
    parts = list(csv_reading.read_csv_blocks(path))
    assert len(parts) > 50
    assert pl.concat(parts).equals(csv_reading.read_csv(path))
