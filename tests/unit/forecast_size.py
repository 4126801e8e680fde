"""How much forecasts simulate, changed for a test."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest


def resize(monkeypatch: pytest.MonkeyPatch, module: str, **changes: Any) -> None:
    """Change fields of what `forecast` or `strict_forecast` of `verticopula.forecasting` simulates."""
    found, name = import_module(f"verticopula.forecasting.{module}"), f"{module.upper()}_SIZE"
    monkeypatch.setattr(found, name, replace(getattr(found, name), **changes))
