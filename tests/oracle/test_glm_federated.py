"""The regression across parties against the central one, and against Algorithm 4 as it is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.central_path import trace_path
from verticopula.errors import ProtocolError
from verticopula.glm.central_solver import largest_strength, null_point
from verticopula.glm.families import FAMILIES
from verticopula.glm.feature_design import Features, join_features, standardise
from verticopula.glm.gathered_columns import GatheredColumns
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import PathPoint, RefitRule
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.regression_handler import RegressionHandler
from verticopula.protocol.regression_messages import (
    DesignReply,
    DesignRequest,
    EnteringColumnsReply,
    EnteringColumnsRequest,
)
from verticopula.protocol.regression_path import (
    FederatedPath,
    RegressionSettings,
    SentColumns,
    federated_path,
)
from verticopula.transport.delivery import drive

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Parts = Mapping[str, Features]

TOLERANCE = 1e-7
FAMILY_NAMES = ["gaussian", "binomial", "poisson"]
every_family = pytest.mark.parametrize("family", FAMILY_NAMES)


# ---- a study in one process --------------------------------------------------------------


@dataclass
class Handlers:
    """A transport to the handlers of all parties, which may be told to spoil the replies of one."""

    parts: Parts
    spoil: Callable[[Reply], Reply] = lambda reply: reply
    spoilt: str = ""
    times: int = 1
    seen: list[Request | Reply] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.handlers = {name: RegressionHandler.holding(name, own) for name, own in self.parts.items()}

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        for name, request in requests.items():
            for _ in range(self.times):
                replies[name] = self.handlers[name].handle(request)  # type: ignore[arg-type]
            if name == self.spoilt:
                replies[name] = self.spoil(replies[name])
            self.seen += [request, replies[name]]
        return replies


def fit_across(
    parts: Parts | Handlers,
    y: Floats,
    family: str,
    penalty: str,
    shares: Sequence[float],
    *,
    tolerance: float = TOLERANCE,
    fit_intercept: bool = True,
    rows: Bools | None = None,
    refit: RefitRule | None = None,
) -> FederatedPath:
    """The path at these shares of the largest strength."""
    transport = parts if isinstance(parts, Handlers) else Handlers(parts)
    settings = RegressionSettings(
        FAMILIES[family], Penalty.build(penalty), fit_intercept=fit_intercept, tolerance=tolerance, refit=refit
    )
    names = list(transport.parts)
    protocol = federated_path(names, y, settings, lambda top: top * np.array(shares), study="s", rows=rows)
    return drive(protocol, transport)


def fit_in_one_place(
    parts: Parts,
    y: Floats,
    family: str,
    penalty: str,
    shares: Sequence[float],
    *,
    tolerance: float = TOLERANCE,
    fit_intercept: bool = True,
    refit: RefitRule | None = None,
) -> list[PathPoint]:
    design = standardise(join_features(list(parts.values())), centre=fit_intercept)
    null = null_point(design, y, FAMILIES[family], fit_intercept=fit_intercept)
    residual = FAMILIES[family].residual(np.full(y.size, null.intercept), y)
    top = largest_strength(design.columns, residual, design.starts, design.factors)
    path = trace_path(
        design,
        y,
        FAMILIES[family],
        Penalty.build(penalty),
        top * np.array(shares),
        fit_intercept=fit_intercept,
        tolerance=tolerance,
        refit=refit,
    )
    return list(path)


def joint_values(parts: Parts) -> Floats:
    return np.hstack([part.values for part in parts.values()])


def draw_response(family: str, predictor: Floats, rng: np.random.Generator) -> Floats:
    z = (predictor - predictor.mean()) / predictor.std()
    if family == "gaussian":
        return np.asarray(3.0 + z + 0.7 * rng.standard_normal(z.size))
    if family == "binomial":
        return (rng.random(z.size) < 1.0 / (1.0 + np.exp(-1.5 * z))).astype(np.float64)
    return rng.poisson(np.exp(0.6 * z + 0.5)).astype(np.float64)


def split_problem(
    family: str, n_parties: int, shared: float, *, n: int = 300, each: int = 3, seed: int = 0
) -> tuple[dict[str, Features], Floats]:
    """Parties whose columns are all correlated by `shared`; every party's first column matters."""
    rng = np.random.default_rng(seed)
    q = n_parties * each
    x = np.sqrt(shared) * rng.standard_normal((n, 1)) + np.sqrt(1.0 - shared) * rng.standard_normal((n, q))
    y = draw_response(family, x[:, ::each] @ np.resize([1.0, -0.8, 0.6], n_parties), rng)
    x = x * rng.uniform(0.5, 2.0, q) + rng.standard_normal(q)
    parts = {}
    for k in range(n_parties):
        own = range(k * each, (k + 1) * each)
        parts[f"party{k}"] = Features.plain(x[:, own], [f"x{j}" for j in own])
    return parts, y


