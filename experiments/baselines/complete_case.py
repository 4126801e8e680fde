"""Complete cases: only subjects whom every party knows, and with every cell; then VCDS or EVCDS on those.

Who is known where is public in this setting, so leaving the others out costs nothing; the N of the criterion is theirs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from experiments.baselines import copula
from experiments.study import Fit, MethodFailure, Outcome, Study, keep_common

FEWEST = 10  # below it there is nothing to rank


def fit(study: Study, method: copula.Method = "vcds", *, aligned: bool = False) -> Outcome:
    """Synthetic tables from the complete cases alone."""
    tables = keep_common(study.federation, study.tables)
    n = tables[study.federation.response.party].height
    if n < FEWEST:
        raise MethodFailure(f"{n} complete cases, {FEWEST} are needed")
    return copula.fit(replace(study, tables=tables), method, aligned=aligned)


cc_vcds: Fit = fit
cc_evcds: Fit = partial(fit, method="evcds", aligned=True)
