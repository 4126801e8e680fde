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
        ConsentPending,
        EngineError,
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

_PLACES = {
    **dict.fromkeys(("Column", "ColumnKey"), "verticopula.schema.columns"),
    **dict.fromkeys(("Federation", "Party"), "verticopula.schema.federation"),
    "METHODS": "verticopula.schema.methods",
    "Policy": "verticopula.privacy.policy",
    "Synthesizer": "verticopula.estimators.synthesizer",
    "VerticalGLM": "verticopula.estimators.vertical_glm",
    "AuditSettings": "verticopula.auditing.study_audit",
    "audit": "verticopula.auditing.study_audit",
    "forecast": "verticopula.forecasting.forecast",
}  # all others are in verticopula.errors
_NAMED_OTHERWISE = {"audit": "audit_study"}

# A list of its own, and not made of the above: type checkers read it without running anything.
__all__ = [
    "METHODS",
    "AlignedWarning",
    "AuditSettings",
    "BudgetExceeded",
    "CellsWarning",
    "Column",
    "ColumnKey",
    "ConsentPending",
    "EngineError",
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
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_PLACES.get(name, "verticopula.errors"))
    found = getattr(module, _NAMED_OTHERWISE.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
