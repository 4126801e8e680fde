"""The rank release that IEVCDS's cost is measured by, and how parts of the benchmark are kept."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np

from benchmarks.refinement import read_parts
from benchmarks.refinement_cost import Cost
from benchmarks.refinement_growth import GrowthPoint
from benchmarks.refinement_ievcds import order_strictly
from benchmarks.refinement_toy import ToyResult
from benchmarks.timing import Timing
from verticopula.data.tables import align_tables
from verticopula.datasets import make_sme


def test_strict_order_keeps_the_order_and_leaves_no_ties() -> None:
    study = make_sme(400)
    rng = np.random.default_rng(0)
    for table in align_tables(study.federation, study.truth.complete).values():
        strict = order_strictly(table, rng)
        for column in table.party.columns:
            before, after = table.columns[column.name].values, strict.columns[column.name].values
            if column.is_discrete:
                assert np.array_equal(before, after)
            else:
                assert np.array_equal(np.sort(after), np.arange(after.size))
                assert (np.diff(before[np.argsort(after)]) >= 0).all()


def test_kept_parts_give_the_same_tables() -> None:
    cost = Cost(10, 3, 1.5, 0.5, 4, 2, True, 1_000)
    toy = ToyResult("refined", 0.5, (0.7, 0.01), (0.5, 0.02))
    times = {name: Timing((1.0, 2.0), (1.5, 2.5)) for name in ("fit", "ranks", "tied")}
    point = GrowthPoint(100, 0.1, 0.01)
    results = {
        "toy": [{**asdict(toy), "biases": toy.biases}],
        "cost": {"SME": {**asdict(cost), "rank_releases": cost.releases}},
        "ievcds": {500: {**{name: t.to_dict() for name, t in times.items()}, "rank_releases_ratio": 0.1}},
        "growth": {"N": [asdict(point)]},
        "adjustment": {10: times["fit"].to_dict()},
    }
    kept = read_parts(json.loads(json.dumps(results)))
    assert kept["toy"] == [toy]
    assert kept["cost"] == {"SME": cost}
    assert kept["ievcds"] == {500: times}
    assert kept["growth"] == {"N": [point]}
    assert kept["adjustment"] == {10: times["fit"]}
