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

from benchmarks.sums_plans import complete_plan, make_plan
from tests.secure.sums_world import NONE, NoNoise, World, run, some_cells
from verticopula.errors import SettingsError
from verticopula.mpc.gram_noise import SMALLEST_SHARE, SMOOTHING, gram_scales, share_scale, slack_of
from verticopula.mpc.sums_plan import (
    SumsPlan,
    block_factor,
    check_plan,
    choose_compute,
    own_columns,
    own_features,
    plan_slack,
    selection_deviation,
    selection_mu,
    share_scales,
    tables_person_mu,
)
from verticopula.mpc.table_noise import (
    block_sensitivities,
    check_table_room,
    table_bits,
    table_deviation,
    table_scale,
    tables_sensitivity,
)
from verticopula.privacy.gaussian_dp import compose, gaussian_delta, gaussian_epsilon, mu_of
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise

# ---- calibration -----------------------------------------------------------------------------


def test_the_analytic_gaussian_mechanism() -> None:
    assert 1.0 / mu_of(1.0, 1e-6) == pytest.approx(4.2247, abs=1e-4)
    for epsilon, delta in itertools.product((0.01, 0.3, 1.0, 3.0, 20.0), (1e-12, 1e-6, 1e-2)):
        mu = mu_of(epsilon, delta)
        assert gaussian_delta(mu, epsilon) <= delta
        assert gaussian_delta(mu * (1.0 + 1e-7), epsilon) > delta  # bisection stops there, on every machine alike
        assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)
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
    assert plan_slack(plan) < 1e-70  # of tables, too
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


def all_parts(plan: SumsPlan, party: str, pattern: int = 0) -> np.ndarray:
    """Every part of a record that a party's cells can make."""
    weight = int(plan.weights[pattern, plan.parties.index(party)])
    return np.array([weight * np.concatenate(rows) for rows in itertools.product(*own_features(plan, party))])


def test_replacing_one_person_never_moves_the_sums_by_more_than_mu() -> None:
    """All replacements between all records that cells can make, at n = 3."""
    widths, mu = {"left": 1, "right": 2}, 0.7
    plan = make_plan(widths, np.ones((3, 2), dtype=bool), mu, choose_compute(list(widths)), cells=5)
    parts = [all_parts(plan, name) for name in widths]
    records = [np.concatenate(pair) for pair in itertools.product(*parts)]
    rest = np.array(records[:2])
    base = rest.T @ rest  # two people who stay
    grams = [base + np.outer(record, record) for record in records]
    largest = max(weighted_distance(a, b, plan.bound, mu) for a, b in itertools.combinations(grams, 2))
    assert largest <= mu * (1.0 + 1e-12)
    assert largest > 0.95 * mu  # and it is nearly attained


@pytest.mark.parametrize("pattern", ["abc", "ab", "bc", "c"])
def test_the_noise_of_a_plan_covers_every_replacement(pattern: str) -> None:
    """From cells to opened sums: what moves, in units of two shares' noise as the plan has it, in every pattern."""
    cells = {name: np.full((4, 1), k) for k, name in enumerate("abc")}
    for person, known in enumerate(("abc", "ab", "bc", "c")):
        for name in set("abc") - set(known):
            cells[name][person] = NONE
    target, opened, tables = ("abc", "ab", "bc", "c").index(pattern), [], []
    plan = World(cells, mu=0.4).plan()
    assert len(plan.weights) == 4
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    scale = share_scale(table_scale(4, plan.mu_tables, tables_sensitivity(pairs, plan.owners, several_rows=False)))
    for record in itertools.product(range(3), repeat=len(pattern)):
        for name, value in zip(pattern, record, strict=True):
            cells[name][target, 0] = value
        world = World(cells, mu=0.4)
        upper = world.products(plan)[np.triu_indices(plan.width)]
        opened.append(upper / (math.sqrt(2.0) * share_scales(plan)))
        counts = np.concatenate([world.table((a, b)).ravel() for a, b in pairs.tolist()])
        tables.append(counts * 2.0 ** table_bits(4, plan.mu_tables) / (math.sqrt(2.0) * scale))
    largest = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(opened, 2))
    assert 0.6 * 0.4 < largest <= 0.4
    moved = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(tables, 2))
    met = len(pattern) * (len(pattern) - 1) // 2  # tables that the person is in
    assert moved <= plan.mu_tables
    assert moved == pytest.approx(plan.mu_tables * math.sqrt(met / 3), rel=1e-4)


