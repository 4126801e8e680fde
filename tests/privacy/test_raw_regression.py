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
from tests.study_parties import make_study_party
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
from verticopula.protocol.consent_messages import PresenceReply
from verticopula.protocol.messages import Reply
from verticopula.protocol.regression_messages import DesignReply, EnteringColumnsReply
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
    [
        {"family": "gamma"},
        {"penalty": "ridge"},
        {"select": "aic"},
        {"tolerance": 2.0},
        {"concavity": 1.0},
        {"select": "cv", "folds": 1_001},
    ],
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
@pytest.mark.parametrize(
    ("family", "response", "what", "said"),
    [
        ("gaussian", "hub.y", "raw-moments", "sent exact sums and products"),
        ("binomial", "hub.flag", "raw", "sent exact values"),
    ],
    ids=["gaussian", "binomial"],
)
def test_every_used_column_and_the_response_are_in_the_ledger_as_infinite(
    family: str, response: str, what: str, said: str, select: Any
) -> None:
    members = parties()
    model = VerticalGLM(family, select=select, n_strengths=8)
    model.fit_transport(Watched(members), federation(), response=response, study="raw")
    assert sorted(entries(members)) == sorted((k.party, k.column) for k in federation().keys)
    everything = [entry for p in members.values() for entry in p.control.ledger]
    for entry in everything:
        assert (entry.what, entry.epsilon, entry.coins_epsilon, entry.study) == (what, math.inf, math.inf, "raw")
        assert entry.n_subjects == complete_cases()["hub"].height
    statement = state_privacy(everything)
    assert (statement.raw, statement.raw_moments) == (what == "raw", what == "raw-moments")
    assert all(statement.epsilon(unit) == math.inf for unit in Unit)
    assert f"A regression on raw columns {said}" in str(statement)
    assert "epsilon is infinite at every unit" in str(statement)


def test_a_cross_validation_is_written_down_for_every_column_too() -> None:
    members = parties()
    VerticalGLM(select="cv", folds=3, n_strengths=4).fit_transport(Watched(members), federation())
    assert set(entries(members)) == {(k.party, k.column) for k in federation().keys}
    assert all(entry.epsilon == math.inf for p in members.values() for entry in p.control.ledger)


def test_what_was_spent_stays_spent() -> None:
    """After exact values nothing more fits under a cap, however small."""
    members = parties()
    VerticalGLM().fit_transport(Watched(members), federation())
    spent = list(members["north"].control.ledger)
    with pytest.raises(BudgetExceeded, match="infinite"):
        Policy(methods=("vcds",), caps=Caps(client=1e6)).check("north", "vcds", [], spent)


# ---- what is fitted ---------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "none"])
@pytest.mark.parametrize("select", ["bic", "cv", 0.05], ids=str)
def test_it_equals_a_fit_on_the_joined_complete_cases(select: Any, fit_intercept: bool) -> None:
    settings: dict[str, Any] = {"select": select, "fit_intercept": fit_intercept, "folds": 3, "n_strengths": 12}
    settings["tolerance"] = 1e-9  # of two solvers: one has the columns, the other their second moments
    over = VerticalGLM(**settings).fit_transport(InProcessTransport(parties()), federation())
    local = complete_cases()
    here = VerticalGLM(**settings).fit(SyntheticTables(local, federation(), local["hub"].height), "hub.y")
    assert over.feature_names_ == here.feature_names_
    for name, coef in here.coef_.items():
        np.testing.assert_allclose(over.coef_[name], coef, rtol=0.0, atol=1e-7)
    assert over.intercept_ == pytest.approx(here.intercept_, abs=1e-7)
    assert (over.n_rows_, over.n_effective_) == (here.n_rows_, here.n_effective_)
    assert over.strength_ == pytest.approx(here.strength_, rel=1e-7)
    assert over.explained_ == pytest.approx(here.explained_, abs=1e-7)
    # At the largest strength rounding says whether a column enters, and a refit follows it.
    np.testing.assert_allclose(over.scores_[1:], here.scores_[1:], rtol=1e-6)


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
    assert "none for a regression on raw columns" in str(model.summary())
    assert "<td>north</td>" in model.summary().to_html()
    with pytest.raises(SettingsError, match="cannot predict here"):
        model.predict(complete_cases())


