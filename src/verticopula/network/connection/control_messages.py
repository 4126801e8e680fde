"""Control messages: handshake, progress, refusals, changes of the federation file, the study lead's requests; and the
envelope of every message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.study_messages import SignedAsking
from verticopula.schema.setting_choices import Alignment

Topic = Literal["hello", "welcome", "ask", "working", "answer", "refusal", "parts", "want", "part"]
CHANGE_NAME = "the federation file"  # where a request to stewards has the name of a study


@dataclass(frozen=True)
class Envelope:
    """The envelope of one message.

    Attributes
    ----------
    session : the receiver's own session number, which it told the sender; empty in a hello
    serial : counts the sender's messages within that session; none is accepted twice
    key : of the request; its reply or refusal carries the same
    """

    topic: Topic
    session: str
    serial: int
    key: str
    body: NDArray[np.uint8]
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class Greeting:
    """The body of a hello or a welcome: messages to the sender must carry this session number.

    `software` is the sender's release of this package, for the other side's log.
    """

    session: str
    software: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class InProgress:
    """Your request is being processed, or waits for the stewards' consent.

    After they have decided a party says `computation` once more, so that the request is sent again.

    `since` : when its stewards were asked, in seconds since 1970; 0 where they are not
    """

    LATER = ("since",)
    WIRE_NAME = "Working"  # its name in stored and sent messages

    waits_for: Literal["computation", "steward"]
    version: int = MESSAGE_VERSION
    since: float = 0.0


@dataclass(frozen=True)
class Refusal:
    """No, for this reason; `kind` names an exception of `verticopula.errors`."""

    kind: str
    reason: str
    version: int = MESSAGE_VERSION


# ---- a new federation file --------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangeRequest:
    """Does your organisation agree to this federation file? Its stewards are asked, and say so.

    Attributes
    ----------
    signed : the file, signed by the federation's authority
    in_force : whether everybody who stays has agreed: from now on studies begin with it
    """

    signed: bytes
    in_force: bool
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ChangeReply:
    """Yes, we agree.

    Attributes
    ----------
    digest : of the whole file that is agreed to
    in_force : whether studies begin with it here
    federation, federation_version : fingerprint and version of the file that studies begin with here
    """

    party: str
    digest: str
    in_force: bool
    federation: str
    federation_version: int
    version: int = MESSAGE_VERSION


# ---- between the study lead and the coordinator -----------------------------------------------------


@dataclass(frozen=True)
class SubmitRequest:
    """Run this study. `settings` is JSON: the arguments of Synthesizer or VerticalGLM, by name.

    `requester`, `purpose` : who asks, and why; every party's steward sees it
    `asking` : the lead's signature of that, for the parties
    `conditions` : what all synthetic rows are to have, each `party.column=value`
    `missing` : gaps in synthetic tables, as `Synthesizer.sample` has them; "" for what the method gives
    """

    federation: str
    kind: Literal["synthesis", "regression"]
    settings: str
    rows: int | None
    aligned: bool
    deadline: float
    token: str
    alignment: Alignment = "hash"
    requester: str = ""
    purpose: str = ""
    conditions: tuple[str, ...] = ()
    missing: str = ""
    version: int = MESSAGE_VERSION
    asking: SignedAsking | None = None


@dataclass(frozen=True)
class SubmitReply:
    """The name that the submitted study has from now on."""

    study: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ResumeRequest:
    """Go on with a study that has failed."""

    study: str
    deadline: float
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class CancelRequest:
    """End a study before it is done. What was released stays released, and charged."""

    study: str
    reason: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class StatusRequest:
    """Who is connected, and how far are the studies?"""

    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class PartyState:
    """One party as the coordinator sees it.

    Attributes
    ----------
    note : what keeps it from taking part, as it was told itself
    federation_version : of the federation file that it last said it has; 0 before it said so
    """

    LATER = ("federation_version",)

    name: str
    connected: bool
    note: str = ""
    federation_version: int = 0


@dataclass(frozen=True)
class ChangeAnswer:
    """What a party says to a new federation file.

    Attributes
    ----------
    state : `accepted`, `asked` while its stewards have to decide, `refused`, or `unreached`
    since : when its stewards were asked, in seconds since 1970; 0 otherwise
    note : why it refuses
    """

    party: str
    state: Literal["accepted", "asked", "refused", "unreached"]
    since: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class ProposedChange:
    """A federation file that is not in force yet, and what those who stay say to it."""

    federation_version: int
    federation: str
    answers: tuple[ChangeAnswer, ...]


@dataclass(frozen=True)
class StewardWait:
    """A party whose stewards were asked, and when, in seconds since 1970."""

    party: str
    since: float


@dataclass(frozen=True)
class StudyState:
    """One study.

    Attributes
    ----------
    waiting_for : parties whose reply in this round is missing
    stewards : of them, those whose stewards have to decide; no deadline runs meanwhile
    """

    LATER = ("stewards",)

    study: str
    method: str
    state: Literal["queued", "running", "waiting", "failed", "cancelled", "done"]
    rounds: int
    waiting_for: tuple[str, ...]
    note: str
    stewards: tuple[StewardWait, ...] = ()


@dataclass(frozen=True)
class StatusReply:
    """Parties, and studies from old to new.

    `federation_version` : of the coordinator's federation file
    `change` : one that is proposed
    """

    LATER = ("federation_version", "change")

    parties: tuple[PartyState, ...]
    studies: tuple[StudyState, ...]
    version: int = MESSAGE_VERSION
    federation_version: int = 0
    change: ProposedChange | None = None


@dataclass(frozen=True)
class ResultRequest:
    """Send what the study has made."""

    study: str
    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class ResultFile:
    """A file below the study's folder."""

    name: str
    content: NDArray[np.uint8]


@dataclass(frozen=True)
class ResultReply:
    """The files of a finished study."""

    files: tuple[ResultFile, ...]
    version: int = MESSAGE_VERSION


LeadRequest = SubmitRequest | ResumeRequest | CancelRequest | StatusRequest | ResultRequest
LeadReply = SubmitReply | StatusReply | ResultReply
