"""What the paper's algorithms as printed cost: comparisons that may change, and a range that has no noise."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from tests.builders import fit_seeded
from tests.unit.test_methods import federation, tables
from verticopula import Policy, Synthesizer
from verticopula.errors import BudgetExceeded, NotPrivateWarning
from verticopula.privacy.policy import Caps
from verticopula.privacy.pricing import PRINTED_MARGIN, Pricing
from verticopula.privacy.statement import state_privacy
from verticopula.schema.columns import Column
from verticopula.schema.methods import PRINTED_VARIANT
from verticopula.schema.printed_choices import DEFAULT_INTERPRETATION
from verticopula.schema.units import Unit
from verticopula.stats.printed.rounds_at_client import PrintedRound, impute_column
from verticopula.stats.printed.row_order_ranks import rank_by_row
from verticopula.study.study_pricing import price_releases

NUMBER = Column(name="x", kind="continuous", bounds=(-10, 10))
COUNT = Column(name="n", kind="count", bounds=(0, 5))


def printed(method: str, **settings: object) -> Synthesizer:
    given = {"unit": "variable", "epsilon": 4.0, "rounds": 3, "variant": PRINTED_VARIANT, **settings}
    return fit_seeded(federation(), tables(), 1, method=method, **given)


@pytest.mark.parametrize(("method", "rounds"), [("vcds", 1), ("evcds", 1), ("ievcds", 3)])
def test_the_ledger_has_every_round_and_every_margin(method: str, rounds: int) -> None:
    ledger = printed(method).ledger_
    for column in ("y", "flag", "x", "g", "n"):
        own = [entry for entry in ledger if entry.column == column]
        assert [entry.what for entry in own].count("ranks") == rounds
        assert [entry.mechanism for entry in own if entry.what == "marginal"] == [PRINTED_MARGIN]


@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds"])
def test_every_unit_is_infinite_at_every_party(method: str) -> None:
    privacy = printed(method).privacy_
    assert privacy.as_printed
    assert all(math.isinf(privacy.epsilon(unit)) for unit in Unit)
    assert all(math.isinf(own.variable) and math.isinf(own.block) for own in privacy.parties.values())
    assert any("as printed" in line for line in privacy.warnings)


@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds"])
def test_ranks_are_charged_as_in_our_variant_where_nothing_is_filled_in(method: str) -> None:
    """At `variable`, ε1 of every comparison of two observed values, split over the rounds."""
    ranks = [entry for entry in printed(method).ledger_ if entry.what == "ranks" and entry.column == "y"]
    rounds = 3 if method == "ievcds" else 1
    assert [entry.epsilon for entry in ranks] == pytest.approx([2.0 / rounds] * rounds)
    assert {entry.coins_count for entry in ranks} == {149}


def test_a_nominal_column_has_one_coin_a_comparison() -> None:
    (entry,) = [e for e in printed("vcds").ledger_ if e.what == "ranks" and e.column == "g"]
    assert (entry.coins_epsilon, entry.coins_count) == (2.0, entry.n_subjects - 1)


def changed_comparisons(
    column: Column, values: np.ndarray, other: np.ndarray, observed: np.ndarray, history: list[PrintedRound]
) -> int:
    """Comparisons of the completed columns that differ between two data sets, given the same messages."""
    orders = []
    for data in (values, other):
        after = impute_column(column, data, observed, history, DEFAULT_INTERPRETATION)
        completed, known = after.values, after.known
        assert known.all()
        ranks = rank_by_row(completed)
        orders.append(ranks[:, None] > ranks[None, :])
    return int(np.triu(orders[0] != orders[1], 1).sum())


@pytest.mark.parametrize("column", [NUMBER, COUNT])
def test_no_replaced_value_changes_more_comparisons_than_are_charged(column: Column) -> None:
    rng = np.random.default_rng(3)
    n, most = 14, 0
    observed = np.arange(n) < 9
    price = Pricing("s", "p").printed_ranks(column, 9, 5, 0.1)
    for _ in range(400):
        values = rng.integers(0, 6, n).astype(float) if column is COUNT else rng.normal(size=n)
        first = PrintedRound(rng.integers(1, 10, 9), rng.normal(size=n))
        history = [first, PrintedRound(rng.integers(1, n + 1, n), rng.normal(size=n))][: rng.integers(1, 3)]
        other = values.copy()
        other[rng.integers(0, 9)] = rng.integers(0, 6) if column is COUNT else rng.normal() * 5.0
        most = max(most, changed_comparisons(column, values, other, observed, history))
    assert n - 1 < most <= price.coins_count  # more than the person's own


def test_charged_comparisons_are_those_with_the_person_or_with_a_filled_in_value() -> None:
    n_observed, n_missing = 7, 4
    n = n_observed + n_missing
    pairs = [(a, b) for a in range(n) for b in range(a)]
    touched = sum(0 in pair or max(pair) >= n_observed for pair in pairs)  # person 0; filled in: from n_observed on
    price = Pricing("s", "p").printed_ranks(NUMBER, n_observed, n_missing, 0.5)
    assert price.coins_count == touched
    # Alone, without one comparison to another person: every touched one but the n_observed - 1 with other people.
    assert price.epsilon == pytest.approx(0.5 * (1 + touched - (n_observed - 1)))


@pytest.mark.parametrize("unit", ["variable", "client", "block", "person"])
def test_no_cap_allows_it(unit: str) -> None:
    policy = Policy(allow_as_printed=True, caps=Caps(**{unit: 1e9}))
    with pytest.raises(BudgetExceeded, match="infinite"):
        Synthesizer(federation(), "vcds", 1.0, variant=PRINTED_VARIANT).fit(tables(), policies={"left": policy})


@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds"])
def test_a_coordinator_prices_what_the_parties_entered(method: str) -> None:
    study = printed(method).study_
    priced = list(
        price_releases(
            study.federation, study.budget, study.name, study.result, is_private=False, variant=PRINTED_VARIANT
        )
    )
    key = ["party", "column", "what", "mechanism", "n_subjects", "epsilon", "coins_epsilon", "coins_count"]
    assert sorted([getattr(e, name) for name in key] for e in priced) == sorted(
        [getattr(e, name) for name in key] for e in study.releases
    )


def test_a_ledger_with_such_entries_is_read_back() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        ledger = printed("vcds").ledger_
    again = [type(entry).from_json(entry.to_json()) for entry in ledger]
    assert state_privacy(again).as_printed
