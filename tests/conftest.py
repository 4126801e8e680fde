"""Settings for the whole suite."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# One thread a process: the suite's processes fill the cores. Libraries read this when they are imported, later.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(name, "1")

# Compiling on first use takes longer than any deadline; the same examples every time, so that a
# failure on one machine is a failure on every machine.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
