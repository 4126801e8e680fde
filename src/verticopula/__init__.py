"""Private synthetic data from tables that are split by column across organisations."""

from verticopula.errors import VerticopulaError
from verticopula.estimators.synthesizer import NotPrivateWarning, Synthesizer
from verticopula.privacy.policy import Policy
from verticopula.schema.federation import Column, ColumnKey, Federation, Party

__all__ = [
    "Column",
    "ColumnKey",
    "Federation",
    "NotPrivateWarning",
    "Party",
    "Policy",
    "Synthesizer",
    "VerticopulaError",
]

__version__: str


def __getattr__(name: str) -> str:
    # Read on first use: a source tree on the path, which is not installed, can still be imported.
    if name == "__version__":
        from importlib.metadata import version

        return version("verticopula")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
