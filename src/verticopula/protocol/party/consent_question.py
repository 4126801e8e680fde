"""What a party's steward is asked, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from verticopula.privacy.release import Release
from verticopula.schema.methods import OWN_VARIANT


@dataclass(frozen=True)
class ConsentQuestion:
    """One question to the steward.

    Attributes
    ----------
    requester, purpose : who asks for the study, and why, in their own words; nobody has checked them
    alignment : how rows of one person are found
    proposed : everything that would be released; empty when the study begins, before there is a plan
    spent : what was released about this table before
    variant : which algorithm the method's name stands for; not known yet when the study begins
    people : what was released about the same people before, by whatever party
    lead : the name in the certificate that the study was signed with; "" where nobody signed it
    contact, use : how to reach who asks, and what the tables will be used for, in their own words
    proposal : digest of the proposal; "" when the study begins
    table : digest of the party's table
    seeded : whether the noise would come from a seed, which is no protection from whoever knows it
    """

    study: str
    method: str
    requester: str
    purpose: str
    alignment: str
    proposed: tuple[Release, ...] = ()
    spent: tuple[Release, ...] = ()
    variant: str = OWN_VARIANT
    seeded: bool = False
    people: tuple[Release, ...] = ()
    lead: str = ""
    contact: str = ""
    use: str = ""
    proposal: str = ""
    table: str = ""

    @property
    def title(self) -> str:
        """The method, and its variant unless that is verticopula's own."""
        return self.method if self.variant == OWN_VARIANT else f"{self.method}, {self.variant}"

    @property
    def is_about_alignment(self) -> bool:
        """Whether it is only about who the party's subjects are."""
        return not self.proposed


class AskedSteward(Protocol):
    """Who decides for a party."""

    def request(self, question: ConsentQuestion) -> None:
        """May take its time; raises PolicyRefused for a no, ConsentPending where it has to be asked again later."""

    def check_standing(self, study: str) -> None:
        """PolicyRefused where the steward has taken back their yes, before anything else is answered in a study."""

    def close(self, study: str) -> None:
        """Nothing more is asked in this study."""


class NobodyAsked:
    """In place of a steward where the policy alone decides."""

    def request(self, question: ConsentQuestion) -> None:
        return

    def check_standing(self, study: str) -> None:
        return

    def close(self, study: str) -> None:
        return
