"""A regression on raw columns, at a party: deaf to odd requests, and charged once for the same one."""

from __future__ import annotations

import math
import traceback
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.privacy.raw_study import (
    ALLOWED,
    NUMBER,
    N,
    parties,
)
from verticopula.errors import PolicyRefused, VersionMismatch, VerticopulaError
from verticopula.privacy.policy import Policy
from verticopula.protocol.consent_messages import PresenceRequest
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.regression_messages import (
    DesignReply,
    DesignRequest,
    EnteringColumnsReply,
    EnteringColumnsRequest,
    ResponseReply,
    ResponseRequest,
)
from verticopula.schema.methods import RAW_REGRESSION

# ---- a coordinator that asks for what it should not -------------------------------------------


def design(**changes: Any) -> DesignRequest:
    everybody = np.arange(N) < 80
    plain = DesignRequest("s", "all", ("a", "g"), None, True, everybody, None)
    return replace(plain, **changes)


def ask(**changes: Any) -> EnteringColumnsRequest:
    plain = EnteringColumnsRequest("s", "all", 0, 0.0, np.zeros(2, dtype=bool), np.linspace(-1.0, 1.0, 80))
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


@pytest.mark.parametrize("opened", ["nothing", "another study", "another fit"])
def test_requests_before_a_design_are_refused(opened: str) -> None:
    local = north()
    if opened != "nothing":
        local.handle(design(study="t") if opened == "another study" else design(fit="fold 0"))
    before = len(local.control.ledger)
    assert_refused(local, ask())
    assert len(local.control.ledger) == before


def test_a_request_for_a_fit_that_was_closed_is_refused() -> None:
    local = north()
    for fit in ("all", "fold 0", "fold 1"):
        local.handle(design(fit=fit))
    assert_refused(local, ask())


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
    assert len(local.control.ledger) == 0


NUMBERS_FOR_A_MASK = "a mask's type is not looked at: whole numbers pick subjects, others end in an IndexError"


@pytest.mark.parametrize("values", [np.full(N, 3), np.ones(N)], ids=["whole numbers", "floats"])
@pytest.mark.parametrize("what", ["design", "response"])
def test_numbers_for_a_mask_are_refused(what: str, values: Any) -> None:
    """Whole numbers would pick one subject as often as there are rows, past the policy's `min_subjects`."""
    local = north(Policy(methods=(RAW_REGRESSION,), min_subjects=50))
    assert_refused(local, design(subjects=values) if what == "design" else ResponseRequest("s", "a", values))
    assert len(local.control.ledger) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": np.ones(79, dtype=bool)},
        {"rows": np.ones(N, dtype=bool)},
    ],
    ids=["rows short", "rows of the cohort"],
)
def test_designs_that_make_no_sense_cost_nothing(changes: dict[str, Any]) -> None:
    local = north()
    assert_refused(local, design(**changes))
    assert len(local.control.ledger) == 0


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
        {"residual": np.full(80, np.nan)},
        {"residual": np.full(80, np.inf)},
        {"residual": np.zeros(79)},
        {"residual": np.zeros(N)},
        {"residual": np.zeros((80, 1))},
        {"residual": np.zeros(0)},
        {"residual": np.array(["x"] * 80)},
        {"strength": -0.1},
        {"strength": math.nan},
        {"sent": np.zeros(3, dtype=bool)},
        {"sent": np.zeros((2, 1), dtype=bool)},
        {"sent": np.zeros(2)},
    ],
    ids=lambda c: "-".join(f"{k} {v if isinstance(v, float) else (v.shape, v.dtype)}" for k, v in c.items()),
)
def test_requests_for_columns_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    local = north()
    local.handle(design())
    assert_refused(local, ask(**changes))


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
    assert len(local.control.ledger) == 0


@pytest.mark.parametrize("column", ["zz", "y", ""])
def test_a_response_that_the_party_does_not_hold(column: str) -> None:
    local = north()
    assert_refused(local, ResponseRequest("s", column, np.arange(N) < 80))
    assert len(local.control.ledger) == 0


@pytest.mark.parametrize(
    "message", [design(version=8), ask(version=0), ResponseRequest("s", "a", None, version=9)], ids=["d", "c", "r"]
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
    assert len(local.control.ledger) == 1
    one, two = (local.handle(design()) for _ in range(2))
    assert isinstance(one, DesignReply)
    assert fingerprint(one) == fingerprint(two)
    assert len(local.control.ledger) == 3
    third, fourth = (local.handle(ask()) for _ in range(2))
    assert isinstance(third, EnteringColumnsReply)
    assert third.groups.tolist() == [0, 1]
    assert fingerprint(third) == fingerprint(fourth)
    assert len(local.control.ledger) == 3


def test_a_late_copy_of_a_design_is_charged_once_and_a_refused_one_closes_nothing() -> None:
    local = north()
    local.handle(design())
    first = local.handle(ask())
    local.handle(design())
    assert_refused(local, design(columns=("zz",)))
    assert len(local.control.ledger) == 2
    assert fingerprint(local.handle(ask())) == fingerprint(first)
