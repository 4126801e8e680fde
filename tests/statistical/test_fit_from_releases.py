"""The coordinator's side alone: odd releases in, a usable copula out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.builders import CONTINUOUS, make_federation
from verticopula.errors import ProtocolError
from verticopula.privacy.budget import ColumnBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.consent_messages import PresenceReply
from verticopula.protocol.rank_messages import ColumnRelease, ReleaseReply
from verticopula.protocol.shared_rounds import gather_presence, gather_releases
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.stats.copula import Layout
from verticopula.stats.marginals import Marginal
from verticopula.stats.pairwise import fit_pairwise
from verticopula.stats.rank_release import RankRelease
from verticopula.stats.ranks import flip_comparisons

Floats = NDArray[np.float64]

N = 150
EPSILON = 0.2  # per comparison: a standard error of about 0.3 on each correlation


def fitted(columns: dict[str, Any], values: dict[str, Floats], cells: dict[str, list[int]]) -> Floats:
    """Latent correlations from releases whose noisy cell counts are given by hand."""
    federation = make_federation({"left": columns})
    everybody = np.ones(N, dtype=bool)
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    margins, noisy, observed, budgets = {}, {}, {}, {}
    for key in federation.keys:
        keystream = SeededNoise(70).stream(key.column)
        ranks = flip_comparisons(values[key.column], EPSILON, keystream)[:, None]
        counts = np.array(cells.get(key.column, [N // 4] * 4))
        margins[key], noisy[key] = Marginal.from_release(federation.column(key), counts, N, 1.0), ranks
        observed[key], budgets[key] = everybody, ColumnBudget(EPSILON, 1.0)
    return fit_pairwise(RankRelease.build(layout, margins, observed, noisy, budgets, "exact"))[0]


def test_a_column_that_says_nothing_does_not_shrink_the_others() -> None:
    """All of a binary column's noisy mass in one cell, beside eight columns with honest noise."""
    rng = np.random.default_rng(1)
    q = 8
    values = {f"x{j}": rng.standard_normal(N) for j in range(q)}
    for j in range(1, q):
        values[f"x{j}"] += 0.6 * rng.choice([-1, 1]) * values["x0"]
    values["flag"] = (np.arange(N) == 0).astype(np.float64)
    columns: dict[str, Any] = {f"x{j}": CONTINUOUS for j in range(q)}
    alone = fitted(columns, values, {})
    together = fitted({**columns, "flag": {"kind": "binary"}}, values, {"flag": [N, 0]})[:q, :q]
    off = ~np.eye(q, dtype=bool)
    assert np.abs(alone[off]).mean() > 0.02
    assert np.abs(together[off]).mean() > 0.8 * np.abs(alone[off]).mean()


def test_a_flat_column_warns_of_nothing() -> None:
    rng = np.random.default_rng(2)
    values = {"x": rng.standard_normal(N), "flag": (np.arange(N) == 0).astype(np.float64)}
    found = fitted({"x": CONTINUOUS, "flag": {"kind": "binary"}}, values, {"flag": [N, 0]})
    np.testing.assert_array_equal(found, np.eye(2))


def federation() -> Federation:
    return make_federation({"left": {"x": CONTINUOUS, "g": {"kind": "nominal", "categories": ["u", "v", "w"]}}})


def honest() -> ReleaseReply:
    rng = np.random.default_rng(3)
    return ReleaseReply(
        "left",
        (
            ColumnRelease("x", rng.integers(1, 11, (10, 1), dtype=np.int32), np.zeros(4, dtype=np.int64)),
            ColumnRelease("g", rng.integers(1, 11, (10, 3), dtype=np.int32), np.zeros(3, dtype=np.int64)),
        ),
    )


def gather(reply: Any) -> dict[ColumnKey, ColumnRelease]:
    keys = federation().keys
    everybody = {key: np.ones(10, dtype=bool) for key in keys}
    return gather_releases(federation(), {"left": reply}, everybody, {key: ColumnBudget(1.0, 0.5) for key in keys})


def test_an_honest_reply_is_taken() -> None:
    assert set(gather(honest())) == set(federation().keys)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: ReleaseReply("left", r.columns[:1]),
        lambda r: ReleaseReply("left", (ColumnRelease("x", r.columns[0].ranks[:9], r.columns[0].cells), r.columns[1])),
        lambda r: ReleaseReply("left", (ColumnRelease("x", r.columns[0].ranks + 10, r.columns[0].cells), r.columns[1])),
        lambda r: ReleaseReply("left", (ColumnRelease("x", r.columns[0].ranks * 0, r.columns[0].cells), r.columns[1])),
        lambda r: ReleaseReply(
            "left", (r.columns[0], ColumnRelease("g", r.columns[1].ranks[:, :2], r.columns[1].cells))
        ),
        lambda r: ReleaseReply("left", (r.columns[0], ColumnRelease("g", r.columns[1].ranks, r.columns[1].cells[:2]))),
        lambda r: PresenceReply("left", np.ones((10, 2), dtype=bool), b""),
    ],
    ids=["missing", "short", "high", "zero", "narrow", "cells", "other"],
)
def test_a_reply_that_does_not_fit_is_refused(change: Any) -> None:
    with pytest.raises(ProtocolError):
        gather(change(honest()))


def test_presence_must_fit_the_federation() -> None:
    good = PresenceReply("left", np.ones((10, 2), dtype=bool), b"")
    assert len(gather_presence(federation(), {"left": good})) == 2
    for bad in (
        PresenceReply("left", np.ones((10, 3), dtype=bool), b""),
        PresenceReply("left", np.ones(10, dtype=bool), b""),
        honest(),
    ):
        with pytest.raises(ProtocolError):
            gather_presence(federation(), {"left": bad})
