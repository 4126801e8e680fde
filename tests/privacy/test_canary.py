"""A planted value and a planted id, and everything that is emitted: neither must be in it."""

from __future__ import annotations

import dataclasses
import json
import logging
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, make_federation, make_party, make_tables
from verticopula import Federation, Synthesizer
from verticopula.data.tables import align_tables
from verticopula.errors import CellsWarning, SchemaError
from verticopula.privacy.policy import Policy
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseReply, ReleaseRequest
from verticopula.storage.ledger import Ledger

N = 80
NUMBER = 7.123456789  # inside the bounds, the largest value of its column
COUNT = 864_215_793  # long enough not to turn up in a hash or a decimal by chance
ID = "zq-canary-4711"
WORD = "zqcanaryword"


def federation() -> Federation:
    return make_federation(
        {
            "left": {"y": CONTINUOUS, "flag": {"kind": "binary"}},
            "right": {
                "n": {"kind": "count", "bounds": [0, 1_000_000_000]},
                "g": {"kind": "nominal", "categories": ["u", "v", "w"]},
            },
        }
    )


def tables() -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(1)
    y, n = rng.normal(size=N), rng.integers(0, 900, N)
    y[3], n[3] = NUMBER, COUNT
    frames = make_tables(
        federation(),
        {"y": y, "flag": rng.integers(0, 2, N), "n": n, "g": [["u", "v", "w"][k] for k in rng.integers(0, 3, N)]},
    )
    ids = [ID if i == 3 else f"s{i}" for i in range(N)]
    return {name: frame.with_columns(pl.Series("subject_id", ids)) for name, frame in frames.items()}


def spellings() -> list[str]:
    numbers = [f"{NUMBER:.{digits}f}" for digits in range(6, 10)]
    return [*numbers, str(COUNT), f"{COUNT:,}", ID, WORD]


def assert_clean(text: str) -> None:
    found = [spelling for spelling in spellings() if spelling in text]
    assert not found, f"{found} in emitted text"


def test_the_check_itself_finds_a_planted_value() -> None:
    y, n = tables()["left"]["y"].to_list(), tables()["right"]["n"].to_list()
    for leak in (str(y), str(n), repr(np.array(y)), repr(tables()["right"][3:4]), ID):
        with pytest.raises(AssertionError):
            assert_clean(leak)


def test_nothing_a_fit_emits_holds_a_planted_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        synthesizer = Synthesizer(federation(), "vcds", epsilon=4.0, unit="variable").fit(
            tables(), ledger=tmp_path / "ledger.jsonl", progress=lambda *args: said.append(str(args))
        )
    synthesizer.save(tmp_path / "study.json")
    rows = synthesizer.sample(500)
    assert any("releases recorded" in record.getMessage() for record in caplog.records)
    assert_clean("\n".join(record.getMessage() + str(record.__dict__) for record in caplog.records))
    assert_clean("".join(said))
    assert_clean((tmp_path / "ledger.jsonl").read_text())
    assert_clean((tmp_path / "study.json").read_text())
    assert_clean(synthesizer.summary())
    assert_clean(str(synthesizer.privacy_))
    assert_clean(repr(synthesizer) + repr(synthesizer.result_) + repr(synthesizer.ledger_) + str(vars(synthesizer)))
    assert_clean(rows["left"].write_csv())
    # A count may be drawn from its cell by chance; the planted one is alone in a cell of many millions.
    assert COUNT not in rows["right"]["n"].to_list()


def test_a_reply_holds_ranks_and_counts_only() -> None:
    y = np.linspace(-1, 1, N)
    y[3] = NUMBER
    values = {"y": y, "flag": np.arange(N) % 2}
    party = make_party(federation(), "left", values)
    reply = party.handle(
        ReleaseRequest("s", "vcds", "exact", (ColumnQuery("y", 1.0, 1.0), ColumnQuery("flag", 1.0, 1.0)))
    )
    assert isinstance(reply, ReleaseReply)
    for column in reply.columns:
        for array in (column.ranks, column.cells):
            assert np.issubdtype(array.dtype, np.integer)  # no float ever leaves
            assert not np.any(array == NUMBER)
    with np.printoptions(threshold=np.inf):
        assert_clean(repr(reply) + repr(party) + repr(party.control))
        assert_clean(repr(party.control.table) + repr(party.control.table.columns["y"]))
        ledger = list(party.control.ledger)
        assert_clean(str(party) + repr(ledger) + json.dumps([dataclasses.asdict(e) for e in ledger]))


def broken(what: str) -> dict[str, pl.DataFrame]:
    """Tables that cannot be used, or are warned about, because of a cell that holds a canary."""
    frames = tables()
    right = frames["right"]
    replaced: dict[str, dict[str, Any]] = {
        "out of bounds": {"n": pl.Series([COUNT * 10**9 + COUNT, *right["n"].to_list()[1:]])},
        "text": {"n": pl.Series([WORD, *map(str, right["n"].to_list()[1:])])},
        "fraction": {"n": pl.Series([NUMBER, *map(float, right["n"].to_list()[1:])])},
        "category": {"g": pl.Series([WORD, *right["g"].to_list()[1:]])},
        "repeated id": {"subject_id": pl.Series([ID, *right["subject_id"].to_list()[1:]])},
        "unknown id": {"subject_id": pl.Series([ID + WORD, *right["subject_id"].to_list()[1:]])},
        "constant": {"n": pl.Series([COUNT] * N)},
        "nested": {"n": pl.Series([[COUNT]] * N)},
    }
    frames["right"] = right.with_columns(**replaced[what])
    return frames


@pytest.mark.parametrize(
    "what", ["out of bounds", "text", "fraction", "category", "repeated id", "unknown id", "constant", "nested"]
)
def test_no_error_message_quotes_a_cell(what: str, caplog: pytest.LogCaptureFixture) -> None:
    synthesizer = Synthesizer(federation(), "vcds", epsilon=4.0, unit="variable")
    with caplog.at_level(logging.DEBUG), pytest.raises((SchemaError, CellsWarning)) as caught:
        synthesizer.fit(broken(what))
    chain = "".join(traceback.format_exception(caught.value))
    assert_clean("\n".join(line for line in chain.splitlines() if not line.startswith(("  File", "    "))))
    assert_clean(str(caught.value) + repr(vars(caught.value)))
    assert_clean("\n".join(record.getMessage() for record in caplog.records))


def test_refusals_quote_no_cell(tmp_path: Path) -> None:
    aligned = align_tables(federation(), tables())
    for policy in (Policy(min_subjects=N + 1), Policy(columns=("flag",)), Policy(caps={"block": 1e-6})):  # type: ignore[arg-type]
        synthesizer = Synthesizer(federation(), "vcds", epsilon=4.0, unit="variable")
        with pytest.raises(Exception, match="left") as caught:
            synthesizer.fit_aligned(aligned, policies={"left": policy}, ledger=Ledger(tmp_path / "l.jsonl"))
        assert_clean(str(caught.value))
