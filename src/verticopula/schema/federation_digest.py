"""The fingerprint of a federation file, which every message and signature names it by; and the digest of all of it."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from verticopula.schema.federation import Federation

_SHOWN = 12  # characters of a fingerprint


@lru_cache(maxsize=8)  # a party compares it with every message's
def federation_fingerprint(federation: Federation) -> str:
    """Equal for federation files that say the same about parties, columns, response and ids, wherever they meet."""
    said = {key: value for key, value in federation.to_dict().items() if key != "network"}
    roles = {"operator": federation.network.operator, "compute": federation.network.compute}
    said |= {key: value for key, value in roles.items() if value is not None}  # who computes is agreed on, too
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def describe_federation(number: int, fingerprint: str) -> str:
    """A federation file for a log line."""
    return f"version {number} ({fingerprint[:_SHOWN] or 'none'})"


def federation_file_digest(federation: Federation) -> str:
    """Equal for federation files that say the same about everything, where the parties meet included."""
    said = {**federation.to_dict(), "network": federation.network.chosen()}
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
