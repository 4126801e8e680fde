"""A regression on raw columns: only where a policy names it, written down as infinite, and deaf to odd requests."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.builders import CONTINUOUS, make_federation, make_tables
from verticopula.errors import (
    BudgetExceeded,
    PartyUnavailable,
    PolicyRefused,
    ProtocolError,
    SettingsError,
    VersionMismatch,
    VerticopulaError,
)
from verticopula.glm import VerticalGLM
from verticopula.glm.encoding import Coding, features_of
from verticopula.privacy.ledger import Ledger
from verticopula.privacy.noise import Keystream
from verticopula.privacy.policy import RAW_REGRESSION, Caps, Policy
from verticopula.privacy.statement import state_privacy
from verticopula.privacy.units import Unit
from verticopula.protocol.messages import (
    CoefficientsReply,
    CoefficientsRequest,
    DesignReply,
    DesignRequest,
    PresenceReply,
    PresenceRequest,
    Reply,
    Request,
    ResponseReply,
    ResponseRequest,
    StrengthReply,
    StrengthRequest,
    UpdateReply,
    UpdateRequest,
)
from verticopula.protocol.party import LocalParty
from verticopula.schema import Federation
from verticopula.synthesizer import SyntheticTables
from verticopula.tables import align_tables
from verticopula.transport.inprocess import InProcessTransport

Floats = NDArray[np.float64]

N = 100
NUMBER = 7.123456789  # planted, inside the bounds
ALLOWED = Policy(methods=(RAW_REGRESSION,))


class Untouchable:
    """A source of noise that nobody may ask: a regression on raw columns draws nothing."""

    is_private = True

    def stream(self, *label: str) -> Keystream:
        raise AssertionError("somebody asked for randomness")

    def discrete_laplace(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        raise AssertionError("somebody asked for randomness")


def federation() -> Federation:
    return make_federation(
        {
            "hub": {"y": CONTINUOUS, "flag": {"kind": "binary"}},
            "north": {"a": CONTINUOUS, "g": {"kind": "nominal", "categories": ["u", "v", "w"]}},
            "south": {"b": CONTINUOUS, "o": {"kind": "ordinal", "categories": ["low", "mid", "high"]}},
        }
    )


def tables() -> dict[str, pl.DataFrame]:
    """North lacks a block of subjects, south a single cell, in an order of its own."""
    rng = np.random.default_rng(1)
    a, b, g, o, flag = (
        rng.standard_normal(N),
        rng.standard_normal(N),
        *(rng.integers(0, 3, N) for _ in range(2)),
        rng.integers(0, 2, N),
    )
    a[3] = NUMBER
    y = np.clip(a - b + 0.8 * o + (g == 1) + 0.5 * rng.standard_normal(N), -8, 8)
    frames = make_tables(
        federation(),
        {
            "y": y,
            "flag": flag,
            "a": a,
            "g": np.array(["u", "v", "w"])[g],
            "b": b,
            "o": np.array(["low", "mid", "high"])[o],
        },
    )
    frames["north"] = frames["north"][:80]
    cells = frames["south"]["b"].to_list()
    cells[10] = None
    frames["south"] = frames["south"].with_columns(b=pl.Series(cells)).sample(fraction=1.0, shuffle=True, seed=1)
    return frames


def complete_cases() -> dict[str, pl.DataFrame]:
    """The same tables, joined by id and taken apart again, in the cohort's order."""
    joined = tables()["hub"]
    for name in ("north", "south"):
        joined = joined.join(tables()[name], on="subject_id", how="left", maintain_order="left")
    joined = joined.drop_nulls()
    return {p.name: joined.select([c.name for c in p.columns]) for p in federation().parties}


def parties(policies: Mapping[str, Policy] | None = None) -> dict[str, LocalParty]:
    chosen = dict.fromkeys(("hub", "north", "south"), ALLOWED) | dict(policies or {})
    return {
        name: LocalParty(table, noise=Untouchable(), ledger=Ledger(), policy=chosen[name])
        for name, table in align_tables(federation(), tables()).items()
    }