def assert_same_solutions(across: FederatedPath, central: Sequence[PathPoint], relative: float = 1e-6) -> None:
    """Objectives and selected columns, strength by strength."""
    assert len(across.points) == len(central)
    for found, expected in zip(across.points, central, strict=True):
        assert found.converged
        assert found.strength == pytest.approx(expected.strength, rel=1e-12)
        assert found.objective == pytest.approx(expected.objective, rel=relative)
        np.testing.assert_array_equal(found.coef != 0.0, expected.coef != 0.0)
        assert found.degrees_of_freedom == expected.degrees_of_freedom


# ---- the same minimum --------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("penalty", ["lasso", "scad", "mcp", "none"])
@pytest.mark.parametrize("n_parties", [1, 2, 5, 10])
@pytest.mark.parametrize("shared", [0.3, 0.95])
def test_parties_reach_the_central_objective_and_select_the_same_columns(
    family: str, penalty: str, n_parties: int, shared: float
) -> None:
    parts, y = split_problem(family, n_parties, shared, n=200)
    # Ten parties take most of the time, and learn little from strengths in between.
    shares = [0.95] if penalty == "none" else [0.95, 0.35] if n_parties == 10 else [0.95, 0.35, 0.15]
    across = fit_across(parts, y, family, penalty, shares)
    assert_same_solutions(across, fit_in_one_place(parts, y, family, penalty, shares))
    for point, predicted in zip(across.points, across.predictions, strict=True):
        eta = joint_values(parts) @ point.coef + point.intercept
        np.testing.assert_allclose(predicted, eta, rtol=0.0, atol=1e-10)
        assert FAMILIES[family].loss(eta, y) == pytest.approx(point.loss, rel=1e-10)
        # The loss is least in the intercept, for these coefficients.
        bent = float(np.mean(FAMILIES[family].mean(eta) - y))
        assert bent == pytest.approx(0.0, abs=TOLERANCE)


@every_family
def test_parties_reach_the_central_objective_without_an_intercept(family: str) -> None:
    parts, y = split_problem(family, 3, 0.5)
    shares = [0.95, 0.3, 0.1]
    across = fit_across(parts, y, family, "lasso", shares, fit_intercept=False)
    assert_same_solutions(across, fit_in_one_place(parts, y, family, "lasso", shares, fit_intercept=False))
    assert [point.intercept for point in across.points] == [0.0] * 3


@every_family
@pytest.mark.parametrize("penalty", ["lasso", "none"])
def test_columns_that_two_parties_both_hold_do_no_harm(family: str, penalty: str) -> None:
    """Which of the two is selected is left open, hence convex penalties only; the objective is not."""
    parts, y = split_problem(family, 3, 0.5)
    parts["party2"] = replace(parts["party0"], names=("copy0", "copy1", "copy2"), sources=("copy0", "copy1", "copy2"))
    shares = [0.95, 0.3, 0.05]
    across = fit_across(parts, y, family, penalty, shares)
    central = fit_in_one_place(parts, y, family, penalty, shares)
    for found, expected in zip(across.points, central, strict=True):
        assert found.converged
        assert found.objective == pytest.approx(expected.objective, rel=1e-6)


