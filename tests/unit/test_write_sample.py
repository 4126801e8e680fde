"""Synthetic rows that are written some at a time: the rows of `sample`, in memory that does not grow."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.builders import fit_seeded, make_federation, make_tables, unit_of
from verticopula import SettingsError, Synthesizer
from verticopula.data.synthetic_marks import read_file_mark
from verticopula.data.table_files import read_table
from verticopula.datasets import make_sme
from verticopula.stats.copula import ROWS_AT_ONCE
from verticopula.study.kept_constraints import KeptConstraints, add_kept

SEED = 3
N_ROWS = 2 * ROWS_AT_ONCE + 1_000


def fit() -> Synthesizer:
    study = make_sme(400)
    return fit_seeded(study.federation, study.tables, SEED, method="vcds", epsilon=3.0, **unit_of("vcds"))


def read_all(folder: Path, fitted: Synthesizer) -> dict[str, pl.DataFrame]:
    return {party.name: read_table(folder / f"{party.name}.parquet") for party in fitted.federation.parties}


@pytest.mark.parametrize("rows_at_once", [ROWS_AT_ONCE, 2 * ROWS_AT_ONCE, 4 * ROWS_AT_ONCE])
def test_rows_in_parts_are_those_of_one_sample(tmp_path: Path, rows_at_once: int) -> None:
    fitted, whole = fit(), fit().sample(N_ROWS)
    files = fitted.write_sample(tmp_path, N_ROWS, rows_at_once=rows_at_once)
    assert len(files) == len(whole) * -(-N_ROWS // rows_at_once)
    for name, table in read_all(tmp_path, fitted).items():
        assert table.equals(whole[name]), name
        mark = read_file_mark(tmp_path / f"{name}.parquet")
        assert mark is not None
        assert mark.method == "vcds"


def fit_small(n: int = 400) -> Synthesizer:
    """A strict study of three columns."""
    number = {"kind": "continuous", "bounds": [-4, 4]}
    federation = make_federation({"a": {"y": {"kind": "binary"}}, "b": {"x": number}, "c": {"w": number}})
    x, w = np.random.default_rng(SEED).normal(size=(2, n)).clip(-4, 4)
    tables = make_tables(federation, {"y": (x + w > 0).astype(int), "x": x, "w": w})
    return fit_seeded(federation, tables, SEED, method="strict", epsilon=3.0, **unit_of("strict"))


def test_strict_rows_in_parts_are_those_of_one_sample(tmp_path: Path) -> None:
    fitted = fit_small()
    seeded, n_rows = fit_small(), ROWS_AT_ONCE + 100
    fitted.write_sample(tmp_path, n_rows, rows_at_once=ROWS_AT_ONCE)
    whole = seeded.sample(n_rows)
    for name, table in read_all(tmp_path, fitted).items():
        assert table.equals(whole[name]), name


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    fitted = fit()
    fitted.write_sample(tmp_path, 2_000, rows_at_once=2_000)
    peaks = []
    for parts in (2, 20):
        tracemalloc.start()
        fitted.write_sample(tmp_path, 2_000 * parts, rows_at_once=2_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_conditions_and_gaps_hold_in_every_part(tmp_path: Path) -> None:
    fitted = fit()
    fitted.write_sample(
        tmp_path, 900, rows_at_once=250, conditions={"law_enforcement.penalised": 1}, missing="as-observed"
    )
    tables = read_all(tmp_path, fitted)
    assert {table.height for table in tables.values()} == {900}
    assert set(tables["law_enforcement"]["penalised"].drop_nulls().to_list()) <= {1}
    assert any(table.null_count().sum_horizontal()[0] for table in tables.values())


def test_earlier_parts_are_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    fitted = fit()
    fitted.write_sample(tmp_path, 900, rows_at_once=100)
    fitted.write_sample(tmp_path, 250, rows_at_once=100)
    assert {table.height for table in read_all(tmp_path, fitted).values()} == {250}
    name = fitted.federation.parties[0].name
    mine = tmp_path / f"{name}.parquet" / "notes.txt"
    mine.write_text("mine")
    with pytest.raises(SettingsError, match="another folder"):
        fitted.write_sample(tmp_path, 100)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "many"])
def test_numbers_of_rows_are_whole_and_positive(tmp_path: Path, wrong: int) -> None:
    fitted = fit()
    with pytest.raises(SettingsError, match="n_rows"):
        fitted.write_sample(tmp_path, wrong)
    with pytest.raises(SettingsError, match="rows_at_once"):
        fitted.write_sample(tmp_path, 10, rows_at_once=wrong)
    assert not list(tmp_path.iterdir())


def test_what_constraints_took_is_added_up() -> None:
    parts = [KeptConstraints(10, 3, {"a <= b": 1}), None, KeptConstraints(5, 0, {"a <= b": 2, "c < d": 0})]
    assert add_kept(parts) == KeptConstraints(15, 3, {"a <= b": 3, "c < d": 0})
    assert add_kept([None, None]) is None
