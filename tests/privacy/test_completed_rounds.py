"""What the rounds on completed columns cost, who may ask for them, and that nothing is charged wrongly."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.agreements import bare_proposal
from tests.builders import CONTINUOUS, fit_seeded, make_federation
from tests.oracle.naive import comparison_probabilities, largest_log_ratio, rank_distribution
from tests.study_parties import make_study_party
from verticopula import Federation, Policy, Synthesizer
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import AlignedTable
from verticopula.errors import BudgetExceeded, PolicyRefused, SettingsError
from verticopula.privacy.accounting import composed_epsilon
from verticopula.privacy.budget import coins_per_comparison, rank_coins
from verticopula.privacy.coins import flip_probability
from verticopula.privacy.noise import Keystream, Noise, SecureNoise, SeededNoise
from verticopula.privacy.policy import CappedEpsilons, Caps, capped_epsilons
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.rank_handler import complete_column
from verticopula.protocol.rank_messages import (
    ColumnQuery,
    CompletedRanksReply,
    CompletedRanksRequest,
    Imputation,
    ReleaseRequest,
)
from verticopula.schema.columns import Column
from verticopula.schema.units import Unit
from verticopula.storage.ledger import Ledger

Floats = NDArray[np.float64]

KEYS = np.random.default_rng(0).integers(0, 2**63, 64).astype(np.uint64)  # how ties are broken
N = 24
SEEN = np.arange(N) % 3 != 0  # 16 of 24 have a value
KINDS: dict[str, dict[str, Any]] = {
    "a": CONTINUOUS,
    "b": {"kind": "binary"},
    "c": {"kind": "nominal", "categories": ["x", "y", "z"]},
}


class Untouchable:
    """A source of noise that nobody may ask."""

    is_private = True

    def stream(self, *label: str) -> Keystream:
        raise AssertionError("something was drawn")

    def discrete_laplace(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        raise AssertionError("something was drawn")


def federation() -> Federation:
    return make_federation({"left": KINDS})


def party(noise: Noise | None = None, policy: Policy | None = None, seen: NDArray[np.bool_] = SEEN) -> LocalParty:
    values = {"a": np.linspace(-1, 1, N), "b": np.arange(N) % 2, "c": np.arange(N) % 3}
    columns = {name: EncodedColumn(np.asarray(v, dtype=np.float64), seen.copy()) for name, v in values.items()}
    return make_study_party(
        AlignedTable(federation().party("left"), columns),
        noise=SecureNoise() if noise is None else noise,
        ledger=Ledger(),
        policy=Policy() if policy is None else policy,
    )


def imputation(name: str, epsilon: float = 0.5, **changes: Any) -> Imputation:
    observed, missing = int(SEEN.sum()), int((~SEEN).sum())
    levels = 2 if name == "b" else 3
    fields: dict[str, Any] = {"curve": np.empty(0), "grades": np.empty(0), "codes": np.arange(missing) % levels}
    if name == "a":
        fields = {
            "curve": np.arange(1, observed + 1) / (observed + 1),
            "grades": np.linspace(0.05, 0.93, missing),
            "codes": None,
        }
    return Imputation(name, epsilon, **{**fields, **changes})


def request(*imputations: Imputation, **changes: Any) -> CompletedRanksRequest:
    fields: dict[str, Any] = {"study": "s", "method": "ievcds", "sampler": "exact", "round_number": 2, **changes}
    return CompletedRanksRequest(imputations=imputations or tuple(imputation(c) for c in "abc"), **fields)


def answered(reply: Any) -> CompletedRanksReply:
    assert isinstance(reply, CompletedRanksReply)
    return reply


# ---- the price of a completed column -----------------------------------------------------


@pytest.mark.parametrize("sampler", ["exact", "binomial"])
def test_a_completed_column_is_charged_for_everybody_and_once_more_for_the_missing(sampler: str) -> None:
    local = party()
    local.handle(request(sampler=sampler))
    missing = int((~SEEN).sum())
    for entry in local.control.ledger:
        column = federation().party("left").column(entry.column)
        per_comparison = coins_per_comparison(column, sampler)
        assert entry.what == "ranks"
        assert entry.n_subjects == SEEN.sum()
        assert entry.epsilon == 0.5 * (1 + 2 * missing)  # all comparisons with values that the coordinator knows
        assert entry.coins_count == per_comparison * (N - 1 + missing)
        assert entry.coins_epsilon == pytest.approx(0.5 / per_comparison)
    assert [entry.column for entry in local.control.ledger] == ["a", "b", "c"]


def changed_comparisons(before: Floats, after: Floats) -> int:
    upper = np.triu_indices(before.size, 1)
    signs = [np.sign(np.subtract.outer(v, v))[upper] for v in (before, after)]
    return int(np.sum(signs[0] != signs[1]))


def completed(values: Sequence[float], column: Column, grades: Sequence[float], curve: Floats) -> Floats:
    """A column whose first subjects are observed, completed by the party's own code."""
    full = np.array([*values, *([math.nan] * len(grades))])
    item = Imputation(column.name, 1.0, curve, np.array(grades), None)
    return complete_column(EncodedColumn(full, ~np.isnan(full)), item, KEYS[: full.size])