@pytest.mark.parametrize("penalty", ["lasso", "scad", "mcp"])
@every_family
def test_the_indicators_of_a_category_stay_together(family: str, penalty: str) -> None:
    rng = np.random.default_rng(3)
    parts, _ = split_problem(family, 2, 0.3)
    codes = {name: rng.integers(0, 4, 300) for name in parts}
    for name, own in codes.items():
        flags = np.column_stack([own == level for level in (1, 2, 3)]).astype(np.float64)
        group = Features(flags, np.array([0, 3]), tuple(f"{name}={level}" for level in (1, 2, 3)), (f"{name} kind",))
        parts[name] = join_features([parts[name], group])
    effect = np.array([0.0, 1.5, -1.0, 0.5])[codes["party0"]]
    y = draw_response(family, effect + parts["party1"].values[:, 0], rng)
    shares = [0.95, 0.6, 0.3, 0.1]
    across = fit_across(parts, y, family, penalty, shares)
    assert_same_solutions(across, fit_in_one_place(parts, y, family, penalty, shares))
    seen = set()
    for point in across.points:
        for group_at in (slice(3, 6), slice(9, 12)):
            inside = point.coef[group_at] != 0.0
            assert inside.all() or not inside.any()
            seen.add(bool(inside.any()))
    assert seen == {True, False}


@every_family
def test_a_party_without_columns_changes_nothing(family: str) -> None:
    """The one that holds nothing but the response takes part all the same."""
    parts, y = split_problem(family, 2, 0.5)
    empty = Features.plain(np.zeros((y.size, 0)), [])
    shares = [0.95, 0.3]
    across = fit_across({**parts, "owner": empty}, y, family, "lasso", shares)
    assert_same_solutions(across, fit_in_one_place(parts, y, family, "lasso", shares))


@every_family
def test_refits_are_the_central_ones(family: str) -> None:
    parts, y = split_problem(family, 3, 0.5)
    rule = RefitRule(charge=float(np.log(y.size)), n_subjects=float(y.size))
    shares = [0.95, 0.4, 0.15]
    across = fit_across(parts, y, family, "scad", shares, refit=rule)
    central = fit_in_one_place(parts, y, family, "scad", shares, refit=rule)
    for found, expected in zip(across.points, central, strict=True):
        assert found.refit is not None
        assert expected.refit is not None
        assert found.refit.converged
        np.testing.assert_array_equal(found.refit.coef != 0.0, found.coef != 0.0)
        assert found.refit.loss == pytest.approx(expected.refit.loss, rel=1e-6)
        eta = joint_values(parts) @ found.refit.coef + found.refit.intercept
        assert FAMILIES[family].loss(eta, y) == pytest.approx(found.refit.loss, rel=1e-10)
        assert found.refit.loss <= found.loss + 1e-10


def test_a_path_across_parties_ends_where_the_central_one_does() -> None:
    parts, _ = split_problem("binomial", 3, 0.3)
    first = parts["party0"].values[:, 0]
    y = (first > np.median(first)).astype(np.float64)
    shares = [0.95, 0.6, 0.3, 0.1, 0.03, 0.01]
    across = fit_across(parts, y, "binomial", "lasso", shares, tolerance=1e-4)
    assert across.ended_early
    assert 0 < len(across.points) < len(shares)
    assert len(across.points) == len(fit_in_one_place(parts, y, "binomial", "lasso", shares, tolerance=1e-4))
    assert across.predictions.shape == (len(across.points), y.size)


@every_family
@pytest.mark.parametrize("penalty", ["lasso", "scad"])
def test_learning_from_some_rows_is_the_fit_of_those_rows_and_predicts_all(family: str, penalty: str) -> None:
    parts, y = split_problem(family, 3, 0.5)
    rows = np.random.default_rng(4).random(y.size) < 0.7
    shares = [0.95, 0.3, 0.1]
    across = fit_across(parts, y, family, penalty, shares, rows=rows)
    only = {name: replace(part, values=part.values[rows]) for name, part in parts.items()}
    assert_same_solutions(across, fit_in_one_place(only, y[rows], family, penalty, shares))
    assert across.predictions.shape == (3, y.size)
    for point, predicted in zip(across.points, across.predictions, strict=True):
        expected = joint_values(parts) @ point.coef + point.intercept
        np.testing.assert_allclose(predicted, expected, rtol=0.0, atol=1e-10)


