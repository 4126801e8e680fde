"""What tests of the report share."""

from __future__ import annotations

from tests.unit.conftest import call

__all__ = ["call"]
