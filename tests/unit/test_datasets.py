"""The SME study: its tables look as promised, and follow the truth that comes with them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import optimize, stats

from verticopula.datasets import ContinuousMargin, SmeStudy, make_sme
from verticopula.errors import SettingsError

N = 20_000
MISSING_RATES = {
    "credit_agency": 0.7234,
    "market_supervision": 0.8353,
    "judicial_authority": 0.8733,
    "commerce_bureau": 0.2711,
    "law_enforcement": 0.0,
}
# Two-sided limits that a correct study passes with probability above 0.99 over all checks of a test.
FEW_CHECKS, MANY_CHECKS = 4.0, 5.0


@pytest.fixture(scope="module")
def study() -> SmeStudy:
    return make_sme(N, random_state=7)


@pytest.fixture(scope="module")
def values(study: SmeStudy) -> dict[str, np.ndarray]:
    """Complete values by "party.column"; categories as 0, 1, ... in schema order."""
    by_key = {}
    for party in study.federation.parties:
        for column in party.columns:
            series = study.truth.complete[party.name][column.name]
            codes = {c: i for i, c in enumerate(column.categories or ())}
            by_key[f"{party.name}.{column.name}"] = np.array([codes[v] for v in series] if codes else series)
    return by_key


def membership(study: SmeStudy) -> dict[str, np.ndarray]:
    """Who is in each party's table, in the order of the complete tables."""
    everyone = study.truth.complete["law_enforcement"]["subject_id"].to_list()
    held = {party: set(table["subject_id"]) for party, table in study.tables.items()}
    return {party: np.array([subject in ids for subject in everyone]) for party, ids in held.items()}


