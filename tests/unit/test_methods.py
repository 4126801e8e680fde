"""All methods behind the front door: reproducible, aligned or not, saved, never together, and hard cases."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats

from tests.builders import CONTINUOUS, correlated_normals, fit_seeded, make_federation, make_tables, unit_of
from verticopula import Federation, Synthesizer
from verticopula.errors import AlignedWarning, SchemaError, SettingsError
from verticopula.schema.columns import ColumnKey
from verticopula.schema.methods import METHODS

pytestmark = pytest.mark.usefixtures("few_fitted_rows")
N = 150
ALIGNABLE = ("evcds", "ievcds", "refined")
NOMINAL = {"kind": "nominal", "categories": ["u", "v", "w"]}


def federation() -> Federation:
    return make_federation(
        {
            "left": {"y": CONTINUOUS, "flag": {"kind": "binary"}},
            "right": {"x": CONTINUOUS, "g": NOMINAL, "n": {"kind": "count", "bounds": [0, 20]}},
        }
    )


def tables(n: int = N, seed: int = 1) -> dict[str, pl.DataFrame]:
    """The right party lacks about a third, by the response; some cells are empty besides."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(n)
    found = make_tables(
        federation(),
        {
            "y": y,
            "flag": (y + rng.standard_normal(n) > 0).astype(int),
            "x": y + 0.3 * rng.standard_normal(n),
            "g": np.array(["u", "v", "w"])[np.digitize(y + rng.standard_normal(n), [-0.5, 0.5])],
            "n": np.clip(np.round(4 + 2 * y), 0, 20).astype(int),
        },
    )
    empty = pl.Series(rng.random(n) < 0.05)
    found["right"] = found["right"].with_columns(x=pl.when(empty).then(None).otherwise(pl.col("x")))
    found["right"] = found["right"].filter(pl.Series(y < 0.5))
    return found


def fitted(method: str, seed: int = 1, **settings: Any) -> Synthesizer:
    settings = {"unit": "variable", "epsilon": 4.0, "rounds": 3, **settings}
    return fit_seeded(federation(), tables(), seed, method=method, **settings)


@pytest.fixture(scope="module")
def studies() -> dict[str, Synthesizer]:
    return {method: fitted(method) for method in METHODS}


def sample_aligned(synthesizer: Synthesizer, rows: int | None = None) -> dict[str, pl.DataFrame]:
    with pytest.warns(AlignedWarning, match="noisy copy of subject i"):
        return synthesizer.sample(rows, aligned=True)


# ---- reproducible ------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_arrays(method: str) -> None:
    first, second, other = fitted(method), fitted(method), fitted(method, seed=2)
    pd.testing.assert_frame_equal(first.correlation_, second.correlation_, check_exact=True)
    assert_frame_equal(first.margins_, second.margins_)
    assert not np.array_equal(first.correlation_, other.correlation_)
    for _ in range(2):  # the second sample differs from the first, but alike in both
        one, two = first.sample(), second.sample()
        assert all(one[party].equals(two[party]) for party in one)
    if method in ALIGNABLE:
        one, two = sample_aligned(first), sample_aligned(second)
        assert all(one[party].equals(two[party]) for party in one)
        again = sample_aligned(first)
        assert not again["left"].equals(one["left"])


@pytest.mark.parametrize("method", METHODS)
def test_without_a_seed_no_two_fits_are_alike(method: str) -> None:
    first, second = (
        Synthesizer(federation(), method, 4.0, **unit_of(method), rounds=2).fit(tables()) for _ in range(2)
    )
    assert first.privacy_.is_private
    assert not np.array_equal(first.correlation_, second.correlation_)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_complete_tables_in_range(studies: Mapping[str, Synthesizer], method: str) -> None:
    out = studies[method].sample(500)
    assert out["left"]["y"].is_between(-8, 8).all()
    assert set(out["right"]["g"]) <= {"u", "v", "w"}
    assert out["right"]["n"].is_between(0, 20).all()
    assert sum(sum(table.null_count().row(0)) for table in out.values()) == 0
    matrix = studies[method].correlation_.to_numpy()
    np.testing.assert_allclose(np.diag(matrix), 1.0)
    assert np.linalg.eigvalsh(matrix)[0] > 0.0


# ---- aligned -----------------------------------------------------------------------------


def rank_correlation(synthetic: pl.Series, original: np.ndarray[Any, Any]) -> float:
    return float(stats.spearmanr(synthetic.to_numpy(), original).statistic)


