"""A gaussian regression on raw columns in three rounds: everybody's second moments, then a path at the coordinator.

The coordinator learns exact sums and products of all columns and of the response, and no more; see
`mpc/masked_products.py` for how products of two parties' columns are opened, and `party/exact_sums.py` for which sums
would be as good as rows, and are not made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.glm.central_path import trace_central_path, without_questions
from verticopula.glm.second_moments import SecondMoments
from verticopula.glm.strength_path import RefitStopper
from verticopula.mpc.masked_products import open_pair, product_bits
from verticopula.protocol.messages import Reply, Request, payload_bytes
from verticopula.protocol.regression_messages import (
    CrossMomentsReply,
    CrossMomentsRequest,
    DesignReply,
    MomentsKeyReply,
    MomentsKeyRequest,
    MomentsReply,
    MomentsRequest,
)
from verticopula.protocol.regression_path import ChooseStrengths, FederatedPath, RegressionSettings, Traffic
from verticopula.protocol.shared_rounds import Rounds
from verticopula.schema.columns import ColumnKey

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
MomentsAnswer = TypeVar("MomentsAnswer", MomentsKeyReply, MomentsReply, CrossMomentsReply)


@dataclass(frozen=True)
class GatheredMoments:
    """What the rounds have brought.

    Attributes
    ----------
    moments : of all parties' columns side by side, the response last
    designs : each party's features
    traffic : what it cost
    """

    moments: SecondMoments
    designs: Mapping[str, DesignReply]
    traffic: Traffic


@dataclass
class _Meter:
    """Counts rounds and bytes of arrays."""

    rounds: int = 0
    bytes: int = 0

    def ask(self, requests: dict[str, Request]) -> Rounds[dict[str, Reply]]:
        replies = yield requests
        self.rounds += 1
        self.bytes += sum(payload_bytes(message) for message in (*requests.values(), *replies.values()))
        return replies


@dataclass(frozen=True)
class _Layout:
    """Which of all columns are whose: the parties' features side by side, then the response."""

    parties: tuple[str, ...]
    response: str
    widths: tuple[int, ...]  # of features, without the response
    places: Mapping[str, Ints] = field(init=False)

    def __post_init__(self) -> None:
        ends, total = np.cumsum([0, *self.widths]), sum(self.widths)
        places = {
            name: np.append(np.arange(start, end), [total] if name == self.response else []).astype(np.int64)
            for name, start, end in zip(self.parties, ends[:-1], ends[1:], strict=True)
        }
        object.__setattr__(self, "places", places)

    @property
    def size(self) -> int:
        return sum(self.widths) + 1


def gather_second_moments(
    parties: Sequence[str], response: ColumnKey, subjects: Bools, folds: Ints | None, study: str
) -> Rounds[GatheredMoments]:
    """Three rounds: public keys, everybody's own sums and masked columns, the terms of products of two parties.

    Parameters
    ----------
    parties : all of them, the response's too
    subjects : (N,) the cohort's subjects that the regression is about
    folds : (n,) number of the fold of each of them; None for one sum over all
    """
    meter = _Meter()
    replies = yield from meter.ask({name: MomentsKeyRequest(study) for name in parties})
    keys = tuple(_reply_of(name, replies, MomentsKeyReply).key for name in parties)
    asked = {
        name: MomentsRequest(study, response.column if name == response.party else None, subjects, folds, keys)
        for name in parties
    }
    replies = yield from meter.ask(dict(asked))
    parts = [np.arange(int(subjects.sum()))] if folds is None else _rows_of(folds)
    own = {name: _reply_of(name, replies, MomentsReply) for name in parties}
    layout = _Layout(tuple(parties), response.party, tuple(len(own[name].names) for name in parties))
    for name, reply in own.items():
        _check_own(reply, layout.places[name].size, len(parts), sum(map(len, parts)), len(parties))
    widths = tuple(layout.places[name].size for name in parties)
    replies = yield from meter.ask(
        {name: CrossMomentsRequest(study, asked[name], widths, _boxes_to(name, own)) for name in parties}
    )
    terms = {name: _reply_of(name, replies, CrossMomentsReply).terms for name in parties}
    if any(len(found) != len(parties) - 1 for found in terms.values()):
        raise ProtocolError("a party did not send its terms of the products with every other one")
    designs = {name: _design_of(reply, sum(map(len, parts))) for name, reply in own.items()}
    return GatheredMoments(_join(own, terms, layout, parts), designs, Traffic(meter.rounds, meter.bytes))


