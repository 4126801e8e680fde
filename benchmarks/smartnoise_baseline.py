"""SmartNoise's side of the comparison. Runs inside SmartNoise's own environment and imports nothing of ours.

`python smartnoise_baseline.py CODES.parquet CARDINALITIES.json METHOD EPSILON DELTA SEED OUT.parquet` fits METHOD
(`mst` or `aim`) to a table of whole numbers 0..c-1, writes as many synthetic rows, and prints a JSON object with
seconds and versions. Domains are given, so that no budget goes to finding them. The seed is that of the choices and
draws that NumPy makes; the noise is OpenDP's and has none.

One thing is computed in another way, to the same result: before it chooses pairs, MST asks a model without any pair
for all two-way margins, and each costs a compilation. Columns of such a model are independent: those are products.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
from mbi import Factor, MarkovRandomField
from snsynth.aim import AIMSynthesizer
from snsynth.mst import MSTSynthesizer
from snsynth.transform import BinTransformer, TableTransformer

PACKAGES = ("smartnoise-synth", "mbi", "jax", "opendp", "numpy", "pandas")
METHODS = {"mst": MSTSynthesizer, "aim": AIMSynthesizer}

_project = MarkovRandomField.project
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


def make_synthetic(
    codes: pd.DataFrame, cardinalities: list[int], method: str, epsilon: float, delta: float
) -> tuple[pd.DataFrame, dict[str, float]]:
    """As many synthetic rows of codes, and the seconds that fitting and sampling took."""
    transformer = TableTransformer([BinTransformer(bins=c, lower=0.0, upper=float(c)) for c in cardinalities])
    synthesizer = METHODS[method](epsilon=epsilon, delta=delta)
    start = time.perf_counter()
    synthesizer.fit(codes + 0.5, transformer=transformer)
    fitted = time.perf_counter()
    rows = synthesizer.sample(len(codes))
    end = time.perf_counter()
    sampled = pd.DataFrame(rows, columns=codes.columns) if not isinstance(rows, pd.DataFrame) else rows
    if synthesizer.epsilon != epsilon or len(sampled) != len(codes):
        raise RuntimeError("the synthesizer spent budget on its transformer, or returned another number of rows")
    whole = np.floor(sampled.to_numpy(dtype=np.float64)).astype(np.int64)
    return pd.DataFrame(whole, columns=codes.columns), {"fit": fitted - start, "sample": end - fitted}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    MarkovRandomField.project = project
    table, cards, name, eps, slack, seed, out = sys.argv[1:]
    np.random.seed(int(seed))  # noqa: NPY002 - it is what the package draws from
    synthetic, seconds = make_synthetic(
        pd.read_parquet(table), json.loads(Path(cards).read_text(encoding="utf-8")), name, float(eps), float(slack)
    )
    synthetic.to_parquet(out)
    print(json.dumps({"seconds": seconds, "versions": {p: version(p) for p in PACKAGES}}))
