"""Atoms, even cells of counts far from 0, and the threshold of symlog: public cells, margins and what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import make_federation, make_tables
from verticopula import Column, Federation, NotPrivateWarning, Synthesizer
from verticopula.errors import SchemaError
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.margin_cells import (
    cell_count,
    count_cells,
    count_ranges,
    from_unit,
    scale_pieces,
    to_cells,
    to_unit,
)
from verticopula.stats.marginals import Marginal, release_cells
from verticopula.stats.strict.gaussian_margins import cell_sensitivity, gaussian_cell_count, margin_mu


def spiked(n: int = 20_000, seed: int = 0) -> np.ndarray:
    """A third is 0, a tenth 100, the rest lies between."""
    rng = np.random.default_rng(seed)
    kind = rng.random(n)
    return np.where(kind < 1 / 3, 0.0, np.where(kind < 1 / 3 + 0.1, 100.0, 100.0 * rng.beta(2, 4, n)))


def margin_of(values: np.ndarray, column: Column, epsilon: float = 100.0) -> Marginal:
    cells = cell_count(column, values.size, epsilon)
    noisy = release_cells(to_cells(values, column, cells), cells, epsilon, SeededNoise(0), "test")
    return Marginal.from_release(column, noisy, values.size, epsilon)


def kolmogorov(first: np.ndarray, second: np.ndarray) -> float:
    points = np.unique(np.concatenate([first, second]))
    below = [np.searchsorted(np.sort(own), points, side="right") / own.size for own in (first, second)]
    return float(np.abs(below[0] - below[1]).max())


def sampled(margin: Marginal, n: int = 20_000) -> np.ndarray:
    return margin.quantile((np.arange(n) + 0.5) / n)


# ---- atoms -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["continuous", "count"])
def test_atoms_come_out_exactly_and_as_often(kind: str) -> None:
    values = spiked() if kind == "continuous" else np.rint(spiked())
    column = Column(name="x", kind=kind, bounds=(0, 100), atoms=(0, 100))
    drawn = sampled(margin_of(values, column))
    for atom in (0.0, 100.0):
        assert abs(np.mean(drawn == atom) - np.mean(values == atom)) < 0.005
    assert kolmogorov(values, drawn) < 0.02
    if kind == "continuous":  # and without atoms they are lost
        assert kolmogorov(values, sampled(margin_of(values, Column(name="x", kind=kind, bounds=(0, 100))))) > 0.05


@pytest.mark.parametrize("scale", ["linear", "symlog"])
@pytest.mark.parametrize("atoms", [(), (0.0,), (-5.0, 0.0, 20.0), (100.0,), (-100.0, 3.0, 3.5, 100.0)])
def test_cells_are_ordered_runs_and_every_value_has_one(scale: str, atoms: tuple[float, ...]) -> None:
    column = Column(name="x", kind="continuous", bounds=(-100, 100), scale=scale, atoms=atoms)
    n_cells = cell_count(column, 50, 0.1)
    pieces = scale_pieces(column, n_cells)
    assert [p.start for p in pieces] == [0, *(p.stop for p in pieces[:-1])]
    assert pieces[-1].stop == n_cells
    values = np.sort(np.concatenate([from_unit(np.linspace(0, 1, 4_001), column), np.array(atoms)]))
    cells = to_cells(values, column, n_cells)
    assert (np.diff(cells) >= 0).all()
    assert set(cells.tolist()) == set(range(n_cells))
    for atom in atoms:
        assert set(values[cells == to_cells(np.array([atom]), column, n_cells)[0]]) == {atom}


@pytest.mark.parametrize("atoms", [(), (0.0, 40.0)])
def test_quantile_inverts_the_distribution_function(atoms: tuple[float, ...]) -> None:
    column = Column(name="x", kind="continuous", bounds=(0, 100), atoms=atoms)
    n_cells = cell_count(column, 500, 1.0)
    weights = 1.0 + np.arange(n_cells) % 5
    margin = Marginal(column, weights / weights.sum(), 0.0)
    grades = np.linspace(0.001, 0.999, 777)
    values = margin.quantile(grades)
    assert (np.diff(values) >= 0.0).all()
    free = ~np.isin(values, atoms)
    np.testing.assert_allclose(margin.cdf(values)[free], grades[free], atol=1e-6)
    assert (margin.cdf(values)[~free] >= grades[~free] - 1e-9).all()
    np.testing.assert_allclose(margin.cdf(margin.upper_ends())[-1], 1.0)


def test_ties_are_those_of_atoms() -> None:
    """Against a large sample of the margin."""
    values = spiked(4_000, seed=1)
    margin = margin_of(values, Column(name="x", kind="continuous", bounds=(0, 100), atoms=(0, 100)))
    share = [np.mean(values == atom) for atom in (0.0, 100.0)]
    assert margin.tied_share == pytest.approx(sum(s**2 for s in share), abs=0.005)
    assert margin.grade_variance == pytest.approx((1 - sum(s**3 for s in share)) / 12, abs=0.001)
    steps, jumps = margin.grade_steps
    assert jumps.max() > share[0] / 2
    assert steps[0] == pytest.approx(share[0], abs=0.005)
    assert np.diff(steps).max() < 0.05  # what lies between atoms is nearly a continuum


@pytest.mark.parametrize("column", [
    Column(name="x", kind="continuous", bounds=(0, 100), atoms=(0, 50)),
    Column(name="x", kind="count", bounds=(0, 1_000), atoms=(500,)),
    Column(name="x", kind="count", bounds=(1940, 2018)),
])  # fmt: skip
def test_one_person_moves_two_cells_whatever_cells_there_are(column: Column) -> None:
    """Cells, and so the price, are computed from the schema and the number of people: no value is looked at."""
    low, high = column.bounds or (0, 1)
    for n_cells in (cell_count(column, 60, 1.0), gaussian_cell_count(column, 60, 3.0)):
        before = np.bincount(to_cells(np.full(60, low), column, n_cells), minlength=n_cells)
        for value in (low, high, *column.atoms, (low + high) // 2):
            changed = np.append(np.full(59, low), value)
            after = np.bincount(to_cells(changed, column, n_cells), minlength=n_cells)
            assert np.linalg.norm(after - before) <= cell_sensitivity(n_cells)
    assert margin_mu(column, 60, 3.0) == cell_sensitivity(3) / 3.0


def test_ranks_with_atoms_give_the_right_correlation() -> None:
    """A latent correlation of 0.7, one column with a spike of 40 %: the bridge undoes its ties."""
    rng = np.random.default_rng(2)
    z = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], 3_000)
    values = {"y": z[:, 0], "x": np.maximum(z[:, 1] - np.quantile(z[:, 1], 0.4), 0.0)}
    found = {}
    for atoms in ((0,), ()):
        study = make_federation(
            {
                "a": {"y": {"kind": "continuous", "bounds": [-6, 6]}},
                "b": {"x": {"kind": "continuous", "bounds": [0, 6], "atoms": list(atoms)}},
            }
        )
        with pytest.warns(NotPrivateWarning):
            fitted = Synthesizer(study, method="vcds", epsilon=50.0, random_state=1).fit(make_tables(study, values))
        found[atoms] = float(fitted.correlation_.iloc[0, 1])
        if atoms:
            made = fitted.sample(4_000)["b"]["x"].to_numpy()
            assert abs(np.mean(made == 0.0) - 0.4) < 5.0 * np.sqrt(0.24 / 3_000)
    assert abs(found[(0,)] - 0.7) < 0.04  # twice the standard error of 3,000 people, and noise
    assert abs(found[()] - 0.7) > abs(found[(0,)] - 0.7)


# ---- counts far from 0 -------------------------------------------------------------------


def test_years_have_even_cells_and_a_good_margin() -> None:
    years = np.clip(np.rint(2018 - np.random.default_rng(3).gamma(2, 8, 20_000)), 1940, 2018)
    drawn = {
        cells: sampled(margin_of(years, Column(name="x", kind="count", bounds=(1940, 2018), cells=cells)))
        for cells in (None, "growing")
    }
    assert kolmogorov(years, drawn[None]) < 0.02
    assert kolmogorov(years, drawn["growing"]) > 0.04


@pytest.mark.parametrize(
    ("bounds", "even"),
    [
        ((1940, 2018), True),
        ((18, 100), False),
        ((0, 500), False),
        ((1, 500), False),
        ((-1, 500), False),
        ((-100, 100), True),
    ],
)
def test_the_rule_looks_at_bounds_only(bounds: tuple[int, int], even: bool) -> None:
    column = Column(name="x", kind="count", bounds=bounds)
    assert column.has_even_cells == even
    np.testing.assert_array_equal(count_cells(column), count_ranges(*bounds, even=even))
    assert Column(name="x", kind="count", bounds=("2000-01-01", "2020-12-31")).has_even_cells


@pytest.mark.parametrize("width", [128, 129, 200, 1_000, 10**9])
def test_even_cells_differ_by_one_value_at_most(width: int) -> None:
    widths = np.diff(count_ranges(1_000, 1_000 + width - 1, even=True))
    assert widths.sum() == width
    assert widths.max() - widths.min() <= 1
    assert widths.size == 128


def test_a_study_saved_before_keeps_growing_cells(tmp_path: Path) -> None:
    study = make_federation({"a": {"y": {"kind": "count", "bounds": [1940, 2018]}}, "b": {"x": {"kind": "binary"}}})
    rng = np.random.default_rng(4)
    values = {"y": rng.integers(1940, 2019, 200), "x": rng.integers(0, 2, 200)}
    old = Federation.from_dict(
        {**study.to_dict(), "party": [
            {**p, "column": [c | ({"cells": "growing"} if c["kind"] == "count" else {}) for c in p["column"]]}
            for p in study.to_dict()["party"]
        ]}
    )  # fmt: skip
    with pytest.warns(NotPrivateWarning):
        fitted = Synthesizer(old, method="vcds", epsilon=10.0, random_state=1).fit(make_tables(old, values))
    fitted.save(tmp_path / "new.json")
    raw = json.loads((tmp_path / "new.json").read_text())
    raw["federation"] = study.to_dict()  # an earlier version knew no `cells`
    del raw["count_cells"]
    (tmp_path / "old.json").write_text(json.dumps(raw))
    loaded = Synthesizer.load(tmp_path / "old.json")
    np.testing.assert_array_equal(
        loaded.sample(50)["a"]["y"], Synthesizer.load(tmp_path / "new.json").sample(50)["a"]["y"]
    )


# ---- symlog, and the file ----------------------------------------------------------------


@pytest.mark.parametrize("threshold", [1.0, 100.0])
def test_symlog_turns_at_its_threshold(threshold: float) -> None:
    column = Column(name="x", kind="continuous", bounds=(-1e6, 1e6), scale="symlog", threshold=threshold)
    values = np.array([-1e6, -50.0, 0.0, 0.01, 50.0, 1e6])
    t = to_unit(values, column)
    expected = np.sign(values) * np.log1p(np.abs(values) / threshold) / np.log1p(1e6 / threshold)
    np.testing.assert_allclose(t, (expected + 1) / 2, atol=1e-12)
    np.testing.assert_allclose(from_unit(t, column), values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "continuous", "bounds": [0, 1], "atoms": [2]}, "within the bounds"),
        ({"kind": "continuous", "bounds": [0, 1], "atoms": [1, 0]}, "rise"),
        ({"kind": "count", "bounds": [0, 9], "atoms": [0.5]}, "whole"),
        ({"kind": "binary", "atoms": [0]}, "continuous and count"),
        ({"kind": "continuous", "bounds": [0, 1], "decimals": 1, "atoms": [0.25]}, "digits"),
        ({"kind": "continuous", "bounds": [0, 1], "threshold": 2.0}, "symlog"),
        ({"kind": "continuous", "bounds": [0, 1], "scale": "symlog", "threshold": 0.0}, "positive"),
        ({"kind": "continuous", "bounds": [0, 1], "cells": "even"}, "count columns"),
    ],
)
def test_keys_that_make_no_sense_are_problems(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        make_federation({"a": {"x": wrong}})


def test_the_file_keeps_new_keys_and_is_as_before_without_them(tmp_path: Path) -> None:
    study = make_federation(
        {
            "a": {
                "x": {"kind": "continuous", "bounds": [-5, 5], "scale": "symlog", "threshold": 2.0, "atoms": [0, 5]},
                "n": {"kind": "count", "bounds": [0, 900], "cells": "even", "atoms": [100]},
                "d": {"kind": "count", "bounds": ["2000-01-01", "2020-01-01"], "atoms": ["2010-01-01"]},
                "y": {"kind": "continuous", "bounds": [0, 1]},
            }
        }
    )
    study.to_toml(tmp_path / "f.toml")
    assert Federation.from_toml(tmp_path / "f.toml") == study
    assert study.to_dict()["party"][0]["column"][3] == {"name": "y", "kind": "continuous", "bounds": [0.0, 1.0]}