class Watched(InProcessTransport):
    """Keeps every reply, and can lose a party or alter what it says."""

    def __init__(self, members: Mapping[str, LocalParty], lose: int | None = None, alter: Any = None) -> None:
        super().__init__(members)
        self.replies: list[Reply] = []
        self._lose, self._alter, self._round = lose, alter, 0

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        self._round += 1
        if self._round == self._lose:
            raise PartyUnavailable("party 'south' did not answer")
        found = super().deliver(requests)
        if self._alter is not None:
            found = {name: self._alter(name, reply) for name, reply in found.items()}
        self.replies += found.values()
        return found


def entries(members: Mapping[str, LocalParty]) -> list[tuple[str, str]]:
    return [(e.party, e.column) for p in members.values() for e in p.ledger]


# ---- who may --------------------------------------------------------------------------------


@pytest.mark.parametrize("reluctant", ["hub", "north", "south"])
@pytest.mark.parametrize(
    "policy",
    [Policy(), Policy(methods=()), Policy(methods=("vcds", "refined")), Policy(caps=Caps(variable=1e9))],
    ids=["no policy", "no methods", "other methods", "a cap and no methods"],
)
def test_without_a_policy_that_names_it_nothing_is_sent_or_recorded(policy: Policy, reluctant: str) -> None:
    members = parties({reluctant: policy})
    transport = Watched(members)
    with pytest.raises(PolicyRefused, match=f"{reluctant}.*raw-glm"):
        VerticalGLM().fit_transport(transport, federation())
    assert entries(members) == []
    assert not transport.replies  # not even who is observed


@pytest.mark.parametrize("unit", ["variable", "client", "block"])
def test_any_cap_forbids_it(unit: str) -> None:
    members = parties({"hub": Policy(methods=(RAW_REGRESSION,), caps=Caps(**{unit: 1e12}))})
    transport = Watched(members)
    with pytest.raises(BudgetExceeded, match=f"hub.*{unit} would become infinite"):
        VerticalGLM().fit_transport(transport, federation())
    assert entries(members) == []
    assert all(isinstance(reply, PresenceReply) for reply in transport.replies)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(methods=(RAW_REGRESSION,), caps=Caps(block=5.0)),
        Policy(methods=(RAW_REGRESSION,), min_subjects=N),
    ],
    ids=["cap", "subjects"],
)
def test_one_party_s_refusal_costs_the_others_nothing(policy: Policy) -> None:
    members = parties({"south": policy})
    transport = Watched(members)
    with pytest.raises(VerticopulaError, match="south"):
        VerticalGLM().fit_transport(transport, federation())
    assert entries(members) == []
    assert all(isinstance(reply, PresenceReply) for reply in transport.replies)


@pytest.mark.parametrize(
    "settings",
    [{"family": "gamma"}, {"penalty": "ridge"}, {"select": "aic"}, {"tolerance": 2.0}, {"concavity": 1.0}],
    ids=str,
)
def test_a_slip_of_the_pen_costs_nothing(settings: dict[str, Any]) -> None:
    members = parties()
    with pytest.raises(SettingsError):
        VerticalGLM(**settings).fit_transport(Watched(members), federation())
    assert entries(members) == []


def test_a_response_nobody_has_costs_nothing() -> None:
    members = parties()
    transport = Watched(members)
    with pytest.raises(SettingsError, match=r"no column 'hub\.z'"):
        VerticalGLM().fit_transport(transport, federation(), response="hub.z")
    assert entries(members) == []
    assert not transport.replies


@pytest.mark.parametrize(("name", "hidden"), [("hub", "y"), ("hub", "flag"), ("north", "g"), ("south", "b")])
def test_a_column_that_is_not_shared_is_refused(name: str, hidden: str) -> None:
    shared = tuple(c.name for c in federation().party(name).columns if c.name != hidden)
    members = parties({name: Policy(methods=(RAW_REGRESSION,), columns=shared)})
    transport = Watched(members)
    with pytest.raises(PolicyRefused, match=f"'{name}' does not share column '{hidden}'"):
        VerticalGLM().fit_transport(transport, federation())
    assert entries(members) == []
    assert not transport.replies


# ---- what is written down ---------------------------------------------------------------------


