"""The rounds that all protocols share: who is observed, does everybody agree, then the releases."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import overlap_problems, summarise_missingness
from verticopula.errors import ProtocolError, SchemaError
from verticopula.privacy.budget import ColumnBudget, StudyBudget, plan_budget
from verticopula.protocol.messages import (
    ColumnQuery,
    ColumnRelease,
    ConsentReply,
    ConsentRequest,
    PresenceReply,
    PresenceRequest,
    ReleaseReply,
    ReleaseRequest,
    Reply,
    Request,
)
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.schema.methods import find_method
from verticopula.stats.copula import Layout, latent_count
from verticopula.stats.marginals import Marginal, cell_count
from verticopula.stats.rank_release import CollectedReleases, Masks, RankRelease

Result = TypeVar("Result")
Rounds = Generator[dict[str, Request], dict[str, Reply], Result]


def collect(federation: Federation, budget: StudyBudget, study: str, method: str) -> Rounds[CollectedReleases]:
    """Three rounds: who is observed where, whether everybody agrees, then every party's releases.

    The second round spends nothing: if one party refuses, no other has released anything yet. It
    asks about all rounds of the protocol at once.
    """
    replies = yield {p.name: PresenceRequest(study, method) for p in federation.parties}
    observed = gather_presence(federation, replies)
    counts = {key: int(mask.sum()) for key, mask in observed.items()}
    missingness = summarise_missingness(observed)
    apart = overlap_problems(missingness.never_together) if find_method(method).needs_overlap else []
    if apart:
        raise SchemaError(apart)
    budgets = plan_budget(federation, budget, counts, missingness.n_subjects)
    orders = {
        party.name: ReleaseRequest(
            study,
            method,
            budget.sampler,
            tuple(
                ColumnQuery(c.name, budgets[key].epsilon_ranks, budgets[key].epsilon_marginal)
                for c in party.columns
                for key in [ColumnKey(party.name, c.name)]
            ),
        )
        for party in federation.parties
    }
    replies = yield {name: ConsentRequest(order, budget.rounds) for name, order in orders.items()}
    for name in orders:
        if not isinstance(replies.get(name), ConsentReply):
            raise ProtocolError(f"party {name!r} did not agree to the releases asked of it")
    replies = yield dict(orders)
    releases = gather_releases(federation, replies, observed, budgets)
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    marginals = {
        key: Marginal.from_release(
            federation.column(key), releases[key].cells, counts[key], budgets[key].epsilon_marginal
        )
        for key in layout.keys
    }
    ranks = {key: release.ranks for key, release in releases.items()}
    released = RankRelease.build(layout, marginals, observed, ranks, budgets, budget.sampler)
    return CollectedReleases(released, observed, missingness, budgets)


def gather_presence(federation: Federation, replies: Mapping[str, Reply]) -> dict[ColumnKey, NDArray[np.bool_]]:
    """Masks by column, checked for shape."""
    masks: dict[ColumnKey, NDArray[np.bool_]] = {}
    sizes: set[int] = set()
    for party in federation.parties:
        reply = replies[party.name]
        if not isinstance(reply, PresenceReply) or reply.observed.ndim != 2:
            raise ProtocolError(f"party {party.name!r} did not answer who is observed")
        if reply.observed.shape[1] != len(party.columns):
            raise ProtocolError(f"party {party.name!r} answered for a different number of columns")
        sizes.add(reply.observed.shape[0])
        masks |= {ColumnKey(party.name, c.name): reply.observed[:, i] for i, c in enumerate(party.columns)}
    if len(sizes) != 1:
        raise ProtocolError("the parties answered for cohorts of different sizes")
    return masks


def gather_releases(
    federation: Federation,
    replies: Mapping[str, Reply],
    observed: Masks,
    budgets: Mapping[ColumnKey, ColumnBudget],
) -> dict[ColumnKey, ColumnRelease]:
    """Releases by column, checked for shape and range before anything is computed from them."""
    releases: dict[ColumnKey, ColumnRelease] = {}
    for party in federation.parties:
        reply = replies[party.name]
        if not isinstance(reply, ReleaseReply):
            raise ProtocolError(f"party {party.name!r} did not answer with releases")
        for release in reply.columns:
            releases[ColumnKey(party.name, release.column)] = release
    for key in federation.keys:
        release_or_none = releases.get(key)
        n = int(observed[key].sum())
        cells = cell_count(federation.column(key), n, budgets[key].epsilon_marginal)
        if release_or_none is None or release_or_none.cells.shape != (cells,):
            raise ProtocolError(f"{key}: the release is missing or has the wrong shape or range")
        check_ranks(federation, key, release_or_none.ranks, n)
    return releases


def check_ranks(federation: Federation, key: ColumnKey, ranks: NDArray[np.int64], n: int) -> None:
    """ProtocolError unless these can be noisy ranks of n subjects in that column."""
    width = latent_count(federation.column(key))
    if ranks.shape != (n, width) or (n > 0 and (ranks.min() < 1 or ranks.max() > n)):
        raise ProtocolError(f"{key}: the release is missing or has the wrong shape or range")
