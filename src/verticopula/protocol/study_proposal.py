"""The proposal of a study: a public function of the federation file, the settings, and who is observed where.

The coordinator makes it and every party computes it again from its own federation file. What the coordinator says and
nobody can compute is who asks, why, and how many subjects other parties have; the last is signed by those parties.
Its numbers come out the same on every machine, and a party compares them exactly. A calibration is a bisection that
stops long before the last digits, where machines differ; all else is addition, multiplication, division and square
roots, which the floating-point standard defines to the last bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.privacy.budget import BUDGET_TERMS, StudyBudget, plan_budget
from verticopula.protocol.confusables import has_disallowed_script
from verticopula.protocol.consent_messages import PresenceReply, SignedPresence, StudyProposal
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.strict_messages import GaussianMarginsReply
from verticopula.protocol.study_messages import SignedAsking
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import federation_fingerprint as federation_fingerprint
from verticopula.schema.methods import (
    METHODS,
    MOMENTS_VARIANT,
    OWN_VARIANT,
    PRINTED_VARIANT,
    RAW_REGRESSION,
    find_method,
    tells_presence_by_party,
)
from verticopula.schema.setting_choices import EXACT_SAMPLER, SAMPLERS
from verticopula.schema.study_settings import check_moments_roles
from verticopula.stats.strict.noise_budget import StrictBudget, is_base, plan_strict_budget

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_NONE = np.empty(0, dtype=np.float64)
_LONGEST_NAME = 200
_LONGEST_PURPOSE = 500
_BLANK = "\u00a0\u200c\u200d\u3000"  # wide blanks, and joiners that some scripts are written with
MOST_ROUNDS = 1000


@dataclass(frozen=True)
class StudyContext:
    """What a proposal says besides numbers.

    Attributes
    ----------
    requester, purpose : who asks, and why
    alignment, cohort : how rows of one person were found, and the digest of the cohort's list; "" in one process
    seed : of everybody's noise, in a simulation over members; None otherwise
    """

    requester: str = ""
    purpose: str = ""
    alignment: str = ""
    cohort: str = ""
    seed: int | None = None


NO_CONTEXT = StudyContext()  # a study in one process, where nobody says who asks


# ---- making it -----------------------------------------------------------------------------------


def propose(
    federation: Federation,
    budget: StudyBudget,
    study: str,
    method: str,
    presence: tuple[SignedPresence, ...],
    n_subjects: int,
    context: StudyContext,
    variant: str = OWN_VARIANT,
) -> StudyProposal:
    """The proposal of a study by a method that adds noise."""
    counts = _counts(federation, presence)
    ranks, marginals, deviations, mu = plan_numbers(federation, budget, method, counts, n_subjects)
    return StudyProposal(
        study=study,
        method=method,
        requester=context.requester,
        purpose=context.purpose,
        **budget.terms,
        alignment=context.alignment,
        cohort=context.cohort,
        federation=federation_fingerprint(federation),
        seed=context.seed,
        n_subjects=n_subjects,
        presence=presence,
        ranks=ranks,
        marginals=marginals,
        deviations=deviations,
        mu=mu,
        subjects=None,
        variant=variant,
    )


def propose_raw(
    federation: Federation,
    study: str,
    presence: tuple[SignedPresence, ...],
    subjects: Bools,
    context: StudyContext,
    variant: str = OWN_VARIANT,
) -> StudyProposal:
    """The proposal of a regression on raw columns: exact values of these subjects, or their second moments."""
    return StudyProposal(
        study=study,
        method=RAW_REGRESSION,
        requester=context.requester,
        purpose=context.purpose,
        unit="",
        epsilon_ranks=np.inf,
        epsilon_marginals=np.inf,
        delta=None,
        sampler=EXACT_SAMPLER,
        rounds=1,
        per_round=False,
        alignment=context.alignment,
        cohort=context.cohort,
        federation=federation_fingerprint(federation),
        seed=context.seed,
        n_subjects=int(subjects.size),
        presence=presence,
        ranks=_NONE,
        marginals=_NONE,
        deviations=_NONE,
        mu=_NONE,
        subjects=subjects,
        variant=variant,
    )


@dataclass(frozen=True)
class Presence:
    """What a party says about who is known to it.

    Attributes
    ----------
    mask : (N, p_k) observed cells; (N, 1) in a strict study: those whom the party has a value of
    counts : per column, how many of them
    is_told_to_all : whether all parties get the mask; otherwise the coordinator alone does
    """

    mask: Bools
    counts: tuple[int, ...]
    is_told_to_all: bool


def reported_presence(observed: Bools, method: str) -> Presence:
    """What a party with these observed cells says in a study by that method."""
    if not tells_presence_by_party(method):
        return Presence(observed, presence_counts(observed), is_told_to_all=False)
    known = np.asarray(observed.any(axis=1))
    return Presence(known[:, None], (int(known.sum()),) * observed.shape[1], is_told_to_all=True)


def sign_presences(
    federation: Federation, replies: Mapping[str, PresenceReply], method: str
) -> tuple[SignedPresence, ...]:
    """What the parties signed about their masks, in the federation's order."""
    found = []
    for party in federation.parties:
        reply = replies[party.name]
        counts = presence_counts(reply.observed)
        if tells_presence_by_party(method):
            counts *= len(party.columns)
        found.append(SignedPresence(party.name, counts, mask_digest(reply.observed, reply.salt), reply.signature))
    return tuple(found)


