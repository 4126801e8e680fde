"""What a party's steward is asked, and what stewards said to it: plain records, without a store.

A request is one question about one study: to begin it (`beginning`), or to release what it would release (`releases`).
Or it is about the federation itself: whether another version of its file is to hold (`federation`). It is complete:
whoever decides needs nothing else. `RequestStore` keeps requests on disk.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from verticopula.errors import SettingsError
from verticopula.formatting import json_numbers
from verticopula.storage.json_digest import digest_json

Stage = Literal["beginning", "releases", "federation"]
RequestState = Literal["pending", "approved", "denied", "withdrawn", "expired", "cancelled", "superseded"]
Verdict = Literal["yes", "no", "withdrawn"]

REASON_LENGTH = 500  # letters

_MAY_CHANGE = ("prices", "days")  # while a request waits, other studies are paid for
_LATER = ("changes", "versions", "authority")  # fields that came later: without them a digest is what it was before


@dataclass(frozen=True)
class LeavingEntry:
    """Equal releases of one column, as a steward sees them.

    Attributes
    ----------
    what : its kind, as the ledger calls it
    words : the same for a reader
    people : observed subjects
    how : the mechanism
    price : epsilon and what it is of, for a reader
    times : how often it would be released
    """

    column: str
    what: str
    words: str
    people: int
    how: str
    price: str
    times: int = 1


@dataclass(frozen=True)
class UnitPrice:
    """Epsilon at one unit: before the study, of the study alone, and after it; and what is left of a cap.

    Attributes
    ----------
    cap : the policy's; None where there is none, and then nothing is left of it either
    left_before, left_after : counted as the cap is counted, which is stricter than `before` and `after`
    """

    unit: str
    before: float
    study: float
    after: float
    cap: float | None = None
    left_before: float | None = None
    left_after: float | None = None


@dataclass(frozen=True)
class RequestContent:
    """All that is asked, and by whom.

    Attributes
    ----------
    party : who is asked
    study : its name; about the federation file, a name for that
    stage : whether it is about beginning the study, about its releases, or about the federation file
    federation : fingerprint of the federation file that is in force
    lead : the requester's name, from the certificate that signed the study; "" where nobody signed it
    requester, contact, purpose, use : who they say they are, how to reach them, why they ask, and what the tables will
        be used for; their own words, which nobody has checked
    method : its name, and its variant unless that is verticopula's own
    alignment : how rows of one person are found
    proposal : digest of the proposal, or of all of the new federation file; "" at the beginning
    leaves : what would be released; empty at the beginning
    prices : epsilon at every unit, and what is left of caps, at the time of asking
    delta : the delta of these epsilons
    seeded : whether the noise would come from a seed, and so protect nobody
    table, policy : digests of the party's table and rules at the time of asking
    days : how long the question and a yes live
    approvals : how many stewards have to say yes
    stewards : name -> public key of those who may decide; empty where the policy names nobody
    tells_presence : whether all other parties are told whom this party has any value of
    changes : what differs in the new federation file, one sentence each; what is about this party comes first
    versions : of the federation file that is in force and of the new one
    authority : fingerprint of the root certificate that signed the new file
    """

    party: str
    study: str
    stage: Stage
    federation: str = ""
    lead: str = ""
    requester: str = ""
    contact: str = ""
    purpose: str = ""
    use: str = ""
    method: str = ""
    alignment: str = ""
    proposal: str = ""
    leaves: tuple[LeavingEntry, ...] = ()
    prices: tuple[UnitPrice, ...] = ()
    delta: float = 0.0
    seeded: bool = False
    table: str = ""
    policy: str = ""
    days: float = 30.0
    approvals: int = 1
    stewards: Mapping[str, str] = field(default_factory=dict)
    tells_presence: bool = False
    changes: tuple[str, ...] = ()
    versions: tuple[int, int] = (0, 0)
    authority: str = ""

    def to_json(self) -> str:
        """One line, the same for the same content."""
        said = asdict(self)
        if self.stage != "federation":
            said = {name: value for name, value in said.items() if name not in _LATER}
        return json.dumps(json_numbers(said, "inf"), sort_keys=True, ensure_ascii=True)

    @classmethod
    def from_json(cls, line: str) -> RequestContent:
        """The content that `to_json` wrote; fields that a later version added are left out.

        Parameters
        ----------
        line : as `to_json` wrote it
        """
        raw: dict[str, Any] = {name: value for name, value in json.loads(line).items() if name in _NAMES}
        raw["leaves"] = tuple(LeavingEntry(**entry) for entry in raw["leaves"])
        prices: list[dict[str, Any]] = [
            {name: float("inf") if value == "inf" else value for name, value in price.items()}
            for price in raw["prices"]
        ]
        raw["prices"] = tuple(UnitPrice(**price) for price in prices)
        raw["changes"], raw["versions"] = tuple(raw.get("changes", ())), tuple(raw.get("versions", (0, 0)))
        return cls(**raw)

    @property
    def question(self) -> str:
        """A digest of what is asked, whatever other studies have spent meanwhile."""
        said = json.loads(self.to_json())
        return digest_json({name: value for name, value in said.items() if name not in _MAY_CHANGE})

    def is_about_the_same(self, other: RequestContent) -> bool:
        """Whether both ask for the same stage of the same study.

        Parameters
        ----------
        other : another request's content
        """
        mine, theirs = ((c.party, c.federation, c.study, c.stage) for c in (self, other))
        return mine == theirs


_NAMES = frozenset(known.name for known in fields(RequestContent))


@dataclass(frozen=True)
class Decision:
    """What one steward said.

    Attributes
    ----------
    when : seconds since 1970
    signature : of `decision_statement`, by the steward's key, in hex; "" where the policy names no stewards
    """

    steward: str
    verdict: Verdict
    reason: str
    when: float
    signature: str = ""


@dataclass(frozen=True)
class StewardRequest:
    """One request as it is stored.

    Attributes
    ----------
    id : short name, for commands
    asked, expires : seconds since 1970; a request that waits longer is over, and so is a yes that nobody used
    state : as it was stored; `RequestStore` says `expired` for one that is over by now
    decisions : from old to new
    used : when the party consented on the strength of it, in seconds since 1970; None before that
    """

    id: str
    content: RequestContent
    asked: float
    expires: float
    state: RequestState = "pending"
    decisions: tuple[Decision, ...] = ()
    used: float | None = None

    @property
    def digest(self) -> str:
        """Of the question, with its name and the time it was asked: what a steward signs."""
        return digest_json([self.id, self.asked, self.content.to_json()])

    @property
    def yeses(self) -> tuple[Decision, ...]:
        """The decisions for it; at most one a steward."""
        return tuple(one for one in self.decisions if one.verdict == "yes")

    @property
    def missing(self) -> int:
        """How many more stewards have to say yes."""
        return max(self.content.approvals - len(self.yeses), 0)

    def at(self, now: float) -> StewardRequest:
        """The same, `expired` where its time is over.

        Parameters
        ----------
        now : seconds since 1970
        """
        over = self.state in ("pending", "approved") and now > self.expires and self.used is None
        return replace(self, state="expired") if over else self

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for programs."""
        own = {"id": self.id, "state": self.state, "asked": self.asked, "expires": self.expires}
        said = [asdict(one) for one in self.decisions]
        return {**own, "missing": self.missing, "decisions": said, **json.loads(self.content.to_json())}


