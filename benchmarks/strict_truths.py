"""Strict mode where the truth is no factor model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.strict_central import draw, fit, make, open_all
from reporting.tables import Table

Floats = NDArray[np.float64]

PARTIES, PER_PARTY = 4, 10
KINDS = "cnobcnobcn"
SHIFTS = {"a": 0.4, "b": -0.4, "c": 0.0}  # log odds of being known to a party; everybody is known to the last, d


def correlations() -> dict[str, Floats]:
    """Four truths over 40 latents, party after party."""
    q = PARTIES * PER_PARTY
    place = np.arange(q)
    owner = place // PER_PARTY
    mixed = np.random.default_rng(3).permutation(q)
    blocks = np.where(owner[:, None] == owner, 0.4, 0.15)
    np.fill_diagonal(blocks, 1.0)
    rows = np.random.default_rng(4).standard_normal((q, 30))
    dense = rows @ rows.T / 30.0 + 0.3 * np.eye(q)
    scale = 1.0 / np.sqrt(np.diag(dense))
    return {
        "neighbours (0.6^distance)": 0.6 ** np.abs(place[:, None] - place),
        "neighbours, scattered over parties": 0.6 ** np.abs(mixed[:, None] - mixed),
        "blocks (0.4 inside, 0.15 across)": blocks,
        "dense, 30 directions": dense * np.outer(scale, scale),
    }


def measure_truths(n: int, epsilons: Sequence[float], seeds: Iterable[int]) -> list[dict[str, Any]]:
    found = []
    for name, truth in correlations().items():
        off = ~np.eye(len(truth), dtype=bool)
        for epsilon in epsilons:
            errors, raw, seconds, ranks = [], [], [], []
            for seed in seeds:
                latent = draw(truth, n, seed)
                rng = np.random.default_rng([seed, 5])
                odds = 0.6 * latent[:, -10:-7] - 0.4 * latent[:, -5:-2]
                seen = {
                    party: rng.random(n) < 1.0 / (1.0 + np.exp(-shift - odds[:, i]))
                    for i, (party, shift) in enumerate(SHIFTS.items())
                }
                made = make(dict.fromkeys("abcd", KINDS), latent, seen)
                opened = open_all(made, epsilon, seed=seed)
                start = time.process_time()
                fitted = fit(made, opened)
                seconds.append(time.process_time() - start)
                errors.append(float(np.sqrt(np.mean((fitted.copula.correlation - truth)[off] ** 2))))
                raw.append(float(np.sqrt(np.mean(fitted.strict.raw_error**2))))
                ranks.append(fitted.strict.rank)
            zero = float(np.sqrt(np.mean(truth[off] ** 2)))
            found.append(
                {
                    **{"truth": name, "epsilon": epsilon, "rmse": errors, "raw": raw, "of_zero": zero},
                    **{"seconds": seconds, "rank": ranks},
                }
            )
    return found


def tabulate_truths(found: Sequence[Mapping[str, Any]]) -> Table:
    rows = tuple(
        (
            run["truth"],
            f"{run['epsilon']:g}",
            f"{mean(run['rmse']):.4f}",
            f"{mean(run['raw']):.3f}",
            f"{run['of_zero']:.3f}",
            ", ".join(map(str, run["rank"])),
            f"{mean(run['seconds']):.1f}",
        )
        for run in found
    )
    header = ("truth", "ε per person", "RMSE", "from noise and overlap alone", "of no correlation", "factors", "s")
    title = "Truths that are no factor model: 4 parties, 40 columns, blocks missing at random"
    return Table(title, header, rows, heads=2)