@pytest.mark.parametrize("select", ["bic", 0.1], ids=str)
def test_every_used_column_and_the_response_are_in_the_ledger_as_infinite(select: Any) -> None:
    members = parties()
    VerticalGLM(select=select).fit_transport(Watched(members), federation(), study="raw")
    assert sorted(entries(members)) == sorted((k.party, k.column) for k in federation().keys)
    everything = [entry for p in members.values() for entry in p.ledger]
    for entry in everything:
        assert (entry.what, entry.epsilon, entry.coins_epsilon, entry.study) == ("exact", math.inf, math.inf, "raw")
        assert entry.n_subjects == complete_cases()["hub"].height
    statement = state_privacy(everything)
    assert statement.exact
    assert all(statement.epsilon(unit) == math.inf for unit in Unit)
    assert "exact values: epsilon is infinite at every unit" in str(statement)


def test_a_cross_validation_is_written_down_for_every_column_too() -> None:
    members = parties()
    VerticalGLM(select="cv", folds=3, n_strengths=4).fit_transport(Watched(members), federation())
    assert set(entries(members)) == {(k.party, k.column) for k in federation().keys}
    assert all(entry.epsilon == math.inf for p in members.values() for entry in p.ledger)


def test_what_was_spent_stays_spent() -> None:
    """After exact values nothing more fits under a cap, however small."""
    members = parties()
    VerticalGLM().fit_transport(Watched(members), federation())
    spent = list(members["north"].ledger)
    with pytest.raises(BudgetExceeded, match="infinite"):
        Policy(methods=("vcds",), caps=Caps(client=1e6)).check("north", "vcds", [], spent)


# ---- what is fitted ---------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "none"])
@pytest.mark.parametrize("select", ["bic", "cv", 0.05], ids=str)
def test_it_equals_a_fit_on_the_joined_complete_cases(select: Any, fit_intercept: bool) -> None:
    settings: dict[str, Any] = {"select": select, "fit_intercept": fit_intercept, "folds": 3, "n_strengths": 12}
    over = VerticalGLM(**settings).fit_transport(InProcessTransport(parties()), federation())
    local = complete_cases()
    here = VerticalGLM(**settings).fit(SyntheticTables(local, federation(), local["hub"].height), "hub.y")
    assert over.feature_names_ == here.feature_names_
    for name, coef in here.coef_.items():
        np.testing.assert_allclose(over.coef_[name], coef, rtol=0.0, atol=1e-12)
    assert over.intercept_ == pytest.approx(here.intercept_, abs=1e-12)
    assert (over.n_rows_, over.n_effective_, over.strength_) == (here.n_rows_, here.n_effective_, here.strength_)
    assert over.explained_ == pytest.approx(here.explained_, abs=1e-12)


def test_a_binary_response_over_a_transport() -> None:
    over = VerticalGLM("binomial", select=0.02).fit_transport(Watched(parties()), federation(), response="hub.flag")
    local = complete_cases()
    here = VerticalGLM("binomial", select=0.02).fit(SyntheticTables(local, federation(), N), "hub.flag")
    assert over.response_ == "hub.flag"
    np.testing.assert_allclose(
        np.concatenate([*over.coef_.values()]), np.concatenate([*here.coef_.values()]), atol=1e-12
    )


def test_an_unordered_response_is_refused_before_it_is_sent() -> None:
    members = parties()
    with pytest.raises(SettingsError):
        VerticalGLM().fit_transport(Watched(members), federation(), response="north.g")
    assert entries(members) == []


def test_a_fit_over_a_transport_has_a_table_without_errors_and_cannot_predict() -> None:
    model = VerticalGLM().fit_transport(Watched(parties()), federation())
    assert model.inference_ is None
    assert list(model.coefficient_table().columns) == ["party", "column", "feature", "coefficient"]
    assert "stay where they are" in str(model.summary())
    assert "<td>north</td>" in model.summary().to_html()
    with pytest.raises(SettingsError, match="cannot predict here"):
        model.predict(complete_cases())


