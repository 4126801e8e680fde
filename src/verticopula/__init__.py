"""Private synthetic data from tables that are split by column across organisations."""

from typing import TYPE_CHECKING, Any

from verticopula.errors import VerticopulaError
from verticopula.estimators.synthesizer import NotPrivateWarning, Synthesizer
from verticopula.privacy.policy import Policy
from verticopula.schema.federation import Column, ColumnKey, Federation, Party

if TYPE_CHECKING:
    from verticopula.estimators.vertical_glm import VerticalGLM

__all__ = [
    "Column",
    "ColumnKey",
    "Federation",
    "NotPrivateWarning",
    "Party",
    "Policy",
    "Synthesizer",
    "VerticalGLM",
    "VerticopulaError",
]


def __getattr__(name: str) -> Any:
    # Loaded at first use: scikit-learn takes a second.
    if name == "VerticalGLM":
        from verticopula.estimators.vertical_glm import VerticalGLM

        return VerticalGLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
