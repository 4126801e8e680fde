"""The third compute party of a strict study of two: an organisation without data, with a process of its own.

It holds two of three shares of everybody's scores, which say nothing about them, adds them up with noise of its own,
and sends the sums. It takes part only in the roles that its own federation file names.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from verticopula.errors import PolicyRefused, ProtocolError, SettingsError, VersionMismatch
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.ready_studies import ReadyStudies
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.strict_messages import SecureRequest
from verticopula.protocol.study_messages import CloseReply, CloseRequest
from verticopula.protocol.study_proposal import check_study_name
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import federation_fingerprint
from verticopula.schema.methods import METHODS, releases_sums
from verticopula.stats.strict.strict_plan import sums_roles
from verticopula.storage.record_store import RecordStore

logger = logging.getLogger(__name__)

# Studies that are not over, of those begun in so many days: whoever invents names of studies fills no disk, and studies
# that were given up do not stand in the way for ever.
MOST_OPEN, OPEN_DAYS = 50, 30.0
_OPEN = "open"
_BEGAN = "federations"  # study -> fingerprint of the federation file that it began with


class ComputeParty:
    """Answers a coordinator's requests for keys and sums, and nothing else.

    Parameters
    ----------
    federation : its own copy, in which `[network] compute` is its name
    records : where a study's secret and noise are kept until the study is over; they must outlive the process
    authenticity : how its public keys are signed, and the others' are known
    clock : seconds since 1970
    """

    def __init__(
        self,
        federation: Federation,
        *,
        records: RecordStore,
        authenticity: Authenticity,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if federation.network.compute is None:
            raise SettingsError("the federation file names no compute party without data: [network] compute")
        self.name = federation.network.compute
        self._fingerprint = federation_fingerprint(federation)
        self._roles = sums_roles(federation)
        self._records = records
        self._authenticity = authenticity
        self._clock = clock
        self._handlers: ReadyStudies[SumsHandler] = ReadyStudies()
        self._lock = threading.RLock()

    def handle(self, request: Request) -> Reply:
        """Answer a request, or refuse it with a reason; the same request gets the same bytes.

        Privacy
        -------
        To the coordinator: a public key, and terms of the sums, as `SumsHandler` says.
        """
        if request.version != MESSAGE_VERSION:
            raise VersionMismatch(
                f"party {self.name!r} speaks message version {MESSAGE_VERSION}, the coordinator {request.version}"
            )
        if not isinstance(request, SecureRequest | CloseRequest):
            raise PolicyRefused(f"party {self.name!r} computes and holds no data: it answers no such request")
        check_study_name(self.name, request.study)
        with self._lock:
            if isinstance(request, CloseRequest):
                return self._close(request.study)
            if not releases_sums(request.method):
                able = " or ".join(repr(name) for name in METHODS if releases_sums(name))
                raise PolicyRefused(f"party {self.name!r} computes in studies by method {able} only")
            if self._records.get(_closed_name(request.study)) is not None:
                raise ProtocolError(f"party {self.name!r}: this study is over, and what was kept for it is gone")
            self._open(request.study)
            return self._handler(request.study).handle(request)

    def _open(self, study: str) -> None:
        """Remember that the study is open; PolicyRefused where too many are."""
        known = self._records.get(_OPEN) or {}
        if study in known:
            return
        now = self._clock()
        lately = {name: when for name, when in known.items() if when > now - OPEN_DAYS * SECONDS_PER_DAY}
        if len(lately) >= MOST_OPEN:
            raise PolicyRefused(
                f"party {self.name!r} computes in {MOST_OPEN} studies that are not over; it takes part in another one "
                f"when one of them is over, or was begun {OPEN_DAYS:g} days ago"
            )
        began = {name: known for name, known in (self._records.get(_BEGAN) or {}).items() if name in lately}
        self._records.put(_BEGAN, {**began, study: self._fingerprint})
        self._records.put(_OPEN, {**lately, study: now})

    def _close(self, study: str) -> CloseReply:
        """Forget the study's secret and noise: what was sealed for this party cannot be opened any more."""
        record = SumsHandler.record_name(self.name, study)
        if self._records.get(_closed_name(study)) is None and self._records.get(record) is not None:
            self._records.put(_closed_name(study), {"closed": True})
            logger.info("study %s is over", study)
        self._handlers.pop(study, None)
        if self._records.get(record):
            # Written over, and not only forgotten: a record that is gone would be made anew.
            self._records.put(record, {})
        known = self._records.get(_OPEN) or {}
        if study in known:
            self._records.put(_OPEN, {name: when for name, when in known.items() if name != study})
        return CloseReply(self.name, 0, "")

    def _handler(self, study: str) -> SumsHandler:
        if study not in self._handlers:
            self._handlers[study] = SumsHandler(
                self.name,
                None,
                records=self._records,
                noise=SecureNoise(),
                authenticity=self._authenticity,
                approve=lambda name, plan, digest, evidence: self._check_roles(plan),
            )
        return self._handlers[study]

    def _check_roles(self, plan: SumsPlan) -> None:
        """ProtocolError unless who shares how much with whom is as this party's own federation file has it."""
        if (plan.parties, plan.n_columns, plan.compute) != self._roles:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums names other parties, columns or roles")
        logger.info("party %s computes for %s", self.name, ", ".join(plan.parties))


def compute_began_under(records: RecordStore, study: str) -> str | None:
    """Fingerprint of the federation file that a study began with at a compute party; None for one that is new.

    Parameters
    ----------
    records : the compute party's
    study : its name
    """
    found = (records.get(_BEGAN) or {}).get(study)
    return None if found is None else str(found)


def _closed_name(study: str) -> str:
    return f"closed/{study}"
