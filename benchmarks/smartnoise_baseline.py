"""SmartNoise's side of the comparison. Runs inside SmartNoise's own environment and imports nothing of ours.

`python smartnoise_baseline.py CODES.parquet CARDINALITIES.json EPSILON DELTA SEED OUT.parquet` fits MST to a table of
whole numbers 0..c-1, writes as many synthetic rows, and prints a JSON object with seconds and versions. Domains are
given, so that no budget goes to finding them. The seed is that of the choices and draws that NumPy makes; the noise is
OpenDP's and has none.

Three things are not as the package does them by itself. None of them costs it anything:

- Codes go straight to MST. The package's own transformers take and give the same codes, cell by cell.
- Before it chooses pairs, MST asks a model without any pair for all two-way margins, and each costs a compilation.
  Columns of such a model are independent: those are products. The first few are compared.
- Rows are drawn from the fitted model one by one. By default mbi 1.1.0 deals out each column's values in the order of
  the rows, so that two columns with the same neighbour in the tree rise together though the model has them
  independent given it: correlations of 0.8 where neither the data nor the model has any.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from mbi import Factor, MarkovRandomField
from snsynth.mst import MSTSynthesizer

PACKAGES = ("smartnoise-synth", "mbi", "jax", "opendp", "numpy", "pandas")

_project = MarkovRandomField.project
_synthetic_data = MarkovRandomField.synthetic_data
_compared = 0


def project(model: MarkovRandomField, attrs: tuple[str, ...]) -> Factor:
    """A product of two margins where the model has no pairs; the first few are compared with what the package says."""
    global _compared
    if len(attrs) != 2 or max(len(clique) for clique in model.potentials.cliques) > 1:
        return _project(model, attrs)
    one, other = (np.asarray(_project(model, (name,)).datavector(), dtype=np.float64) for name in attrs)
    product = np.outer(one, other) / float(model.total)
    if _compared < 3:
        _compared += 1
        if not np.allclose(product.ravel(), _project(model, attrs).datavector(), rtol=1e-3, atol=1e-3 * product.max()):
            raise RuntimeError("two columns of a model without pairs are not independent")
    return Factor(model.domain.project(tuple(attrs)), jnp.asarray(product))


class Codes:
    """What MST asks of a transformer, for a table that is coded already."""

    def __init__(self, cardinalities: list[int]) -> None:
        self.cardinality = cardinalities
        self.output_width = len(cardinalities)

    def inverse_transform(self, rows: list[tuple[int, ...]]) -> Any:
        return np.array(rows, dtype=np.int64)


class CodedMST(MSTSynthesizer):
    """MST on a table that is coded already."""

    def __init__(self, cardinalities: list[int], **settings: Any) -> None:
        super().__init__(**settings)
        self._codes = Codes(cardinalities)

    def _get_train_data(self, data: pd.DataFrame, *ignore: Any, **settings: Any) -> Any:
        self._transformer = self._codes
        return data.to_numpy()


def make_synthetic(
    codes: pd.DataFrame, cardinalities: list[int], epsilon: float, delta: float
) -> tuple[pd.DataFrame, dict[str, float]]:
    """As many synthetic rows of codes, and the seconds that fitting and sampling took."""
    synthesizer = CodedMST(cardinalities, epsilon=epsilon, delta=delta)
    start = time.perf_counter()
    synthesizer.fit(codes)
    fitted = time.perf_counter()
    rows = synthesizer.sample(len(codes))
    end = time.perf_counter()
    if rows.shape != codes.shape:
        raise RuntimeError("MST returned another number of rows or columns")
    return pd.DataFrame(rows, columns=codes.columns), {"fit": fitted - start, "sample": end - fitted}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    MarkovRandomField.project = project
    MarkovRandomField.synthetic_data = lambda model, rows=None: _synthetic_data(model, rows, method="sample")
    table, cards, eps, slack, seed, out = sys.argv[1:]
    np.random.seed(int(seed))  # noqa: NPY002 - it is what the package draws from
    processor = time.process_time()
    synthetic, seconds = make_synthetic(
        pd.read_parquet(table), json.loads(Path(cards).read_text(encoding="utf-8")), float(eps), float(slack)
    )
    synthetic.to_parquet(out)
    seconds["processor"] = time.process_time() - processor
    print(json.dumps({"seconds": seconds, "versions": {p: version(p) for p in PACKAGES}}))
