"""Private synthetic data from tables that are split by column across organisations.

Everything that users need is here; what a name stands for is imported when it is first used.
Rooms import only from lower rooms: docs/development/architecture.md has the order.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verticopula.auditing.study_audit import AuditSettings
    from verticopula.auditing.study_audit import audit_study as audit
    from verticopula.errors import (
        AlignedWarning,
        BudgetExceeded,
        CellsWarning,
        InputTypeError,
        LedgerError,
        NotPrivateWarning,
        PartyUnavailable,
        PolicyRefused,
        ProtocolError,
        SchemaError,
        SettingsError,
        VersionMismatch,
        VerticopulaError,
        WeakPrivacyWarning,
        WeakResultWarning,
        WireError,
    )
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.estimators.vertical_glm import VerticalGLM
    from verticopula.forecasting.forecast import forecast
    from verticopula.privacy.policy import Policy
    from verticopula.schema.columns import Column, ColumnKey
    from verticopula.schema.federation import Federation, Party
    from verticopula.schema.methods import METHODS

    __version__: str

_ERRORS = (
    "AlignedWarning",
    "BudgetExceeded",
    "CellsWarning",
    "InputTypeError",
    "LedgerError",
    "NotPrivateWarning",
    "PartyUnavailable",
    "PolicyRefused",
    "ProtocolError",
    "SchemaError",
    "SettingsError",
    "VerticopulaError",
    "VersionMismatch",
    "WeakPrivacyWarning",
    "WeakResultWarning",
    "WireError",
)
_PLACES = {
    **dict.fromkeys(_ERRORS, "verticopula.errors"),
    **dict.fromkeys(("Column", "ColumnKey"), "verticopula.schema.columns"),
    **dict.fromkeys(("Federation", "Party"), "verticopula.schema.federation"),
    "METHODS": "verticopula.schema.methods",
    "Policy": "verticopula.privacy.policy",
    "Synthesizer": "verticopula.estimators.synthesizer",
    "VerticalGLM": "verticopula.estimators.vertical_glm",
    "AuditSettings": "verticopula.auditing.study_audit",
    "audit": "verticopula.auditing.study_audit",
    "forecast": "verticopula.forecasting.forecast",
}
_NAMED_OTHERWISE = {"audit": "audit_study"}

if TYPE_CHECKING:
    from verticopula.estimators.vertical_glm import VerticalGLM

__all__ = [
    "METHODS",
    "AlignedWarning",
    "AuditSettings",
    "BudgetExceeded",
    "CellsWarning",
    "Column",
    "ColumnKey",
    "Federation",
    "InputTypeError",
    "LedgerError",
    "NotPrivateWarning",
    "Party",
    "PartyUnavailable",
    "Policy",
    "PolicyRefused",
    "ProtocolError",
    "SchemaError",
    "SettingsError",
    "Synthesizer",
    "VersionMismatch",
    "VerticalGLM",
    "VerticopulaError",
    "WeakPrivacyWarning",
    "WeakResultWarning",
    "WireError",
    "__version__",
    "audit",
    "forecast",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("verticopula")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_PLACES[name]), _NAMED_OTHERWISE.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
