"""The designs against their definitions; tolerances are five Monte-Carlo standard errors."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from experiments.designs import (
    MCAR_UNIFORM,
    MarCase,
    SimulatedData,
    SimulationDesign,
    component_covariances,
    draw_covariates,
    draw_latent,
    draw_maskable_clients,
    make_complete,
    mask_mar,
    mask_mcar,
    predictor_moments,
)
from verticopula.errors import SettingsError

SMALL = SimulationDesign(kind_counts=(3, 3, 3, 3), n_clients=3)
PAPER_LOGISTIC = SimulationDesign(model="logistic")


def z_score(values: np.ndarray, expected: float) -> float:
    """Distance of a sample mean from its expectation in standard errors."""
    return float(abs(values.mean() - expected) / (values.std() / np.sqrt(len(values))))


def draw(design: SimulationDesign, n: int, seed: int = 0) -> SimulatedData:
    return make_complete(design, n, rng=np.random.default_rng(seed))


# ---- the design itself -------------------------------------------------------------------------


def test_coefficients_alternate_for_the_first_twelve_of_every_client() -> None:
    design = SimulationDesign()
    block = np.array([-1, 1] * 6 + [0] * 8) / 3
    np.testing.assert_allclose(design.coef, np.tile(block, 5))
    assert [(b.start, b.stop) for b in design.blocks] == [(0, 20), (20, 40), (40, 60), (60, 80), (80, 100)]


def test_number_of_non_zero_coefficients_is_a_ceiling_without_rounding_error() -> None:
    assert np.count_nonzero(SimulationDesign(n_clients=1, sparsity=0.07).coef) == 7
    assert np.count_nonzero(SimulationDesign(n_clients=1, sparsity=0.071).coef) == 8


def test_columns_can_be_shuffled_with_their_latent_variables() -> None:
    """Neighbours have correlated latents; where these move, too, the correlated pair is elsewhere."""
    stay = SimulationDesign(kind_counts=(4, 0, 0, 0), n_clients=1, shuffle_seed=2)
    order = stay.draw_order(rng=np.random.default_rng(0))
    moved = replace(stay, latents_move=True)
    np.testing.assert_array_equal(draw(moved, 50).x, draw(stay, 50).x[:, order])
    assert not np.array_equal(order, np.arange(4))


def test_component_covariances_by_hand() -> None:
    design = SimulationDesign(kind_counts=(1, 1, 1, 1), n_clients=2)
    blocks, toeplitz, neighbours = component_covariances(design)
    np.testing.assert_allclose(blocks, [[1, 0.3, 0.1, 0.1], [0.3, 1, 0.1, 0.1], [0.1, 0.1, 1, 0.3], [0.1, 0.1, 0.3, 1]])
    np.testing.assert_allclose(toeplitz[0], [1, 0.5, 0.25, 0.125])
    np.testing.assert_allclose(neighbours[0], [1, 0.5, 0.25, 0])


def test_component_covariances_of_the_paper_are_positive_definite() -> None:
    for covariance in component_covariances(SimulationDesign()):
        assert np.linalg.eigvalsh(covariance)[0] > 0


def test_kinds_are_shuffled_by_the_generator_or_fixed_by_the_seed() -> None:
    free, fixed = SimulationDesign(), SimulationDesign(shuffle_seed=7)
    assert draw(free, 2, seed=1).kinds != draw(free, 2, seed=2).kinds
    assert draw(fixed, 2, seed=1).kinds == draw(fixed, 2, seed=2).kinds
    kinds = draw(free, 2).kinds
    assert [kinds.count(k) for k in ("continuous", "ordinal", "count", "binary")] == [25, 25, 25, 25]


@pytest.mark.parametrize(
    "settings", [{"model": "probit"}, {"n_clients": 7}, {"sparsity": 1.2}, {"kind_counts": (0, 0, 0, 0)}]
)
def test_senseless_designs_are_refused(settings: dict) -> None:
    with pytest.raises(SettingsError):
        SimulationDesign(**settings)


# ---- complete data -----------------------------------------------------------------------------


def test_latent_mean_and_covariance_are_those_of_the_mixture() -> None:
    n = 40_000
    latent = draw_latent(SMALL, n, rng=np.random.default_rng(0))
    sigma_1, sigma_2, sigma_3 = component_covariances(SMALL)
    expected = 0.4 * sigma_1 + 0.3 * sigma_2 + 0.3 * sigma_3 + 0.6  # component means 0, -1, 1
    for j in range(SMALL.n_columns):
        assert z_score(latent[:, j], 0.0) < 5
        for k in range(j + 1):
            assert z_score(latent[:, j] * latent[:, k], expected[j, k]) < 5


def integrate_over_latent(function) -> float:
    """E f(U) for one latent variable, straight from the mixture density."""

    def integrand(u: float) -> float:
        return function(u) * (0.4 * norm.pdf(u) + 0.3 * norm.pdf(u + 1) + 0.3 * norm.pdf(u - 1))

    return quad(integrand, -12, 12)[0]


def test_column_distributions_are_those_of_their_kinds() -> None:
    data = draw(SMALL, 40_000)
    middle = integrate_over_latent(lambda u: np.exp(0.5 * u) / (1 + np.exp(0.5 * u) + np.exp(u)))
    for j, kind in enumerate(data.kinds):
        column = data.x[:, j]
        if kind == "continuous":
            assert z_score(column, 0.0) < 5
            assert z_score(column**2, 1.6) < 5
        elif kind == "ordinal":
            assert set(np.unique(column)) == {1, 2, 3}
            assert z_score(column, 2.0) < 5  # levels 1 and 3 are mirror images
            assert z_score(column == 2, middle) < 5
        elif kind == "count":
            assert z_score(column, 2.0) < 5
            assert z_score((column - 2) ** 2, 2 + 0.09 * 1.6) < 5
        else:
            assert set(np.unique(column)) == {0, 1}
            assert z_score(column, 0.5) < 5


@pytest.mark.parametrize("u", [-1.5, 2.0])
def test_covariates_given_the_latent_value(u: float) -> None:
    def covariate(kind) -> np.ndarray:
        return draw_covariates(SMALL, kind, np.full((40_000, 1), u), rng=np.random.default_rng(0)).ravel()

    np.testing.assert_array_equal(covariate("continuous"), u)
    assert z_score(covariate("binary"), 1 / (1 + np.exp(-0.5 * u))) < 5
    counts = covariate("count")
    assert z_score(counts, 2 + 0.3 * u) < 5
    assert z_score(counts == 0, np.exp(-(2 + 0.3 * u))) < 5
    odds = np.exp(np.array([0.0, 0.5, 1.0]) * u)
    for level in (1, 2, 3):
        assert z_score(covariate("ordinal") == level, odds[level - 1] / odds.sum()) < 5


def test_poisson_rates_are_floored() -> None:
    data = draw(SimulationDesign(kind_counts=(0, 0, 4, 0), n_clients=2, rate_floor=9.0), 20_000)
    assert z_score(data.x[:, 0], 9.0) < 5


def test_predictor_moments_agree_with_simulation() -> None:
    data = draw(SimulationDesign(), 20_000)
    mean, sd = predictor_moments(data.design, data.kinds)
    predictor = data.x @ data.coef
    assert z_score(predictor, mean) < 5
    # The covariances are linearised: allow 1 % on top of the Monte-Carlo error.
    assert predictor.std() == pytest.approx(sd, rel=0.01 + 5 / np.sqrt(2 * 20_000))


def test_linear_response_has_standard_normal_errors_and_no_intercept() -> None:
    data = draw(SimulationDesign(), 20_000)
    error = data.y - data.x @ data.coef
    assert z_score(error, 0.0) < 5
    assert z_score(error**2, 1.0) < 5
    assert z_score(error * data.x[:, 0], 0.0) < 5


def test_logistic_response_is_calibrated() -> None:
    data = draw(PAPER_LOGISTIC, 20_000)
    predictor = data.x @ data.coef
    error = data.y - expit(predictor)
    assert set(np.unique(data.y)) == {0, 1}
    assert z_score(error, 0.0) < 5
    assert z_score(error * predictor, 0.0) < 5


def test_the_same_generator_state_gives_the_same_data() -> None:
    first, again, other = draw(SMALL, 50, seed=3), draw(SMALL, 50, seed=3), draw(SMALL, 50, seed=4)
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)


# ---- federation and tables ---------------------------------------------------------------------


def test_federation_describes_five_clients_and_a_server() -> None:
    data = draw(SimulationDesign(), 10)
    federation = data.federation()
    assert [p.name for p in federation.parties] == [*(f"client{k}" for k in range(1, 6)), "server"]
    assert str(federation.response) == "server.y"
    columns = [c for p in federation.parties[:5] for c in p.columns]
    assert tuple(c.kind for c in columns) == data.kinds
    assert {c.categories for c in columns if c.kind == "ordinal"} == {(1, 2, 3)}
    assert {c.bounds for c in columns if c.kind == "count"} == {(0, 15)}
    assert federation.bounds_source == "public"


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_federation_depends_on_the_design_not_on_the_data(model) -> None:
    design = SimulationDesign(model=model, shuffle_seed=1)
    assert draw(design, 10, seed=1).federation() == draw(design, 500, seed=2).federation()


def test_public_bounds_hold_nearly_all_values() -> None:
    data = draw(SimulationDesign(), 20_000)
    low, high = data.federation().party("server").column("y").bounds
    assert np.mean((data.y < low) | (data.y > high)) < 1e-3
    assert np.mean(np.abs(data.x[:, np.array(data.kinds) == "continuous"]) > 6) < 1e-5
    assert high - low < 15 * data.y.std()  # and are not uselessly wide


def test_tables_hold_the_data_in_the_federations_layout() -> None:
    data = draw(SimulationDesign(), 30)
    tables = data.tables()
    for party in data.federation().parties:
        assert tables[party.name].columns == ["subject_id", *(c.name for c in party.columns)]
        for column in party.columns:
            expected = pl.Float64 if column.kind == "continuous" else pl.Int64
            assert tables[party.name][column.name].dtype == expected
    joined = np.column_stack([tables[f"client{k}"].drop("subject_id").to_numpy() for k in range(1, 6)])
    np.testing.assert_array_equal(joined, data.x)
    np.testing.assert_array_equal(tables["server"]["y"].to_numpy(), data.y)
    assert tables["server"]["subject_id"].n_unique() == 30


def test_a_missing_block_has_no_row() -> None:
    data = draw(SMALL, 20)
    observed = mask_mcar(20, missing_rates=(0.5, 0.5, 0.5), rng=np.random.default_rng(0))
    tables = data.tables(observed)
    assert tables["server"].height == 20
    for k in range(3):
        rows = np.flatnonzero(observed[:, k])
        table = tables[f"client{k + 1}"]
        np.testing.assert_array_equal(table.drop("subject_id").to_numpy(), data.x[rows, data.blocks[k]])
        assert table["subject_id"].to_list() == tables["server"]["subject_id"].gather(rows.tolist()).to_list()


# ---- missing blocks ----------------------------------------------------------------------------


@pytest.mark.parametrize("rates", [MCAR_UNIFORM, (0.05, 0.10, 0.15, 0.20, 0.25)])
def test_mcar_rates(rates: tuple[float, ...]) -> None:
    missing = ~mask_mcar(40_000, missing_rates=rates, rng=np.random.default_rng(0))
    for k, rate in enumerate(rates):
        assert z_score(missing[:, k], rate) < 5
    complete = float(np.prod(1 - np.array(rates)))
    assert z_score(~missing.any(axis=1), complete) < 5  # the clients' draws are independent


def test_mcar_of_the_paper_leaves_the_printed_share_of_complete_cases() -> None:
    assert np.prod(1 - np.array(MCAR_UNIFORM)) == pytest.approx(0.7738, abs=1e-4)


def naive_mar_probability(data: SimulatedData, missing: np.ndarray, i: int, k: int, always: set[int], case) -> float:
    """Pr(M_ik = 1) term by term, clients counted from 1."""
    total = 1.0
    for j in always:
        block = data.x[i, data.blocks[j - 1]]
        total += (-1) ** j * sum(block[a - 1] / (j * a) for a in range(1, len(block) + 1))
    if case == "complex":
        total -= data.y[i]
        total += sum((-1) ** j * missing[i, j - 1] for j in range(1, k) if j not in always)
    return float(1 / (1 + np.exp(-total)))


@pytest.mark.parametrize("case", ["simple", "complex"])
def test_mar_follows_its_logistic_model(case: MarCase) -> None:
    data = draw(SMALL, 4_000)
    missing = ~mask_mar(data, case=case, maskable=np.array([True, False, True]), rng=np.random.default_rng(1))
    assert not missing[:, 1].any()
    for k in (1, 3):
        probability = np.array([naive_mar_probability(data, missing, i, k, {2}, case) for i in range(4_000)])
        error = missing[:, k - 1] - probability
        assert z_score(error, 0.0) < 5
        assert z_score(error * (probability - probability.mean()), 0.0) < 5
        assert z_score(error * missing[:, 0] if k == 3 else error * data.y, 0.0) < 5


def masked(data: SimulatedData, case: MarCase) -> np.ndarray:
    return mask_mar(data, case=case, maskable=np.array([True, False, True]), rng=np.random.default_rng(5))


@pytest.mark.parametrize("case", ["simple", "complex"])
def test_mar_does_not_look_at_values_it_may_hide(case: MarCase) -> None:
    data = draw(SMALL, 500)
    x = data.x.copy()
    for k in (0, 2):
        x[:, data.blocks[k]] += 10.0
    np.testing.assert_array_equal(masked(replace(data, x=x), case), masked(data, case))


def test_mar_looks_at_observed_covariates_and_in_the_complex_case_at_the_response() -> None:
    data = draw(SMALL, 500)
    x = data.x.copy()
    x[:, data.blocks[1]] += 1.0
    shifted_x, shifted_y = replace(data, x=x), replace(data, y=data.y + 1.0)
    assert not np.array_equal(masked(shifted_x, "simple"), masked(data, "simple"))
    np.testing.assert_array_equal(masked(shifted_y, "simple"), masked(data, "simple"))
    assert not np.array_equal(masked(shifted_y, "complex"), masked(data, "complex"))


def test_maskable_clients_are_uniform_over_the_proper_subsets() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([draw_maskable_clients(3, rng=rng) for _ in range(6_000)])
    codes = draws @ np.array([1, 2, 4])
    assert set(codes) == {1, 2, 3, 4, 5, 6}
    for code in range(1, 7):
        assert z_score(codes == code, 1 / 6) < 5


def test_mar_draws_its_own_maskable_clients() -> None:
    data = draw(SMALL, 300)
    hidden = [(~mask_mar(data, rng=np.random.default_rng(seed))).any(axis=0) for seed in range(10)]
    assert all(h.any() and not h.all() for h in hidden)
    assert len({tuple(h) for h in hidden}) > 1


def test_unknown_case_is_refused() -> None:
    with pytest.raises(SettingsError, match="simple"):
        mask_mar(draw(SMALL, 5), case="hard", rng=np.random.default_rng(0))  # type: ignore[arg-type]


def test_one_client_cannot_be_masked_at_random() -> None:
    with pytest.raises(SettingsError, match="two clients"):
        draw_maskable_clients(1, rng=np.random.default_rng(0))


def test_uniform_effects_have_the_signs_places_and_mean_size_of_equal_ones() -> None:
    equal, uniform = SimulationDesign().coef, SimulationDesign(effects="uniform").coef
    np.testing.assert_array_equal(np.sign(uniform), np.sign(equal))
    sizes = np.sort(np.abs(uniform[uniform != 0.0]))
    np.testing.assert_allclose(sizes, (np.arange(60) + 0.5) / 90)
    assert np.mean(sizes) == pytest.approx(1 / 3)
    with pytest.raises(SettingsError, match="effects"):
        SimulationDesign(effects="normal")  # type: ignore[arg-type]
