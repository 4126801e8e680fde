"""A path of penalised regressions across parties, as one generator of rounds.

The coordinator holds the response. A column leaves its party when a model on the path wants it, once, and as it is;
the path is traced where the columns are. On synthetic tables all of this is post-processing. See
`glm/gathered_columns.py` for who is asked what, and `glm/central_path.py` for the path.

Departs from Algorithm 4 (VFL-GLM-VS), in which parties send X_k beta_k in every round: of as many rounds as columns
these are the columns, for many times the traffic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.glm.central_path import Asking, OnStrength, Question, Solved, trace_central_path
from verticopula.glm.families import Family
from verticopula.glm.feature_design import Features
from verticopula.glm.gathered_columns import GatheredColumns
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import PathPoint, RefitRule, RefitStopper
from verticopula.protocol.messages import Reply, Request, payload_bytes
from verticopula.protocol.regression_messages import (
    DesignReply,
    DesignRequest,
    EnteringColumnsReply,
    EnteringColumnsRequest,
)
from verticopula.protocol.shared_rounds import Rounds

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ChooseStrengths = Callable[[float], Floats]
SentColumns = dict[tuple[str, int], Floats]  # party, group -> values, of all rows


@dataclass(frozen=True)
class RegressionSettings:
    """What is fitted, and how exactly.

    Attributes
    ----------
    columns : party -> its columns that enter; None for all but the response
    response : the response's own column, at the party that holds it; left out of the model
    tolerance : optimality conditions hold to this share of the strength
    refit : whether selected columns are fitted again without a penalty
    subjects : the cohort's subjects that the regression is about; None for all
    end_early : whether the path ends where the fit is all but perfect
    layouts : party -> what the federation file makes of its columns, without rows; others are believed
    """

    family: Family
    penalty: Penalty
    fit_intercept: bool = True
    tolerance: float = 1e-3
    columns: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    response: tuple[str, str] | None = None
    refit: RefitRule | None = None
    subjects: Bools | None = None
    end_early: bool = True
    layouts: Mapping[str, Features] = field(default_factory=dict)


@dataclass(frozen=True)
class Traffic:
    """What a fit cost: requests to parties with their answers, and bytes of arrays in all messages both ways."""

    rounds: int
    bytes: int


@dataclass(frozen=True)
class FederatedPath:
    """The solutions at all strengths, and what they cost.

    Attributes
    ----------
    points : coefficients on the scale of the data, parties side by side
    predictions : (L, N) linear predictor of all rows, intercept included; (L, 0) where the coordinator sees no row
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
    sent: SentColumns | None = None,
    on_strength: OnStrength = lambda done, total: None,
) -> Rounds[FederatedPath]:
    """The path over decreasing strengths.

    Parameters
    ----------
    y : (N,) response of all rows
    strengths : from the largest strength of interest to the strengths of the path
    rows : the rows to learn from; None for all
    sent : columns that came in other fits of this study, and are not asked for again; those that come are added
    """
    run = _Run(tuple(parties), settings, study, fit, {} if sent is None else sent)
    yield from run.open(y, rows)
    largest = yield from run.largest_strength()
    path = strengths(largest)
    watch = RefitStopper(settings.refit, settings.family)
    tracing = trace_central_path(
        run.columns.problem(largest),
        settings.penalty,
        path,
        tolerance=settings.tolerance,
        watch=watch,
        end_early=settings.end_early,
        on_strength=on_strength,
    )
    points = yield from run.answer(tracing)
    ended_early = len(points) < len(path) or watch.came_to_perfect
    return FederatedPath(points, run.columns.predict(points), run.designs, ended_early, run.traffic)


