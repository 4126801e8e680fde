"""VFL-GLM-VS (Algorithm 4): a path of penalised regressions across parties, as one generator of rounds.

The coordinator holds the response and sees X_k beta_k of every party, never a column. It draws nothing: on
synthetic tables all of this is post-processing. See `glm/admm_coordinator.py` for the iteration
and `glm/strength_path.py` for the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.glm.admm_block import Track, Weights
from verticopula.glm.admm_coordinator import SHARING_TUNING, Sharing
from verticopula.glm.families import Family
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import (
    PATH_TUNING,
    ConvergenceMonitor,
    DevianceScale,
    PathPoint,
    Refit,
    RefitRule,
    RefitStopper,
)
from verticopula.protocol.messages import (
    CoefficientsReply,
    CoefficientsRequest,
    DesignReply,
    DesignRequest,
    Reply,
    Request,
    StrengthReply,
    StrengthRequest,
    UpdateReply,
    UpdateRequest,
    payload_bytes,
)
from verticopula.protocol.shared_rounds import Rounds

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ChooseStrengths = Callable[[float], Floats]
OnStrength = Callable[[int, int], None]


@dataclass(frozen=True)
class RegressionSettings:
    """What is fitted, and how exactly.

    Attributes
    ----------
    columns : party -> its columns that enter; None for all but the response
    response : the response's own column, at the party that holds it; left out of the model
    tolerance : the paper's eps_abs = eps_rel
    max_rounds : of one weighted lasso
    refit : whether selected columns are fitted again without a penalty
    subjects : the cohort's subjects that the regression is about; None for all
    end_early : whether the path ends where the fit is all but perfect
    """

    family: Family
    penalty: Penalty
    fit_intercept: bool = True
    tolerance: float = 1e-3
    max_rounds: int = 2000
    columns: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    response: tuple[str, str] | None = None
    refit: RefitRule | None = None
    subjects: Bools | None = None
    end_early: bool = True


@dataclass(frozen=True)
class Traffic:
    """What a fit cost: rounds of updates, and bytes of arrays in all messages both ways."""

    rounds: int
    bytes: int


@dataclass(frozen=True)
class FederatedPath:
    """The solutions at all strengths, and what they cost.

    Attributes
    ----------
    points : coefficients on the scale of the data, parties side by side
    predictions : (L, N) linear predictor of all rows, intercept included
    designs : each party's features
    ended_early : the path, or its refits, came close to a perfect fit before the last strength
    """

    points: tuple[PathPoint, ...]
    predictions: Floats
    designs: Mapping[str, DesignReply]
    ended_early: bool
    traffic: Traffic


def federated_path(
    parties: Sequence[str],
    y: Floats,
    settings: RegressionSettings,
    strengths: ChooseStrengths,
    *,
    study: str,
    fit: str = "all",
    rows: Bools | None = None,
    on_strength: OnStrength = lambda done, total: None,
) -> Rounds[FederatedPath]:
    """The path over decreasing strengths.

    Parameters
    ----------
    y : (N,) response of all rows
    strengths : from the largest strength of interest to the strengths of the path
    rows : the rows to learn from; None for all
    """
    run = _Run(tuple(parties), settings, study, fit, rows)
    designs = yield from run.open(y.size)
    chosen = y if rows is None else y[rows]
    concave = settings.penalty.is_concave
    make = partial(Sharing, chosen, settings.family, len(parties), fit_intercept=settings.fit_intercept)
    tracks: dict[Track, Sharing] = {
        "lasso": make(magnified=concave),
        "main": make(magnified=concave),
        "refit": make(magnified=False),
    }
    family, penalty = settings.family, settings.penalty
    yardstick = DevianceScale(family, chosen)
    path = strengths((yield from run.largest_strength(tracks["main"].null_residual)))
    points: list[PathPoint] = []
    predictions: list[Floats] = []
    watch, refit, support = RefitStopper(settings.refit, family), None, b""
    for number, strength in enumerate(path):
        on_strength(number, len(path))
        solved = yield from run.solve(tracks, float(strength))
        total, intercept, loss = _read(solved, tracks["main"], chosen, settings, yardstick, rows)
        selected = np.concatenate([reply.selected for reply in solved.replies])
        df = int(np.concatenate([designs[name].sizes for name in parties])[selected].sum())
        if settings.end_early and penalty.name != "none" and yardstick.is_saturated(loss, df):
            break
        if watch.wanted:
            if selected.tobytes() != support:
                support = selected.tobytes()
                again = yield from run.refit(tracks["refit"])
                _, refit_intercept, refit_loss = _read(again, tracks["refit"], chosen, settings, yardstick, rows)
                exists = not yardstick.is_saturated(refit_loss, df)
                refit = Refit(np.zeros(0), refit_intercept, refit_loss, again.converged) if exists else None
                watch.see(refit, df)
        else:
            refit = None
        value = float(sum(reply.penalty for reply in solved.replies))
        points.append(PathPoint(float(strength), np.zeros(0), intercept, loss, value, df, solved.converged, refit))
        predictions.append(total + intercept)
        run.to_record = True
    on_strength(len(path), len(path))
    finished = yield from run.coefficients(points)
    found = np.array(predictions).reshape(len(points), y.size)
    ended_early = len(points) < len(path) or watch.came_to_perfect
    return FederatedPath(finished, found, designs, ended_early, run.traffic())


def _read(
    solved: _Solved,
    sharing: Sharing,
    y: Floats,
    settings: RegressionSettings,
    yardstick: DevianceScale,
    rows: Bools | None,
) -> tuple[Floats, float, float]:
    """The parties' joint prediction for all rows, the best intercept beside it, and the loss."""
    total = np.sum([reply.prediction for reply in solved.replies], axis=0)
    learnt = total if rows is None else total[rows]
    intercept = settings.family.best_intercept(learnt, y, sharing.intercept) if settings.fit_intercept else 0.0
    return total, intercept, yardstick.loss(learnt + intercept, y)


