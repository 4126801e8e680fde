"""What begins and closes a study over separate parties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.schema.setting_choices import Alignment


@dataclass(frozen=True)
class SignedAsking:
    """Who asks for a study, with their signature: the coordinator passes it on, and cannot make one.

    Attributes
    ----------
    lead : the study lead's name, which is that of the certificate
    token : the lead's own name for this study; a party takes part in one study of each
    contact, use : how to reach the lead, and what the tables will be used for, in their own words
    signature : of `study_proposal.asking_statement`
    """

    lead: str
    token: str
    contact: str
    use: str
    signature: bytes


@dataclass(frozen=True)
class BeginRequest:
    """Will you take part in this study, and who are your subjects? Nothing is drawn.

    Attributes
    ----------
    federation : fingerprint of the coordinator's federation file; the party compares it with its own
    seed : for simulations, and then nothing is private; None otherwise
    witness_count, witness_head : what the coordinator last saw of this party's ledger; 0 for nothing
    requester, purpose : who asks, and why, in their own words
    asking : the lead's signature of that; None in a study that no lead has signed
    """

    LATER = ("asking",)
    WIRE_NAME = "OpenRequest"  # its name in stored and sent messages

    study: str
    method: str
    federation: str
    alignment: Alignment
    seed: int | None
    witness_count: int
    witness_head: str
    requester: str = ""
    purpose: str = ""
    version: int = MESSAGE_VERSION
    asking: SignedAsking | None = None


@dataclass(frozen=True)
class SignedPoints:
    """Who vouches for a list of points: the party that has masked it last.

    Attributes
    ----------
    masked_by : whose points they are, and who else has masked them, in this order
    count, digest : how many points, and a digest of them in their order
    signature : of `study_proposal.points_statement`, by the last of `masked_by`
    """

    masked_by: tuple[str, ...]
    count: int
    digest: str
    signature: bytes


@dataclass(frozen=True)
class BeginReply:
    """Yes, and keyed hashes of the subject ids; for alignment `psi`, points that the party has masked.

    Attributes
    ----------
    key_check : (32,) equal where two parties hold the same id key; zeros for `psi`, which needs none
    hashes : (n_k, 16), or (n_k, 32) points, in the order of their bytes; in the table's only in a seeded study
    keeps_block : the party keeps its synthetic block to itself
    ledger_count, ledger_head : where its ledger ends
    signature : of its points (`SignedPoints`); empty for `hash`
    """

    WIRE_NAME = "OpenReply"  # its name in stored and sent messages

    LATER = ("signature",)

    party: str
    key_check: NDArray[np.uint8]
    hashes: NDArray[np.uint8]
    keeps_block: bool
    ledger_count: int
    ledger_head: str
    version: int = MESSAGE_VERSION
    signature: bytes = b""


@dataclass(frozen=True)
class MaskRequest:
    """Mask these points too: party `origin`'s subjects, in its order. Only in a study aligned by `psi`.

    `signed` : whose points they are; `cohort` : of the response party's own list, whose length is the cohort's size
    """

    LATER = ("signed", "cohort")

    study: str
    origin: str
    points: NDArray[np.uint8]
    version: int = MESSAGE_VERSION
    signed: SignedPoints | None = None
    cohort: SignedPoints | None = None


@dataclass(frozen=True)
class MaskReply:
    """(n, 32) the same points, masked by this party too, and its signature of them (`SignedPoints`)."""

    LATER = ("signature",)

    party: str
    origin: str
    points: NDArray[np.uint8]
    version: int = MESSAGE_VERSION
    signature: bytes = b""


@dataclass(frozen=True)
class PlaceRequest:
    """Your i-th hash is subject `positions[i]` of a cohort of `n_subjects`.

    `hashes` : (n_subjects, 16) the cohort's own list, of keyed hashes or of points that all parties have masked
    """

    study: str
    n_subjects: int
    positions: NDArray[np.int64]
    hashes: NDArray[np.uint8]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PlaceReply:
    """The party's table is in the cohort's order now; `cohort` is the digest of the list that it has checked."""

    party: str
    n_subjects: int
    cohort: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class BlockRequest:
    """Your own synthetic block, for you to write down: values, or category codes, in the schema's column order."""

    study: str
    columns: tuple[str, ...]
    values: tuple[NDArray[np.float64], ...]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class BlockReply:
    """Written, with so many rows; 0 where the party wants no synthetic block."""

    party: str
    rows: int
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CloseRequest:
    """Nothing more is asked in this study. Where does your ledger end?"""

    study: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CloseReply:
    """There. The coordinator shows it at the next study, so that a ledger put back from a copy is noticed."""

    party: str
    ledger_count: int
    ledger_head: str
    version: int = MESSAGE_VERSION


StudyRequest = BeginRequest | MaskRequest | PlaceRequest | BlockRequest | CloseRequest
StudyReply = BeginReply | MaskReply | PlaceReply | BlockReply | CloseReply
