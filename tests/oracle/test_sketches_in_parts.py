"""What a vault keeps of a table, made for some rows at a time, against the same made of all rows at once."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from verticopula.data import id_checks
from verticopula.data.column_encoding import EncodedColumn
from verticopula.storage import id_sketch, known_tables, snapshot_digest
from verticopula.storage.column_sketch import Places
from verticopula.storage.id_sketch import hash_people

KEY = bytes(range(32))
FEW = 7  # rows at a time
# Characters whose order as UTF-16 is not that of their code points, and spellings of one person.
IDS = st.lists(st.text("0aAb.\u00e9\uffff\U00010000 ", max_size=3), min_size=1, max_size=30, unique=True)
VALUE = st.sampled_from([0.0, -0.0, 1.0, 1.0, 2.5, -7.25])


@pytest.fixture(autouse=True)
def few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (id_checks, snapshot_digest):
        monkeypatch.setattr(module, "ROWS_IN_MEMORY", FEW)


def naive_digest(ids: list[str], columns: Mapping[str, EncodedColumn]) -> str:
    """As the ledgers of earlier vaults have it."""
    purpose = b"verticopula: which data a study read"
    rows = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    parts = [ids[row].encode() for row in rows]
    for name in sorted(columns):
        seen = columns[name].observed[rows]
        values = np.where(seen, columns[name].values[rows], 0.0) + 0.0
        parts += [name.encode(), np.packbits(seen).tobytes(), values.astype("<f8").tobytes()]
    parts = [len(ids).to_bytes(8, "big"), *parts]
    text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(hmac.digest(KEY, purpose, "sha256"), text, "sha256").hex()


def naive_places(column: EncodedColumn, people: np.ndarray, size: int) -> Places:
    seen = np.flatnonzero(column.observed)
    chosen = np.argsort(people[seen], kind="stable")[:size]
    middle = (rankdata(column.values[seen]) - 0.5) / max(seen.size, 1)
    places = np.rint(65_535 * middle[chosen]).astype(int)
    return dict(zip((people[seen][chosen] & np.uint64(2**32 - 1)).tolist(), places.tolist(), strict=True))


def draw_columns(data: st.DataObject, rows: int) -> dict[str, EncodedColumn]:
    found = {}
    for name in data.draw(st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3, unique=True)):
        values = np.array(data.draw(st.lists(VALUE, min_size=rows, max_size=rows)))
        seen = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
        found[name] = EncodedColumn(values, seen)
    return found


ONE_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@ONE_FIXTURE
@given(IDS, st.data())
def test_the_digest_of_a_table_is_what_it_was(ids: list[str], data: st.DataObject) -> None:
    columns = draw_columns(data, len(ids))
    assert snapshot_digest.digest_snapshot(pl.Series(ids, dtype=pl.String), columns, KEY) == naive_digest(ids, columns)


@ONE_FIXTURE
@given(IDS, st.integers(1, 10), st.data())
def test_the_sketch_of_a_table_is_what_it_was(ids: list[str], size: int, data: st.DataObject) -> None:
    """Spellings of one person have the same hash, and then the first row counts."""
    columns = draw_columns(data, len(ids))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_tables, "sketched_people", lambda n_columns: size)
        patch.setattr(id_sketch, "SKETCH_SIZE", size)
        patch.setattr(id_sketch, "OLD_SKETCH_SIZE", size)
        found = known_tables.TableSketch.of(pl.Series(ids, dtype=pl.String), columns, KEY)
    hashes = hash_people(ids, KEY)
    rows = np.array(hashes, dtype=np.uint64)
    spelled = {int.from_bytes(hmac.digest(KEY, text.encode(), "sha256")[:8], "big") for text in ids}
    assert found.people == sorted(set(hashes))[:size]
    assert found.as_spelled == sorted(spelled)[:size]
    for name, column in columns.items():
        assert list(found.columns[name].items()) == list(naive_places(column, rows, size).items())


@given(st.text("0aAbZ19", max_size=8))
def test_plain_ids_have_the_hash_of_all_their_spellings(text: str) -> None:
    """ASCII letters and digits take a shorter way."""
    assert id_sketch.canonical_id(text) == id_sketch._canonical_text(text)