def moments_path(
    gathered: GatheredMoments, settings: RegressionSettings, strengths: ChooseStrengths, *, without: int | None = None
) -> FederatedPath:
    """The path over decreasing strengths, on all folds but one."""
    problem = gathered.moments.problem(fit_intercept=settings.fit_intercept, without=without)
    path, watch = strengths(problem.largest), RefitStopper(settings.refit, settings.family)
    tracing = trace_central_path(
        problem, settings.penalty, path, tolerance=settings.tolerance, watch=watch, end_early=settings.end_early
    )
    points = without_questions(tracing)
    ended_early = len(points) < len(path) or watch.came_to_perfect
    return FederatedPath(points, np.zeros((len(points), 0)), gathered.designs, ended_early, gathered.traffic)


def _join(
    own: Mapping[str, MomentsReply], terms: Mapping[str, tuple[Ints, ...]], layout: _Layout, parts: Sequence[Ints]
) -> SecondMoments:
    """All parties' moments side by side."""
    n_rows, size, folds = sum(map(len, parts)), layout.size, np.arange(len(parts))
    centre, scale, sums = np.zeros(size), np.zeros(size), np.zeros((len(parts), size))
    products = np.zeros((len(parts), size, size))
    for name, reply in own.items():
        here = layout.places[name]
        centre[here], scale[here], sums[:, here] = reply.centre, reply.scale, reply.sums
        products[np.ix_(folds, here, here)] = reply.products
    unit = 4.0 ** product_bits(n_rows)
    for (j, first), (k, second) in combinations(enumerate(layout.parties), 2):
        both = terms[first][k - 1], terms[second][j]
        block = open_pair((own[first].masked, own[second].masked), both, parts) / unit
        rows, columns = layout.places[first], layout.places[second]
        products[np.ix_(folds, rows, columns)] = block
        products[np.ix_(folds, columns, rows)] = block.transpose(0, 2, 1)
    if not np.abs(products).max() <= 2.0 * n_rows:
        raise ProtocolError("the parties' terms do not add up to sums of products of their columns")
    starts = np.concatenate([[0], *(own[n].starts[1:] + layout.places[n][:1].sum() for n in layout.parties)])
    counts = np.array([len(rows) for rows in parts], dtype=np.int64)
    return SecondMoments(counts, sums, products, centre, scale, starts.astype(np.int64))


def _design_of(reply: MomentsReply, n_rows: int) -> DesignReply:
    """A party's features as other regressions have them; groups of indicators count their varying ones."""
    varies = reply.scale[: len(reply.names)] > 0.0
    sizes = np.add.reduceat(varies, reply.starts[:-1]).astype(np.int64) if len(reply.names) else np.zeros(0, np.int64)
    return DesignReply(
        reply.party, n_rows, reply.names, reply.sources, reply.starts, np.maximum(sizes, 1), np.asarray(sizes == 0)
    )


def _rows_of(folds: Ints) -> list[Ints]:
    return [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]


def _boxes_to(receiver: str, own: Mapping[str, MomentsReply]) -> tuple[bytes, ...]:
    """What the others sealed for one party. A sender's boxes leave out itself."""
    names = list(own)
    place = names.index(receiver)
    return tuple(own[name].boxes[place - (sender < place)] for sender, name in enumerate(names) if name != receiver)


def _check_own(reply: MomentsReply, width: int, n_folds: int, n_rows: int, n_parties: int) -> None:
    """ProtocolError unless a party's sums have the shapes that were asked for, and are numbers."""
    floats = (reply.centre, reply.scale, reply.sums, reply.products)
    shapes = ((width,), (width,), (n_folds, width), (n_folds, width, width))
    good = all(values.shape == shape for values, shape in zip(floats, shapes, strict=True))
    good = good and all(bool(np.isfinite(values).all()) for values in floats) and bool((reply.scale >= 0.0).all())
    good = good and reply.masked.shape == (n_rows, width) and len(reply.boxes) == n_parties - 1
    good = good and reply.starts.shape == (len(reply.sources) + 1,) and reply.starts[0] == 0
    if not good or reply.starts[-1] != len(reply.names) or bool((np.diff(reply.starts) < 1).any()):
        raise ProtocolError(f"party {reply.party!r} did not answer with the moments of its columns")


def _reply_of(name: str, replies: Mapping[str, Reply], kind: type[MomentsAnswer]) -> MomentsAnswer:
    reply = replies.get(name)
    if not isinstance(reply, kind) or reply.party != name:
        raise ProtocolError(f"party {name!r} did not answer the request for second moments")
    return reply
