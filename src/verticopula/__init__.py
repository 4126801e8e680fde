"""Private synthetic data from tables that are split by column across organisations."""

from verticopula.errors import NotPrivateWarning, VerticopulaError
from verticopula.estimators.synthesizer import Synthesizer
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