@pytest.mark.parametrize("party", ["a", "b", "c"])
def test_replacing_one_partys_part_moves_the_sums_by_its_factor_at_most(party: str) -> None:
    """All replacements of one part, with all rests; a holds most of the record, c little of it."""
    widths = {"a": 2, "b": 1, "c": 1}
    plan = make_plan(widths, np.ones((3, 3), dtype=bool), 0.4, ("a", "b", "c"), cells=7)
    plan = replace(plan, weights=np.array([[55, 32, 22]]))
    check_plan(plan)
    parts = {name: all_parts(plan, name) for name in widths}
    own, others = parts[party], [parts[name] for name in widths if name != party]
    rests = [np.concatenate(rest) for rest in itertools.product(*(o[::3] for o in others))]
    largest, (off, diagonal) = 0.0, gram_scales(plan.bound, plan.mu)
    for rest in rests:
        records = np.column_stack([own, np.tile(rest, (own.shape[0], 1))]).astype(np.float64)
        rows, columns = np.triu_indices(records.shape[1])
        grams = records[:, rows] * records[:, columns] / np.where(rows == columns, diagonal, off)
        largest = max(largest, float(pdist(grams).max()))
    claimed = plan.mu * block_factor(plan, party)
    assert 0.8 * claimed < largest <= claimed
    assert (block_factor(plan, party) == 1.0) == (2 * int(plan.parts[0, plan.parties.index(party)]) > plan.bound)


def test_a_block_is_charged_for_the_pattern_where_it_weighs_most() -> None:
    """Against the noise, which is for the longest record of all patterns."""
    plan = World(some_cells({"a": 3, "b": 1, "c": 3}, 40)).plan()
    weights = plan.weights.copy()
    weights[plan.weights[:, 0] > 0] //= 3
    plan = replace(plan, weights=weights)
    expected = 0.0
    for parts in plan.parts.tolist():
        whole, own = sum(parts), parts[1]
        expected = max(expected, 4 * own * (whole - own) if 2 * own <= whole else whole**2)
    expected = math.sqrt(expected) / plan.bound
    assert expected < 1.0
    assert expected <= block_factor(plan, "b") <= expected * (1.0 + 1e-12)
    flat = [
        table if owner != 1 else np.zeros_like(table) for table, owner in zip(plan.features, plan.owners, strict=True)
    ]
    assert block_factor(replace(plan, features=tuple(flat)), "b") == 0.0


# ---- how far one person moves the tables -----------------------------------------------------------


def everybody_replaced(plan: SumsPlan, pairs: np.ndarray, columns: list[int]) -> float:
    """How far all ways to replace these columns of one row move all tables, in counts."""
    cells, largest = [len(plan.features[j]) for j in columns], 0.0
    before = dict.fromkeys(range(len(plan.features)), 0)
    for after in itertools.product(*map(range, cells)):
        now = {**before, **dict(zip(columns, after, strict=True))}
        moved = sum(2 for a, b in pairs.tolist() if (now[a], now[b]) != (before[a], before[b]))
        largest = max(largest, math.sqrt(moved))
    return largest


def test_tables_move_by_what_their_noise_is_for() -> None:
    plan = complete_plan(1.0)
    rng = np.random.default_rng(1)
    rows, columns = np.triu_indices(4, 1)
    for size in (1, 3, 6):
        pairs = np.column_stack([rows, columns])[rng.permutation(6)[:size]].astype(np.int64)
        assert everybody_replaced(plan, pairs, [0, 1, 2, 3]) <= tables_sensitivity(
            pairs, plan.owners, several_rows=False
        )
        own = block_sensitivities(pairs, plan.owners, 3)
        for k, party in enumerate(plan.parties):
            moved = everybody_replaced(plan, pairs, list(own_columns(plan, party)))
            assert moved == pytest.approx(own[k])
        apart = tables_sensitivity(pairs, plan.owners, several_rows=True)
        assert apart == pytest.approx(sum(own))  # blocks in rows of their own, each replaced
        assert apart >= tables_sensitivity(pairs, plan.owners, several_rows=False) * (1.0 - 1e-12)


def test_tables_price_of_a_person_whose_blocks_stand_apart() -> None:
    """Whatever pairs are chosen: never more than stated, and with noise for one row up to sqrt(2 K) times as much."""
    plan = complete_plan(1.0, dict.fromkeys("abcdefgh", 1))
    assert tables_person_mu(plan, rows_agreed=True) == plan.mu_tables
    stated = tables_person_mu(plan, rows_agreed=False)
    rng, worst = np.random.default_rng(2), 0.0
    rows, columns = np.triu_indices(8, 1)
    for _ in range(200):
        chosen = rng.permutation(rows.size)[: rng.integers(1, 9)]
        pairs = np.column_stack([rows, columns])[chosen].astype(np.int64)
        noise = tables_sensitivity(pairs, plan.owners, several_rows=False) / plan.mu_tables
        worst = max(worst, sum(block_sensitivities(pairs, plan.owners, 8)) / noise)
    assert 0.8 * stated < worst <= stated
    covered = replace(plan, several_rows=True)
    assert tables_person_mu(covered, rows_agreed=False) == plan.mu_tables


