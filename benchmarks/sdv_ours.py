"""VCDS's side of the comparison, in a process of its own so that compilation can be told apart.

`python -m benchmarks.sdv_ours N warm|cold` prints a JSON object with the seconds of fitting and of
sampling as many rows again. `warm` has fitted a small study before; `cold` has not.
"""

from __future__ import annotations

import json
import sys
import time

from verticopula import Synthesizer
from verticopula.datasets import SmeStudy, make_sme

EPSILON, UNIT = 1.0, "variable"
WARM_UP_SUBJECTS = 500


def time_vcds(study: SmeStudy) -> dict[str, float]:
    """Seconds to fit with secure noise and to sample."""
    synthesizer = Synthesizer(study.federation, method="vcds", epsilon=EPSILON, unit=UNIT)
    start = time.perf_counter()
    synthesizer.fit(study.tables)
    fitted = time.perf_counter()
    synthesizer.sample()
    end = time.perf_counter()
    return {"fit": fitted - start, "sample": end - fitted, "total": end - start}


if __name__ == "__main__":
    full = make_sme(int(sys.argv[1]))
    if sys.argv[2] == "warm":
        time_vcds(make_sme(WARM_UP_SUBJECTS))
    print(json.dumps({"seconds": time_vcds(full)}))
