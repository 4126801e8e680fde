"""Private synthetic data from tables that are split by column across organisations."""

from verticopula.errors import VerticopulaError
from verticopula.privacy.policy import Policy
from verticopula.schema import Column, ColumnKey, Federation, Party
from verticopula.synthesizer import NotPrivateWarning, Synthesizer

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