@pytest.mark.parametrize("method", ALIGNABLE)
def test_aligned_rows_follow_the_subjects_and_free_ones_do_not(studies: Mapping[str, Synthesizer], method: str) -> None:
    original = tables()["left"]["y"].to_numpy()
    assert rank_correlation(sample_aligned(studies[method])["left"]["y"], original) > 0.8
    # 4.9 standard errors of a rank correlation of independent rows
    assert abs(rank_correlation(studies[method].sample()["left"]["y"], original)) < 0.4


@pytest.mark.parametrize("method", ALIGNABLE)
def test_aligned_rows_follow_the_subjects_of_the_other_party_too(
    studies: Mapping[str, Synthesizer], method: str
) -> None:
    kept = tables()["right"].drop_nulls()
    rows = kept["subject_id"].str.strip_prefix("s").cast(pl.Int64).to_numpy()
    out = sample_aligned(studies[method])["right"]
    assert rank_correlation(out["x"].gather(rows), kept["x"].to_numpy()) > 0.6
    same = np.mean(out["g"].gather(rows).to_numpy() == kept["g"].to_numpy())
    chance = sum(float(np.mean(kept["g"].to_numpy() == c)) ** 2 for c in "uvw")
    assert same > chance + 0.15


@pytest.mark.parametrize("method", ALIGNABLE)
def test_several_aligned_copies_are_drawn_afresh(studies: Mapping[str, Synthesizer], method: str) -> None:
    out = sample_aligned(studies[method], 2 * N)["left"]["y"]
    assert len(out) == 2 * N
    assert not out[:N].equals(out[N:])
    original = tables()["left"]["y"].to_numpy()
    assert min(rank_correlation(half, original) for half in (out[:N], out[N:])) > 0.8


@pytest.mark.parametrize("method", ALIGNABLE)
@pytest.mark.parametrize("rows", [1, N - 1, N + 1])
def test_aligned_rows_come_in_multiples(studies: Mapping[str, Synthesizer], method: str, rows: int) -> None:
    with pytest.raises(SettingsError, match="multiples of the cohort's 150"):
        studies[method].sample(rows, aligned=True)


def test_vcds_has_no_aligned_rows(studies: Mapping[str, Synthesizer]) -> None:
    with pytest.raises(SettingsError, match="no aligned release"):
        studies["vcds"].sample(aligned=True)


# ---- saved and loaded --------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_study_comes_back_whole(method: str, tmp_path: Path) -> None:
    study = fitted(method)
    study.save(tmp_path / "study.json")
    loaded = Synthesizer.load(tmp_path / "study.json")
    assert loaded.settings_ == study.settings_
    assert loaded.summary() == study.summary()
    assert loaded.missingness_.to_dict() == study.missingness_.to_dict()
    assert loaded.missingness_.patterns == study.missingness_.patterns
    assert loaded.result_.refinement == study.result_.refinement
    assert (loaded.result_.refinement is not None) == (method == "refined")
    assert loaded.result_.unidentified == study.result_.unidentified
    assert loaded.result_.budgets == study.result_.budgets
    assert loaded.ledger_ == study.ledger_
    assert_frame_equal(loaded.margins_, study.margins_)
    pd.testing.assert_frame_equal(loaded.correlation_, study.correlation_, check_exact=True)
    rows = loaded.sample(20)
    assert all(rows[party].equals(table) for party, table in study.sample(20).items())
    if method in ALIGNABLE:
        with pytest.raises(SettingsError, match="fit again"):
            loaded.sample(aligned=True)


def test_margins_say_what_was_observed_and_what_was_corrected(studies: Mapping[str, Synthesizer]) -> None:
    for method, study in studies.items():
        margins = study.margins_
        assert set(margins["column"]) == {str(key) for key in federation().keys}
        complete = margins.filter(pl.col("column") == "left.y")
        if method in ("vcds", "refined"):
            np.testing.assert_allclose(complete["observed"], complete["corrected"], atol=1e-9)
        moved = margins.filter(pl.col("column") == "right.x")
        shift = float((moved["observed"] - moved["corrected"]).max())
        # Those without a value would be high: the corrected distribution function lies lower.
        assert shift > 0.1 if method in ("refined", "ievcds") else shift == pytest.approx(0.0, abs=0.2)


# ---- parties that never meet -------------------------------------------------------------


