"""Settings for the whole suite."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Compiling on first use takes longer than any deadline; the same examples every time, so that a
# failure on one machine is a failure on every machine.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