# ---- Algorithm 4 as printed -----------------------------------------------------------------------


def soft_lasso(gram: Floats, linear: Floats, weight: float, coef: Floats) -> Floats:
    """Coordinate descent by the book."""
    coef = coef.copy()
    for _ in range(1000):
        before = coef.copy()
        for j in range(coef.size):
            pull = linear[j] - gram[j] @ coef + gram[j, j] * coef[j]
            coef[j] = np.sign(pull) * max(abs(pull) - weight, 0.0) / gram[j, j]
        if np.abs(coef - before).max() <= 1e-10:
            break
    return coef


def printed_algorithm(blocks: Sequence[Floats], y: Floats, strength: float, phi: float, rounds: int) -> list[float]:
    """Algorithm 4 as printed, gaussian lasso: Eqs. (6-1) to (6-3), every party from the same residual.

    Returns the objective after every round.
    """
    n = y.size
    coef = [np.zeros(block.shape[1]) for block in blocks]
    grams = [block.T @ block / n for block in blocks]
    eta, gamma, found = np.zeros(n), np.zeros(n), []
    for _ in range(rounds):
        parts = [block @ b for block, b in zip(blocks, coef, strict=True)]
        total = np.sum(parts, axis=0)
        coef = [
            soft_lasso(gram, block.T @ (eta - (total - part) - gamma / phi) / n, strength / (phi * n), b)
            for block, gram, part, b in zip(blocks, grams, parts, coef, strict=True)
        ]
        total = np.sum([block @ b for block, b in zip(blocks, coef, strict=True)], axis=0)
        eta = (y / n + gamma + phi * total) / (1.0 / n + phi)
        gamma = gamma + phi * (total - eta)
        penalty = strength * float(sum(np.abs(b).sum() for b in coef))
        found.append(0.5 * float(np.mean((y - total) ** 2)) + penalty)
        if found[-1] > 1e6 * found[0]:
            break
    return found


def scaled_blocks(parts: Parts) -> list[Floats]:
    return [(part.values - part.values.mean(axis=0)) / part.values.std(axis=0) for part in parts.values()]


def test_the_printed_algorithm_converges_where_two_parties_are_barely_correlated() -> None:
    """So that its divergence below is its own and not that of a mistake in writing it out."""
    parts, y = split_problem("gaussian", 2, 0.05)
    (point,) = fit_in_one_place(parts, y, "gaussian", "lasso", [0.2])
    printed = printed_algorithm(scaled_blocks(parts), y - y.mean(), point.strength, 1.0 / y.size, 400)
    assert printed[-1] == pytest.approx(point.objective, rel=1e-6)


@pytest.mark.parametrize("phi", [0.3, 1.0, 3.0])
def test_the_printed_algorithm_diverges_where_parties_overshoot_together_and_ours_does_not(phi: float) -> None:
    """Five parties with columns correlated by 0.9; the paper leaves phi open, so it is tried around the curvature
    of the loss, 1 / N."""
    parts, y = split_problem("gaussian", 5, 0.9)
    shares = [0.2]
    across = fit_across(parts, y, "gaussian", "lasso", shares)
    assert_same_solutions(across, fit_in_one_place(parts, y, "gaussian", "lasso", shares))
    best = across.points[0]
    printed = printed_algorithm(scaled_blocks(parts), y - y.mean(), best.strength, phi / y.size, 400)
    assert printed[-1] > 1e6 * best.objective


# ---- which columns leave -------------------------------------------------------------------


def answers(transport: Handlers) -> list[tuple[EnteringColumnsRequest, EnteringColumnsReply]]:
    """Requests for columns with their replies, in the order in which they were made."""
    pairs = zip(transport.seen[::2], transport.seen[1::2], strict=True)
    return [(q, a) for q, a in pairs if isinstance(q, EnteringColumnsRequest) and isinstance(a, EnteringColumnsReply)]