def test_too_few_complete_cases() -> None:
    frames = tables()
    frames["north"] = frames["north"][10:12]  # south lacks a cell of one of the two
    members = {
        name: LocalParty(table, noise=Untouchable(), ledger=Ledger(), policy=ALLOWED)
        for name, table in align_tables(federation(), frames, need_overlap=False).items()
    }
    with pytest.raises(ProtocolError, match="fewer than two subjects"):
        VerticalGLM().fit_transport(Watched(members), federation())
    assert entries(members) == []


# ---- a coordinator that asks for what it should not -------------------------------------------


def design(**changes: Any) -> DesignRequest:
    everybody = np.arange(N) < 80
    plain = DesignRequest("s", "all", ("a", "g"), None, True, everybody, None, "scad", 3.7)
    return replace(plain, **changes)


def update(**changes: Any) -> UpdateRequest:
    plain = UpdateRequest("s", "all", 0, "main", "plain", 0.1, 1.0, 1e-6, False, np.linspace(-1.0, 1.0, 80))
    return replace(plain, **changes)


def north(policy: Policy = ALLOWED) -> LocalParty:
    return parties({"north": policy})["north"]


def assert_refused(local: LocalParty, request: Any) -> None:
    """With an error of ours that quotes no cell."""
    with pytest.raises(VerticopulaError) as caught:
        local.handle(request)
    chain = "".join(traceback.format_exception(caught.value))
    said = "\n".join(line for line in chain.splitlines() if not line.startswith(("  File", "    ")))
    for digits in range(4, 10):
        assert f"{NUMBER:.{digits}f}"[:-1] not in said


@pytest.mark.parametrize(
    "request_",
    [
        update(),
        StrengthRequest("s", "all", np.zeros(80)),
        CoefficientsRequest("s", "all", False),
        CoefficientsRequest("s", "all", True),
    ],
    ids=lambda r: type(r).__name__,
)
@pytest.mark.parametrize("opened", ["nothing", "another study", "another fit"])
def test_requests_before_a_design_are_refused(request_: Any, opened: str) -> None:
    local = north()
    if opened != "nothing":
        local.handle(design(study="t") if opened == "another study" else design(fit="fold 0"))
    before = len(local.ledger)
    assert_refused(local, request_)
    assert len(local.ledger) == before


def test_a_request_for_a_fit_that_was_closed_is_refused() -> None:
    local = north()
    for fit in ("all", "fold 0", "fold 1"):
        local.handle(design(fit=fit))
    assert_refused(local, update())


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": ("zz",)},
        {"columns": ("a", "y")},
        {"columns": ("a", "a")},
        {"subjects": np.ones(N, dtype=bool)},
        {"subjects": None},
        {"subjects": np.ones(80, dtype=bool)},
        {"subjects": np.ones(N + 1, dtype=bool)},
        {"subjects": (np.arange(N) < 80)[:, None]},
        {"subjects": np.zeros(N, dtype=bool)},
        {"subjects": np.arange(N) == 3},
    ],
    ids=[
        "unknown", "another party's", "twice", "no values", "no values by default", "short", "long", "matrix", "nobody",
        "one subject",
    ],
)  # fmt: skip
def test_designs_that_are_refused_cost_nothing(changes: dict[str, Any]) -> None:
    local = north()
    assert_refused(local, design(**changes))
    assert len(local.ledger) == 0


NUMBERS_FOR_A_MASK = "a mask's type is not looked at: whole numbers pick subjects, others end in an IndexError"


@pytest.mark.parametrize("values", [np.full(N, 3), np.ones(N)], ids=["whole numbers", "floats"])
@pytest.mark.parametrize("what", ["design", "response"])
def test_numbers_for_a_mask_are_refused(what: str, values: Any) -> None:
    """Whole numbers would pick one subject as often as there are rows, past the policy's `min_subjects`."""
    local = north(Policy(methods=(RAW_REGRESSION,), min_subjects=50))
    assert_refused(local, design(subjects=values) if what == "design" else ResponseRequest("s", "a", values))
    assert len(local.ledger) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": np.ones(79, dtype=bool)},
        {"rows": np.ones(N, dtype=bool)},
        {"penalty": "ridge"},
        {"concavity": 1.0},
        {"concavity": math.nan},
    ],
    ids=["rows short", "rows of the cohort", "penalty", "concavity", "concavity nan"],
)
def test_designs_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    assert_refused(north(), design(**changes))


