"""The terms on which a party lets a study begin: its federation file, its policy, and who has signed that they ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verticopula.data.tables import OwnTable
from verticopula.errors import PolicyRefused, ProtocolError, SettingsError
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.party.party_store import PartyStore
from verticopula.protocol.party.row_alignment import RowAlignment
from verticopula.protocol.study_messages import BeginRequest, SignedAsking
from verticopula.protocol.study_proposal import asking_statement, check_requester_and_purpose, check_study_name
from verticopula.schema.federation import Federation
from verticopula.schema.methods import METHODS, RAW_REGRESSION
from verticopula.schema.setting_choices import ALIGNMENTS
from verticopula.schema.study_settings import check_roles


@dataclass(frozen=True, repr=False)
class PartyTerms:
    """Whether a study may begin at a party, before any steward is asked.

    Attributes
    ----------
    federation, fingerprint : the party's own file
    table, rows : its table, and whether it has the keys to align its rows
    vault : remembers for which study a lead has signed, and how long the ledger was
    authenticity : how it knows what leads signed; None where it cannot
    """

    party: str
    federation: Federation
    fingerprint: str
    table: OwnTable
    rows: RowAlignment
    vault: PartyStore
    authenticity: Authenticity | None

    def check(self, request: BeginRequest, policy: Policy | PolicyFile) -> None:
        """PolicyRefused or ProtocolError where a study is not to begin on these terms; nothing has left by then.

        Parameters
        ----------
        request : that begins it
        policy : as it is now
        """
        check_study_name(self.party, request.study)
        check_requester_and_purpose(request.requester, request.purpose, *said_by(request).values())
        if request.asking is not None:
            self._check_asking(request, request.asking)
        if request.federation != self.fingerprint:
            raise PolicyRefused(
                f"party {self.party!r}: the coordinator's federation file is not the same as this party's own; "
                f"parties, columns, ranges, response and id rules must be equal in both. This party's is version "
                f"{self.federation.version} ({self.fingerprint[:12]}), that of the study is {request.federation[:12]}"
            )
        if request.method != RAW_REGRESSION and request.method not in METHODS:
            # A steward, and the log, would be shown what the coordinator likes.
            raise PolicyRefused(f"party {self.party!r} does not know the method that the study is to be opened for")
        policy.check(self.party, request.method, (), ())
        policy.check_columns(self.party, (column.name for column in self.table.party.columns))
        if len(self.table.ids) < policy.min_subjects:
            raise PolicyRefused(f"party {self.party!r} has fewer subjects than its policy asks for")
        if request.method != RAW_REGRESSION:
            try:
                check_roles(self.federation, METHODS[request.method])
            except SettingsError as error:
                raise PolicyRefused(f"party {self.party!r}: {error}") from None
        if request.alignment not in ALIGNMENTS:
            raise PolicyRefused(f"party {self.party!r} does not know this way of alignment")
        self.check_alignment(request.alignment, policy)
        if request.seed is not None and not policy.allow_seeded:
            raise PolicyRefused(
                f"party {self.party!r} does not take part in seeded studies: a seed that the coordinator knows undoes "
                "the noise (allow_seeded = true in its policy would allow it, for simulations)"
            )
        if request.seed is not None and policy.caps != Caps():
            raise PolicyRefused(
                f"party {self.party!r} does not take part in seeded studies: epsilon is infinite where the coordinator "
                "knows the noise, and its policy has caps"
            )
        if request.witness_count > 0:
            self.vault.check_witness(request.witness_count, request.witness_head)

    def _check_asking(self, request: BeginRequest, asking: SignedAsking) -> None:
        """ProtocolError unless a study lead of the federation has signed who asks, and for what method."""
        said = asking_statement(request.federation, request.method, request.requester, request.purpose, asking)
        known = asking.lead in self.federation.network.leads and self.authenticity is not None
        if not known or not self._verifies(asking.lead, said, asking.signature):
            raise ProtocolError(
                f"party {self.party!r}: who asks for this study is not signed by a lead of the federation"
            )
        self._check_token(request)

    def _verifies(self, signer: str, statement: bytes, signature: bytes) -> bool:
        return self.authenticity is not None and self.authenticity.verify(signer, statement, signature)

    def _check_token(self, request: BeginRequest) -> None:
        """A lead's signature is for one study; ProtocolError where the coordinator uses it for another."""
        known = None if request.asking is None else self.vault.studies.get(f"asking:{request.asking.token}")
        if known is not None and known["study"] != request.study:
            raise ProtocolError(f"party {self.party!r}: what the lead has signed belongs to another study")

    def use_token(self, request: BeginRequest) -> None:
        """Remember for which study a lead has signed.

        Parameters
        ----------
        request : that begins it
        """
        self._check_token(request)
        if request.asking is not None:
            self.vault.studies.put(f"asking:{request.asking.token}", {"study": request.study})

    def check_alignment(self, alignment: str, policy: Policy | PolicyFile) -> None:
        """PolicyRefused unless the policy allows this way to find who is who, and the party has the keys for it.

        Parameters
        ----------
        alignment : `hash` or `psi`
        policy : as it is now
        """
        allowed = policy.alignments
        if allowed is not None and alignment not in allowed:
            raise PolicyRefused(f"party {self.party!r} does not take part in studies aligned by {alignment!r}")
        self.rows.check_keys(alignment)


def said_by(request: BeginRequest) -> dict[str, Any]:
    """Who has signed that they ask, how to reach them, and what for, by the names of `ConsentQuestion`.

    Parameters
    ----------
    request : that begins a study
    """
    asking = request.asking
    return {} if asking is None else {"lead": asking.lead, "contact": asking.contact, "use": asking.use}
