"""Rows of SDV's Gaussian copula. Runs inside SDV's own environment and imports nothing of ours.

`python sdv_rows.py GIVEN.npz MADE.npz` fits GaussianCopulaSynthesizer at its defaults to `numbers`, of whose columns
`ordered` says which are numerical, and writes as many rows.
"""

import sys
import warnings

import numpy as np
import pandas as pd
from sdv.metadata import Metadata
from sdv.single_table import GaussianCopulaSynthesizer

TABLE = "joined"


def make_rows(numbers, ordered):
    """As many rows as there are."""
    names = [f"c{j}" for j in range(numbers.shape[1])]
    few = [ordered[j] and np.unique(numbers[:, j]).size > 2 for j in range(len(names))]
    table = pd.DataFrame(
        {n: numbers[:, j] if few[j] else numbers[:, j].astype(str) for j, n in enumerate(names)}, columns=names
    )
    columns = {n: {"sdtype": "numerical" if few[j] else "categorical"} for j, n in enumerate(names)}
    synthesizer = GaussianCopulaSynthesizer(Metadata.load_from_dict({"tables": {TABLE: {"columns": columns}}}))
    synthesizer.fit({TABLE: table})
    made = synthesizer.sample(num_rows=len(table))[TABLE]
    return np.column_stack([made[n].to_numpy(dtype=np.float64) for n in names])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    given = np.load(sys.argv[1])
    np.savez_compressed(sys.argv[2], numbers=make_rows(given["numbers"], given["ordered"]))
