"""Ranks by fewer comparisons: errors at equal epsilon, and time, of schemes that do not compare all pairs of people.

Every scheme answers comparisons by randomized response, so each has an exact price: the number of coins that one
replaced value may touch, and their epsilon. At each unit the coins' epsilon is what the unit's epsilon allows
(`privacy/accounting.py`). Then two correlated columns are released, and a rank and their correlation are compared with
the truth. Ranks are fractions between 0 and 1, and of continuous columns that everybody has.
"""

from __future__ import annotations

import math
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.privacy.accounting import Coins, calibrate, composed_epsilon
from verticopula.privacy.coins import CoinStream, flip_probability, flip_threshold
from verticopula.privacy.noise import Keystream, SecureNoise
from verticopula.stats.binomial_ranks import draw_binomial_ranks
from verticopula.stats.ranks import debias_ranks, flip_comparisons

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

RHO, DELTA, LARGEST = 0.5, 1e-6, 50.0
OWN_COLUMNS, ALL_COLUMNS = 11, 55  # of a party, and of a person: the SME study on average
EPSILONS = {"variable": 0.5, "client": 1.0, "block": 30.0, "person": 100.0}
FEW, MANY = 64, 512


# ---- schemes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Scheme:
    """A way to draw noisy ranks.

    Attributes
    ----------
    words : for a reader
    touched : how many coins of a column one replaced value may touch, of n people
    behind_one : how many coins are behind one comparison of two people or, with cuts, behind one person's own value
    draw : (values, epsilon of a coin, public randomness) -> (n,) unbiased ranks between 0 and 1
    """

    words: str
    touched: Callable[[int], int]
    behind_one: int
    draw: Callable[[Floats, float, np.random.Generator], Floats]


