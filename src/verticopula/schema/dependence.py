"""What a study by ranks says about dependence: a copula alone, or a copula tilted by tables of the same ranks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from verticopula.errors import SettingsError

COPULA_DEPENDENCE = "copula"
TILTED_DEPENDENCE = "tilted"
DEPENDENCES: Mapping[str, str] = MappingProxyType(
    {COPULA_DEPENDENCE: "a copula alone", TILTED_DEPENDENCE: "tilted by tables of the same ranks, at no cost"}
)
DEFAULT_DEPENDENCE = COPULA_DEPENDENCE


def check_dependence(name: str) -> None:
    """SettingsError unless it is a known one.

    Parameters
    ----------
    name : what was asked for
    """
    if name not in DEPENDENCES:
        raise SettingsError(f"dependence is {' or '.join(map(repr, DEPENDENCES))}, not {name!r}")