@pytest.mark.parametrize(
    "changes", [{"rows": np.ones(79, dtype=bool)}, {"penalty": "ridge"}], ids=["rows short", "penalty"]
)
def test_designs_that_make_no_sense_cost_nothing(changes: dict[str, Any]) -> None:
    local = north()
    assert_refused(local, design(**changes))
    assert len(local.ledger) == 0


@pytest.mark.parametrize(
    "rows",
    [np.zeros(80, dtype=bool), np.full(80, 3), np.ones(80)],
    ids=["none", "whole numbers", "floats"],
)
def test_rows_to_learn_from_that_are_none(rows: Any) -> None:
    assert_refused(north(), design(rows=rows))


@pytest.mark.parametrize(
    "changes",
    [
        {"target": np.full(80, np.nan)},
        {"target": np.full(80, np.inf)},
        {"target": np.zeros(79)},
        {"target": np.zeros(N)},
        {"target": np.zeros((80, 1))},
        {"target": np.zeros(0)},
        {"rho": -1.0},
        {"rho": 0.0},
        {"rho": math.nan},
        {"rho": math.inf},
        {"strength": -0.1},
        {"strength": math.nan},
        {"strength": math.inf},
        {"tolerance": math.nan},
        {"tolerance": -1.0},
        {"tolerance": 0.0},
    ],
    ids=lambda c: "-".join(f"{k} {v if isinstance(v, float) else v.shape}" for k, v in c.items()),
)
def test_updates_that_make_no_sense_are_refused_and_move_nothing(changes: dict[str, Any]) -> None:
    local = north()
    local.handle(design())
    assert_refused(local, update(**changes))
    reply = local.handle(CoefficientsRequest("s", "all", True))
    assert isinstance(reply, CoefficientsReply)
    np.testing.assert_array_equal(reply.coef, np.zeros((1, 3)))


@pytest.mark.parametrize(
    "changes",
    [
        {"track": "sideways"},
        {"weights": "keep"},
        {"weights": "heavy"},
        {"target": np.array(["x"] * 80)},
    ],
    ids=["track", "nothing to keep", "weights", "words"],
)
def test_updates_with_unknown_words_are_refused(changes: dict[str, Any]) -> None:
    local = north()
    local.handle(design())
    assert_refused(local, update(**changes))


@pytest.mark.parametrize(
    "residual", [np.full(80, np.nan), np.zeros(3), np.zeros((80, 1))], ids=["nan", "short", "matrix"]
)
def test_residuals_that_make_no_sense_are_refused(residual: Floats) -> None:
    local = north()
    local.handle(design())
    assert_refused(local, StrengthRequest("s", "all", residual))


@pytest.mark.parametrize(
    "request_",
    [
        ResponseRequest("s", "a", np.arange(N) < 80),
        design(),
        design(columns=()),
        PresenceRequest("s", RAW_REGRESSION),
    ],
    ids=["response", "design", "no columns", "presence"],
)
@pytest.mark.parametrize("policy", [Policy(), Policy(methods=("vcds",))], ids=["none", "others"])
def test_nothing_exact_without_permission(policy: Policy, request_: Any) -> None:
    local = north(policy)
    with pytest.raises(PolicyRefused, match="raw-glm"):
        local.handle(request_)
    assert len(local.ledger) == 0


@pytest.mark.parametrize("column", ["zz", "y", ""])
def test_a_response_that_the_party_does_not_hold(column: str) -> None:
    local = north()
    assert_refused(local, ResponseRequest("s", column, np.arange(N) < 80))
    assert len(local.ledger) == 0


@pytest.mark.parametrize(
    "message", [design(version=2), update(version=0), ResponseRequest("s", "a", None, version=9)], ids=["d", "u", "r"]
)
def test_another_version_is_refused(message: Any) -> None:
    with pytest.raises(VersionMismatch):
        north().handle(message)


# ---- once --------------------------------------------------------------------------------------


