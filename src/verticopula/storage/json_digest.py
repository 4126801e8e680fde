"""The hash of plain values, whatever order they were written in."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest_json(value: Any) -> str:
    """SHA-256 of a value as JSON with sorted keys; files hold it, so it never changes."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
