"""A regression on raw columns: only where a policy names it, written down as infinite, and what it fits."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.privacy.raw_study import (
    ALLOWED,
    NUMBER,
    N,
    Untouchable,
    Watched,
    complete_cases,
    entries,
    federation,
    parties,
    tables,
)
from verticopula import VerticalGLM
from verticopula.data.tables import align_tables
from verticopula.errors import (
    BudgetExceeded,
    PartyUnavailable,
    PolicyRefused,
    ProtocolError,
    SettingsError,
    VerticopulaError,
)
from verticopula.glm.feature_encoding import Coding, features_of
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.statement import state_privacy
from verticopula.protocol.messages import (
    CoefficientsReply,
    DesignReply,
    PresenceReply,
    Reply,
    StrengthReply,
    UpdateReply,
)
from verticopula.protocol.party.local_party import LocalParty
from verticopula.schema.methods import RAW_REGRESSION
from verticopula.schema.units import Unit
from verticopula.storage.ledger import Ledger
from verticopula.study.synthetic_tables import SyntheticTables
from verticopula.transport.in_process_transport import InProcessTransport

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
    VerticalGLM(select=select, n_strengths=8).fit_transport(Watched(members), federation(), study="raw")
    assert sorted(entries(members)) == sorted((k.party, k.column) for k in federation().keys)
    everything = [entry for p in members.values() for entry in p.ledger]
    for entry in everything:
        assert (entry.what, entry.epsilon, entry.coins_epsilon, entry.study) == ("raw", math.inf, math.inf, "raw")
        assert entry.n_subjects == complete_cases()["hub"].height
    statement = state_privacy(everything)
    assert statement.raw
    assert all(statement.epsilon(unit) == math.inf for unit in Unit)
    assert "A regression on raw columns sent exact values" in str(statement)
    assert "epsilon is infinite at every unit" in str(statement)


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
    assert over.classes_.tolist() == here.classes_.tolist()
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
        return PresenceReply("south", np.ones((N, 2), dtype=bool), b"")
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