def three_parties() -> tuple[Federation, dict[str, pl.DataFrame]]:
    study = make_federation({"hub": {"y": CONTINUOUS}, "north": {"a": CONTINUOUS}, "south": {"b": CONTINUOUS}})
    z = correlated_normals(np.array([[1.0, 0.7, 0.6], [0.7, 1.0, 0.8], [0.6, 0.8, 1.0]]), 600, np.random.default_rng(4))
    found = make_tables(study, {"y": z[:, 0], "a": z[:, 1], "b": z[:, 2]})
    found["north"], found["south"] = found["north"][:300], found["south"][300:]
    return study, found


@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds"])
def test_parties_that_never_meet_are_refused_by_name(method: str) -> None:
    study, found = three_parties()
    with pytest.raises(SchemaError, match=r"north.*south") as caught:
        Synthesizer(study, method, 4.0, unit="variable").fit(found)
    assert "refined" in str(caught.value)


def test_refined_fits_parties_that_never_meet_and_says_what_it_cannot_know(tmp_path: Path) -> None:
    study, found = three_parties()
    fit = fit_seeded(study, found, 1, method="refined", unit="variable", epsilon=6.0)
    assert "north and south were never observed together" in fit.summary()
    assert fit.missingness_.never_together == ((ColumnKey("north", "a"), ColumnKey("south", "b")),)
    (pair,) = fit.result_.unidentified
    assert {pair.first, pair.second} == {"north.a", "south.b"}
    assert -1.0 <= pair.low <= pair.used <= pair.high <= 1.0
    assert pair.high - pair.low > 0.5
    matrix = fit.correlation_.to_numpy()
    assert matrix[1, 2] == pytest.approx(pair.used)
    assert matrix[1, 2] == pytest.approx(0.42, abs=0.2)  # independent given the hub; the truth, 0.8, is unknowable
    for extreme in (pair.low, pair.high):
        plugged = matrix.copy()
        plugged[1, 2] = plugged[2, 1] = extreme
        assert np.linalg.eigvalsh(plugged)[0] > -1e-9
    fit.save(tmp_path / "study.json")
    assert Synthesizer.load(tmp_path / "study.json").result_.unidentified == (pair,)
    assert Synthesizer.load(tmp_path / "study.json").summary() == fit.summary()


def test_every_unknown_pair_has_a_range_around_what_was_used() -> None:
    study = make_federation(
        {
            "hub": {"y": CONTINUOUS, "z": {"kind": "binary"}},
            "north": {"a": CONTINUOUS, "g": NOMINAL},
            "south": {"b": CONTINUOUS, "h": NOMINAL},
        }
    )
    rng = np.random.default_rng(7)
    y = rng.standard_normal(400)

    def category() -> Any:
        return np.array(["u", "v", "w"])[np.digitize(y + rng.standard_normal(400), [-0.5, 0.5])]

    values = {"y": y, "z": (y > 0).astype(int), "a": y + rng.standard_normal(400), "g": category()}
    found = make_tables(study, {**values, "b": y - rng.standard_normal(400), "h": category()})
    found["north"], found["south"] = found["north"][:200], found["south"][200:]
    fit = fit_seeded(study, found, 1, method="refined", unit="variable", epsilon=6.0)
    assert_usable(fit)
    assert len(fit.result_.unidentified) == 16  # four latents each
    assert len(fit.missingness_.never_together) == 4
    for pair in fit.result_.unidentified:
        assert pair.low - 1e-9 <= pair.used <= pair.high + 1e-9


# ---- hard cases --------------------------------------------------------------------------


def assert_usable(synthesizer: Synthesizer) -> None:
    """Finite, valid, printable; with warnings as errors, as everywhere in this suite."""
    matrix = synthesizer.correlation_.to_numpy()
    assert np.all(np.isfinite(matrix))
    assert np.linalg.eigvalsh(matrix)[0] > 0.0
    for margin in synthesizer.result_.copula.margins.values():
        assert np.all(margin.probabilities >= 0.0)
        assert margin.probabilities.sum() == pytest.approx(1.0)
    assert "epsilon" in synthesizer.summary()
    out = [synthesizer.sample(7)]
    if synthesizer.method in ALIGNABLE:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AlignedWarning)
            out.append(synthesizer.sample(aligned=True))
    margins = synthesizer.result_.copula.margins
    for frames in out:
        for party, frame in frames.items():
            for column in frame:  # empty values come out where the margin has some, and nowhere else
                assert not column.null_count() or margins[ColumnKey(party, column.name)].empty > 0.0
            assert all(not column.is_nan().any() for column in frame if column.dtype == pl.Float64)


