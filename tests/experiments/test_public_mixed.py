"""Public tables of numbers and categories: cells, lost blocks, and models on synthetic rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import CATALOGUE
from benchmarks.public_cells import PublicSetting, read_entries
from benchmarks.public_gaps import fill_blocks, keep_complete, lose_blocks
from benchmarks.public_mixed import PARTIES, model_areas, read_mixed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Amounts with a spike at 0 and gaps, a signed number, a category, a count; the response follows the amount."""
    rng = np.random.default_rng(1)
    n = 1_500
    amount = np.where(rng.random(n) < 0.3, 0.0, np.exp(rng.normal(4.0, 1.0, n)))
    signed, count = rng.normal(0.0, 50.0, n), rng.poisson(3.0, n)
    group = rng.choice(["a", "b", "c"], n)
    label = np.where(np.log1p(amount) + rng.normal(0.0, 1.0, n) > 3.0, "h", "g")
    lines = [
        f"{'' if gap else f'{x:.2f}'},{s:.3f},{g},{c},{y}"
        for x, s, g, c, y, gap in zip(amount, signed, group, count, label, rng.random(n) < 0.1, strict=True)
    ]
    (tmp_path / "magic.csv").write_text("\n".join(["amount,signed,group,count,label", *lines]), encoding="utf-8")
    return tmp_path


def test_cells_and_positions_give_numbers_back(folder: Path) -> None:
    table = read_mixed(folder, "magic")
    amount, signed, group, count, label = table.columns
    assert [c.ordered for c in table.columns] == [True, True, False, True, True]
    assert (amount.may_be_empty, signed.may_be_empty, label.n_cells, group.n_cells) == (True, False, 2, 3)
    for j, column in enumerate(table.columns):
        middle = column.decode(table.codes[:, j], np.full(len(table.codes), 0.5))
        real = table.numbers[:, j]
        assert (np.isnan(middle) == np.isnan(real)).all()
        filled = ~np.isnan(real)
        assert ((middle[filled] == 0.0) >= (real[filled] == 0.0)).all()
        stretched = [np.sign(x[filled]) * np.log1p(np.abs(x[filled])) for x in (middle, real)]
        width = 0.0 if column.ends is None else float(np.max(np.diff(column.ends[1:])))
        assert np.abs(stretched[0] - stretched[1]).max() <= 0.5 * width + 1e-9
    assert count.ends is None


def test_blocks_are_lost_as_wholes_and_the_last_party_keeps_all(folder: Path) -> None:
    table = read_mixed(folder, "magic")
    coded = table.coded()
    held = lose_blocks(table.codes, coded, 0.3, np.random.default_rng(0))
    for party in range(PARTIES):
        own = [j for j, c in enumerate(coded) if c.party == party]
        lost = held[:, own] < 0
        assert (lost.all(axis=1) == lost.any(axis=1)).all()
        share = lost.any(axis=1).mean()
        assert share == 0.0 if party == PARTIES - 1 else 0.2 < share < 0.4


def test_models_find_what_there_is(folder: Path) -> None:
    table = read_mixed(folder, "magic")
    linear, boosted = model_areas(table, table.numbers[:1_000], table.numbers[1_000:])
    assert min(linear, boosted) > 0.75
    rng = np.random.default_rng(2)
    shuffled = table.numbers[:1_000].copy()
    shuffled[:, -1] = rng.permutation(shuffled[:, -1])
    assert model_areas(table, shuffled, table.numbers[1_000:])[1] < 0.65


def test_numbers_are_coded_as_the_table_codes_them(folder: Path) -> None:
    table = read_mixed(folder, "magic")
    for j, column in enumerate(table.columns):
        assert (column.encode(table.numbers[:, j]) == table.codes[:, j]).all()
    amount = table.columns[0]
    assert amount.encode(np.array([1e12, 0.0, np.nan])).tolist() == [amount.n_cells - 1, 0, amount.n_cells]


def test_a_curator_fills_blocks_or_leaves_their_people_out(folder: Path) -> None:
    table = read_mixed(folder, "magic")
    coded = table.coded()
    held = lose_blocks(table.codes, coded, 0.3, np.random.default_rng(0))
    filled, whole = fill_blocks(held, coded), keep_complete(held)
    assert (filled >= 0).all()
    assert (filled[held >= 0] == held[held >= 0]).all()
    for j, column in enumerate(coded):
        known, put = held[held[:, j] >= 0, j], np.unique(filled[held[:, j] < 0, j])
        usual = round(known.mean()) if column.ordered else np.bincount(known).argmax()
        assert put.tolist() in ([], [usual])
    assert len(whole) == (held >= 0).all(axis=1).sum() > 0


def test_several_classes_are_told_from_each_other(folder: Path) -> None:
    table = read_mixed(folder, "magic")
    rng = np.random.default_rng(3)
    rows = table.numbers.copy()
    rows[:, -1] = np.digitize(np.nan_to_num(rows[:, 1]) + rng.normal(0.0, 10.0, len(rows)), [-20.0, 20.0])
    linear, boosted = model_areas(table, rows[:1_000], rows[1_000:])
    assert min(linear, boosted) > 0.85
    two = rows[:1_000][rows[:1_000, -1] < 2]  # nothing is known about the third class: a half of its area
    assert model_areas(table, two, rows[1_000:])[1] < boosted


def test_the_grid_compares_models(folder: Path) -> None:
    out = folder / "out"
    words = ["public", "--quick", "--data", str(folder), "--out", str(out), "--part", "magic"]
    assert CATALOGUE.main([*words, "--parties", "4", "--gaps", "missing", "--epsilon", "3.2"]) == 0
    found = read_entries(out, PublicSetting("magic", 4, missing=True), 0)
    assert set(found) == {"real", "resampled", "independent@3.2", "strict@3.2"}
    assert found["strict@3.2"]["boosted"] > found["independent@3.2"]["boosted"]
    assert found["strict@3.2"]["across"] < found["independent@3.2"]["across"]
    assert found["real"]["tvd"] == [0.0, 0.0, 0.0]
    assert found["resampled"]["shape"] == [1_050, 5]
    assert "Gradient boosting" in (out / "public.md").read_text(encoding="utf-8")