# ---- checking it -----------------------------------------------------------------------------------


def check_proposal(federation: Federation, proposal: StudyProposal) -> None:
    """ProtocolError unless the proposal's numbers are those that this federation file and these settings give."""
    if not 1 <= proposal.rounds <= MOST_ROUNDS:
        raise ProtocolError(f"a study has 1 to {MOST_ROUNDS} rounds")
    if proposal.federation != federation_fingerprint(federation):
        raise ProtocolError("the proposal follows from another federation file than this party's own")
    names = tuple(party.name for party in federation.parties)
    widths = tuple(len(party.columns) for party in federation.parties)
    if tuple(p.party for p in proposal.presence) != names or tuple(len(p.counts) for p in proposal.presence) != widths:
        raise ProtocolError("the proposal is about other parties or columns than this party's federation file")
    if any(not 0 <= count <= proposal.n_subjects for p in proposal.presence for count in p.counts):
        raise ProtocolError("the proposal has more observed subjects than the cohort has")
    if tells_presence_by_party(proposal.method) and any(len(set(p.counts)) != 1 for p in proposal.presence):
        raise ProtocolError(f"in a study by {proposal.method!r} all columns of a party are about the same people")
    check_requester_and_purpose(proposal.requester, proposal.purpose)
    if proposal.method == RAW_REGRESSION and proposal.variant in (OWN_VARIANT, MOMENTS_VARIANT):
        subjects = proposal.subjects
        if subjects is None or subjects.shape != (proposal.n_subjects,) or proposal.rounds != 1:
            raise ProtocolError("the proposal does not say whose exact values it asks for")
        if proposal.variant == MOMENTS_VARIANT:
            _check_moments_roles(federation)
        return
    if proposal.method not in METHODS or proposal.subjects is not None:
        raise ProtocolError("the proposal names a method that does not exist")
    _check_variant(proposal)
    budget = budget_of(federation, proposal)
    counts = tuple(_counts(federation, proposal.presence).values())
    expected = _recomputed(federation, tuple(budget.terms.items()), proposal.method, counts, proposal.n_subjects)
    said = (proposal.ranks, proposal.marginals, proposal.deviations, proposal.mu)
    if not all(np.array_equal(one, other) for one, other in zip(said, expected, strict=True)):
        raise ProtocolError(
            "the proposal's noise is not what its settings and this party's federation file give "
            "(all parties and the coordinator need the same version of verticopula)"
        )


def _check_moments_roles(federation: Federation) -> None:
    try:
        check_moments_roles(federation)
    except SettingsError as error:
        raise ProtocolError(f"this federation has no such study: {error}") from None


def check_study_name(party: str, study: str) -> None:
    """ProtocolError of that party unless the name can be shown and stored."""
    if not 1 <= len(study) <= _LONGEST_NAME or not study.isprintable():
        raise ProtocolError(f"party {party!r}: a study's name has 1 to {_LONGEST_NAME} printable characters")


def _check_variant(proposal: StudyProposal) -> None:
    """ProtocolError unless there is this variant of the method, with this sampler and unit."""
    method = find_method(proposal.method)
    if proposal.variant not in method.variants:
        raise ProtocolError("the proposal names a variant that its method does not have")
    units = [unit.value for unit in method.units_of(proposal.variant)]
    if proposal.variant == PRINTED_VARIANT and (proposal.sampler != EXACT_SAMPLER or proposal.unit not in units):
        raise ProtocolError("the proposal's variant does not have this sampler or unit")


def check_requester_and_purpose(requester: str, purpose: str, *more: str) -> None:
    """ProtocolError where a steward would have too much to read, or could be shown something else."""
    said = (requester, purpose, *more)
    if max(map(len, said)) > _LONGEST_PURPOSE:
        raise ProtocolError(f"who asks and why is said in at most {_LONGEST_PURPOSE} characters each")
    if not all(character.isprintable() or character in _BLANK for character in "".join(said)):
        raise ProtocolError("who asks and why is one line each, without control characters")
    if any(map(has_disallowed_script, said)):
        raise ProtocolError("who asks and why is said in letters in wide use, each word in those of one alphabet")


def budget_of(federation: Federation, proposal: StudyProposal) -> StudyBudget:
    """The budget that the proposal's settings ask for; ProtocolError where they make no sense."""
    if proposal.rounds > 1 and not find_method(proposal.method).repeats_ranks:
        raise ProtocolError("the proposal has several rounds, but its method ranks once")
    if proposal.sampler not in SAMPLERS:  # not `auto` either: a party consents to one of them
        what = f"unknown sampler {proposal.sampler!r}; known: {', '.join(SAMPLERS)}"
        raise ProtocolError(f"the proposal's settings make no sense: {what}")
    try:
        return StudyBudget.build(federation, epsilon=None, **{name: getattr(proposal, name) for name in BUDGET_TERMS})
    except SettingsError as error:
        raise ProtocolError(f"the proposal's settings make no sense: {error}") from None