@dataclass(frozen=True)
class _Solved:
    """Every party's last reply, whether the iteration came to rest, and after how many rounds."""

    replies: tuple[UpdateReply, ...]
    converged: bool
    rounds: int


class _Run:
    """The rounds of one fit, with their bookkeeping."""

    def __init__(
        self, parties: tuple[str, ...], settings: RegressionSettings, study: str, fit: str, rows: Bools | None
    ) -> None:
        self._parties, self._settings, self._study, self._fit, self._rows = parties, settings, study, fit, rows
        self.to_record = False  # whether the parties' coefficients solve a strength and are not recorded yet
        self._designs: dict[str, DesignReply] = {}
        self._n_rows = 0
        self._number = 0
        self._bytes = 0

    def traffic(self) -> Traffic:
        return Traffic(self._number, self._bytes)

    def _ask(self, requests: dict[str, Request]) -> Rounds[dict[str, Reply]]:
        replies = yield requests
        self._bytes += sum(payload_bytes(m) for m in (*requests.values(), *replies.values()))
        return replies

    def open(self, n_rows: int) -> Rounds[dict[str, DesignReply]]:
        """Every party prepares its columns."""
        settings = self._settings
        requests: dict[str, Request] = {
            name: DesignRequest(
                self._study,
                self._fit,
                settings.columns.get(name),
                settings.response[1] if settings.response and settings.response[0] == name else None,
                settings.fit_intercept,
                settings.subjects,
                self._rows,
                settings.penalty.name,
                settings.penalty.concavity,
            )
            for name in self._parties
        }
        replies = yield from self._ask(requests)
        designs: dict[str, DesignReply] = {}
        for name in self._parties:
            reply = replies.get(name)
            if not isinstance(reply, DesignReply):
                raise ProtocolError(f"party {name!r} did not prepare its columns")
            if reply.n_rows != n_rows:
                raise ProtocolError(f"party {name!r} has {reply.n_rows} rows, the response {n_rows}")
            designs[name] = reply
        self._designs, self._n_rows = designs, n_rows
        return designs

    def largest_strength(self, residual: Floats) -> Rounds[float]:
        """The least strength at which no party's column enters."""
        replies = yield from self._ask({n: StrengthRequest(self._study, self._fit, residual) for n in self._parties})
        found = []
        for name in self._parties:
            reply = replies.get(name)
            if not isinstance(reply, StrengthReply) or not np.isfinite(reply.strength):
                raise ProtocolError(f"party {name!r} did not say from which strength on its columns stay out")
            found.append(reply.strength)
        return max(found)

    def solve(self, tracks: Mapping[Track, Sharing], strength: float) -> Rounds[_Solved]:
        """One strength: a convex penalty at once, a concave one by local linear approximation from the lasso."""
        tolerance = self._settings.tolerance
        if not self._settings.penalty.is_concave:
            return (yield from self._iterate(tracks["main"], "main", "plain", strength, tolerance))
        yield from self._iterate(tracks["lasso"], "lasso", "plain", strength, tolerance)
        weights: Weights = "lasso"
        watch = ConvergenceMonitor(tolerance, self._settings.family)
        for _ in range(PATH_TUNING.most_lla_steps):
            solved = yield from self._iterate(tracks["main"], "main", weights, strength, watch.tolerance)
            if watch.has_converged(max(reply.weight_change for reply in solved.replies), at_once=solved.rounds == 1):
                return solved
            weights = "own"
        return replace(solved, converged=False)

    def refit(self, sharing: Sharing) -> Rounds[_Solved]:
        """Maximum likelihood on what is selected now."""
        return (yield from self._iterate(sharing, "refit", "selected", 0.0, self._settings.tolerance))

    def _iterate(
        self, sharing: Sharing, track: Track, weights: Weights, strength: float, tolerance: float
    ) -> Rounds[_Solved]:
        """Rounds of updates at fixed weights until both residuals are small."""
        settings = self._settings
        sharing.begin(afresh=track == "refit")  # what is handed out
        for step in range(settings.max_rounds):
            inner = SHARING_TUNING.inner_share * sharing.inner_tolerance(tolerance)
            requests: dict[str, Request] = {
                name: UpdateRequest(
                    self._study,
                    self._fit,
                    self._number,
                    track,
                    weights if step == 0 else "keep",
                    strength,
                    sharing.rho,
                    inner,
                    self.to_record,
                    target,
                )
                for name, target in zip(self._parties, sharing.targets(), strict=True)
            }
            self.to_record = False
            replies = yield from self._ask(requests)
            self._number += 1
            answers = tuple(self._checked(name, replies.get(name)) for name in self._parties)
            learnt = np.array([r.prediction if self._rows is None else r.prediction[self._rows] for r in answers])
            if sharing.absorb(learnt, tolerance).done:
                return _Solved(answers, all(reply.solved for reply in answers), step + 1)
        return _Solved(answers, False, settings.max_rounds)

    def _checked(self, name: str, reply: Reply | None) -> UpdateReply:
        good = (
            isinstance(reply, UpdateReply)
            and reply.prediction.shape == (self._n_rows,)
            and reply.selected.shape == self._designs[name].sizes.shape
            and bool(np.isfinite(reply.prediction).all())
        )
        if not isinstance(reply, UpdateReply) or not good:
            raise ProtocolError(f"party {name!r} did not answer with its part of the linear predictor")
        return reply

    def coefficients(self, points: Sequence[PathPoint]) -> Rounds[tuple[PathPoint, ...]]:
        """The path's coefficients, parties side by side, and intercepts on the scale of the data."""
        requests: dict[str, Request] = {
            name: CoefficientsRequest(self._study, self._fit, self.to_record) for name in self._parties
        }
        replies = yield from self._ask(requests)
        good: list[CoefficientsReply] = []
        for name in self._parties:
            part = replies.get(name)
            shape = (len(points), len(self._designs[name].names))
            if not isinstance(part, CoefficientsReply) or part.coef.shape != shape or part.refit_coef.shape != shape:
                raise ProtocolError(f"party {name!r} did not send the coefficients of the whole path")
            good.append(part)
        coef = np.concatenate([part.coef for part in good], axis=1)
        shifts = np.sum([part.shifts for part in good], axis=0)
        refits = np.concatenate([part.refit_coef for part in good], axis=1)
        refit_shifts = np.sum([part.refit_shifts for part in good], axis=0)
        return tuple(
            replace(
                point,
                coef=coef[i],
                intercept=point.intercept - float(shifts[i]),
                refit=point.refit
                and replace(point.refit, coef=refits[i], intercept=point.refit.intercept - float(refit_shifts[i])),
            )
            for i, point in enumerate(points)
        )
