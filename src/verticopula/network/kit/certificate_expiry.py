"""How long certificates still last: for the log, for `status`, and for whoever watches a federation."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509

from verticopula.network.kit.certificate_issuing import current_time, read_certificates
from verticopula.network.kit.peer_certificates import read_peer_certificates
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.kit.trust_store import read_trust
from verticopula.schema.defaults import COORDINATOR

logger = logging.getLogger(__name__)

WARNING_DAYS = (60, 30, 7)
_DAILY = 7  # from here on, a warning a day
_DAY = timedelta(days=1)


def days_left(kit: Kit, now: datetime | None = None) -> dict[str, float]:
    """Days until each certificate of a kit ends; negative for one that has ended.

    Parameters
    ----------
    kit : of anybody
    now : instead of the machine's clock

    Returns
    -------
    by name: `certificate` is the kit's own, `root` the root that signs longest; in the coordinator's kit also everybody
    who has connected, by their own name
    """
    moment = now or datetime.now(UTC)
    found = {"certificate": _left(read_certificates(kit.certificate)[0], moment)}
    found["root"] = max(_left(root, moment) for root in read_trust(kit).roots_for(COORDINATOR))
    if kit.role == "coordinator":
        found |= {name: _left(one, moment) for name, one in sorted(read_peer_certificates(kit).items())}
    return found


def expiry_warning(name: str, days: float) -> str:
    """A warning for somebody whose certificate ends within 60 days; empty before."""
    if days > max(WARNING_DAYS):
        return ""
    whose = {"certificate": "this kit's certificate", "root": "the root certificate"}.get(
        name, f"the certificate of {name}"
    )
    when = f"ends in {math.floor(days)} days" if days >= 0 else f"ended {math.ceil(-days)} days ago"
    remedy = "run `verticopula provision`, which extends it, and hand out authority.pem"
    if name != "root":
        who = "this kit's name" if name == "certificate" else name
        remedy = f"ask who provisions the federation for `verticopula provision --renew` with {who}"
    return f"{whose} {when}: {remedy}"


@dataclass
class ExpiryReminder:
    """Logs a warning 60, 30 and 7 days before a certificate ends, then every day; and at every start."""

    kit: Kit
    _told: dict[str, tuple[int, datetime]] = field(default_factory=dict)

    def look(self, now: datetime | None = None) -> list[str]:
        """The warnings that are due; they are in the log."""
        moment = now or current_time()
        due = []
        for name, days in days_left(self.kit, moment).items():
            step = sum(days <= limit for limit in WARNING_DAYS)
            said, when = self._told.get(name, (0, moment))
            is_due = step > said or (step > 0 and days <= _DAILY and moment - when >= _DAY)
            if is_due:
                due.append(expiry_warning(name, days))
                logger.warning("%s", due[-1])
            if is_due or step < said:
                self._told[name] = (step, moment)
        return due


def _left(certificate: x509.Certificate, now: datetime) -> float:
    return (certificate.not_valid_after_utc - now) / _DAY