def replacements(n: int, grid: Sequence[float], ties: bool) -> Iterator[tuple[tuple[float, ...], tuple[float, ...]]]:
    """All pairs of datasets on the grid that differ in one value."""
    for data in itertools.product(grid, repeat=n):
        for place, new in itertools.product(range(n), grid):
            other = (*data[:place], new, *data[place + 1 :])
            if ties or (len(set(data)) == n and len(set(other)) == n):
                yield data, other


def worst_change(column: Column, n: int, missing: int, grid: Sequence[float], *, ties: bool) -> tuple[int, int]:
    """(largest number of changed comparisons, comparisons charged), over all data and places of the missing."""
    curve = np.arange(1, n + 1) / (n + 1)
    places = (np.arange(n + 1) + 0.5) / (n + 1)  # one between every two knots, and beyond both ends
    worst = 0
    for chosen in itertools.combinations_with_replacement(places, missing):
        grades = np.array(chosen) + 1e-3 * np.arange(missing)  # in one gap, but not equal
        for data, other in replacements(n, grid, ties):
            both = (completed(d, column, grades.tolist(), curve) for d in (data, other))
            worst = max(worst, changed_comparisons(*both))
    return worst, rank_coins(column, "exact", 1.0, n, missing).count


REAL = Column(name="v", kind="continuous", bounds=(0, 9))


@pytest.mark.parametrize(("n", "missing"), [(2, 1), (2, 3), (3, 2), (4, 1)])
def test_one_replaced_value_changes_no_more_comparisons_than_charged(n: int, missing: int) -> None:
    worst, charged = worst_change(REAL, n, missing, range(n + 1), ties=False)
    assert n + missing - 1 <= worst <= charged


def test_one_replaced_value_among_ties_changes_no_more_comparisons_than_charged() -> None:
    worst, charged = worst_change(REAL, 3, 2, range(3), ties=True)
    assert worst <= charged


@pytest.mark.parametrize(
    ("column", "n"),
    [
        (Column(name="v", kind="binary"), 4),
        (Column(name="v", kind="ordinal", categories=("u", "v", "w")), 3),
        (Column(name="v", kind="count", bounds=(0, 2)), 3),
    ],
    ids=["binary", "ordinal", "count"],
)
def test_no_completed_value_of_a_discrete_column_moves_with_a_replaced_one(column: Column, n: int) -> None:
    """So a replaced value changes its own comparisons, N - 1 at most, fewer than it is charged for."""
    levels = 2 if column.kind == "binary" else 3
    worst = 0
    for codes in itertools.product(range(levels), repeat=2):
        for data, other in replacements(n, range(levels), ties=True):
            first, second = (filled(values, np.array(codes)) for values in (data, other))
            np.testing.assert_array_equal(first[n:], second[n:])
            worst = max(worst, changed_comparisons(first, second))
    assert worst == n + 2 - 1 < rank_coins(column, "exact", 1.0, n, 2).count


def filled(values: Sequence[float], codes: NDArray[np.int64]) -> Floats:
    """A discrete column whose first subjects are observed, completed by the party's own code."""
    full = np.array([*values, *([math.nan] * codes.size)], dtype=np.float64)
    item = Imputation("v", 1.0, np.empty(0), np.empty(0), codes)
    return complete_column(EncodedColumn(full, ~np.isnan(full)), item, KEYS[: full.size])