def test_too_few_complete_cases() -> None:
    frames = tables()
    frames["north"] = frames["north"][10:12]  # south lacks a cell of one of the two
    members = {
        name: make_study_party(table, noise=Untouchable(), ledger=Ledger(), policy=ALLOWED)
        for name, table in align_tables(federation(), frames, need_overlap=False).items()
    }
    with pytest.raises(ProtocolError, match="fewer than two subjects"):
        VerticalGLM().fit_transport(Watched(members), federation())
    assert entries(members) == []


# ---- parties that fail -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "lost"),
    [*(("binomial", lost) for lost in (1, 2, 3, 5, 30)), *(("gaussian", lost) for lost in (1, 2, 3, 4, 5, 6))],
)
def test_a_party_that_stops_answering_surfaces(family: str, lost: int) -> None:
    model, response = VerticalGLM(family), "hub.flag" if family == "binomial" else "hub.y"
    with pytest.raises(PartyUnavailable, match="south"):
        model.fit_transport(Watched(parties(), lose=lost), federation(), response=response)
    assert not hasattr(model, "coef_")  # no half-finished answer


def test_a_party_that_is_not_there() -> None:
    members = parties()
    del members["south"]
    with pytest.raises(PartyUnavailable, match="'south' is not here"):
        VerticalGLM().fit_transport(Watched(members), federation())
    assert entries(members) == []


def features(starts: list[int], names: int) -> dict[str, Any]:
    """A layout of so many features."""
    n_groups = len(starts) - 1
    shape = {"names": ("z",) * names, "sources": ("z",) * n_groups, "starts": np.array(starts, dtype=np.int64)}
    return {**shape, "sizes": np.ones(n_groups, dtype=np.int64), "constant": np.zeros(n_groups, dtype=bool)}


OTHER_FEATURES: dict[str, dict[str, Any]] = {
    "wide": features([0, 200_000], 200_000),  # of which a square would have 298 GiB
    "overflow": features([0, 2**63 - 1, -(2**63), -1, 5], 5),
    "renamed": {"sources": ("b", "y")},
    "sizes": {"sizes": np.array([1, 2**62])},
    "no size": {"sizes": np.array([1, 0])},
    "of another": {"party": "north"},
}


def lie(what: str, name: str, reply: Reply) -> Reply:
    if name != "south":
        return reply
    if isinstance(reply, EnteringColumnsReply):
        changes: dict[str, Any] = {
            "nan": {"values": np.full_like(reply.values, np.nan)},
            "short": {"values": reply.values[:-1]},
            "vector": {"values": reply.values.reshape(-1)},
            "unknown": {"groups": reply.groups + 9},
            "strength": {"strength": math.nan},
            "squares": {"values": np.full_like(reply.values, 1e200)},
            "kept": {"groups": reply.groups[:0], "values": reply.values[:, :0], "strength": 5.0},
        }
        return replace(reply, **changes.get(what, {}))
    if isinstance(reply, DesignReply) and what == "rows":
        return replace(reply, n_rows=5)
    if isinstance(reply, DesignReply) and what in OTHER_FEATURES:
        return replace(reply, **OTHER_FEATURES[what])
    if isinstance(reply, DesignReply) and what == "kind":
        return PresenceReply("south", np.ones((N, 2), dtype=bool), b"")
    return reply


@pytest.mark.parametrize(
    "what",
    ["nan", "short", "vector", "unknown", "strength", "squares", "kept", "rows", "kind", *OTHER_FEATURES],
)
def test_a_party_that_answers_nonsense_is_named(what: str) -> None:
    transport = Watched(parties(), alter=lambda name, reply: lie(what, name, reply))
    with pytest.raises(ProtocolError, match="south"):
        VerticalGLM("binomial", select=0.005).fit_transport(transport, federation(), response="hub.flag")


# ---- a planted value ---------------------------------------------------------------------------


def test_nothing_but_the_answers_shows_a_planted_value(caplog: pytest.LogCaptureFixture) -> None:
    members = parties()
    with caplog.at_level(logging.DEBUG):
        model = VerticalGLM().fit_transport(InProcessTransport(members), federation())
    assert any("releases recorded" in record.getMessage() for record in caplog.records)
    shown = [record.getMessage() + str(record.__dict__) for record in caplog.records]
    shown += [repr(p) + repr(p.control.table) + repr(list(p.control.ledger)) for p in members.values()]
    shown += [str(model.summary()), model.summary().to_page(), repr(model)]
    for digits in range(4, 10):
        assert f"{NUMBER:.{digits}f}"[:-1] not in "".join(shown)


def test_a_party_s_features_have_no_repr() -> None:
    features = features_of([np.array([NUMBER, 1.0])], [Coding("a")], 2)
    assert "7.12345" not in repr(features)
