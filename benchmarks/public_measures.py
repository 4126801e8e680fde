"""What rows of a public table are judged by: marginals, associations, and models tested on people held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.public_mixed import model_areas
from benchmarks.public_studies import PublicRows, PublicStudy
from benchmarks.public_tables import total_variation
from benchmarks.smartnoise_measures import associations

Ints = NDArray[np.int64]
WAYS = (2, 3, 4)
GROUPS = 8  # of a column of numbers; cells of 64 would be empty nearly everywhere
_DECILES = np.arange(1, 10) / 10.0


def measure_rows(study: PublicStudy, rows: PublicRows) -> dict[str, Any]:
    """Distances of marginals, errors of associations and, where rows are held out, areas under the curve."""
    found: dict[str, Any] = {"tvd": measure_marginals(study, rows.codes)}
    found |= measure_associations(study, rows.codes)
    if study.response is not None:
        test = study.table.numbers[study.test]
        found["linear"], found["boosted"] = (round(a, 5) for a in model_areas(study.table, rows.numbers, test))
    return found


def measure_marginals(study: PublicStudy, codes: Ints) -> list[float]:
    """Mean total variation distance of random marginals of two, three and four columns."""
    real, sizes = study.real.codes, [c.n_cells + c.may_be_empty for c in study.coded]
    if study.raw is None:
        cuts = [np.unique(np.quantile(column, np.arange(1, GROUPS) / GROUPS)) for column in real.T]
        cuts = [cut if size > GROUPS else np.arange(size - 1) for cut, size in zip(cuts, sizes, strict=True)]
        real, codes = (_group(part, cuts) for part in (real, codes))
        sizes = [cut.size + 1 for cut in cuts]
    return [round(total_variation(real, codes, sizes, k), 6) for k in WAYS]


def _group(codes: Ints, cuts: Sequence[NDArray[Any]]) -> Ints:
    return np.column_stack([np.searchsorted(cut, codes[:, j], side="left") for j, cut in enumerate(cuts)])


def measure_associations(study: PublicStudy, codes: Ints) -> dict[str, float]:
    """Mean absolute error of associations of two columns of one party, and of two parties."""
    real = study.real.codes
    cuts = {j: np.unique(np.quantile(real[:, j], _DECILES)) for j, c in enumerate(study.coded) if c.ordered}
    both = [
        associations({j: part[:, j].astype(np.float64) for j in range(part.shape[1])}, cuts) for part in (real, codes)
    ]
    errors: dict[str, list[float]] = {"within": [], "across": []}
    for (a, b), value in both[0].items():
        kind = "within" if study.coded[a].party == study.coded[b].party else "across"
        errors[kind].append(abs(both[1][a, b] - value))
    return {kind: round(float(np.mean(values)), 6) for kind, values in errors.items()}
