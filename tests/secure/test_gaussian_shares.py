"""Gaussian noise in shares: calibrated as the accountant says, enough with two, and never too little for a person."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.spatial.distance import pdist
from scipy.stats import chisquare, kstest, norm

from benchmarks.sums_plans import make_plan
from tests.secure.sums_world import NoNoise, World, run, some_cells
from verticopula.errors import SettingsError
from verticopula.mpc.gram_noise import SMALLEST_SHARE, SMOOTHING, gram_scales, share_scale, slack_of
from verticopula.mpc.sums_plan import (
    SumsPlan,
    block_factor,
    check_plan,
    choose_compute,
    own_tables,
    pattern_bound,
    plan_slack,
    share_scales,
)
from verticopula.privacy.gaussian_dp import compose, gaussian_delta, gaussian_epsilon, mu_of
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise

# ---- calibration -----------------------------------------------------------------------------


def test_the_analytic_gaussian_mechanism() -> None:
    assert 1.0 / mu_of(1.0, 1e-6) == pytest.approx(4.2247, abs=1e-4)
    for epsilon, delta in itertools.product((0.01, 0.3, 1.0, 3.0, 20.0), (1e-12, 1e-6, 1e-2)):
        mu = mu_of(epsilon, delta)
        assert gaussian_delta(mu, epsilon) <= delta
        assert gaussian_delta(mu * (1.0 + 1e-9), epsilon) > delta * (1.0 - 1e-6)
        assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9)
        assert gaussian_delta(mu, gaussian_epsilon(mu, delta)) <= delta


@pytest.mark.parametrize("mu", [0.1, 0.2367, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5])
def test_dp_accounting_says_the_same(mu: float, delta: float) -> None:
    accountant = PLDAccountant(value_discretization_interval=2e-4 * mu)
    accountant.compose(GaussianDpEvent(1.0 / mu))
    oracle = accountant.get_epsilon(delta)  # its losses are rounded up
    assert gaussian_epsilon(mu, delta) <= oracle + 1e-9
    assert gaussian_epsilon(mu, delta) == pytest.approx(oracle, rel=1e-3)


def test_composition_is_that_of_the_accountant() -> None:
    mus = [0.1, 0.2, 0.15]
    accountant = PLDAccountant(value_discretization_interval=2e-5)
    for mu in mus:
        accountant.compose(GaussianDpEvent(1.0 / mu))
    assert gaussian_epsilon(compose(mus), 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)
    assert compose([]) == 0.0
    assert compose([3.0, 4.0]) == 5.0


def test_edges() -> None:
    assert gaussian_epsilon(0.0, 1e-6) == 0.0
    assert gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_epsilon(0.3, 1e-6, slack=0.1) > gaussian_epsilon(0.3, 1e-6) + 0.2
    for epsilon, delta in ((0.0, 0.1), (1.0, 0.0), (1.0, 1.0), (math.nan, 0.1), (math.inf, 0.1)):
        with pytest.raises(SettingsError):
            mu_of(epsilon, delta)
    for mu, delta in ((-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0)):
        with pytest.raises(SettingsError):
            gaussian_epsilon(mu, delta)


# ---- whole numbers and sums of two -------------------------------------------------------------


def discrete_gaussian(variance: float, reach: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2.0 * variance))
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("scale", [0.71, 0.8, 1.0, 1.2])
def test_the_sum_of_two_discrete_gaussians_is_as_close_to_one_as_the_bound_says(scale: float) -> None:
    reach = int(8 * scale) + 2
    one = discrete_gaussian(scale**2, 4 * reach)
    both = np.convolve(one, one)[4 * reach : -4 * reach]
    target = discrete_gaussian(2.0 * scale**2, 4 * reach)
    middle = slice(4 * reach - reach, 4 * reach + reach + 1)
    gap = np.abs(np.log(both[middle] / target[middle])).max()
    assert 0.0 < gap <= 10.0 * math.exp(-((math.pi * scale) ** 2))


@pytest.mark.parametrize("smoothing", [0.6, 0.8, 1.0])
def test_a_discrete_gaussian_is_a_rounded_continuous_one_as_closely_as_the_bound_says(smoothing: float) -> None:
    """Numerically: draw y around an integer, then z given y; compare with the discrete Gaussian itself."""
    variance = 1.5
    grid = np.linspace(-14.0, 14.0, 28_001)
    integers = np.arange(-20, 21)
    kernel = np.exp(-((integers[:, None] - grid) ** 2) / (2.0 * smoothing**2))
    kernel /= kernel.sum(axis=0)
    rounded = kernel @ (norm.pdf(grid, scale=math.sqrt(variance)) * (grid[1] - grid[0]))
    target = discrete_gaussian(variance + smoothing**2, 20)
    gap = np.abs(np.log(rounded[12:29] / target[12:29])).max()
    assert gap <= 5.0 * math.exp(-2.0 * (math.pi * smoothing) ** 2) + 1e-9


def test_every_opened_number_adds_its_slack() -> None:
    assert slack_of(100, 3.0) / slack_of(1, 3.0) == pytest.approx(100.0)


def test_the_slack_is_negligible_and_too_little_noise_is_refused() -> None:
    assert 0.0 < slack_of(100_000, SMALLEST_SHARE) < 1e-32
    assert slack_of(1, 1e13) < 1e-75
    with pytest.raises(SettingsError, match="too small"):
        slack_of(1, 2.9)
    plan = World(some_cells({"a": 2, "b": 3, "c": 1}, 30)).plan()
    assert plan_slack(plan) < 1e-70
    assert 2.0 * share_scale(5.0) ** 2 - SMOOTHING**2 >= 25.0


@pytest.mark.parametrize("scale", [1.5, 4.0, 3e7])
def test_the_secure_sampler_draws_a_discrete_gaussian(scale: float) -> None:
    drawn = SecureNoise().discrete_gaussian(np.full(6_000, 7), scale) - 7
    assert drawn.dtype == np.int64
    if scale > 100.0:
        assert kstest(drawn / scale, "norm").pvalue > 1e-6
        return
    reach = int(3 * scale)
    mass = discrete_gaussian(scale**2, 60)[60 - reach : 61 + reach]
    counts = np.bincount(np.clip(drawn, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    expected = np.concatenate([[(1.0 - mass.sum()) / 2.0], mass, [(1.0 - mass.sum()) / 2.0]]) * drawn.size
    assert chisquare(counts, expected).pvalue > 1e-6


# ---- how far one person moves the sums -----------------------------------------------------------


def weighted_distance(before: np.ndarray, after: np.ndarray, bound: float, mu: float) -> float:
    """Between two Gram matrices, in units of the noise on each released entry."""
    off, diagonal = gram_scales(bound, mu)
    moved = before - after
    upper = np.triu(moved, 1) / off
    return math.sqrt(float((upper**2).sum() + ((np.diag(moved) / diagonal) ** 2).sum()))


def all_parts(plan: SumsPlan, party: str) -> np.ndarray:
    """Every part of a record that a party's cells can make."""
    tables = [table[0] for table in own_tables(plan, party)]
    return np.array([np.concatenate(rows) for rows in itertools.product(*tables)])


