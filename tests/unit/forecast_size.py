"""How much forecasts simulate, changed for a test."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest


def resize(monkeypatch: pytest.MonkeyPatch, module: str, **changes: Any) -> None:
    """Change fields of the `SIZE` of a module in `verticopula.forecasting`."""
    found = import_module(f"verticopula.forecasting.{module}")
    monkeypatch.setattr(found, "SIZE", replace(found.SIZE, **changes))