def strict_budget_of(federation: Federation, proposal: StudyProposal) -> StrictBudget:
    """The budget of a strict study, as this party computes it."""
    counts = _counts(federation, proposal.presence)
    return plan_strict_budget(federation, budget_of(federation, proposal), counts, proposal.n_subjects)


def own_columns_of(proposal: StudyProposal, party: str) -> slice:
    """Where a party's columns are among all."""
    start = 0
    for presence in proposal.presence:
        if presence.party == party:
            return slice(start, start + len(presence.counts))
        start += len(presence.counts)
    raise ProtocolError(f"the proposal does not name party {party!r}")


def are_rows_agreed(alignment: str) -> bool:
    """Whether the parties know which rows are one person's; with masked points only the coordinator knows."""
    return alignment != "psi"


def own_place_of(proposal: StudyProposal, party: str) -> int:
    """Which of the proposal's parties this one is."""
    return [presence.party for presence in proposal.presence].index(party)


# ---- what is signed -----------------------------------------------------------------------------------


def presence_counts(observed: Bools) -> tuple[int, ...]:
    """Observed subjects per column."""
    return tuple(int(np.count_nonzero(column)) for column in observed.T)


def mask_digest(observed: Bools, salt: bytes = b"") -> str:
    """A digest of who is observed where; `salt` is for those who are not to find that out from the digest."""
    shape = f"{observed.shape[0]}x{observed.shape[1]}:".encode()
    return hashlib.sha256(salt + shape + np.packbits(np.ascontiguousarray(observed)).tobytes()).hexdigest()


def presence_statement(study: str, party: str, counts: Sequence[int], mask: str) -> bytes:
    """What a party signs about its mask."""
    return fingerprint(("presence", study, party, tuple(counts), mask)).encode()


def points_statement(study: str, federation: str, masked_by: Sequence[str], count: int, digest: str) -> bytes:
    """What a party signs about points that it has masked; `federation` is the file's fingerprint."""
    return fingerprint(("points", study, federation, tuple(masked_by), int(count), digest)).encode()


def consent_statement(party: str, proposal: str, until: float) -> bytes:
    """What a party signs when it consents; `proposal` is the proposal's fingerprint."""
    return fingerprint(("consent", party, proposal, float(until))).encode()


def asking_statement(federation: str, method: str, requester: str, purpose: str, asking: SignedAsking) -> bytes:
    """What the study lead signs; `federation` is the file's fingerprint."""
    own = (asking.lead, asking.token, asking.contact, asking.use)
    return fingerprint(("asking", federation, method, requester, purpose, *own)).encode()


def margins_statement(proposal: str, reply: GaussianMarginsReply) -> bytes:
    """What a party signs about its noisy margins; `proposal` is the proposal's fingerprint."""
    return fingerprint(("margins", proposal, reply.party, reply.cells)).encode()


# ---- numbers -----------------------------------------------------------------------------------


def _counts(federation: Federation, presence: Sequence[SignedPresence]) -> dict[ColumnKey, int]:
    return dict(zip(federation.keys, (count for p in presence for count in p.counts), strict=True))


def plan_numbers(
    federation: Federation,
    budget: StudyBudget,
    method: str,
    counts: Mapping[ColumnKey, int],
    n_subjects: int,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Ranks, marginals, deviations and mu of a proposal with this budget."""
    if find_method(method).ranks:
        plan = plan_budget(federation, budget, counts, n_subjects)
        ranks = np.array([plan[key].epsilon_ranks for key in federation.keys])
        return ranks, np.array([plan[key].epsilon_marginal for key in federation.keys]), _NONE, _NONE
    strict = plan_strict_budget(federation, budget, counts, n_subjects)
    limits = strict.limits([party.name for party in federation.parties])
    base = [is_base(counts[ColumnKey(party.name, party.columns[0].name)], n_subjects) for party in federation.parties]
    selection = [split.selection if here else 0.0 for split, here in zip(limits, base, strict=True)]
    mu = np.array([[split.gram for split in limits], [split.tables for split in limits], selection])
    return _NONE, _NONE, np.array([strict.deviations[key] for key in federation.keys]), mu


@lru_cache(maxsize=4)
def _recomputed(
    federation: Federation,
    terms: tuple[tuple[str, Any], ...],
    method: str,
    counts: tuple[int, ...],
    n_subjects: int,
) -> tuple[Floats, Floats, Floats, Floats]:
    """A party's own numbers. Parties of one process compute the same, and a calibration takes a second."""
    budget = StudyBudget.build(federation, epsilon=None, **dict(terms))
    known = dict(zip(federation.keys, counts, strict=True))
    return plan_numbers(federation, budget, method, known, n_subjects)