def decision_statement(request: StewardRequest, steward: str, verdict: Verdict, reason: str, when: float) -> bytes:
    """What a steward signs: this verdict, on exactly this request."""
    said = {"request": request.digest, "steward": steward, "verdict": verdict, "reason": reason, "when": when}
    return b"verticopula steward 1\0" + json.dumps(said, sort_keys=True, ensure_ascii=True).encode()


def check_may_decide(request: StewardRequest, steward: str, verdict: Verdict) -> None:
    """SettingsError unless this steward may say this now.

    Parameters
    ----------
    request : as it stands
    steward : who decides
    verdict : what they would say
    """
    content = request.content
    if content.stewards and steward not in content.stewards:
        known = ", ".join(sorted(content.stewards))
        raise SettingsError(f"the policy names no steward {steward!r}; it names {known}")
    if verdict == "withdrawn":
        if request.state != "approved":
            raise SettingsError(f"request {request.id} is {request.state}: there is no yes to take back")
        return
    if request.state != "pending":
        raise SettingsError(f"request {request.id} is {request.state}, not pending")
    if any(one.steward == steward for one in request.decisions):
        raise SettingsError(f"{steward} has decided about request {request.id} already; somebody else is needed")
    if verdict == "yes" and is_asker(content, steward):
        raise SettingsError(f"{steward} asks for this study, so somebody else has to approve it")


def is_asker(content: RequestContent, steward: str) -> bool:
    """Whether a steward has asked for the study, by their name.

    Parameters
    ----------
    content : what is asked, and by whom
    steward : who decides
    """
    return same_name(steward, content.lead, content.requester, content.contact)


def same_name(steward: str, *askers: str) -> bool:
    """Whether a steward's name is one of these, however it is written; of an address the part before the @ counts."""
    own = _plain(steward)
    return own != "" and any(own in (_plain(asker), _plain(asker.partition("@")[0])) for asker in askers)


def state_after(request: StewardRequest, decisions: Sequence[Decision]) -> RequestState:
    """What a request that is pending or approved becomes by these decisions.

    Parameters
    ----------
    request : before
    decisions : all of them, in their order
    """
    said = [one.verdict for one in decisions]
    if "withdrawn" in said:
        return "withdrawn"
    if "no" in said:
        return "denied"
    return "approved" if said.count("yes") >= request.content.approvals else "pending"


def _plain(name: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", name).casefold() if c.isalnum())