def test_tables_have_room_and_noise_finer_than_a_person() -> None:
    for n, mu in ((1, 50.0), (71_827, 0.2), (10**8, 1e-3)):
        bits = table_bits(n, mu)
        move = math.sqrt(2.0)
        assert (n << bits) + 12.0 * math.sqrt(3.0) * share_scale(table_scale(n, mu, 1000.0)) < 2**60
        assert table_deviation(n, mu, move) == pytest.approx(math.sqrt(1.5) * move / mu, rel=1e-3)
    with pytest.raises(SettingsError, match="61 bits"):
        table_bits(10, 1e-12)
    for mu in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(SettingsError, match="mu must be positive"):
            check_table_room(10, mu)


# ---- features by presence --------------------------------------------------------------------------


def test_replacing_one_person_moves_features_by_presence_by_their_price_at_most() -> None:
    """All replacements at both base parties; the person is known to both selecting ones."""
    known = np.ones((5, 4), dtype=bool)
    known[0, :2] = known[1, 0] = False
    widths = {"a": 1, "b": 1, "c": 2, "d": 1}
    plan = make_plan(widths, known, 0.4, ("a", "b", "c"), selection=True, cells=4)
    deviation, person = selection_deviation(plan), 0.0
    for name in "cd":
        parts = all_parts(replace(plan, weights=np.ones_like(plan.weights)), name).astype(np.float64)
        moved = math.sqrt(2.0) * float(pdist(parts).max()) / deviation
        assert 0.5 * selection_mu(plan, name) < moved <= selection_mu(plan, name)
        person += moved**2
    assert math.sqrt(person) <= plan.mu_selection
    assert math.hypot(selection_mu(plan, "c"), selection_mu(plan, "d")) == pytest.approx(plan.mu_selection)
    assert selection_mu(plan, "a") == 0.0


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
    world.settings = {"most_tables": 40}
    plan = world.plan()
    noises: dict[str, Noise] = {name: SeededNoise(3).derive(name) for name in world.cells}
    if silent is not None:
        noises[silent] = NoNoise()
    opened = run(plan, world.handlers(noises=noises))
    off, diagonal = (scale / 4.0**plan.bits for scale in gram_scales(plan.bound, plan.mu))
    gap = opened.gram.matrix - world.products(plan) / 4.0**plan.bits
    np.testing.assert_array_equal(gap, gap.T)
    factor = math.sqrt(1.5)
    assert opened.gram.deviation_off == pytest.approx(factor * off)
    scale = 1.0 if silent is not None else factor
    together, alone = gap[np.triu_indices_from(gap, 1)] / off, np.diag(gap) / diagonal
    assert together.size > 400
    assert kstest(together / scale, "norm").pvalue > 1e-3
    assert kstest(alone / scale, "norm").pvalue > 1e-3
    assert together.std() == pytest.approx(scale, rel=0.12)
    needed = math.sqrt(2.0 * len(opened.tables)) / plan.mu_tables
    counts = np.concatenate([(table.counts - world.table(table.pair)).ravel() for table in opened.tables]) / needed
    assert counts.size > 300
    assert [table.deviation for table in opened.tables] == pytest.approx([factor * needed] * len(opened.tables))
    assert kstest(counts / scale, "norm").pvalue > 1e-3


def test_a_share_has_half_the_variance() -> None:
    plan = World(some_cells({"a": 2, "b": 3, "c": 1}, 30, missing=0.0)).plan()
    scales = share_scales(plan)
    off, diagonal = gram_scales(plan.bound, plan.mu)
    assert scales.size == 12 * 13 // 2
    assert sorted(set(scales)) == pytest.approx([off / math.sqrt(2.0), diagonal / math.sqrt(2.0)])
    assert (scales > 1.1 * off / math.sqrt(2.0)).sum() == 12  # one diagonal entry a feature


def test_bounds_that_would_wrap_around_in_64_bits_are_refused() -> None:
    """Four times 2^62 is 0 there, and the noise would be chosen for records of length 1."""
    names = ("a", "b", "c", "d")
    plan = make_plan(dict.fromkeys(names, 1), np.ones((3, 4), dtype=bool), 0.4, names[:3])
    with pytest.raises(SettingsError, match="do not fit in 61 bits"):
        check_plan(replace(plan, features=tuple(np.full_like(table, 2**31 - 1) for table in plan.features)))
