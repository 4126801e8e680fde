"""A peer's refusal as an exception."""

from __future__ import annotations

from verticopula import errors
from verticopula.errors import ProtocolError, VerticopulaError
from verticopula.network.connection.control_messages import Refusal
from verticopula.network.connection.sanitizing import sanitize

_LONGEST_REASON = 500


def as_error(refusal: Refusal) -> VerticopulaError:
    """A party's refusal as the exception that it names; its text is a peer's, so it is sanitized."""
    reason = sanitize(refusal.reason, _LONGEST_REASON - len(" …"))
    kind = getattr(errors, refusal.kind, None)
    allowed = (errors.PolicyRefused, errors.BudgetExceeded, errors.LedgerError, errors.VersionMismatch, ProtocolError)
    return kind(reason) if kind in allowed else ProtocolError(reason)
