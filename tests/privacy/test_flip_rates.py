"""What a party draws is what its ledger says, for every kind of column and both samplers.

A rate of flipped comparisons is estimated from noisy ranks alone. With b values below a subject's, a above and t ties,
d = b - a and theta the rate, its noisy rank has the mean 1 + (n-1)/2 + d (1 - 2 theta)/2. So

    1 - 2 theta  =  2 sum_s d_s (R_s - 1 - (n-1)/2) / sum_s d_s^2  on average.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.builders import CONTINUOUS, make_federation, make_party
from verticopula.privacy.noise import Keystream, SecureNoise, SeededNoise
from verticopula.privacy.release import Release
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseReply, ReleaseRequest
from verticopula.schema.federation import Federation
from verticopula.stats.margin_cells import to_cells

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

N = 900
DEVIATIONS = 5.0  # a test fails once in a million runs by accident
KINDS: dict[str, dict[str, Any]] = {
    "binary": {"kind": "binary"},
    "ordinal": {"kind": "ordinal", "categories": ["low", "middle", "high", "highest"]},
    "two": {"kind": "nominal", "categories": ["x", "y"]},
    "three": {"kind": "nominal", "categories": ["x", "y", "z"]},
    "five": {"kind": "nominal", "categories": ["a", "b", "c", "d", "e"]},
    "count": {"kind": "count", "bounds": [0, 9]},
    "continuous": CONTINUOUS,
}
# How many coins a comparison is behind: indicators that a replaced value touches, times draws of each.
COINS = {"exact": {"three": 2, "five": 2}, "binomial": dict.fromkeys(KINDS, 2) | {"three": 4, "five": 4}}


def federation() -> Federation:
    return make_federation({"left": KINDS})


def values(n: int) -> dict[str, Floats]:
    rng = np.random.default_rng(7)
    levels = {"binary": 2, "ordinal": 4, "two": 2, "three": 3, "five": 5, "count": 10}
    drawn = {name: rng.permutation(np.arange(n) % count).astype(np.float64) for name, count in levels.items()}
    return {**drawn, "continuous": rng.permutation(np.linspace(-3.0, 3.0, n))}


def request(sampler: str, ranks: float, margin: float, study: str = "study") -> ReleaseRequest:
    return ReleaseRequest(study, "vcds", sampler, tuple(ColumnQuery(name, ranks, margin) for name in KINDS))


def released(party: LocalParty, asked: ReleaseRequest) -> ReleaseReply:
    reply = party.handle(asked)
    assert isinstance(reply, ReleaseReply)
    return reply


def entry_of(party: LocalParty, column: str, what: str) -> Release:
    (entry,) = (entry for entry in party.control.ledger if (entry.column, entry.what) == (column, what))
    return entry


def rate_of(epsilon: float) -> float:
    return 1.0 / (1.0 + math.exp(epsilon))


def estimated_rate(latent: Floats, ranks: Ints, theta: float, sampler: str) -> tuple[float, float]:
    """The rate of flipped comparisons that noisy ranks show, and its standard deviation if it is `theta`."""
    below = (latent[:, None] > latent[None, :]).sum(axis=1)
    above = (latent[:, None] < latent[None, :]).sum(axis=1)
    n, d = latent.size, (below - above).astype(np.float64)
    squares = float(d @ d)
    rate = 0.5 - float(d @ (ranks - 1.0 - (n - 1) / 2.0)) / squares
    per_coin = theta * (1.0 - theta)
    if sampler == "exact":  # one coin moves two ranks, in opposite directions
        variance = per_coin * float(((d[:, None] - d[None, :]) ** 2).sum()) / 2.0
    else:
        variance = float(d**2 @ (per_coin * (below + above) + 0.25 * (n - 1 - below - above)))
    return rate, math.sqrt(variance) / squares


@pytest.mark.parametrize("epsilon", [0.4, 1.6])
@pytest.mark.parametrize("sampler", ["exact", "binomial"])
def test_comparisons_are_flipped_as_often_as_the_ledger_says(sampler: str, epsilon: float) -> None:
    held = values(N)
    party = make_party(federation(), "left", held, noise=SeededNoise(11))
    for column in released(party, request(sampler, epsilon, 1.0)).columns:
        entry, coins = entry_of(party, column.column, "ranks"), COINS[sampler].get(column.column, 1)
        assert entry.epsilon == epsilon
        assert entry.coins_epsilon == pytest.approx(epsilon / coins)
        theta = rate_of(entry.epsilon / coins)
        own = held[column.column]
        latents = [own] if column.ranks.shape[1] == 1 else [(own == code).astype(float) for code in np.unique(own)]
        assert len(latents) == column.ranks.shape[1]
        for index, latent in enumerate(latents):
            rate, deviation = estimated_rate(latent, column.ranks[:, index], theta, sampler)
            assert theta - rate_of(2.0 * epsilon / coins) > 2.0 * DEVIATIONS * deviation  # twice epsilon would show
            assert abs(rate - theta) < DEVIATIONS * deviation, f"{column.column}, latent {index}"


@pytest.mark.parametrize("sampler", ["exact", "binomial"])
def test_ties_show_nothing_of_the_order_of_rows(sampler: str) -> None:
    """A coin has a variance of a quarter at most, so sum c R has n sum c^2 / 4 at most where c sums to 0."""
    held = values(N)
    party = make_party(federation(), "left", held, noise=SeededNoise(12))
    for column in released(party, request(sampler, 1.0, 1.0)).columns:
        own, order = held[column.column], np.zeros(N)
        for value in np.unique(own):
            tied = own == value
            order[tied] = np.arange(tied.sum()) - (tied.sum() - 1) / 2.0
        if column.column == "continuous":
            assert not order.any()
            continue
        bound = DEVIATIONS * math.sqrt(N * float(order @ order) / 4.0)
        assert float(order @ order) > 2.0 * bound  # ties in the order of rows would show
        assert np.abs(order @ column.ranks).max() < bound, column.column


def test_marginals_have_the_noise_that_the_ledger_says() -> None:
    """A replaced value moves two counts, or one number where there are two cells: scale 2/epsilon, or 1/epsilon."""
    held, studies, epsilon = values(12), 300, 0.8
    party = make_party(federation(), "left", held, noise=SecureNoise())
    sizes: dict[str, list[int]] = {name: [] for name in KINDS}
    for study in range(studies):
        for column in released(party, request("exact", 1.0, epsilon, str(study))).columns:
            schema, cells = federation().party("left").column(column.column), column.cells
            exact = np.bincount(to_cells(held[column.column], schema, cells.size), minlength=cells.size)
            sizes[column.column] += np.abs(cells - exact)[: 1 if cells.size == 2 else None].tolist()
    assert {entry.epsilon for entry in party.control.ledger if entry.what == "marginal"} == {epsilon}
    for name, found in sizes.items():
        ratio = math.exp(-epsilon / (1.0 if name in ("binary", "two") else 2.0))  # P(k) is proportional to ratio^|k|
        mean, square = 2.0 * ratio / (1.0 - ratio**2), 2.0 * ratio / (1.0 - ratio) ** 2
        deviation = math.sqrt((square - mean**2) / len(found))
        assert abs(np.mean(found) - mean) < DEVIATIONS * deviation, name


class Labelled:
    """A seeded source that remembers what it was asked for."""

    is_private = False

    def __init__(self) -> None:
        self.labels: list[tuple[str, ...]] = []
        self._noise = SeededNoise(3)

    def stream(self, *label: str) -> Keystream:
        self.labels.append(label)
        return self._noise.stream(*label)

    def discrete_laplace(self, values: Ints, scale: float, *label: str) -> Ints:
        self.labels.append(label)
        return self._noise.discrete_laplace(values, scale, *label)

    def discrete_gaussian(self, values: Ints, scale: float, *label: str) -> Ints:
        self.labels.append(label)
        return self._noise.discrete_gaussian(values, scale, *label)


def test_no_two_columns_indicators_or_studies_share_a_stream() -> None:
    noise = Labelled()
    party = make_party(federation(), "left", values(12), noise=noise)
    for study in ("one", "two"):
        released(party, request("exact", 1.0, 1.0, study))
    assert len(noise.labels) == 2 * (5 + 3 + 5 + len(KINDS))  # five columns with one latent, and indicators of two
    assert len(set(noise.labels)) == len(noise.labels)