def test_grades_exactly_on_the_curve_change_no_more_comparisons_than_charged() -> None:
    """A completed value then equals an observed one, and passes two subjects when it moves on."""
    n, grid = 4, range(6)
    curve = np.arange(1, n + 1) / (n + 1)
    grades = [curve[1], curve[2]]
    worst = max(
        changed_comparisons(*(completed(d, REAL, grades, curve) for d in both)) for both in replacements(n, grid, False)
    )
    assert worst <= rank_coins(REAL, "exact", 1.0, n, 2).count


def test_the_released_ranks_of_a_completed_binary_column_leak_no_more_than_charged() -> None:
    """All outcomes of all coins: the exact distribution of what is released, under both datasets."""
    column = Column(name="v", kind="binary")
    epsilon = 8.0
    distributions = []
    for data in ((0, 0, 0, 0), (0, 0, 0, 1)):
        values = filled(data, np.array([0, 1]))
        distributions.append(
            rank_distribution(comparison_probabilities(values.tolist(), flip_probability(epsilon)), values.size)
        )
    charged = rank_coins(column, "exact", epsilon, 4, 2)
    assert largest_log_ratio(*distributions) <= composed_epsilon([charged], 0.0)


def test_a_replaced_category_changes_two_indicators_and_no_completed_value() -> None:
    column = Column(name="v", kind="nominal", categories=("u", "v", "w"))
    codes = np.array([0, 2])
    worst = 0
    for data, other in replacements(3, range(3), ties=True):
        both = [filled(values, codes) for values in (data, other)]
        changes = [changed_comparisons(*((v == c).astype(float) for v in both)) for c in range(3)]
        assert sum(change > 0 for change in changes) <= 2
        worst = max(worst, sum(changes))
    assert worst <= rank_coins(column, "exact", 1.0, 3, 2).count


def test_a_completed_column_keeps_the_order_of_the_values_and_puts_the_others_where_the_curve_says() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2):
        data = rng.integers(0, 10, 8).astype(float)
        curve, grades = np.sort(rng.random(8)), np.sort(rng.random(5))
        places = completed(data.tolist(), REAL, grades.tolist(), curve)
        assert sorted(places) == list(range(13))
        order = np.argsort(places[:8])
        assert np.all(np.diff(data[order]) >= 0.0)
        assert np.all(np.diff(places[8:]) > 0.0)
        for place, grade in zip(places[8:], grades, strict=True):
            assert np.sum(places[:8] < place) == np.sum(curve < grade)


def test_ties_are_broken_by_the_keys_and_by_nothing_else() -> None:
    data, curve = np.zeros(6), np.arange(1, 7) / 7.0
    full = np.append(data, math.nan)
    item = Imputation("v", 1.0, curve, np.array([0.5]), None)
    keys = np.array([3, 1, 5, 0, 2, 4, 9], dtype=np.uint64)
    places = complete_column(EncodedColumn(full, ~np.isnan(full)), item, keys)
    np.testing.assert_array_equal(np.argsort(places[:6]), np.argsort(keys[:6]))


# ---- asked twice, asked otherwise --------------------------------------------------------


