"""What an audit of the study found, in the words of data protection: singling out, linkability, inference.

An audit needs real tables, so only the report in the house has it. It is read from what `verticopula audit --out`
wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verticopula.errors import SettingsError
from verticopula.formatting import format_number

AUDIT_FILE = "audit.json"
AUDIT_FOLDER = "audit"  # in a study's folder

# How an attack's name begins, and the risk that it is about; the opinion WP 216 on anonymisation names the three.
_RISKS = {
    "membership": "Singling out",
    "closest record": "Singling out",
    "own row found": "Singling out",
    "percentile error": "Singling out",
    "SDMetrics: closer": "Singling out",
    "SDMetrics: baseline": "Singling out",
    "linkability": "Linkability",
    "attribute inference": "Inference",
    "SDMetrics: disclosure": "Inference",
}
_ORDER = ("Singling out", "Linkability", "Inference", "Other")


def read_audit(folder: Path) -> dict[str, Any] | None:
    """What an audit wrote into a study's folder, or into `audit/` there; None if there is none."""
    places = (folder / AUDIT_FOLDER / AUDIT_FILE, folder / AUDIT_FILE)
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        return None
    try:
        audit = json.loads(found.read_text(encoding="utf-8"))
        _describe(audit)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SettingsError(f"{found} is not what `verticopula audit --out` writes") from None
    return dict(audit)


def audit_section(audit: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the page shows of an audit; None where there is none.

    Parameters
    ----------
    audit : as `read_audit` gave it
    """
    return None if audit is None else _describe(audit)


def _describe(audit: Mapping[str, Any]) -> dict[str, Any]:
    attacks = [
        {
            "risk": next((risk for name, risk in _RISKS.items() if table["name"].startswith(name)), "Other"),
            "name": table["name"],
            "found": f"{_short(table['value'])} ({_short(table['low'])} to {_short(table['high'])})",
            "chance": _short(table["expected"]),
            "means": str(table["means"]),
            "suspicious": bool(table["suspicious"]),
        }
        for table in audit["tables"]
    ]
    claims = audit["mechanism"]
    return {
        "confidence": float(audit["confidence"]),
        "party": audit["party"],
        "claims": len(claims),
        "refuted": [f"{claim['what']}, {claim['change']}" for claim in claims if not claim["holds"]],
        "left_open": [str(line) for line in audit["left_open"]][:3],
        "attacks": sorted(attacks, key=lambda attack: _ORDER.index(attack["risk"])),
    }


def _short(value: float | None) -> str:
    return "–" if value is None or isinstance(value, str) else format_number(value, 3)
