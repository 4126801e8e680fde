"""Functions of chunks: one chunk and many give the numbers of a table in memory, and no value is in what comes back."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines import FEDERATION, RunHere, make_tables, write_folders
from tests.study_parties import make_study_party
from verticopula import EngineError, PolicyRefused, SchemaError, SettingsError, Synthesizer
from verticopula.data.row_chunks import cut_rows, look_at_files
from verticopula.data.tables import AlignedTable, align_tables
from verticopula.engine import chunk_task
from verticopula.engine.chunk_task import Failure, Secret, describe_versions, run_task
from verticopula.errors import Problem
from verticopula.estimators import engine_tables
from verticopula.estimators.engine_tables import check_for_engine, open_on_engine
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseRequest
from verticopula.protocol.regression_messages import ResponseRequest
from verticopula.protocol.strict_messages import GaussianMarginsRequest, MarginQuery, SumsKeyRequest
from verticopula.schema.methods import METHODS, VARIANTS, runs_on_engine
from verticopula.schema.study_settings import StudySettings
from verticopula.stats import binomial_ranks
from verticopula.stats.rank_chunks import add_counts, count_values
from verticopula.stats.ranks import find_places

ROWS = 900


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    return make_tables(ROWS)


@pytest.fixture
def paths(tables: dict[str, pl.DataFrame], tmp_path: Path) -> dict[str, Path]:
    return write_folders(tables, tmp_path, 70)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of random bits, and so chunks, have 64 rows."""
    monkeypatch.setattr(binomial_ranks, "NOISE_ROWS", 64)
    monkeypatch.setattr(engine_tables, "NOISE_ROWS", 64)


def on_engine(paths: Mapping[str, Path], rows_at_once: int = 128) -> dict[str, AlignedTable]:
    opened = open_on_engine(RunHere(), paths, rows_at_once)
    return align_tables(FEDERATION, opened, need_overlap=False)


def fit(tables: Mapping[str, AlignedTable], method: str = "vcds") -> Synthesizer:
    made = Synthesizer(FEDERATION, method, 4.0, unit="variable", sampler="binomial", random_state=1)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return made.fit_aligned(tables)


# ---- the same numbers ---------------------------------------------------------------------


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("method", ["vcds", "refined", "evcds"])
@pytest.mark.parametrize("rows_at_once", [64, 128, 10_000])
def test_chunks_of_any_size_give_the_numbers_of_frames(
    tables: dict[str, pl.DataFrame], paths: dict[str, Path], rows_at_once: int, method: str
) -> None:
    held, apart = fit(align_tables(FEDERATION, tables), method), fit(on_engine(paths, rows_at_once), method)
    np.testing.assert_array_equal(held.correlation_, apart.correlation_)
    assert held.margins_.equals(apart.margins_)
    assert held.missingness_.to_dict() == apart.missingness_.to_dict()


@pytest.mark.usefixtures("few_rows")
def test_masks_and_notes_are_those_of_frames(tables: dict[str, pl.DataFrame], paths: dict[str, Path]) -> None:
    """The rows that notes name are rows of the whole table."""
    held, apart = align_tables(FEDERATION, tables), on_engine(paths)
    for name, table in held.items():
        assert table.notes() == apart[name].notes()
        assert (table.n_subjects, table.ignored) == (apart[name].n_subjects, apart[name].ignored)
        np.testing.assert_array_equal(table.observed(), apart[name].observed())
        for column in table.columns:
            np.testing.assert_array_equal(table.in_own_order(column)[1], apart[name].own_mask(column))
    assert len(held["bank"].notes()) == 3


def test_cells_of_chunks_add_up_to_those_of_a_column(paths: dict[str, Path]) -> None:
    files = look_at_files(sorted(map(str, paths["bank"].iterdir())))
    for rows in (1, 7, 64, 70, 10_000):
        chunks = cut_rows(files, rows)
        assert [chunk.start for chunk in chunks[1:]] == [chunk.stop for chunk in chunks[:-1]]
        read = pl.concat([chunk.read(["customer", "age"]) for chunk in chunks])
        assert read.equals(pl.concat([pl.read_parquet(file.path) for file in files]).select("customer", "age"))


def test_a_type_that_lists_its_cells_is_not_told(tables: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    listed = tables["bank"].cast({"region": pl.Enum(sorted(set(tables["bank"]["region"])))})
    paths = write_folders({"bank": listed, "agency": tables["agency"]}, tmp_path, 300)
    apart = on_engine(paths)["bank"]
    assert apart.source is not None
    assert apart.source.types["region"] == pl.String
    assert apart.notes() == align_tables(FEDERATION, tables)["bank"].notes()


values_of_chunks = st.lists(
    st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(-1e9, 1e9)), max_size=12), min_size=1, max_size=6
)


@given(values_of_chunks)
def test_places_by_counts_of_chunks_are_those_of_the_whole_column(chunks: list[list[float]]) -> None:
    parts = [np.array(chunk, dtype=np.float64) for chunk in chunks]
    whole = np.concatenate(parts)
    totals = add_counts([count_values(part) for part in parts])
    assert totals.total == whole.size
    found = [totals.find_places(part) for part in parts]
    for side, expected in enumerate(find_places(whole)):
        np.testing.assert_array_equal(np.concatenate([places[side] for places in found]), expected)


