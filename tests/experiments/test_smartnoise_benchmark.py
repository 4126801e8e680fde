"""What both sides of the comparison with a trusted curator are coded and judged by."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from scipy.stats.contingency import association

from benchmarks.smartnoise_codes import cells_of, code_tables, decode_codes
from benchmarks.smartnoise_measures import associations, cramers_v, encode_all
from verticopula.datasets import make_sme

STUDY = make_sme(300)
FEDERATION = STUDY.federation


@pytest.mark.parametrize("bins", [16, 64])
def test_codes_are_within_their_public_domains_and_survive_the_way_back(bins: int) -> None:
    codes, cards = code_tables(FEDERATION, STUDY.truth.complete, bins)
    values = codes.to_numpy()
    assert values.shape == (300, 55)
    assert cards == [cells_of(FEDERATION.column(key), bins) for key in FEDERATION.keys]
    assert ((values >= 0) & (values < cards)).all()
    back, _ = code_tables(FEDERATION, decode_codes(FEDERATION, codes, bins, np.random.default_rng(0)), bins)
    same = (back.to_numpy() == values).mean(axis=0)
    rounded = np.array([FEDERATION.column(key).kind == "continuous" for key in FEDERATION.keys])
    assert (same[~rounded] == 1.0).all()
    assert (same[rounded] > 0.95).all()  # a value is rounded to the column's decimals, at times across a cell's end


def test_a_gap_cannot_be_coded() -> None:
    tables = {name: table.clear(300) for name, table in STUDY.truth.complete.items()}
    with pytest.raises(ValueError, match="complete"):
        code_tables(FEDERATION, tables, 16)


def test_associations_are_the_textbooks() -> None:
    values = encode_all(FEDERATION, STUDY.truth.complete)
    ordered = {key: column for key, column in values.items() if FEDERATION.column(key).kind != "nominal"}
    nominal = [key for key in values if key not in ordered]
    cuts = {key: np.unique(np.quantile(column, np.arange(1, 10) / 10.0)) for key, column in ordered.items()}
    found = associations(values, cuts)
    assert len(found) == 55 * 54 // 2
    first, second = list(ordered)[:2]
    assert found[first, second] == pytest.approx(spearmanr(values[first], values[second]).statistic)
    a, b = nominal[:2]
    table = np.histogram2d(values[a], values[b], bins=(np.arange(7) - 0.5, np.arange(7) - 0.5))[0]
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(np.int64)
    assert found[a, b] == pytest.approx(association(table, method="cramer"))


def test_a_constant_column_goes_with_nothing() -> None:
    codes = np.arange(20) % 3
    assert cramers_v(codes, np.zeros(20, dtype=np.int64)) == 0.0
    assert cramers_v(codes, codes) == pytest.approx(1.0)