def fit_logistic(design: np.ndarray, outcome: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood by Newton's method, intercept first: coefficients, standard errors."""
    design = np.column_stack([np.ones(len(outcome)), design])
    coef = np.zeros(design.shape[1])
    for _ in range(10):
        fitted = 1.0 / (1.0 + np.exp(-design @ coef))
        information = design.T @ (design * (fitted * (1.0 - fitted))[:, None])
        coef = coef + np.linalg.solve(information, design.T @ (outcome - fitted))
    return coef, np.sqrt(np.diag(np.linalg.inv(information)))


def standardised_terms(study: SmeStudy, values: dict[str, np.ndarray]) -> np.ndarray:
    """(n, n_coefficients), as the truth's documentation says; written apart from the package's own code."""
    truth = study.truth
    terms = []
    for label in truth.coefficients:
        key, _, category = label.partition("=")
        x = values[key].astype(float)
        if category:
            party, name = key.split(".")
            x = (study.truth.complete[party][name] == category).to_numpy().astype(float)
        terms.append((x - truth.centers[label]) / truth.scales[label])
    return np.column_stack(terms)


# ---- the shape of the study ------------------------------------------------------------------


def test_parties_hold_the_papers_numbers_of_columns(study: SmeStudy) -> None:
    sizes = {party.name: len(party.columns) for party in study.federation.parties}
    assert list(sizes.items()) == list(zip(MISSING_RATES, (13, 6, 6, 19, 11), strict=True))
    assert str(study.federation.response) == "law_enforcement.penalised"
    for name, table in study.tables.items():
        assert table.columns == ["subject_id", *(c.name for c in study.federation.party(name).columns)]
        assert study.truth.complete[name].schema == table.schema


def test_every_kind_occurs_and_nominal_columns_are_few(study: SmeStudy) -> None:
    kinds = {party.name: Counter(c.kind for c in party.columns) for party in study.federation.parties}
    assert set().union(*kinds.values()) == {"continuous", "count", "ordinal", "nominal", "binary"}
    assert all({"continuous", "count", "ordinal", "binary"} <= set(of_party) for of_party in kinds.values())
    assert 3 <= sum(of_party["nominal"] for of_party in kinds.values()) <= 4
    assert kinds["commerce_bureau"]["nominal"] <= 2
    assert kinds["law_enforcement"]["nominal"] == 0
    nominal = [c for party in study.federation.parties for c in party.columns if c.kind == "nominal"]
    assert all(3 <= len(c.categories or ()) <= 6 for c in nominal)


def test_values_are_of_the_right_type_and_inside_the_public_range(study: SmeStudy) -> None:
    for party in study.federation.parties:
        for column in party.columns:
            series = study.truth.complete[party.name][column.name]
            assert series.null_count() == 0
            if column.categories is not None:
                assert set(series.unique()) == set(column.categories), column.name
            else:
                assert series.dtype == (pl.Float64 if column.kind == "continuous" else pl.Int64)
                assert column.bounds is not None
                assert series.is_between(*column.bounds).all(), column.name
                assert not column.clamp


def test_rounding_leaves_continuous_columns_practically_without_ties(study: SmeStudy) -> None:
    for key, margin in study.truth.margins.items():
        party, name = key.split(".")
        if isinstance(margin, ContinuousMargin):
            assert study.truth.complete[party][name].value_counts()["count"].max() < 0.002 * N, key


def test_ids_are_unique_and_rows_are_shuffled_apart(study: SmeStudy) -> None:
    orders = {}
    for name, table in study.tables.items():
        ids = table["subject_id"]
        assert ids.n_unique() == len(ids)
        assert set(ids) <= set(study.truth.complete[name]["subject_id"])
        assert not ids.is_sorted()
        orders[name] = ids.to_list()
    left, right = orders["law_enforcement"], orders["commerce_bureau"]
    shared = set(right)
    assert [subject for subject in left if subject in shared] != right


def test_a_row_holds_the_subjects_own_values(study: SmeStudy) -> None:
    for name, table in study.tables.items():
        expected = table.select("subject_id").join(study.truth.complete[name], on="subject_id", maintain_order="left")
        full = [c for c in table.columns if table[c].null_count() == 0]
        assert_frame_equal(table.select(full), expected.select(full))


def test_some_single_cells_are_empty(study: SmeStudy) -> None:
    gaps = {
        f"{party}.{name}": table[name].null_count() / len(table)
        for party, table in study.tables.items()
        for name in table.columns
        if table[name].null_count()
    }
    assert set(gaps) == {
        "credit_agency.cash_ratio",
        "market_supervision.inspection_score",
        "commerce_bureau.site_area",
    }
    for key, rate in gaps.items():
        rows = len(study.tables[key.split(".")[0]])
        assert abs(rate - 0.005) < FEW_CHECKS * np.sqrt(0.005 / rows)


def test_the_seed_decides_the_tables() -> None:
    first, again, other = (make_sme(300, random_state=seed) for seed in (3, 3, 4))
    for name, table in first.tables.items():
        assert_frame_equal(table, again.tables[name])
        assert not table.equals(other.tables[name])


def test_global_random_state_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    make_sme(60)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("n", [50, 200])
def test_small_studies_work(n: int) -> None:
    study = make_sme(n)
    assert len(study.tables["law_enforcement"]) == n
    assert all(len(table) > 0 for table in study.tables.values())


def test_too_small_a_study_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least 50 enterprises, got 49"):
        make_sme(49)


# ---- the copula ------------------------------------------------------------------------------


def test_labels_name_every_latent_once(study: SmeStudy) -> None:
    expected = [
        label
        for party in study.federation.parties
        for c in party.columns
        for label in (
            [f"{party.name}.{c.name}={category}" for category in c.categories or ()]
            if c.kind == "nominal"
            else [f"{party.name}.{c.name}"]
        )
    ]
    assert list(study.truth.labels) == expected


def test_correlation_is_a_positive_definite_correlation(study: SmeStudy) -> None:
    correlation = study.truth.correlation
    np.testing.assert_allclose(np.diag(correlation), 1.0, atol=1e-12)
    np.testing.assert_array_equal(correlation, correlation.T)
    assert np.linalg.eigvalsh(correlation)[0] > 0.05
    with pytest.raises(ValueError, match="read-only"):
        correlation[0, 1] = 0.0


def test_correlation_is_stronger_inside_parties_and_substantial_between_them(study: SmeStudy) -> None:
    labels = study.truth.labels
    single = [i for i, label in enumerate(labels) if "=" not in label]
    within, across = [], []
    for i, j in combinations(single, 2):
        same = labels[i].split(".")[0] == labels[j].split(".")[0]
        (within if same else across).append(abs(study.truth.correlation[i, j]))
    assert np.mean(within) > 1.5 * np.mean(across)
    assert np.mean(np.array(across) > 0.1) > 0.5


def test_category_latents_are_independent_and_cancel_elsewhere(study: SmeStudy) -> None:
    columns = [label.partition("=")[0] for label in study.truth.labels]
    for key, count in Counter(columns).items():
        if count == 1:
            continue
        own = np.array([c == key for c in columns])
        np.testing.assert_allclose(study.truth.correlation[np.ix_(own, own)], np.eye(count), atol=1e-12)
        elsewhere = study.truth.correlation[np.ix_(own, ~own)]
        np.testing.assert_allclose(elsewhere.sum(axis=0), 0.0, atol=1e-10)
        assert np.abs(elsewhere).max() > 0.2


def test_rank_correlations_follow_the_latent_ones(study: SmeStudy, values: dict[str, np.ndarray]) -> None:
    keys = [k for k, m in study.truth.margins.items() if isinstance(m, ContinuousMargin)]
    at = [study.truth.labels.index(k) for k in keys]
    expected = 6.0 / np.pi * np.arcsin(study.truth.correlation[np.ix_(at, at)] / 2.0)
    found = stats.spearmanr(np.column_stack([values[k] for k in keys])).statistic
    # A Spearman correlation of normals has a standard error of at most 1 / sqrt(n).
    assert np.abs(found - expected).max() < MANY_CHECKS / np.sqrt(N)


def test_binary_pairs_follow_the_latent_correlation(study: SmeStudy, values: dict[str, np.ndarray]) -> None:
    keys = ["credit_agency.has_collateral", "commerce_bureau.exporter", "law_enforcement.punished"]
    for left, right in combinations(keys, 2):
        i, j = study.truth.labels.index(left), study.truth.labels.index(right)
        r = study.truth.correlation[i, j]
        cuts = [stats.norm.ppf(study.truth.margins[k][0]) for k in (left, right)]  # type: ignore[index]
        both_low = stats.multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf(cuts)
        found = np.mean((values[left] == 0) & (values[right] == 0))
        assert abs(found - both_low) < FEW_CHECKS * np.sqrt(both_low * (1 - both_low) / N), (left, right)


def test_nominal_column_moves_the_others_as_its_latents_say(study: SmeStudy, values: dict[str, np.ndarray]) -> None:
    """E[z * 1(c)] = sum over d of correlation(z, d) * E[Z_d * 1(c)], and by Stein's identity the
    last factor is minus the derivative of P(c) in the offset of d."""
    key, other = "credit_agency.ownership", "law_enforcement.fine_exposure"
    target = study.truth.margins[key]
    assert isinstance(target, np.ndarray)

    def cells(offsets: np.ndarray) -> np.ndarray:
        differences = stats.multivariate_normal([0, 0], [[2, 1], [1, 2]])  # Z_d - Z_c for both d != c
        return np.array([differences.cdf(np.delete(offsets, c) - offsets[c]) for c in range(3)])

    free = optimize.root(lambda t: (cells(np.array([0.0, *t])) - target)[1:], np.zeros(2)).x
    offsets, width = np.array([0.0, *free]), 1e-3
    slopes = np.array([(cells(offsets + step) - cells(offsets - step)) / (2 * width) for step in width * np.eye(3)])

    at = [i for i, label in enumerate(study.truth.labels) if label.startswith(f"{key}=")]
    to_other = study.truth.correlation[study.truth.labels.index(other), at]
    expected = -to_other @ slopes
    margin = study.truth.margins[other]
    assert isinstance(margin, ContinuousMargin)
    z = stats.norm.ppf(margin.cdf(values[other]))
    products = z[:, None] * (values[key][:, None] == np.arange(3))
    assert np.abs(expected).max() > 0.05
    error = products.std(axis=0) / np.sqrt(N)
    assert np.all(np.abs(products.mean(axis=0) - expected) < FEW_CHECKS * error)


def test_cells_match_their_probabilities(study: SmeStudy, values: dict[str, np.ndarray]) -> None:
    for key, margin in study.truth.margins.items():
        if isinstance(margin, ContinuousMargin):
            continue
        party, name = key.split(".")
        column = study.federation.party(party).column(name)
        low = int(column.bounds[0]) if column.bounds else 0
        found = np.bincount(values[key].astype(int) - low, minlength=len(margin))
        assert len(found) == len(margin)
        assert margin.sum() == pytest.approx(1.0, abs=1e-12)
        frequent = margin * N > 5
        assert np.all(found[~frequent] < 30)
        error = np.sqrt(N * margin * (1 - margin))[frequent]
        assert np.all(np.abs(found - N * margin)[frequent] < MANY_CHECKS * error + 1), key


def test_continuous_columns_match_their_distribution(study: SmeStudy, values: dict[str, np.ndarray]) -> None:
    for key, margin in study.truth.margins.items():
        if not isinstance(margin, ContinuousMargin):
            continue
        party, name = key.split(".")
        column = study.federation.party(party).column(name)
        assert column.bounds is not None
        outside = margin.cdf(column.bounds[0]) + 1 - margin.cdf(column.bounds[1])
        assert outside < 1e-6, key
        # P(sqrt(n) D > 2.2) is about 1e-4; rounding adds at most half of its largest atom.
        distance = stats.kstest(values[key], margin.cdf).statistic
        assert distance < 2.2 / np.sqrt(N) + 0.001, key
        assert np.mean(values[key]) == pytest.approx(
            study.truth.centers[key], abs=MANY_CHECKS * study.truth.scales[key] / np.sqrt(N)
        )


# ---- the response ----------------------------------------------------------------------------


def test_response_follows_the_sparse_logistic_truth(study: SmeStudy, values: dict[str, np.ndarray]) -> None:
    truth = study.truth
    terms = standardised_terms(study, values)
    eta = truth.intercept + terms @ np.array(list(truth.coefficients.values()))
    np.testing.assert_allclose(truth.probability, 1.0 / (1.0 + np.exp(-eta)), rtol=1e-9)

    response = truth.complete["law_enforcement"]["penalised"].to_numpy()
    coef, error = fit_logistic(terms, response)
    expected = np.array([truth.intercept, *truth.coefficients.values()])
    assert np.all(np.abs(coef - expected) < FEW_CHECKS * error)
    for in_decile in np.array_split(np.argsort(truth.probability), 10):
        p = truth.probability[in_decile]
        assert abs(response[in_decile].mean() - p.mean()) < FEW_CHECKS * np.sqrt(np.sum(p * (1 - p))) / len(p)


def test_response_is_learnable_and_uncommon(study: SmeStudy) -> None:
    response = study.truth.complete["law_enforcement"]["penalised"].to_numpy()
    rank = stats.rankdata(study.truth.probability)
    positives = response.sum()
    auc = (rank[response == 1].sum() - positives * (positives + 1) / 2) / (positives * (N - positives))
    assert 0.78 < auc < 0.83
    assert 0.15 < response.mean() < 0.3


def test_relevant_columns_come_from_every_party(study: SmeStudy) -> None:
    truth = study.truth
    assert set(truth.relevant) == {label.partition("=")[0] for label in truth.coefficients}
    assert 10 <= len(truth.relevant) <= 13
    assert {key.split(".")[0] for key in truth.relevant} == set(MISSING_RATES)
    assert set(truth.centers) == set(truth.scales) == set(truth.labels) - {"law_enforcement.penalised"}


def test_response_row_is_the_biserial_correlation(study: SmeStudy, values: dict[str, np.ndarray]) -> None:
    truth = study.truth
    response = values["law_enforcement.penalised"]
    rate = truth.margins["law_enforcement.penalised"][1]  # type: ignore[index]
    density = stats.norm.pdf(stats.norm.ppf(rate))
    for key, margin in truth.margins.items():
        if isinstance(margin, ContinuousMargin):
            products = stats.norm.ppf(np.clip(margin.cdf(values[key]), 1e-5, 1 - 1e-5)) * response / density
            expected = truth.correlation[-1, truth.labels.index(key)]
            assert abs(products.mean() - expected) < FEW_CHECKS * products.std() / np.sqrt(N) + 0.002, key


# ---- the missing blocks ----------------------------------------------------------------------


def test_missing_rates_are_the_papers(study: SmeStudy) -> None:
    for party, rate in MISSING_RATES.items():
        missing = 1 - len(study.tables[party]) / N
        assert abs(missing - rate) <= FEW_CHECKS * np.sqrt(rate * (1 - rate) / N), party


def test_blocks_are_missing_at_random_but_not_completely(study: SmeStudy, values: dict[str, np.ndarray]) -> None:
    """Given law enforcement's columns, the response and the other tables' members, being in a
    table depends on nothing in it; without them, it does depend on law enforcement's columns."""
    truth, present = study.truth, membership(study)
    known = [k for k in truth.margins if k.startswith("law_enforcement.")]
    drivers = {
        "credit_agency": "law_enforcement.fine_exposure",
        "market_supervision": "law_enforcement.hazard_level",
        "judicial_authority": "law_enforcement.fap",
        "commerce_bureau": "law_enforcement.response_days",
    }
    earlier: list[np.ndarray] = []
    for party, driver in drivers.items():
        own = [k for k in truth.margins if k.startswith(f"{party}.") and k in truth.labels]
        design = np.column_stack([*(values[k] for k in known), *earlier, *(values[k] for k in own)]).astype(float)
        design = (design - design.mean(axis=0)) / design.std(axis=0)
        coef, error = fit_logistic(design, present[party])
        z = coef / error
        assert abs(z[1 + known.index(driver)]) > 8.0, party
        assert np.abs(z[-len(own) :]).max() < FEW_CHECKS, party

        inside, outside = values[driver][present[party]], values[driver][~present[party]]
        assert abs(stats.ttest_ind(inside, outside, equal_var=False).statistic) > 8.0, party
        earlier.append(present[party])


def test_at_full_size_every_pair_of_parties_shares_a_thousand_subjects() -> None:
    present = membership(make_sme())
    for left, right in combinations(present, 2):
        assert np.sum(present[left] & present[right]) >= 1_000, (left, right)