@pytest.mark.parametrize("noise", [None, SeededNoise(1)], ids=["secure", "seeded"])
def test_the_same_request_is_charged_once_and_answered_alike(noise: Noise | None) -> None:
    local = party(noise)
    first, second = (answered(local.handle(request())) for _ in range(2))
    for one, two in zip(first.ranks, second.ranks, strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(local.control.ledger) == 3
    assert [r.shape for r in first.ranks] == [(N, 1), (N, 1), (N, 3)]


@pytest.mark.parametrize(
    "changed",
    [
        request(round_number=3),
        request(study="t"),
        request(sampler="binomial"),
        request(imputation("a", 0.5000001), imputation("b"), imputation("c")),
        request(imputation("a", grades=np.linspace(0.05, 0.92, 8)), imputation("b"), imputation("c")),
        request(imputation("a"), imputation("b"), imputation("c", codes=np.array([2, 1, 2, 0, 1, 2, 0, 1]))),
        request(imputation("b"), imputation("a"), imputation("c")),
    ],
    ids=["round", "study", "sampler", "epsilon", "grades", "codes", "order"],
)
def test_any_change_to_a_request_is_a_new_release(changed: CompletedRanksRequest) -> None:
    local = party()
    local.handle(request())
    local.handle(changed)
    assert len(local.control.ledger) == 6


def test_rounds_do_not_share_coins() -> None:
    local = party(SeededNoise(1))
    first, second = (answered(local.handle(request(round_number=k))) for k in (2, 3))
    for one, two in zip(first.ranks, second.ranks, strict=True):
        assert not np.array_equal(one, two)
    # Nor does a completed column share them with the first release, even if nobody is missing.
    everybody = np.ones(N, dtype=bool)
    whole = party(SeededNoise(1), seen=everybody)
    release = whole.handle(ReleaseRequest("s", "ievcds", "exact", (ColumnQuery("a", 0.5, 0.5),)))
    curve = np.arange(1, N + 1) / (N + 1)
    later = whole.handle(request(Imputation("a", 0.5, curve, np.empty(0), None)))
    assert not np.array_equal(release.columns[0].ranks, answered(later).ranks[0])  # type: ignore[union-attr]


# ---- requests that make no sense ---------------------------------------------------------

HOSTILE = {
    "curve too short": imputation("a", curve=np.linspace(0.1, 0.9, 15)),
    "curve in two dimensions": imputation("a", curve=np.linspace(0.1, 0.9, 16)[:, None]),
    "curve falls": imputation("a", curve=np.linspace(0.9, 0.1, 16)),
    "curve with a gap": imputation("a", curve=np.where(np.arange(16) == 3, np.nan, np.linspace(0.1, 0.9, 16))),
    "curve without end": imputation("a", curve=np.append(np.linspace(0.1, 0.9, 15), np.inf)),
    "too many grades": imputation("a", grades=np.linspace(0.1, 0.9, 9)),
    "grades without number": imputation("a", grades=np.full(8, np.nan)),
    "grades without end": imputation("a", grades=np.full(8, np.inf)),
    "no codes": imputation("c", codes=None),
    "too few codes": imputation("c", codes=np.zeros(7, dtype=np.int64)),
    "codes below": imputation("c", codes=np.full(8, -1)),
    "codes above": imputation("c", codes=np.full(8, 3)),
    "a place in a binary column": dataclasses.replace(imputation("a"), column="b"),
    "a third code of a binary column": imputation("b", codes=np.full(8, 2)),
    "codes in between": imputation("c", codes=np.full(8, 0.5)),
    "codes without number": imputation("c", codes=np.full(8, np.nan)),
    "unknown column": dataclasses.replace(imputation("a"), column="q"),
    "epsilon zero": imputation("a", 0.0),
    "epsilon negative": imputation("a", -1.0),
    "epsilon nan": imputation("a", math.nan),
    "epsilon infinite": imputation("a", math.inf),
}


@pytest.mark.parametrize("what", list(HOSTILE))
def test_a_hostile_completion_is_refused_before_anything_is_drawn_or_charged(what: str) -> None:
    local = party(Untouchable())
    with pytest.raises(PolicyRefused, match="left"):
        local.handle(request(HOSTILE[what]))
    assert len(local.control.ledger) == 0


@pytest.mark.parametrize(
    "bad",
    [
        request(imputation("a"), imputation("a")),
        request(sampler="quick"),
        request(imputation("a"), HOSTILE["epsilon nan"]),
    ],
    ids=["same column twice", "sampler", "good one first"],
)
def test_a_request_is_refused_as_a_whole(bad: CompletedRanksRequest) -> None:
    local = party(Untouchable())
    with pytest.raises(PolicyRefused):
        local.handle(bad)
    assert len(local.control.ledger) == 0


@pytest.mark.parametrize("codes", [np.zeros(3), np.full(8, math.nan), np.full(8, 1e300)], ids=["few", "nan", "far"])
def test_codes_for_a_continuous_column_are_refused(codes: Any) -> None:
    local = party(Untouchable())
    with pytest.raises(PolicyRefused):
        local.handle(request(imputation("a", codes=codes)))
    assert len(local.control.ledger) == 0


def test_too_few_observed_subjects_are_too_few_in_a_completed_column_too() -> None:
    local = party(Untouchable(), Policy(min_subjects=N - 1))  # only 16 have a value
    with pytest.raises(PolicyRefused, match="fewer"):
        local.handle(request())
    assert len(local.control.ledger) == 0


@pytest.mark.parametrize(
    "policy", [Policy(columns=("a", "b")), Policy(methods=("vcds", "refined"))], ids=["columns", "methods"]
)
def test_a_policy_covers_completed_columns(policy: Policy) -> None:
    local = party(Untouchable(), policy)
    with pytest.raises(PolicyRefused):
        local.handle(request())
    assert len(local.control.ledger) == 0


def test_a_cap_holds_however_many_rounds_are_asked_for() -> None:
    round_price = 0.5 * (1 + 2 * int((~SEEN).sum()))
    local = party(policy=Policy(caps=Caps(variable=2.4 * round_price)))
    local.handle(request(round_number=2))
    local.handle(request(round_number=3))
    with pytest.raises(BudgetExceeded, match="nothing was drawn"):
        local.handle(request(round_number=4))
    assert len(local.control.ledger) == 6


@pytest.mark.parametrize(
    "rounds",
    [
        *(0, -1, 1_001),
    ],
)
def test_a_review_of_an_impossible_number_of_rounds_is_refused(rounds: Any) -> None:
    with pytest.raises(PolicyRefused, match="rounds"):
        party(Untouchable()).handle(ConsentRequest(bare_proposal("left", len(KINDS), "exact", 0.5, 0.5, rounds)))


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize(
    ("sampler", "ranks", "margin"),
    [("exact", math.nan, 0.5), ("exact", 0.5, 5e-324), ("loaded", 0.5, 0.5)],
    ids=["no epsilon", "too small", "unknown sampler"],
)
def test_a_review_of_a_request_that_makes_no_sense_is_refused_in_words(
    sampler: str, ranks: float, margin: float, rounds: int
) -> None:
    with pytest.raises(PolicyRefused):
        party(Untouchable()).handle(ConsentRequest(bare_proposal("left", len(KINDS), sampler, ranks, margin, rounds)))


# ---- whole studies -----------------------------------------------------------------------


def study() -> Federation:
    return make_federation({"left": {"y": CONTINUOUS, "flag": {"kind": "binary"}}, "right": KINDS})


def tables(n: int = 90) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(3)
    ids = [f"s{i}" for i in range(n)]
    y = rng.normal(size=n)
    frame = pl.DataFrame(
        {"subject_id": ids, "a": y + rng.normal(size=n), "b": (y > 0).astype(int), "c": list("xyz" * (n // 3))}
    )
    left = pl.DataFrame({"subject_id": ids, "y": y, "flag": rng.integers(0, 2, n)})
    return {"left": left, "right": frame.filter(pl.Series(y < 0.5))}


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ({"method": "vcds"}, 1.0),
        ({"method": "evcds"}, 1.0),
        ({"method": "refined"}, 1.0),
        ({"method": "ievcds", "rounds": 4}, 1.0),
        ({"method": "ievcds", "rounds": 4, "per_round": True}, 4 * 0.75 + 0.25),
        ({"method": "ievcds", "rounds": 1}, 1.0),
        ({"method": "refined", "rounds": 7}, 1.0),
    ],
    ids=str,
)
def test_the_ledger_adds_up_to_what_was_asked_for_a_variable(settings: dict[str, Any], total: float) -> None:
    fitted = fit_seeded(
        study(), tables(), 1, unit="variable", epsilon=None, epsilon_ranks=0.75, epsilon_marginals=0.25, **settings
    )
    rounds = settings.get("rounds", 1) if settings["method"] == "ievcds" else 1
    per_round = 0.75 if "per_round" in settings else 0.75 / rounds
    prices = []
    for key in study().keys:
        own = [e for e in fitted.ledger_ if (e.party, e.column) == (key.party, key.column)]
        missing = 90 - own[0].n_subjects  # known to the coordinator, who named their values
        prices.append(total + (rounds - 1) * per_round * 2 * missing)
        assert sum(e.epsilon for e in own) == pytest.approx(prices[-1])
        assert [e.what for e in own].count("ranks") == rounds
        assert [e.what for e in own].count("marginal") == 1
    assert fitted.privacy_.epsilon(Unit.VARIABLE) == pytest.approx(max(prices))


def test_later_rounds_of_a_study_are_charged_for_the_missing() -> None:
    fitted = fit_seeded(study(), tables(), 1, unit="variable", method="ievcds", rounds=3)
    n_right = len(tables()["right"])
    for entry in fitted.ledger_:
        if entry.what != "ranks":
            continue
        observed = 90 if entry.party == "left" else n_right
        per_comparison = 2 if entry.column == "c" else 1
        later = "completed" in entry.mechanism
        assert entry.coins_count == per_comparison * (90 - 1 + (90 - observed) if later else observed - 1)
        assert entry.n_subjects == observed


def test_comparisons_with_values_that_the_coordinator_knows_are_warned_about() -> None:
    fitted = Synthesizer(study(), "ievcds", epsilon=2.0, unit="client", rounds=4).fit(tables())
    assert fitted.privacy_.epsilon(Unit.CLIENT) > 2.0
    assert "Rounds on completed columns cost more per client than was asked for" in fitted.summary()
    for other in ("vcds", "refined"):
        assert "Rounds on completed columns" not in Synthesizer(study(), other, epsilon=2.0).fit(tables()).summary()


@pytest.mark.parametrize(("unit", "sampler"), [("block", "exact"), ("person", "binomial")])
def test_several_rounds_stay_within_epsilon_at_every_unit(unit: str, sampler: str) -> None:
    fitted = Synthesizer(study(), "ievcds", epsilon=2.0, delta=1e-6, unit=unit, sampler=sampler, rounds=4).fit(tables())
    spent = fitted.privacy_.epsilon(Unit(unit))
    assert spent <= 2.0 * (1 + 1e-9)
    assert spent > 1.0
    assert fitted.privacy_.is_private


def counted(fitted: Synthesizer, party: str) -> CappedEpsilons:
    """What a study costs a party, as its caps count."""
    own = [entry for entry in fitted.ledger_ if entry.party == party]
    return capped_epsilons(own, 1e-6, about_people=fitted.ledger_)


@pytest.mark.parametrize("unit", ["variable", "client", "block", "person"])
def test_a_party_that_allows_one_round_but_not_ten_refuses_before_anybody_releases(
    unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"method": "ievcds", "unit": "variable", "epsilon": 1.0, "per_round": True}
    one = counted(Synthesizer(study(), rounds=1, **settings).fit(tables()), "right")
    policies = {"right": Policy(caps=Caps(**{unit: 1.01 * getattr(one, unit)}))}
    Synthesizer(study(), rounds=1, **settings).fit(tables(), policies=policies)

    def never(*args: Any) -> None:
        raise AssertionError("something was drawn")

    monkeypatch.setattr("verticopula.protocol.party.rank_handler.flip_comparisons", never)
    monkeypatch.setattr("verticopula.protocol.party.rank_handler.release_cells", never)
    with pytest.raises(BudgetExceeded, match="right"):
        Synthesizer(study(), rounds=10, **settings).fit(tables(), policies=policies, ledger=tmp_path / "l.jsonl")
    assert not (tmp_path / "l.jsonl").exists()


@pytest.mark.parametrize("per_round", [False, True])
def test_the_review_asks_for_exactly_what_will_be_spent(per_round: bool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"method": "ievcds", "unit": "variable", "epsilon": 1.0, "rounds": 3}
    spent = counted(Synthesizer(study(), per_round=per_round, **settings).fit(tables()), "right").block
    policies = {"right": Policy(caps=Caps(block=spent * (1 + 1e-6)))}
    Synthesizer(study(), per_round=per_round, **settings).fit(tables(), policies=policies)
    policies = {"right": Policy(caps=Caps(block=spent * (1 - 1e-6)))}
    with pytest.raises(BudgetExceeded):
        Synthesizer(study(), per_round=per_round, **settings).fit(
            tables(), policies=policies, ledger=tmp_path / "l.jsonl"
        )
    assert not (tmp_path / "l.jsonl").exists()


@pytest.mark.parametrize("rounds", [0, -1, 2.0, True, "3"])
def test_rounds_must_be_a_whole_number(rounds: Any) -> None:
    with pytest.raises(SettingsError, match="rounds"):
        Synthesizer(study(), "ievcds", rounds=rounds).check()
