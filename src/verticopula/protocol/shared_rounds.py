"""The rounds that all protocols share: who is observed, does everybody consent, then the releases."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import overlap_problems, summarise_missingness
from verticopula.data.scratch_file import forget_pages
from verticopula.errors import ProtocolError, SchemaError
from verticopula.privacy.budget import ColumnBudget, StudyBudget
from verticopula.protocol.consent_messages import (
    AgreementReply,
    AgreementRequest,
    ConsentReply,
    ConsentRequest,
    PresenceReply,
    PresenceRequest,
    SignedConsent,
    SignedPresence,
    StudyProposal,
)
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.rank_messages import ColumnQuery, ColumnRelease, ReleaseReply, ReleaseRequest
from verticopula.protocol.study_proposal import NO_CONTEXT, StudyContext, propose, sign_presences
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import find_method, tells_presence_by_party
from verticopula.stats.copula import Layout, latent_count
from verticopula.stats.margin_cells import cell_count
from verticopula.stats.marginals import Marginal
from verticopula.stats.rank_release import CollectedReleases, Masks, RankRelease
from verticopula.stats.sampler_choice import choose_sampler

Result = TypeVar("Result")
Rounds = Generator[dict[str, Request], dict[str, Reply], Result]


def collect(
    federation: Federation, budget: StudyBudget, study: str, method: str, context: StudyContext = NO_CONTEXT
) -> Rounds[CollectedReleases]:
    """Four rounds: who is observed where, whether everybody consents, that everybody has, then the releases.

    Only the last spends anything. Consent is asked for all rounds of the protocol at once.
    """
    observed, presence = yield from ask_presence(federation, study, method)
    counts = {key: int(mask.sum()) for key, mask in observed.items()}
    missingness = summarise_missingness(observed)
    apart = overlap_problems(missingness.never_together) if find_method(method).needs_overlap else []
    if apart:
        raise SchemaError(apart)
    budget = choose_sampler(federation, budget, counts, missingness.n_subjects)
    proposal = propose(federation, budget, study, method, presence, missingness.n_subjects, context)
    yield from ask_consent(federation, proposal)
    budgets = {
        key: ColumnBudget(float(ranks), float(margin))
        for key, ranks, margin in zip(federation.keys, proposal.ranks, proposal.marginals, strict=True)
    }
    replies = yield {
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
    releases = gather_releases(federation, replies, observed, budgets)
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    margins = {
        key: Marginal.from_release(
            federation.column(key), releases[key].cells, counts[key], budgets[key].epsilon_marginal
        )
        for key in layout.keys
    }
    ranks = {key: release.ranks for key, release in releases.items()}
    release = RankRelease.build(layout, margins, observed, ranks, budgets, budget.sampler)
    return CollectedReleases(release, observed, missingness, budgets)


def ask_presence(
    federation: Federation, study: str, method: str
) -> Rounds[tuple[dict[ColumnKey, NDArray[np.bool_]], tuple[SignedPresence, ...]]]:
    """One round: who is observed where, and what every party signed about it.

    In a strict study all columns of a party are about those whom it knows: what is empty among them is private.
    """
    replies = yield {p.name: PresenceRequest(study, method) for p in federation.parties}
    observed = gather_presence(federation, replies, method)
    signed = {name: reply for name, reply in replies.items() if isinstance(reply, PresenceReply)}
    return observed, sign_presences(federation, signed, method)


def ask_consent(federation: Federation, proposal: StudyProposal) -> Rounds[None]:
    """Two rounds that spend nothing: everybody's consent, and everybody's consent shown to everybody."""
    replies = yield {party.name: ConsentRequest(proposal) for party in federation.parties}
    consents = []
    for party in federation.parties:
        reply = replies.get(party.name)
        if not isinstance(reply, ConsentReply):
            raise ProtocolError(f"party {party.name!r} did not consent to the study")
        consents.append(SignedConsent(party.name, reply.until, reply.signature))
    shown = AgreementRequest(proposal.study, proposal.method, tuple(consents))
    replies = yield {party.name: shown for party in federation.parties}
    for party in federation.parties:
        if not isinstance(replies.get(party.name), AgreementReply):
            raise ProtocolError(f"party {party.name!r} did not accept the others' consent")


def gather_presence(
    federation: Federation, replies: Mapping[str, Reply], method: str = ""
) -> dict[ColumnKey, NDArray[np.bool_]]:
    """Masks by column, checked for shape."""
    masks: dict[ColumnKey, NDArray[np.bool_]] = {}
    sizes: set[int] = set()
    by_party = tells_presence_by_party(method)
    for party in federation.parties:
        reply = replies[party.name]
        if not isinstance(reply, PresenceReply) or reply.observed.ndim != 2:
            raise ProtocolError(f"party {party.name!r} did not answer who is observed")
        width = 1 if by_party else len(party.columns)
        if reply.observed.shape[1] != width:
            raise ProtocolError(f"party {party.name!r} answered for a different number of columns")
        sizes.add(reply.observed.shape[0])
        own = _share_masks([np.ascontiguousarray(mask) for mask in reply.observed.T])
        for index, column in enumerate(party.columns):
            masks[ColumnKey(party.name, column.name)] = own[0 if by_party else index]
    if len(sizes) != 1:
        raise ProtocolError("the parties answered for cohorts of different sizes")
    return masks


def _share_masks(masks: list[NDArray[np.bool_]]) -> list[NDArray[np.bool_]]:
    """The same masks; equal ones are one array."""
    shared: list[NDArray[np.bool_]] = []
    for mask in masks:
        shared.append(next((known for known in shared if np.array_equal(known, mask)), mask))
    return shared


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
        forget_pages(release_or_none.ranks)
    return releases


def check_ranks(federation: Federation, key: ColumnKey, ranks: NDArray[Any], n: int) -> None:
    """ProtocolError unless these can be noisy ranks of n subjects in that column."""
    width = latent_count(federation.column(key))
    if ranks.shape != (n, width) or (n > 0 and (ranks.min() < 1 or ranks.max() > n)):
        raise ProtocolError(f"{key}: the release is missing or has the wrong shape or range")
