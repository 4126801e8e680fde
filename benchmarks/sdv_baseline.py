"""SDV's side of the comparison. Runs inside SDV's own environment and imports nothing of ours.

`python sdv_baseline.py TABLE.parquet SDTYPES.json DISTRIBUTION` prints a JSON object with the
processor seconds of fitting and of sampling as many rows again. Imports, reading and metadata are not timed.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from sdv.metadata import Metadata
from sdv.single_table import GaussianCopulaSynthesizer

TABLE = "joined"


def time_sdv(table: pd.DataFrame, sdtypes: dict[str, str], distribution: str) -> dict[str, float]:
    """Seconds to fit a Gaussian copula and to sample from it."""
    columns = {name: {"sdtype": sdtype} for name, sdtype in sdtypes.items()}
    metadata = Metadata.load_from_dict({"tables": {TABLE: {"columns": columns}}})
    synthesizer = GaussianCopulaSynthesizer(metadata, default_distribution=distribution)
    start = time.process_time()
    synthesizer.fit({TABLE: table})
    fitted = time.process_time()
    sampled = synthesizer.sample(num_rows=len(table))[TABLE]
    end = time.process_time()
    if len(sampled) != len(table):
        raise RuntimeError(f"SDV returned {len(sampled)} rows instead of {len(table)}")
    return {"fit": fitted - start, "sample": end - fitted, "total": end - start}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    data = pd.read_parquet(sys.argv[1])
    kinds = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    seconds = time_sdv(data, kinds, sys.argv[3])
    print(json.dumps({"seconds": seconds, "versions": {p: version(p) for p in ("sdv", "copulas", "rdt", "pandas")}}))