def no_block_missing(n: int, seed: int = 0) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(seed)
    return make_tables(
        federation(),
        {
            "y": rng.standard_normal(n),
            "flag": np.arange(n) % 2,
            "x": rng.standard_normal(n),
            "g": [["u", "v", "w"][k % 3] for k in range(n)],
            "n": rng.integers(0, 20, n),
        },
    )


@pytest.mark.parametrize("method", METHODS)
def test_three_subjects_are_enough_to_run(method: str) -> None:
    for seed in range(12):
        study = fit_seeded(
            federation(), no_block_missing(3, seed), seed, method=method, unit="variable", epsilon=4.0, rounds=3
        )
        assert_usable(study)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "strict"])
def test_one_party_is_enough(method: str) -> None:
    study = make_federation({"only": {"y": CONTINUOUS, "x": CONTINUOUS, "g": NOMINAL}})
    frames = no_block_missing(60)
    alone = {"only": frames["left"].join(frames["right"], on="subject_id").select("subject_id", "y", "x", "g")}
    assert_usable(fit_seeded(study, alone, 1, method=method, unit="variable", epsilon=2.0, rounds=2))


@pytest.mark.parametrize("method", [m for m in METHODS if m != "strict"])
def test_one_column_is_enough(method: str) -> None:
    study = make_federation({"only": {"y": CONTINUOUS}})
    frames = make_tables(study, {"y": np.random.default_rng(1).standard_normal(60)})
    assert_usable(fit_seeded(study, frames, 1, method=method, unit="variable", epsilon=2.0, rounds=2))


def discrete_study(n: int, missing: bool) -> tuple[Federation, dict[str, pl.DataFrame]]:
    """Two, three and ten categories, an order and a count; half of the right party may be missing."""
    tens = [str(k) for k in range(10)]
    study = make_federation(
        {
            "left": {"y": {"kind": "binary"}, "o": {"kind": "ordinal", "categories": ["a", "b", "c"]}},
            "right": {
                "c": {"kind": "count", "bounds": [0, 20]},
                "two": {"kind": "nominal", "categories": ["u", "v"]},
                "three": NOMINAL,
                "ten": {"kind": "nominal", "categories": tens},
            },
        }
    )
    rng = np.random.default_rng(5)
    z = rng.standard_normal(n)

    def noisy() -> Any:
        return z + rng.standard_normal(n)

    found = make_tables(
        study,
        {
            "y": (noisy() > 0.5).astype(int),
            "o": np.array(["a", "b", "c"])[np.digitize(noisy(), [-1, 1])],
            "c": np.clip(np.round(3 + 2 * noisy()), 0, 20).astype(int),
            "two": np.array(["u", "v"])[(noisy() > 0).astype(int)],
            "three": np.array(["u", "v", "w"])[np.digitize(noisy(), [-0.5, 0.5])],
            "ten": np.array(tens)[np.digitize(noisy(), np.linspace(-2, 2, 9))],
        },
    )
    if missing:
        found["right"] = found["right"].filter(found["left"]["o"] != "a")
    return study, found


@pytest.mark.parametrize("epsilon", [1.0, 40.0])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("method", METHODS)
def test_columns_may_all_be_discrete(method: str, missing: bool, epsilon: float) -> None:
    study, found = discrete_study(300, missing)
    assert_usable(fit_seeded(study, found, 1, method=method, unit="variable", epsilon=epsilon, rounds=2))


@pytest.mark.parametrize("method", METHODS)
def test_discrete_columns_with_hardly_any_subjects(method: str) -> None:
    study, found = discrete_study(40, True)
    assert_usable(fit_seeded(study, found, 1, method=method, unit="variable", epsilon=1.0, rounds=2))


