"""Aligned rows where the fitted correlation is nearly singular: latents of missing values have the right spread.

The design has what broke real loans: flags and counts that are functions of the year, but not monotone ones. No normal
copula is true of them, and the correlation that their ranks imply is not positive definite before its repair.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from tests.builders import CONTINUOUS, fit_seeded, make_federation, make_tables
from verticopula import Federation, Synthesizer

BINARY = {"kind": "binary"}
COUNT = {"kind": "count", "bounds": [0, 20]}
LOSSES = {"bank": (0.5, -1.0), "registry": (-1.0, -0.7), "labour": (1.0, 0.0)}  # weight of the year, and constant


def loans_federation() -> Federation:
    return make_federation(
        {
            "agency": {"default": BINARY, "year": CONTINUOUS, "amount": CONTINUOUS},
            "bank": {"short": BINARY, "line": BINARY, "same": BINARY},
            "registry": {"unstated": BINARY, "staff": CONTINUOUS},
            "labour": {"jobs": COUNT, "kept": COUNT},
        }
    )


def make_loans(n: int, seed: int) -> dict[str, pl.DataFrame]:
    """Rules that changed with the year; the agency knows everybody, the others lose blocks at random given the year."""
    rng = np.random.default_rng(seed)
    year, amount = rng.standard_normal((2, n))

    def during(low: float, high: float, share: float) -> Any:
        return ((year > low) & (year <= high) & (rng.random(n) < share)).astype(int)

    def hired_after(start: float) -> Any:
        return np.where(year > start, np.minimum(rng.poisson(np.exp(0.5 * amount)), 20), 0)

    values = {
        "default": (0.7 * year - 0.5 * amount + rng.standard_normal(n) > 0.8).astype(int),
        "year": year,
        "amount": amount,
        "short": during(-0.6, 0.3, 0.7),
        "line": during(0.1, np.inf, 0.7),
        "same": (0.4 * amount + rng.standard_normal(n) > 0.0).astype(int),
        "unstated": during(-np.inf, -0.6, 0.9),
        "staff": amount + rng.standard_normal(n),
        "jobs": hired_after(-0.6),
        "kept": hired_after(-0.2),
    }
    tables = make_tables(loans_federation(), values)
    lost = {name: rng.random(n) < expit(constant + weight * year) for name, (weight, constant) in LOSSES.items()}
    return {name: table.filter(pl.Series(~lost[name])) if name in lost else table for name, table in tables.items()}


def fit_loans(method: str, seed: int) -> Synthesizer:
    settings = {"rounds": 4, "per_round": True} if method == "ievcds" else {}
    shares = {"epsilon_ranks": 1.0, "epsilon_marginals": 1.0}
    return fit_seeded(
        loans_federation(), make_loans(4_000, seed), seed, method=method, unit="variable", **shares, **settings
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("method", ["evcds", "ievcds"])
def test_observed_and_redrawn_latents_together_have_unit_spread(method: str, seed: int) -> None:
    result = fit_loans(method, seed).result_
    assert np.linalg.eigvalsh(result.copula.correlation)[0] < 0.02
    assert result.draw_aligned is not None
    latents = result.draw_aligned(np.random.default_rng(seed))
    np.testing.assert_allclose(latents.std(axis=0), 1.0, atol=0.1)
