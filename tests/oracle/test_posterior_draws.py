"""Draws of a copula's correlations: against the plain row-by-row form, textbook errors, and regressions' own errors."""

from __future__ import annotations

import pickle

import numpy as np
import polars as pl
import pytest

from verticopula import Federation, Synthesizer, VerticalGLM
from verticopula.errors import NotPrivateWarning
from verticopula.estimators.score_errors import ScoreErrors
from verticopula.glm.bayes import BAYES_TUNING, sample_posterior
from verticopula.glm.families import find_family
from verticopula.glm.feature_design import Features
from verticopula.glm.feature_encoding import Coding
from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import FittedCopula
from verticopula.stats.em import find_patterns, regress
from verticopula.stats.matrix_repair import to_correlation
from verticopula.stats.posterior_draws import PosteriorDraws, draw_covariances, draw_inverse_wishart

RHO = np.array([[1.0, 0.5, 0.3], [0.5, 1.0, -0.2], [0.3, -0.2, 1.0]])


def normal_rows(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((n, 3)) @ np.linalg.cholesky(RHO).T


def plain_chain(readings, observed, start, prior, rng, n_draws):  # type: ignore[no-untyped-def]
    """The obvious version: every subject's missing readings, then the inverse of a Wishart drawn as a sum."""
    q, covariance, found = start.shape[0], start, []
    for _ in range(n_draws):
        rows = readings.copy()
        for pattern in find_patterns(observed):
            weights = regress(covariance, pattern.observed, pattern.missing)
            left = covariance[np.ix_(pattern.missing, pattern.missing)]
            left = left - weights @ covariance[np.ix_(pattern.observed, pattern.missing)]
            if pattern.missing.size == 0:
                continue
            drawn = rng.multivariate_normal(np.zeros(len(left)), left, size=len(pattern.rows))
            for i, around in zip(pattern.rows, drawn, strict=True):
                rows[i, pattern.missing] = weights @ rows[i, pattern.observed] + around
        scale = rows.T @ rows + prior * np.eye(q)
        normal = rng.multivariate_normal(np.zeros(q), np.linalg.inv(scale), size=len(rows) + int(prior) + q + 1)
        covariance = to_correlation(np.linalg.inv(normal.T @ normal))
        found.append(covariance)
    return np.array(found)


def test_an_inverse_wishart_has_its_mean() -> None:
    rng = np.random.default_rng(0)
    scale = np.array([[4.0, 1.0], [1.0, 2.0]])
    drawn = np.mean([draw_inverse_wishart(scale, 12.0, rng) for _ in range(20_000)], axis=0)
    np.testing.assert_allclose(drawn, scale / (12.0 - 2 - 1), rtol=0.03)


@pytest.mark.statistics
def test_few_rows_stand_for_many() -> None:
    """The quick chain has the moments of the one that draws every subject's every value."""
    rng = np.random.default_rng(1)
    readings = normal_rows(60, rng)
    observed = np.ones((60, 3), dtype=bool)
    observed[:25, 2] = False
    observed[25:40, 0] = False
    observed[40:42, :2] = False
    readings[~observed] = 0.0
    slow = plain_chain(readings, observed, RHO, 2.0, rng, 3_000)[20:]
    fast = draw_covariances(readings, find_patterns(observed), RHO, 2.0, rng, n_draws=3_000, thin=1)
    np.testing.assert_allclose(fast.mean(axis=0), slow.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(fast.std(axis=0), slow.std(axis=0), atol=0.02)


def test_a_correlation_is_as_sure_as_the_textbook_says() -> None:
    rng = np.random.default_rng(2)
    n, common = 2_000, 200
    observed = np.ones((n, 3), dtype=bool)
    observed[common:, 2] = False
    readings = np.where(observed, normal_rows(n, rng), 0.0)
    drawn = draw_covariances(readings, find_patterns(observed), RHO, 1e-3, rng, n_draws=600, thin=4)
    assert drawn[:, 0, 1].std() == pytest.approx((1.0 - 0.5**2) / np.sqrt(n), rel=0.15)
    # Known from the 200 that have both.
    assert drawn[:, 0, 2].std() == pytest.approx((1.0 - 0.3**2) / np.sqrt(common), rel=0.25)


# ---- regressions ---------------------------------------------------------------------------

COLUMNS = [
    {"name": "a", "kind": "continuous", "bounds": [-6, 6]},
    {"name": "b", "kind": "nominal", "categories": ["p", "q", "r"]},
    {"name": "c", "kind": "count", "bounds": [0, 9]},
]


def federation() -> Federation:
    return Federation.from_dict(
        {
            "name": "certain",
            "response": "hub.y",
            "id": "id",
            "party": [
                {"name": "side", "column": COLUMNS},
                {"name": "hub", "column": [{"name": "y", "kind": "continuous", "bounds": [-10, 10]}]},
            ],
        }
    )


def make_tables(n: int, kept: int, seed: int = 0, effect: float = 1.0) -> dict[str, pl.DataFrame]:
    """y = effect * a + 0 b + 0 c + noise, the first `kept` subjects with everything."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(n)
    side = pl.DataFrame(
        {
            "id": np.arange(n),
            "a": np.clip(a, -6, 6),
            "b": rng.choice(["p", "q", "r"], n, p=[0.5, 0.3, 0.2]),
            "c": rng.binomial(9, 0.4, n),
        }
    )
    hub = pl.DataFrame({"id": np.arange(n), "y": np.clip(effect * a + rng.standard_normal(n), -10, 10)})
    return {"side": side.head(kept), "hub": hub}


@pytest.fixture(scope="module")
def fitted() -> Synthesizer:
    with pytest.warns(NotPrivateWarning):
        return Synthesizer(federation(), "refined", 400.0, random_state=1).fit(make_tables(2_000, 1_200))


def fit_doubtful() -> Synthesizer:
    """40 subjects are known at both parties, and chance alone links what they have."""
    with pytest.warns(NotPrivateWarning):
        return Synthesizer(federation(), "refined", 400.0, random_state=1).fit(make_tables(2_000, 40, 3, effect=0.0))


def keys_and_codings() -> list[tuple[ColumnKey, Coding]]:
    return [
        (ColumnKey("side", "a"), Coding("a")),
        (ColumnKey("side", "b"), Coding("b", ("p", "q", "r"), grouped=True)),
        (ColumnKey("side", "c"), Coding("c")),
    ]


def test_a_score_moves_as_the_correlations_do(fitted: Synthesizer) -> None:
    """First order against the real thing: rows from a copula whose correlations were moved."""
    copula = fitted.result_.copula
    moved = np.zeros_like(copula.correlation)
    y = copula.layout.slices[copula.layout.keys.index(ColumnKey("hub", "y"))].start
    for j, by in zip([j for j in range(len(moved)) if j != y], (0.05, 0.06, -0.06, 0.0, 0.05), strict=True):
        moved[j, y] = moved[y, j] = by
    coef = np.array([0.5, 0.2, -0.3, 0.1])
    errors = ScoreErrors.of(
        PosteriorDraws(copula, moved[None]), keys_and_codings(), (ColumnKey("hub", "y"), Coding("y"))
    ).draw(coef, 1.0)[0]
    ends = []
    for sign in (1.0, -1.0):
        other = FittedCopula(copula.layout, copula.margins, copula.correlation + 0.5 * sign * moved)
        rows = other.sample(2_000_000, np.random.default_rng(3))
        x = np.column_stack([coding.spread(rows[key]) for key, coding in keys_and_codings()])
        residual = rows[ColumnKey("hub", "y")] - x @ coef
        ends.append((x - x.mean(axis=0)).T @ (residual - residual.mean()) / len(x))
    np.testing.assert_allclose(errors, ends[0] - ends[1], atol=0.12 * np.abs(errors).max())


def test_errors_as_large_as_the_rows_own_change_little() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((400, 6))
    y = x @ np.array([0.5, -0.5, 0.0, 0.0, 0.0, 0.15]) + rng.standard_normal(400)
    root = np.linalg.cholesky(x.T @ x / 400) * np.std(y - x @ np.linalg.lstsq(x, y)[0])
    # So many rows that they are no sample any more.
    features, family, y = Features.plain(np.tile(x, (40, 1)), list("abcdef")), find_family("gaussian"), np.tile(y, 40)

    def draws(factor: float):  # type: ignore[no-untyped-def]
        normal = np.random.default_rng(5).standard_normal((2_000, 6)) @ root.T
        return lambda coef, bend: np.sqrt(factor / 400) * normal

    plain = sample_posterior(features, y, family, n_effective=400, fit_intercept=False)
    same = sample_posterior(features, y, family, n_effective=400, fit_intercept=False, score_errors=draws(1.0))
    np.testing.assert_allclose(same.inclusion, plain.inclusion, atol=0.2)  # its noise is known, the other one drawn
    np.testing.assert_allclose(same.mean, plain.mean, atol=0.03)
    # 16 times the variance is as much as 25 subjects know.
    doubtful = sample_posterior(features, y, family, n_effective=400, fit_intercept=False, score_errors=draws(16.0))
    few = sample_posterior(features, y, family, n_effective=25, fit_intercept=False)
    np.testing.assert_allclose(doubtful.inclusion, few.inclusion, atol=0.25)
    assert (doubtful.inclusion[:2] < plain.inclusion[:2]).all()


def test_constant_and_copied_columns_do_not_break_it() -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((300, 2))
    rows = np.column_stack([x, x[:, 0], np.ones(300)])
    y = (x[:, 0] + rng.standard_normal(300) > 0).astype(np.float64)
    found = sample_posterior(
        Features.plain(rows, list("abcd")),
        y,
        find_family("binomial"),
        score_errors=lambda coef, bend: 0.03 * rng.standard_normal((200, 4)) * [1.0, 1.0, 1.0, 0.0],
    )
    assert np.isfinite(found.mean).all()
    assert found.inclusion[3] == 0.0


def test_a_regression_on_refined_tables_knows_how_little_it_knows(fitted: Synthesizer) -> None:
    tables = fitted.sample(2_000)
    sure = VerticalGLM(select="bayes").fit(tables, "hub.y")
    assert sure.bar_ == BAYES_TUNING.known_errors_bar
    assert sure.inclusion_["side"][0] > 0.99
    rows = fit_doubtful().sample(2_000)
    told = VerticalGLM(select="bayes").fit(rows, "hub.y")
    rows.posterior_draws = None
    untold = VerticalGLM(select="bayes").fit(rows, "hub.y")
    assert untold.inclusion_["side"].max() > 0.95
    assert told.inclusion_["side"].max() < BAYES_TUNING.known_errors_bar


def test_releases_stay_behind_when_tables_are_pickled(fitted: Synthesizer) -> None:
    tables = fitted.sample(50)
    again = pickle.loads(pickle.dumps(tables))
    assert again.posterior_draws is None
    assert (again.n_subjects, again.federation) == (tables.n_subjects, tables.federation)
    assert again["side"].equals(tables["side"])
    assert tables.posterior_draws is not None


def test_other_methods_say_nothing() -> None:
    with pytest.warns(NotPrivateWarning):
        plain = Synthesizer(federation(), "vcds", 400.0, random_state=1).fit(make_tables(300, 300))
    assert plain.sample(10).posterior_draws is None
