"""The audited release of a party's margins has the cells of its exact counts, one for empty values among them."""

from __future__ import annotations

import pytest

from verticopula.auditing.releases.neighbours import replaced_value
from verticopula.auditing.sums.strict_attacks import MarginsRelease
from verticopula.privacy.noise import SeededNoise
from verticopula.schema.federation import Party

KINDS = ({"kind": "continuous", "bounds": [0, 9]}, {"kind": "binary"}, {"kind": "count", "bounds": [0, 5]})


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("columns", [1, 3])
def test_released_and_exact_margins_have_the_same_cells(columns: int, required: bool) -> None:
    described = [{"name": f"x{i}", **kind, "required": required} for i, kind in enumerate(KINDS[:columns])]
    party = Party.model_validate({"name": "bank", "column": described})
    release = MarginsRelease({column.name: 5.0 for column in party.columns})
    pair = replaced_value(party, [column.name for column in party.columns], 20)
    for table in (pair.first, pair.second):
        got, known = release(table, SeededNoise(1)), release.exact(table)
        assert got.shape == known.shape
        assert abs(got - known).max() < 7.0  # standard deviations of the noise