def list_schemes(n: int) -> dict[str, Scheme]:
    """All of them, for n people."""
    few, many = (min(amount, 2 * ((n - 1) // 4)) for amount in (FEW, MANY))
    found = {
        "exact": Scheme("everybody with everybody, one coin a pair", lambda n: n - 1, 1, draw_exact),
        "binomial": Scheme("everybody with everybody, two coins a pair", lambda n: 2 * (n - 1), 1 + 1, draw_binomial),
    }
    for m in (few, many):
        found |= {
            f"members {m}": Scheme(f"{m:,} members of the cohort", lambda n: n - 1, 1, _fixed(draw_members, m)),
            f"partners {m}": Scheme(f"{m:,} partners each", lambda n, m=m: m, 1, _fixed(draw_partners, m)),
            f"cuts {m}": Scheme(f"{m:,} public cuts", lambda n, m=m: m, m, _fixed(draw_cuts, m)),
        }
    return found


def _fixed(draw: Callable[..., Floats], m: int) -> Callable[[Floats, float, np.random.Generator], Floats]:
    return lambda values, epsilon, rng: draw(values, epsilon, rng, m)


def draw_exact(values: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Every pair of people has one coin."""
    ranks = flip_comparisons(values, epsilon, SecureNoise().stream())
    return (debias_ranks(ranks, flip_probability(epsilon)) - 0.5) / values.size


def draw_binomial(values: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Every pair has two coins, one for each of its ranks."""
    ranks = draw_binomial_ranks(values, epsilon, SecureNoise().stream).astype(np.int64)
    return (debias_ranks(ranks, flip_probability(epsilon)) - 0.5) / values.size


def draw_members(values: Floats, epsilon: float, rng: np.random.Generator, m: int) -> Floats:
    """Everybody is compared with the same m people, who are public. Of two of them, one coin decides for both."""
    n, answers = values.size, _Answers(epsilon)
    chosen = rng.choice(n, m, replace=False)
    larger = np.zeros(n)
    for k, member in enumerate(chosen):
        others = np.ones(n, dtype=bool)
        others[chosen[: k + 1]] = False
        said = answers.give(values[others] > values[member])
        larger[others] += said
        larger[member] += said[np.searchsorted(np.flatnonzero(others), chosen[k + 1 :])].size
        larger[member] -= said[np.searchsorted(np.flatnonzero(others), chosen[k + 1 :])].sum()
    compared = np.full(n, float(m))
    compared[chosen] = m - 1.0
    return larger / compared


def draw_partners(values: Floats, epsilon: float, rng: np.random.Generator, m: int) -> Floats:
    """Everybody is compared with m people of their own, half of whom are found at public distances in a public order.

    Whoever is somebody's partner has them as a partner, too, and one coin decides for both.
    """
    n, answers = values.size, _Answers(epsilon)
    order = rng.permutation(n)
    mixed, larger = values[order], np.zeros(n)
    for distance in 1 + rng.choice((n - 1) // 2, m // 2, replace=False):
        said = answers.give(mixed > np.roll(mixed, -distance))
        larger += said
        larger += 1.0 - np.roll(said, distance)
    found = np.empty(n)
    found[order] = larger / m
    return found


def draw_cuts(values: Floats, epsilon: float, rng: np.random.Generator, m: int) -> Floats:
    """Every value is compared with m public cuts. One cut lies in each m-th part of the column, anywhere in it.

    The column's distribution is taken as known, which favours cuts: a study would know it from its noisy margin.
    """
    answers, larger = _Answers(epsilon), np.zeros(values.size)
    ordered = np.sort(values)
    for place in (np.arange(m) + rng.random(m)) / m:
        larger += answers.give(values > ordered[int(place * values.size)])
    return larger / m


class _Answers:
    """Answers to comparisons, each given by a coin of its own, with the coins' effect on their mean taken out."""

    def __init__(self, epsilon: float, keystream: Keystream | None = None) -> None:
        self._coins = CoinStream(keystream or SecureNoise().stream(), flip_threshold(epsilon))
        self._flip = flip_probability(epsilon)

    def give(self, truth: Bools) -> Floats:
        """(n,) numbers whose mean is the truth."""
        words = self._coins.draw(-(-truth.size // 64))
        flips = np.unpackbits(words.view(np.uint8), count=truth.size).view(np.bool_)
        return np.asarray(((truth ^ flips) - self._flip) / (1.0 - 2.0 * self._flip))


# ---- prices ------------------------------------------------------------------------------


def coin_epsilon(scheme: Scheme, unit: str, epsilon: float, n: int) -> float:
    """The largest epsilon of a coin whose releases cost no more than the unit's epsilon.

    At `variable` and `client` a comparison of two people counts, in one column and in all of a party's; a comparison
    with a public cut is about one person alone, so all of that person's count. At `block` and `person` all coins count
    that replacing what a party, or all parties, hold about a person may touch.
    """
    if unit in ("variable", "client"):
        return epsilon / (scheme.behind_one * (OWN_COLUMNS if unit == "client" else 1))
    count = scheme.touched(n) * (OWN_COLUMNS if unit == "block" else ALL_COLUMNS)
    return calibrate(lambda each: [Coins(each, count)], epsilon, DELTA, largest=LARGEST)


# ---- errors ------------------------------------------------------------------------------


def measure_scheme(scheme: Scheme, epsilon: float, n: int, repetitions: int) -> dict[str, float]:
    """Errors of ranks and of a correlation, and processor seconds of a column."""
    ranks, correlations, spent = [], [], 0.0
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        columns = rng.multivariate_normal([0.0, 0.0], [[1.0, RHO], [RHO, 1.0]], n)
        truth = (np.argsort(np.argsort(columns, axis=0), axis=0) + 0.5) / n
        start = time.process_time()
        drawn = np.column_stack([scheme.draw(columns[:, k].copy(), epsilon, rng) for k in range(2)])
        spent += time.process_time() - start
        ranks.append(np.mean((drawn - truth) ** 2))
        correlations.append((spearman(drawn) - 6.0 / math.pi * math.asin(RHO / 2.0)) ** 2)
    squares = float(np.mean(correlations))
    return {
        "rank": math.sqrt(np.mean(ranks)),
        "correlation": math.sqrt(squares),
        "correlation_error": float(np.std(correlations)) / math.sqrt(repetitions) / (2.0 * math.sqrt(squares)),
        "seconds": spent / (2 * repetitions),
    }


def spearman(ranks: Floats) -> float:
    """Spearman's correlation of two columns of unbiased ranks, with the variance that true ranks have."""
    n = ranks.shape[0]
    return float(12.0 * np.mean((ranks[:, 0] - 0.5) * (ranks[:, 1] - 0.5)) / (1.0 - 1.0 / n**2))


# ---- the benchmark -----------------------------------------------------------------------


def add_options(parser: ArgumentParser) -> None:
    """How large and how often."""
    parser.add_argument("--people", type=int, default=20_000)
    parser.add_argument("--repetitions", type=int, default=20)


def run(options: Namespace) -> Measured:
    """All schemes at all units."""
    n, repetitions = (300, 3) if options.quick else (options.people, options.repetitions)
    schemes = list_schemes(n)
    with threadpool_limits(1):
        for scheme in schemes.values():
            scheme.draw(np.random.default_rng(0).standard_normal(n), 1.0, np.random.default_rng(0))  # compiles
        found = {
            unit: {name: _measure(scheme, unit, n, repetitions) for name, scheme in schemes.items()}
            for unit in EPSILONS
        }
    return {"n_subjects": n, "repetitions": repetitions, "delta": DELTA, "rho": RHO, "epsilons": EPSILONS}, found


def _measure(scheme: Scheme, unit: str, n: int, repetitions: int) -> dict[str, Any]:
    epsilon = coin_epsilon(scheme, unit, EPSILONS[unit], n)
    price = composed_epsilon([Coins(epsilon, scheme.touched(n) * ALL_COLUMNS)], DELTA)
    measured = measure_scheme(scheme, epsilon, n, repetitions)
    return {"words": scheme.words, "coin": epsilon, "person": price, **measured}


_ABOUT = """
`python -m benchmarks rank_samplers`. Two columns with a correlation of {rho} and N = {n:,}, {repetitions} repetitions.
Every scheme answers a comparison by a coin (randomized response). A table gives all schemes the same epsilon at one
unit. A party has {own} columns, a person {all}, and delta is {delta:g}.

- *Everybody with everybody* is what the samplers `exact` and `binomial` draw. `binomial` spends two coins on a pair.
- *Members of the cohort*: everybody is compared with the same people, who are drawn at random and public. A member's
  value takes part in N - 1 comparisons, so the price is that of `exact`.
- *Partners*: everybody is compared with as many people of their own. Which pairs these are follows from a public random
  order of the people and public random distances in it, new ones for each column. One coin decides for both, and a
  replaced value touches as many coins as a person has partners.
- *Public cuts*: every value is compared with points of the column that depend on nobody. All of these comparisons are
  about one person alone, so at `variable` and `client` all of them count.

The error of a rank is a root mean square, of ranks between 0 and 1. That of the correlation is of Spearman's, against
the population's, with its standard error. The last column is what the same coins cost a person over all columns.
"""
_CONCLUSION = """
**At `block` and `person` partners are better than both samplers.** With {few} partners each, a rank's error per
person is {partners:.2f} times that of everybody with everybody, and that of `binomial` is {binomial:.2f} times. A
column takes {ms:.0f} ms, and {exact_ms:.0f} ms with everybody; the time grows with N, not with its square.

The reason: what all coins of a person cost together hardly depends on how many there are, and neither does their
noise. Public cuts do as well, but only where the column's distribution is known.

**At `variable` and `client` fewer comparisons are more error at the same epsilon.** There a comparison costs the same
however many others there are. With {many} partners the correlation's error per variable is {correlation:.2f} times
that of everybody with everybody, and the same coins cost a person {person:.0f} times less epsilon.

**What a sampler of studies would need.** The public order and distances have to follow from the study's name after
the people are known, so that nobody chooses who is compared with whom, and from the observed people of each column
alone. A rank's variance is then that of its coins and, besides, r(1 - r)/m of a rank r among m partners:
correlations, the readings of `refined`, forecasts and standard errors have to know it.

Price, ledger and audit need its number of coins: m in place of N - 1. Ties and nominal columns need nothing new.
"""


def present(record: Record, places: Places) -> list[Table]:
    """The page `rank_samplers.md`, and its tables."""
    settings = record.settings
    tables = [_tabulate(unit, settings["epsilons"][unit], found) for unit, found in record.results.items()]
    about = _ABOUT.format(
        n=settings["n_subjects"],
        own=OWN_COLUMNS,
        all=ALL_COLUMNS,
        **{k: settings[k] for k in ("repetitions", "delta", "rho")},
    )
    parts = [about, *tables] if settings["n_subjects"] < MANY else [about, _conclude(record.results), *tables]
    write_text(places.pages / "rank_samplers.md", markdown_page("Ranks by fewer comparisons", parts))
    return tables


def _conclude(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    person, variable = found["person"], found["variable"]
    partners, many = person[f"partners {FEW}"], variable[f"partners {MANY}"]
    return _CONCLUSION.format(
        few=FEW,
        many=MANY,
        partners=partners["rank"] / person["exact"]["rank"],
        binomial=person["binomial"]["rank"] / person["exact"]["rank"],
        ms=1e3 * partners["seconds"],
        exact_ms=1e3 * person["exact"]["seconds"],
        correlation=many["correlation"] / variable["exact"]["correlation"],
        person=variable["exact"]["person"] / many["person"],
    )


def _tabulate(unit: str, epsilon: float, found: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        (
            case["words"],
            f"{case['rank']:.3g}",
            f"{case['correlation']:.4f} ± {case['correlation_error']:.4f}",
            f"{1e3 * case['seconds']:.0f}",
            f"{case['person']:.3g}",
        )
        for case in found.values()
    ]
    header = ("comparisons", "error of a rank", "of the correlation", "ms a column", "epsilon per person")
    return Table(f"Epsilon {epsilon:g} per {unit}", header, tuple(rows))
