"""The built-in study: simulated, so that what comes out can be compared with the truth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from verticopula.data.column_encoding import decode_column
from verticopula.datasets import ContinuousMargin, SmeStudy
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import Layout


def compare_with_truth(study: SmeStudy, synthesizer: Synthesizer, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """How far the synthetic tables are from the population that was simulated."""
    labels = Layout.of({key: study.federation.column(key) for key in study.federation.keys}).labels
    # As printed, a nominal column has one latent, which the population does not have.
    common = [label for label in synthesizer.correlation_.columns if label in labels]
    found = synthesizer.correlation_.loc[common, common].to_numpy()
    places = [labels.index(label) for label in common]
    truth = study.truth.correlation[np.ix_(places, places)]
    off = ~np.eye(found.shape[0], dtype=bool)
    rmse = float(np.sqrt(np.mean((found - truth)[off] ** 2)))
    size = float(np.sqrt(np.mean(truth[off] ** 2)))
    distances = [_kolmogorov(study, key, tables[key.party][key.column]) for key in study.federation.keys]
    lines = [
        "Against the truth (known, because this population is simulated)",
        f"  latent correlation: root mean square error {rmse:.4f} (the correlations' own size: {size:.4f})",
        f"  margins: mean Kolmogorov distance {np.mean(distances):.4f}, largest {np.max(distances):.4f}",
    ]
    if not synthesizer.study_.settings.is_printed:  # there, nothing says what the observed margins are
        observed = np.mean(_observed_distances(study, synthesizer))
        lines.append(f"  margins of the observed subjects alone: {observed:.4f}")
    return [*lines, "  The blocks here are missing at random: the observed subjects are not like the others."]


def _observed_distances(study: SmeStudy, synthesizer: Synthesizer) -> list[float]:
    """Kolmogorov distance of each uncorrected margin from the truth, by a draw from it."""
    rng = np.random.default_rng(0)
    found = []
    for key, margin in synthesizer.result_.observed_margins.items():
        values = decode_column(margin.quantile(rng.random(100_000)), study.federation.column(key))
        found.append(_kolmogorov(study, key, values))
    return found


def _kolmogorov(study: SmeStudy, key: ColumnKey, synthetic: pl.Series) -> float:
    """Largest difference of distribution functions; half the total difference for unordered categories."""
    column = study.federation.column(key)
    margin = study.truth.margins[str(key)]
    if isinstance(margin, ContinuousMargin):
        ordered = np.sort(synthetic.to_numpy())
        return float(np.max(np.abs(np.arange(1, ordered.size + 1) / ordered.size - margin.cdf(ordered))))
    if column.kind == "count":
        low, high = (int(b) for b in column.bounds or (0, 0))
        levels: list[object] = list(range(low, high + 1))
    else:
        levels = list(column.categories or ())
    shares = np.array([np.mean((synthetic == level).to_numpy()) for level in levels])
    if column.kind == "nominal":
        return float(np.sum(np.abs(shares - margin)) / 2.0)
    return float(np.max(np.abs(np.cumsum(shares - margin))))