@pytest.mark.parametrize("who", ["column", "party"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", [4.0, 40.0])
def test_two_observed_subjects_are_enough(method: str, who: str, epsilon: float) -> None:
    frames = no_block_missing(200)
    few = pl.Series(np.isin(np.arange(200), (3, 151)))
    if who == "party":
        frames["right"] = frames["right"].filter(few)
    else:
        frames["right"] = frames["right"].with_columns(x=pl.when(few).then(pl.col("x")))
    assert_usable(fit_seeded(federation(), frames, 1, method=method, unit="variable", epsilon=epsilon, rounds=2))


@pytest.mark.parametrize("epsilon", [80.0, 1e-3, 1e-6])
@pytest.mark.parametrize("method", METHODS)
def test_any_epsilon_gives_something_usable(method: str, epsilon: float) -> None:
    study = fit_seeded(federation(), tables(), 1, method=method, unit="variable", epsilon=epsilon, rounds=2)
    assert_usable(study)


@pytest.mark.parametrize("method", METHODS)
def test_two_columns_may_be_all_but_the_same(method: str) -> None:
    frames = no_block_missing(300)
    y = frames["left"]["y"].to_numpy()
    frames["right"] = frames["right"].with_columns(x=y + 1e-3 * np.random.default_rng(1).standard_normal(300))
    for seed in range(4):
        assert_usable(fit_seeded(federation(), frames, seed, method=method, unit="variable", epsilon=20.0, rounds=2))


@pytest.mark.parametrize("method", METHODS)
def test_the_response_may_be_partly_empty(method: str) -> None:
    frames = tables()
    third = pl.Series(np.arange(N) % 3 == 0)
    frames["left"] = frames["left"].with_columns(y=pl.when(third).then(None).otherwise(pl.col("y")))
    study = fit_seeded(federation(), frames, 1, method=method, unit="variable", epsilon=4.0, rounds=2)
    assert_usable(study)
    if method == "strict":  # there empty values are private: the margin has them, with noise, and no mask
        assert study.missingness_.empty_cells["left"] == 0
        assert study.result_.observed_margins[ColumnKey("left", "y")].empty > 0.1
    else:
        assert study.missingness_.empty_cells["left"] == 50


@pytest.mark.parametrize("method", METHODS)
def test_subjects_of_whom_nobody_knows_anything_do_no_harm(method: str) -> None:
    study = make_federation({"hub": {"y": CONTINUOUS}, "north": {"a": CONTINUOUS, "b": {"kind": "binary"}}})
    rng = np.random.default_rng(8)
    y = rng.standard_normal(200)
    found = make_tables(study, {"y": y, "a": y + rng.standard_normal(200), "b": (y > 0).astype(int)})
    nobody = pl.Series(np.arange(200) % 4 == 0)
    found["hub"] = found["hub"].with_columns(y=pl.when(nobody).then(None).otherwise(pl.col("y")))
    found["north"] = found["north"].filter(~nobody | pl.Series(np.arange(200) < 20))
    fit = fit_seeded(study, found, 1, method=method, unit="variable", epsilon=4.0, rounds=2)
    assert_usable(fit)
    assert dict(fit.missingness_.patterns)[False, False] == 45


@pytest.mark.parametrize("method", METHODS)
def test_progress_reaches_its_total_with_every_method(method: str) -> None:
    calls: list[tuple[str, int, int]] = []
    Synthesizer(federation(), method, 4.0, **unit_of(method), rounds=3).fit(
        tables(), progress=lambda *call: calls.append(call)
    )
    flipped = [call for call in calls if call[0] == ("secure sums" if method == "strict" else "flipping comparisons")]
    assert flipped[-1][1] == flipped[-1][2]
    assert ("refining" in {call[0] for call in calls}) == (method == "refined")


@pytest.mark.parametrize("method", METHODS)
def test_a_pattern_for_almost_every_subject_stays_little_work(method: str) -> None:
    n, half = 600, 10
    names = {"left": ["y", *(f"a{i}" for i in range(half))], "right": [f"b{i}" for i in range(half)]}
    study = make_federation({p: dict.fromkeys(columns, CONTINUOUS) for p, columns in names.items()})
    rng = np.random.default_rng(6)
    factor = rng.standard_normal(n)
    found = make_tables(study, {c: factor + rng.standard_normal(n) for columns in names.values() for c in columns})
    for party, frame in found.items():
        holes = {
            c: pl.when(pl.Series(rng.random(n) < 0.3)).then(None).otherwise(pl.col(c)) for c in names[party] if c != "y"
        }
        found[party] = frame.with_columns(**holes)
    began = time.process_time()
    fit = fit_seeded(study, found, 1, method=method, unit="variable", epsilon=4.0, rounds=2)
    assert time.process_time() - began < 20.0
    assert_usable(fit)
    if fit.result_.refinement is not None:
        assert fit.result_.refinement.patterns > 550
        assert fit.correlation_.loc["left.y", "right.b0"] == pytest.approx(0.5, abs=0.15)