def test_replacing_one_person_never_moves_the_sums_by_more_than_mu() -> None:
    """All replacements between all records that cells can make, at n = 3."""
    widths, mu = {"left": 1, "right": 2}, 0.7
    plan = make_plan(widths, np.ones((3, 3), dtype=bool), mu, 1.5, choose_compute(list(widths)), cells=5)
    parts = [all_parts(plan, name) for name in widths]
    records = [np.concatenate([*pair, [2**plan.bits]]) for pair in itertools.product(*parts)]
    rest = np.array(records[:2])
    base = rest.T @ rest  # two people who stay
    grams = [base + np.outer(record, record) for record in records]
    largest = max(weighted_distance(a, b, pattern_bound(plan, 0), mu) for a, b in itertools.combinations(grams, 2))
    assert largest <= mu * (1.0 + 1e-12)
    assert largest > 0.98 * mu  # and it is nearly attained


def test_the_noise_of_a_plan_covers_every_replacement() -> None:
    """From cells to opened sums: what moves, in units of two shares' noise as the plan has it."""
    cells = {name: np.full((4, 1), k) for k, name in enumerate("abc")}
    opened = []
    for record in itertools.product(range(3), repeat=3):
        for name, value in zip("abc", record, strict=True):
            cells[name][2, 0] = value
        world = World(cells, mu=0.4)
        plan = world.plan()
        sums, products = (moment * 4.0**plan.bits for moment in world.moments(plan, 0))
        whole = np.block([[products, sums[:, None]], [sums, 0.0]])
        opened.append(whole[np.triu_indices(4)][:-1] / (math.sqrt(2.0) * share_scales(plan, 0)))
    largest = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(opened, 2))
    assert 0.98 * 0.4 < largest <= 0.4


@pytest.mark.parametrize("per_column", [0.4, 1.5])
@pytest.mark.parametrize("party", ["a", "b", "c"])
def test_replacing_one_partys_part_moves_the_sums_by_its_factor_at_most(party: str, per_column: float) -> None:
    """All replacements of one part, with all rests; a holds most of the record, c little of it."""
    widths = {"a": 2, "b": 1, "c": 1}
    plan = make_plan(widths, np.ones((3, 4), dtype=bool), 0.4, per_column, ("a", "b", "c"), cells=7)
    factors = (math.sqrt(3.0), math.sqrt(3.0), 1.0, math.sqrt(0.5))
    scaled = zip(plan.tables, factors, strict=True)
    plan = replace(plan, tables=tuple(np.trunc(table * factor).astype(np.int64) for table, factor in scaled))
    check_plan(plan)
    parts = {name: all_parts(plan, name) for name in widths}
    own, others = parts[party], [parts[name] for name in widths if name != party]
    rests = [np.concatenate([*rest, [2**plan.bits]]) for rest in itertools.product(*(o[::3] for o in others))]
    largest, (off, diagonal) = 0.0, gram_scales(pattern_bound(plan, 0), plan.mu)
    for rest in rests:
        records = np.column_stack([own, np.tile(rest, (own.shape[0], 1))]).astype(np.float64)
        rows, columns = np.triu_indices(records.shape[1])
        grams = records[:, rows] * records[:, columns] / np.where(rows == columns, diagonal, off)
        largest = max(largest, float(pdist(grams).max()))
    claimed = plan.mu * block_factor(plan, party)
    assert 0.9 * claimed < largest <= claimed
    bound = int(plan.bounds[0, plan.parties.index(party)])
    assert (block_factor(plan, party) == 1.0) == (2 * bound > pattern_bound(plan, 0))


