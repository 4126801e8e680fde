"""The command line, as in the unit tests."""

from tests.unit.conftest import call

__all__ = ["call"]
