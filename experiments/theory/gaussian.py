"""A small federation of normal columns, and what a method of the library makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula import Synthesizer
from verticopula.errors import NotPrivateWarning
from verticopula.schema.federation import Federation
from verticopula.schema.methods import OWN_VARIANT
from verticopula.stats.fit_result import FitResult

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ROUNDS = 40  # of IEVCDS: by then its answer rests
BOUND = 5.0


def make_federation(sizes: Sequence[int]) -> Federation:
    """Parties p0, p1 ... with so many standard normal columns x0, x1 ...; x0 is the response."""
    starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    parties = [
        {
            "name": f"p{k}",
            "column": [
                {"name": f"x{j}", "kind": "continuous", "bounds": (-BOUND, BOUND), "clamp": True}
                for j in range(starts[k], starts[k + 1])
            ],
        }
        for k in range(len(sizes))
    ]
    return Federation.from_dict({"name": "theory", "response": "p0.x0", "id": "id", "party": parties})


def make_tables(values: Floats, sizes: Sequence[int], observed: Bools | None = None) -> dict[str, pl.DataFrame]:
    """The parties' tables; `observed` is (n, K)."""
    ids = pl.Series("id", [f"s{i}" for i in range(len(values))])
    starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    tables = {}
    for k in range(len(sizes)):
        columns = [pl.Series(f"x{j}", np.ascontiguousarray(values[:, j])) for j in range(starts[k], starts[k + 1])]
        table = pl.DataFrame([ids, *columns])
        tables[f"p{k}"] = table if observed is None else table.filter(pl.Series(observed[:, k]))
    return tables


def fit(
    name: str,
    federation: Federation,
    tables: dict[str, pl.DataFrame],
    epsilon: float,
    seed: int,
    rounds: int = ROUNDS,
    *,
    split: bool = False,
) -> Synthesizer:
    """A fitted study at `epsilon` per comparison and per value of a marginal.

    IEVCDS spends `epsilon` in every round, or in all rounds together if `split`. The checks take their methods
    from the mappings of names to labels at their heads.

    Parameters
    ----------
    name : a method, or a method and the variant (`ievcds as-printed`)
    """
    method, _, variant = name.partition(" ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return Synthesizer(
            federation,
            method,
            unit="variable",
            random_state=seed,
            epsilon_ranks=epsilon,
            epsilon_marginals=epsilon,
            rounds=rounds,
            per_round=method == "ievcds" and not split,
            variant=variant or OWN_VARIANT,
        ).fit(tables)


def margin_at(result: FitResult, column: int, values: Floats) -> Floats:
    """The fitted distribution function of column x<column>."""
    key = next(key for key in result.copula.layout.keys if key.column == f"x{column}")
    return result.copula.margins[key].cdf(values)
