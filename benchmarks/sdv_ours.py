"""VCDS's side of the comparison, in a process of its own so that compilation can be told apart.

`python -m benchmarks.sdv_ours N exact|binomial warm|cold` prints a JSON object with the processor seconds of fitting
and of sampling as many rows again. `warm` has fitted a small study before; `cold` has not.
"""

from __future__ import annotations

import json
import sys
import time

from verticopula import Synthesizer
from verticopula.datasets import SmeStudy, make_sme

EPSILON, UNIT = 1.0, "variable"
WARM_UP_SUBJECTS = 500


def time_vcds(study: SmeStudy, sampler: str) -> dict[str, float]:
    """Seconds to fit with secure noise and to sample."""
    synthesizer = Synthesizer(study.federation, method="vcds", epsilon=EPSILON, unit=UNIT, sampler=sampler)
    start = time.process_time()
    synthesizer.fit(study.tables)
    fitted = time.process_time()
    synthesizer.sample()
    end = time.process_time()
    return {"fit": fitted - start, "sample": end - fitted, "total": end - start}


if __name__ == "__main__":
    full = make_sme(int(sys.argv[1]))
    if sys.argv[3] == "warm":
        time_vcds(make_sme(WARM_UP_SUBJECTS), sys.argv[2])
    print(json.dumps({"seconds": time_vcds(full, sys.argv[2])}))