def test_the_same_request_is_answered_again_and_charged_once() -> None:
    local = north()
    response = ResponseRequest("s", "a", np.arange(N) < 80)
    first, second = (local.handle(response) for _ in range(2))
    assert isinstance(first, ResponseReply)
    assert isinstance(second, ResponseReply)
    np.testing.assert_array_equal(first.values, second.values)
    assert len(local.ledger) == 1
    one, two = (local.handle(design()) for _ in range(2))
    assert isinstance(one, DesignReply)
    assert one is two
    assert len(local.ledger) == 3
    third, fourth = (local.handle(update()) for _ in range(2))
    assert isinstance(third, UpdateReply)
    assert third is fourth  # and the solver has not moved twice
    assert len(local.ledger) == 3


def test_a_late_copy_of_a_design_is_charged_once() -> None:
    local = north()
    local.handle(design())
    moved = local.handle(update(strength=0.0))
    local.handle(design())
    assert len(local.ledger) == 2
    assert isinstance(moved, UpdateReply)
    assert moved.selected.any()


# ---- parties that fail -------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 2, 3, 5, 30])
def test_a_party_that_stops_answering_surfaces(lost: int) -> None:
    model = VerticalGLM()
    with pytest.raises(PartyUnavailable, match="south"):
        model.fit_transport(Watched(parties(), lose=lost), federation())
    assert not hasattr(model, "coef_")  # no half-finished answer


def test_a_party_that_is_not_there() -> None:
    members = parties()
    del members["south"]
    with pytest.raises(PartyUnavailable, match="'south' is not here"):
        VerticalGLM().fit_transport(Watched(members), federation())
    assert entries(members) == []


def lie(what: str, name: str, reply: Reply) -> Reply:
    if name != "south":
        return reply
    if isinstance(reply, UpdateReply):
        changes: dict[str, Any] = {
            "nan": {"prediction": np.full_like(reply.prediction, np.nan)},
            "short": {"prediction": reply.prediction[:-1]},
            "matrix": {"prediction": reply.prediction[:, None]},
            "selection": {"selected": np.ones(9, dtype=bool)},
        }
        return replace(reply, **changes.get(what, {}))
    if isinstance(reply, CoefficientsReply):
        changes = {"path": {"coef": reply.coef[:-1]}, "width": {"coef": reply.coef[:, :-1]}}
        return replace(reply, **changes.get(what, {}))
    if isinstance(reply, StrengthReply) and what == "strength":
        return replace(reply, strength=math.nan)
    if isinstance(reply, DesignReply) and what == "rows":
        return replace(reply, n_rows=5)
    if isinstance(reply, DesignReply) and what == "kind":
        return PresenceReply("south", np.ones((N, 2), dtype=bool))
    return reply


@pytest.mark.parametrize("what", ["nan", "short", "matrix", "selection", "path", "width", "strength", "rows", "kind"])
def test_a_party_that_answers_nonsense_is_named(what: str) -> None:
    transport = Watched(parties(), alter=lambda name, reply: lie(what, name, reply))
    with pytest.raises(ProtocolError, match="south"):
        VerticalGLM(n_strengths=4).fit_transport(transport, federation())


# ---- a planted value ---------------------------------------------------------------------------


def test_nothing_but_the_answers_shows_a_planted_value(caplog: pytest.LogCaptureFixture) -> None:
    members = parties()
    with caplog.at_level(logging.DEBUG):
        model = VerticalGLM().fit_transport(InProcessTransport(members), federation())
    assert any("releases recorded" in record.getMessage() for record in caplog.records)
    shown = [record.getMessage() + str(record.__dict__) for record in caplog.records]
    shown += [repr(p) + repr(p.table) + repr(list(p.ledger)) for p in members.values()]
    shown += [str(model.summary()), model.summary().to_page(), repr(model)]
    for digits in range(4, 10):
        assert f"{NUMBER:.{digits}f}"[:-1] not in "".join(shown)


def test_a_party_s_features_have_no_repr() -> None:
    features = features_of([np.array([NUMBER, 1.0])], [Coding("a")], 2)
    assert "7.12345" not in repr(features)