class _Run:
    """The rounds of one fit, with their bookkeeping."""

    columns: GatheredColumns
    designs: dict[str, DesignReply]

    def __init__(
        self, parties: tuple[str, ...], settings: RegressionSettings, study: str, fit: str, sent: SentColumns
    ) -> None:
        self._parties, self._settings, self._study, self._fit, self._sent = parties, settings, study, fit, sent
        self._number = 0
        self.traffic = Traffic(0, 0)

    def _ask(self, requests: dict[str, Request]) -> Rounds[dict[str, Reply]]:
        replies = yield requests
        more = sum(payload_bytes(m) for m in (*requests.values(), *replies.values()))
        self.traffic = Traffic(self.traffic.rounds + 1, self.traffic.bytes + more)
        return replies

    def open(self, y: Floats, rows: Bools | None) -> Rounds[None]:
        """Every party prepares its columns; none of them comes yet."""
        settings = self._settings
        requests: dict[str, Request] = {
            name: DesignRequest(
                self._study,
                self._fit,
                settings.columns.get(name),
                settings.response[1] if settings.response and settings.response[0] == name else None,
                settings.fit_intercept,
                settings.subjects,
                rows,
            )
            for name in self._parties
        }
        replies = yield from self._ask(requests)
        designs: dict[str, DesignReply] = {}
        for name in self._parties:
            reply = replies.get(name)
            if not isinstance(reply, DesignReply) or reply.party != name:
                raise ProtocolError(f"party {name!r} did not prepare its columns")
            if reply.n_rows != y.size:
                raise ProtocolError(f"party {name!r} has {reply.n_rows} rows, the response {y.size}")
            _check_layout(reply, settings.layouts.get(name))
            designs[name] = reply
        self.designs, self._n_rows = designs, y.size
        ends = np.cumsum([0, *(reply.sizes.size for reply in designs.values())])
        self._groups = dict(zip(designs, itertools.starmap(slice, itertools.pairwise(ends.tolist())), strict=True))
        widths = [np.diff(reply.starts) for reply in designs.values()]
        self.columns = GatheredColumns(
            y,
            settings.family,
            np.cumsum([0, *np.concatenate(widths)]),
            np.concatenate([reply.sizes for reply in designs.values()]),
            np.concatenate([reply.constant for reply in designs.values()]),
            np.ones(y.size, dtype=bool) if rows is None else rows,
            fit_intercept=settings.fit_intercept,
        )
        for (name, group), values in self._sent.items():
            self.columns.add(self._groups[name].start + group, values)

    def largest_strength(self) -> Rounds[float]:
        """The least strength at which no column enters."""
        everything = np.ones(self.columns.here.size, dtype=bool)
        replies = yield from self._gather(Question(self.columns.null_residual, np.inf, everything), ~everything)
        return max((reply.strength for reply in replies), default=0.0)

    def answer(self, tracing: Asking[Solved]) -> Rounds[Solved]:
        """What is computed, once parties have answered all its questions."""
        try:
            question = next(tracing)
            while True:
                replies = yield from self._gather(question, self.columns.here)
                question = tracing.send(any(reply.groups.size for reply in replies))
        except StopIteration as done:
            result: Solved = done.value
            return result

    def _gather(self, question: Question, here: Bools) -> Rounds[list[EnteringColumnsReply]]:
        """The answers of all parties that the question is about; what they send is added to those that are here."""
        asked = {name: here[part] for name, part in self._groups.items() if question.groups[part].any()}
        requests: dict[str, Request] = {
            name: EnteringColumnsRequest(
                self._study, self._fit, self._number, question.strength, sent, question.residual
            )
            for name, sent in asked.items()
        }
        self._number += 1
        replies = yield from self._ask(requests)
        found = [self._checked(name, replies.get(name), sent, question.strength) for name, sent in asked.items()]
        for reply in found:
            part = self._groups[reply.party]
            self.columns.note_answer(part.start, part.stop, question.residual, reply.strength)
            widths = np.diff(self.designs[reply.party].starts)[reply.groups]
            for group, width, end in zip(reply.groups.tolist(), widths, np.cumsum(widths), strict=True):
                self._sent[reply.party, group] = reply.values[:, end - width : end]
                self.columns.add(part.start + group, self._sent[reply.party, group])
        return found

    def _checked(self, name: str, reply: Reply | None, sent: Bools, strength: float) -> EnteringColumnsReply:
        """ProtocolError unless the party has sent columns that were not here, as numbers for all rows.

        Sums of their squares are numbers, too: a column that cannot be brought to a scale would end in no answer. And
        none that the party has kept wants to enter.
        """
        if not isinstance(reply, EnteringColumnsReply) or reply.party != name:
            raise ProtocolError(f"party {name!r} did not say which of its columns enter")
        groups, widths = reply.groups, np.diff(self.designs[name].starts)
        known = groups.ndim == 1 and bool(np.isin(groups, np.flatnonzero(~sent)).all() and (np.diff(groups) > 0).all())
        if not known or reply.values.shape != (self._n_rows, int(widths[groups].sum())):
            raise ProtocolError(f"party {name!r} sent other columns than those that enter")
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->j", reply.values, reply.values)
        if not np.isfinite(squares).all() or not 0.0 <= reply.strength < np.inf:
            raise ProtocolError(f"party {name!r} did not answer with finite numbers")
        if reply.strength > strength:
            raise ProtocolError(f"party {name!r} says that it kept columns that want to enter")
        return reply


def _check_layout(reply: DesignReply, known: Features | None) -> None:
    """ProtocolError unless features, groups and their sizes fit together, and are those that are known.

    Before anything is made as large as they are. Starts are compared, because differences may overflow.
    """
    n_groups, starts = len(reply.sources), reply.starts
    fits = starts.shape == (n_groups + 1,) and starts[0] == 0 and starts[-1] == len(reply.names)
    fits = fits and bool((starts[1:] > starts[:-1]).all())
    fits = fits and reply.sizes.shape == (n_groups,) and reply.constant.shape == (n_groups,)
    fits = fits and bool(((reply.sizes >= 1) & (reply.sizes <= np.diff(starts))).all())
    if fits and known is not None:
        fits = (reply.names, reply.sources) == (known.names, known.sources) and np.array_equal(starts, known.starts)
    if not fits:
        raise ProtocolError(f"party {reply.party!r} did not say which features its columns became")