@every_family
@pytest.mark.parametrize("penalty", ["lasso", "scad", "mcp"])
def test_a_column_leaves_once_as_it_is_and_only_if_residuals_ask_for_it(family: str, penalty: str) -> None:
    parts, y = split_problem(family, 3, 0.5, each=6)
    transport = Handlers(parts)
    across = fit_across(transport, y, family, penalty, [0.95, 0.7, 0.5, 0.3], tolerance=1e-4)
    gone: dict[str, set[int]] = {name: set() for name in parts}
    for request, reply in answers(transport):
        values, own = parts[reply.party].values, gone[reply.party]
        scaled = (values - values.mean(axis=0)) / values.std(axis=0)
        pull = np.abs([float(np.mean(column * request.residual)) for column in scaled.T])
        kept = [j for j in range(pull.size) if j not in own and not pull[j] > request.strength]
        expected = [j for j in range(pull.size) if j not in own and j not in kept]
        assert reply.groups.tolist() == expected
        assert reply.strength == pytest.approx(max((pull[j] for j in kept), default=0.0), rel=1e-9)
        np.testing.assert_array_equal(reply.values, values[:, expected])
        own.update(expected)
    selected = np.any([point.coef != 0.0 for point in across.points], axis=0).reshape(3, 6)
    for own, marks in zip(gone.values(), selected, strict=True):
        assert set(np.flatnonzero(marks)) <= own
    assert sum(map(len, gone.values())) < 18  # some columns were wanted by no model, and stayed


