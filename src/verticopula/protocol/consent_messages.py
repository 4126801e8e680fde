"""What travels before anything is released: who is observed, what is proposed, and everybody's consent to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.schema.methods import OWN_VARIANT


@dataclass(frozen=True)
class PresenceRequest:
    """Who is known to you, column by column, or in a strict study at all? (Public in this setting.)"""

    study: str
    method: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PresenceReply:
    """Who is known to the party, and its signature of that.

    Attributes
    ----------
    observed : (N, p_k) mask over the cohort, in the schema's column order; (N, 1) in a strict study, where an empty
        value of somebody whom the party knows is private
    salt : goes into the digest of the mask that other parties are shown, who do not get it: they could find a mask
        with few gaps by trying; empty in a strict study, where everybody gets the mask
    """

    party: str
    observed: NDArray[np.bool_]
    signature: bytes
    salt: bytes = b""
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class SignedPresence:
    """How many subjects each of a party's columns has, and the digest of its mask, signed by the party.

    Attributes
    ----------
    counts : observed subjects per column, in the schema's order; in a strict study all those whom the party knows
    mask : hexadecimal digest of the mask, with a salt that other parties do not know
    signature : of `study_proposal.presence_statement`
    """

    party: str
    counts: tuple[int, ...]
    mask: str
    signature: bytes


@dataclass(frozen=True)
class StudyProposal:
    """Everything that would be released in a study, at which price, asked by whom and why. The same for all parties.

    Attributes
    ----------
    requester, purpose : who asks, and why, in their own words
    unit, epsilon_ranks, epsilon_marginals, delta, sampler, rounds, per_round : as in `StudyBudget`; a regression on
        raw columns has the unit "" and infinite epsilons
    alignment, cohort : how rows of one person were found ("" in one process), and the digest of the cohort's list
    federation : fingerprint of the federation file
    seed : of everybody's noise in a simulation, which is then no protection; None otherwise
    n_subjects : size of the cohort
    presence : in the order of the federation's parties
    ranks, marginals : (p,) epsilon of every column's ranks in a round, and of its marginal; empty where there is none
    deviations : (p,) standard deviation of the noise on a column's cell counts; empty unless the method is strict
    mu : (3, K) what the first opening, the tables and the features by presence may cost a person's block at each
        party at most; (0,) likewise
    subjects : (N,) whose exact values a regression on raw columns asks for; None for other methods
    variant : which algorithm the method's name stands for (`schema/methods.py`)

    Notes
    -----
    It repeats the budget's terms (`privacy.budget.BUDGET_TERMS`) and does not hold `StudySettings`: those are what a
    lead asks for, with defaults that depend on the version. A steward signs resolved numbers.
    Fields in `LATER` came after the first release. Where they hold their default they are neither sent nor hashed, so
    consents that older versions signed and stored stay what they were.
    """

    LATER = ("variant",)

    study: str
    method: str
    requester: str
    purpose: str
    unit: str
    epsilon_ranks: float
    epsilon_marginals: float
    delta: float | None
    sampler: str
    rounds: int
    per_round: bool
    alignment: str
    cohort: str
    federation: str
    seed: int | None
    n_subjects: int
    presence: tuple[SignedPresence, ...]
    ranks: NDArray[np.float64]
    marginals: NDArray[np.float64]
    deviations: NDArray[np.float64]
    mu: NDArray[np.float64]
    subjects: NDArray[np.bool_] | None
    variant: str = OWN_VARIANT


@dataclass(frozen=True)
class ConsentRequest:
    """Do you consent to this study? Nothing is drawn or charged."""

    proposal: StudyProposal
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ConsentReply:
    """Yes, signed: it is bound to the proposal's digest. (A no is an error with a reason.)

    `until` : when the consent ends, in seconds since 1970
    """

    party: str
    until: float
    signature: bytes
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class SignedConsent:
    """One party's yes, and when it ends, as it signed them."""

    party: str
    until: float
    signature: bytes


@dataclass(frozen=True)
class AgreementRequest:
    """Here is everybody's yes. Releases may begin."""

    study: str
    method: str
    consents: tuple[SignedConsent, ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class AgreementReply:
    """The party has seen everybody's consent to the proposal that it consented to."""

    party: str
    version: int = MESSAGE_VERSION


AgreementMessage = PresenceRequest | ConsentRequest | AgreementRequest
AgreementAnswer = PresenceReply | ConsentReply | AgreementReply