def test_a_block_is_charged_for_the_pattern_where_it_weighs_most() -> None:
    plan = World(some_cells({"a": 3, "b": 3, "c": 1}, 40)).plan()
    shares = plan.bounds[:, 1] / np.array([pattern_bound(plan, i) for i in range(plan.bounds.shape[0])])
    expected = max(math.sqrt(4.0 * f * (1.0 - f)) if f <= 0.5 else 1.0 for f in shares)
    assert expected <= block_factor(plan, "b") <= expected * (1.0 + 1e-12)
    alone = replace(plan, tables=(*plan.tables[:3], *(np.zeros_like(t) for t in plan.tables[3:6]), plan.tables[6]))
    assert block_factor(alone, "b") == 0.0


def test_the_bound_is_attained() -> None:
    first, second = np.array([3.0, 0.0, 1.0, 0.0]), np.array([-1.0 / 3.0, 0.0, 1.0, math.sqrt(9.0 - 1.0 / 9.0)])
    assert first @ second == pytest.approx(0.0, abs=1e-12)
    assert first @ first == pytest.approx(second @ second)
    distance = weighted_distance(np.outer(first, first), np.outer(second, second), 10.0, 0.5)
    assert distance == pytest.approx(0.5)


# ---- the noise of what is opened -------------------------------------------------------------------


@pytest.mark.parametrize("silent", ["a", "b", "c", None])
def test_two_honest_compute_parties_suffice(silent: str | None) -> None:
    """The opened sums minus the exact ones: as promised with one share missing, 1.5 times the variance with all."""
    world = World(some_cells({"a": 6, "b": 5, "c": 4, "d": 3}, 60, missing=0.4), mu=0.5)
    plan = world.plan()
    noises: dict[str, Noise] = {name: SeededNoise(3).derive(name) for name in world.cells}
    if silent is not None:
        noises[silent] = NoNoise()
    opened = run(plan, world.handlers(noises=noises))
    errors, on_diagonal = [], []
    for pattern, sums in enumerate(opened):
        totals, products = world.moments(plan, pattern)
        off, diagonal = (s / 4.0**plan.bits for s in gram_scales(pattern_bound(plan, pattern), plan.mu))
        gap = sums.products - products
        np.testing.assert_array_equal(gap, gap.T)
        errors += [gap[np.triu_indices_from(gap, 1)] / off, (sums.sums - totals) / off]
        on_diagonal.append(np.diag(gap) / diagonal)
        factor = math.sqrt(1.5)
        assert (sums.deviation_off, sums.deviation_on) == pytest.approx((factor * off, factor * diagonal))
    scale = 1.0 if silent is not None else math.sqrt(1.5)
    together, alone = np.concatenate(errors), np.concatenate(on_diagonal)
    assert together.size > 400
    assert alone.size > 60
    assert kstest(together / scale, "norm").pvalue > 1e-3
    assert kstest(alone / scale, "norm").pvalue > 1e-3
    assert together.std() == pytest.approx(scale, rel=0.12)


def test_a_share_has_half_the_variance() -> None:
    plan = World(some_cells({"a": 2, "b": 3, "c": 1}, 30, missing=0.0)).plan()
    scales = share_scales(plan, 0)
    off, diagonal = gram_scales(pattern_bound(plan, 0), plan.mu)
    assert scales.size == 6 * 7 // 2 + 6
    assert sorted(set(scales)) == pytest.approx([off / math.sqrt(2.0), diagonal / math.sqrt(2.0)])
    assert (scales > 1.1 * off / math.sqrt(2.0)).sum() == 6  # one diagonal entry a column


def test_bounds_that_would_wrap_around_in_64_bits_are_refused() -> None:
    """Four times 2^62 is 0 there, and the noise would be chosen for records of length 1."""
    names = ("a", "b", "c", "d")
    plan = make_plan(dict.fromkeys(names, 1), np.ones((3, 4), dtype=bool), 0.4, 1.5, names[:3])
    with pytest.raises(SettingsError, match="do not fit in 61 bits"):
        check_plan(replace(plan, tables=tuple(np.full_like(table, 2**31 - 1) for table in plan.tables)))