@every_family
@pytest.mark.parametrize("penalty", ["lasso", "scad"])
def test_answers_that_follow_from_earlier_ones_are_not_asked_for(
    family: str, penalty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, y = split_problem(family, 3, 0.5, each=6)
    shares = list(np.geomspace(0.95, 0.3, 8))
    fast, slow = Handlers(parts), Handlers(parts)
    found = fit_across(fast, y, family, penalty, shares, tolerance=1e-4)
    monkeypatch.setattr(GatheredColumns, "_bound", lambda *_: np.inf)
    expected = fit_across(slow, y, family, penalty, shares, tolerance=1e-4)
    assert len(answers(fast)) < len(answers(slow))
    for one, other in zip(found.points, expected.points, strict=True):
        np.testing.assert_array_equal(one.coef, other.coef)


def test_uncentred_columns_are_asked_for_whatever_was_answered() -> None:
    """Without an intercept a column may be longer than its standard deviation says, and move more than residuals do."""
    parts, y = split_problem("binomial", 3, 0.5)
    parts = {name: replace(part, values=part.values + 5.0) for name, part in parts.items()}
    shares = list(np.geomspace(0.95, 0.1, 6))
    across = fit_across(parts, y, "binomial", "lasso", shares, fit_intercept=False)
    assert_same_solutions(across, fit_in_one_place(parts, y, "binomial", "lasso", shares, fit_intercept=False))


def test_columns_of_another_fit_are_not_asked_for_again() -> None:
    parts, y = split_problem("binomial", 3, 0.5)
    settings = RegressionSettings(FAMILIES["binomial"], Penalty.build("scad"), tolerance=1e-5)
    rows, sent = np.random.default_rng(4).random(y.size) < 0.7, SentColumns()
    first, again, alone = Handlers(parts), Handlers(parts), Handlers(parts)

    def fit(transport: Handlers, known: SentColumns | None, learn: Bools | None) -> FederatedPath:
        rounds = federated_path(
            list(parts), y, settings, lambda top: top * np.array([0.9, 0.4, 0.1]), study="s", rows=learn, sent=known
        )
        return drive(rounds, transport)

    fit(first, sent, None)
    assert {(a.party, g) for _, a in answers(first) for g in a.groups.tolist()} == sent.keys()
    found, expected = fit(again, sent, rows), fit(alone, None, rows)
    known = {(a.party, g) for _, a in answers(first) for g in a.groups.tolist()}
    assert not known & {(a.party, g) for _, a in answers(again) for g in a.groups.tolist()}
    for one, other in zip(found.points, expected.points, strict=True):
        np.testing.assert_allclose(one.coef, other.coef, rtol=0.0, atol=1e-6)


# ---- messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", ["lasso", "scad"])
def test_every_request_sent_twice_is_answered_twice_and_moves_nothing(penalty: str) -> None:
    parts, y = split_problem("gaussian", 3, 0.5)
    rule = RefitRule(charge=5.0, n_subjects=300.0)
    once = fit_across(Handlers(parts), y, "gaussian", penalty, [0.95, 0.3], refit=rule)
    twice = fit_across(Handlers(parts, times=2), y, "gaussian", penalty, [0.95, 0.3], refit=rule)
    assert twice.traffic == once.traffic
    for found, expected in zip(twice.points, once.points, strict=True):
        np.testing.assert_array_equal(found.coef, expected.coef)
        assert found.refit is not None
        assert expected.refit is not None
        np.testing.assert_array_equal(found.refit.coef, expected.refit.coef)
    np.testing.assert_array_equal(twice.predictions, once.predictions)


def open_fit(fit: str, n_rows: int | None = None) -> DesignRequest:
    return DesignRequest(
        study="s",
        fit=fit,
        columns=None,
        without=None,
        centre=True,
        subjects=None,
        rows=None if n_rows is None else np.ones(n_rows, dtype=bool),
    )


def ask(fit: str, residual: Floats, study: str = "s", n_groups: int = 3) -> EnteringColumnsRequest:
    return EnteringColumnsRequest(study, fit, 0, 0.05, np.zeros(n_groups, dtype=bool), residual)


def test_what_a_fit_costs_is_what_a_transport_sees() -> None:
    parts, y = split_problem("gaussian", 3, 0.5)
    transport = Handlers(parts)
    across = fit_across(transport, y, "gaussian", "scad", [0.95, 0.3, 0.1], refit=RefitRule(5.0, 300.0))
    arrays = [getattr(message, part.name) for message in transport.seen for part in fields(message)]
    assert across.traffic.bytes == sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    asked = [message for message in transport.seen if isinstance(message, EnteringColumnsRequest)]
    assert across.traffic.rounds == 1 + len({message.number for message in asked})  # the first prepares columns
    # One number per row of a question, and one per row of each column that leaves.
    columns = sum(reply.groups.size for _, reply in answers(transport))
    marks = sum(request.sent.nbytes + reply.groups.nbytes for request, reply in answers(transport))
    designs = sum(
        array.nbytes
        for message in transport.seen
        if isinstance(message, DesignReply)
        for array in (message.starts, message.sizes, message.constant)
    )
    assert across.traffic.bytes == 8 * y.size * (len(asked) + columns) + marks + designs


def spoil_values(reply: Reply) -> Reply:
    return replace(reply, values=reply.values * np.nan) if isinstance(reply, EnteringColumnsReply) else reply


def shorten_values(reply: Reply) -> Reply:
    return replace(reply, values=reply.values[:1]) if isinstance(reply, EnteringColumnsReply) else reply


def spoil_strength(reply: Reply) -> Reply:
    return replace(reply, strength=np.nan) if isinstance(reply, EnteringColumnsReply) else reply


def name_other_groups(reply: Reply) -> Reply:
    return replace(reply, groups=reply.groups + 3) if isinstance(reply, EnteringColumnsReply) else reply


def repeat_groups(reply: Reply) -> Reply:
    twice = np.repeat(reply.groups, 2) if isinstance(reply, EnteringColumnsReply) else None
    return reply if twice is None else replace(reply, groups=twice, values=np.repeat(reply.values, 2, axis=1))


def spoil_design(reply: Reply) -> Reply:
    return replace(reply, n_rows=reply.n_rows - 1) if isinstance(reply, DesignReply) else reply


def spoil_layout(reply: Reply) -> Reply:
    return replace(reply, starts=reply.starts[:-1]) if isinstance(reply, DesignReply) else reply


def empty_groups(reply: Reply) -> Reply:
    return replace(reply, starts=np.array([0, 1, 1, 3])) if isinstance(reply, DesignReply) else reply


def forget_sizes(reply: Reply) -> Reply:
    return replace(reply, sizes=reply.sizes[:-1]) if isinstance(reply, DesignReply) else reply


def speak_for_another(reply: Reply) -> Reply:
    return replace(reply, party="party0") if isinstance(reply, EnteringColumnsReply) else reply


def wrong_type(reply: Reply) -> Reply:
    return EnteringColumnsReply("party1", np.zeros(0, dtype=np.int64), np.zeros((300, 0)), 1.0)


@pytest.mark.parametrize(
    "spoil",
    [
        *(spoil_values, shorten_values, spoil_strength, name_other_groups, repeat_groups, spoil_design, spoil_layout),
        *(empty_groups, forget_sizes, speak_for_another, wrong_type),
    ],
)
@pytest.mark.parametrize("n_parties", [2, 3])
def test_a_reply_that_cannot_be_used_names_its_party(spoil: Callable[[Reply], Reply], n_parties: int) -> None:
    parts, y = split_problem("gaussian", n_parties, 0.5)
    with pytest.raises(ProtocolError, match="party1"):
        fit_across(Handlers(parts, spoil=spoil, spoilt="party1"), y, "gaussian", "lasso", [0.1])


def test_a_party_with_other_rows_than_the_response_is_named() -> None:
    parts, y = split_problem("gaussian", 3, 0.5)
    parts["party2"] = replace(parts["party2"], values=parts["party2"].values[:-1])
    with pytest.raises(ProtocolError, match=r"party2.*299 rows.*300"):
        fit_across(parts, y, "gaussian", "lasso", [0.5])


def test_a_handler_refuses_what_it_cannot_answer_and_says_who_it_is() -> None:
    parts, y = split_problem("gaussian", 1, 0.5)
    handler = RegressionHandler.holding("hospital", parts["party0"])
    with pytest.raises(ProtocolError, match=r"hospital.*not asked to prepare this fit"):
        handler.handle(ask("all", y))
    handler.handle(open_fit("all"))
    with pytest.raises(ProtocolError, match=r"hospital.*not asked to prepare this fit"):
        handler.handle(ask("fold 1", y))
    with pytest.raises(ProtocolError, match=r"hospital.*not asked to prepare this fit"):
        handler.handle(ask("all", y, "another"))
    with pytest.raises(ProtocolError, match=r"hospital.*expected 300 finite numbers"):
        handler.handle(ask("all", y[:-1]))
    with pytest.raises(ProtocolError, match=r"hospital.*expected 300 finite numbers"):
        handler.handle(ask("all", np.where(y == y[3], np.nan, y)))
    with pytest.raises(ProtocolError, match=r"hospital.*a mask over 3 groups"):
        handler.handle(ask("all", y, n_groups=2))
    with pytest.raises(ProtocolError, match=r"hospital.*and a strength"):
        handler.handle(replace(ask("all", y), strength=np.nan))
    with pytest.raises(ProtocolError, match=r"hospital.*a mask over its 300 rows"):
        handler.handle(open_fit("fold 2", n_rows=299))


def test_a_handler_closes_the_fit_before_the_last_two() -> None:
    parts, y = split_problem("gaussian", 1, 0.5)
    handler = RegressionHandler.holding("hospital", parts["party0"])
    for fit in ("a", "b", "c"):
        handler.handle(open_fit(fit))
    for fit in ("b", "c"):
        handler.handle(ask(fit, y))
    with pytest.raises(ProtocolError, match="has closed it"):
        handler.handle(ask("a", y))


def test_a_fit_that_was_opened_again_counts_as_a_new_one() -> None:
    parts, y = split_problem("gaussian", 1, 0.5)
    handler = RegressionHandler.holding("hospital", parts["party0"])
    for fit in ("a", "b"):
        handler.handle(open_fit(fit))
        handler.handle(ask(fit, y))
    for fit in ("a", "c"):
        handler.handle(open_fit(fit))
    handler.handle(ask("a", y))