# ---- what is refused ----------------------------------------------------------------------


def test_nobody_gets_a_value_in_this_process(paths: dict[str, Path]) -> None:
    bank = on_engine(paths)["bank"]
    assert bank.source is not None
    for ask in (
        lambda: bank.columns["age"].values,
        lambda: bank.in_own_order("age"),
        lambda: bank.written("spent"),
        lambda: bank.source["age"],
    ):
        with pytest.raises(EngineError, match="stay on the party's engine"):
            ask()


def a_party(paths: dict[str, Path]) -> LocalParty:
    return make_study_party(on_engine(paths)["bank"], noise=SeededNoise(0))


QUERY = (ColumnQuery("age", 1.0, 1.0),)
REFUSED: tuple[Any, ...] = (
    ReleaseRequest("s", "vcds", "exact", QUERY),
    GaussianMarginsRequest("s", "strict", (MarginQuery("age", 1.0),)),
    SumsKeyRequest("s", "strict"),
    ResponseRequest("s", "age", None),
)


@pytest.mark.parametrize("request_", REFUSED, ids=lambda request: type(request).__name__)
def test_a_party_on_an_engine_refuses_what_its_engine_cannot_do(paths: dict[str, Path], request_: Any) -> None:
    """Before anything is recorded, and without a look at a value."""
    assert request_.version == MESSAGE_VERSION
    party = a_party(paths)
    with pytest.raises(PolicyRefused):
        party.handle(request_)
    assert len(party.control.ledger) == 0


def test_which_methods_run() -> None:
    assert [name for name in METHODS if runs_on_engine(name, "verticopula")] == ["vcds", "refined", "evcds"]
    assert not any(runs_on_engine(name, "as-printed") for name in METHODS)
    assert len(VARIANTS) == 2
    check_for_engine(StudySettings("vcds", sampler="binomial"))
    for settings in (
        StudySettings("strict", sampler="binomial", delta=1e-5),
        StudySettings("ievcds", sampler="binomial"),
        StudySettings("vcds", sampler="exact"),
        StudySettings("vcds", sampler="auto"),
    ):
        with pytest.raises(SettingsError, match="engine"):
            check_for_engine(settings)


def test_frames_and_other_files_are_refused(tables: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    (tmp_path / "agency.csv").write_text("customer,default\n1,0\n", "utf-8")
    (tmp_path / "keys" / "year=2024").mkdir(parents=True)
    tables["bank"].write_parquet(tmp_path / "keys" / "year=2024" / "part.parquet")
    with pytest.raises(SchemaError, match="give the path of a Parquet file"):
        open_on_engine(RunHere(), tables)
    for place in ("agency.csv", "keys", "none.parquet"):
        with pytest.raises(SchemaError, match="an engine reads"):
            open_on_engine(RunHere(), {"agency": tmp_path / place})


def test_a_file_that_is_written_again_is_noticed(paths: dict[str, Path]) -> None:
    party = a_party(paths)
    file = sorted(paths["bank"].iterdir())[3]
    pl.read_parquet(file).with_columns(age=pl.lit(50, dtype=pl.Int64)).write_parquet(file)
    with pytest.raises(SchemaError, match="written again since the study began"):
        party.handle(ReleaseRequest("s", "vcds", "binomial", QUERY))


def test_every_problem_is_said_as_it_is_of_frames(tables: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    wrong = {
        "bank": tables["bank"].drop("age").with_columns(region=pl.lit(1.5), income=pl.lit(True)),
        "agency": pl.concat([tables["agency"], tables["agency"][:2]]),
    }
    found = []
    for given_tables in (wrong, open_on_engine(RunHere(), write_folders(wrong, tmp_path, 50))):
        with pytest.raises(SchemaError) as caught:
            align_tables(FEDERATION, given_tables)
        found.append(set(map(str, caught.value.problems)))
    assert found[0] == found[1]
    assert len(found[0]) >= 3


# ---- tasks --------------------------------------------------------------------------------


def _fails(cell: str) -> None:
    raise ValueError(f"cannot read {cell}")


def _finds_a_problem() -> None:
    raise SchemaError([Problem("a.parquet", "is not there")])


def test_a_task_that_fails_quotes_nothing() -> None:
    failure = run_task(describe_versions(), _fails, "PLANTED")
    assert isinstance(failure, Failure)
    assert "ValueError" in str(failure.error())
    assert "PLANTED" not in repr(pickle.dumps(failure))
    assert run_task(describe_versions(), len, [[1], [failure]]) == failure
    problem = pickle.loads(pickle.dumps(run_task(describe_versions(), _finds_a_problem)))
    assert isinstance(problem.error(), SchemaError)
    assert run_task(describe_versions(), len, [1, 2]) == 2


def test_another_version_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    here = describe_versions()
    monkeypatch.setattr(chunk_task, "describe_versions", lambda: "verticopula 0.0.9")
    failure = run_task(here, len, [1])
    assert "verticopula 0.0.9" in str(failure.error())


def test_a_secret_is_in_no_text() -> None:
    assert "PLANTED" not in f"{Secret(b'PLANTED')!r}{Secret(b'PLANTED')!s}"
