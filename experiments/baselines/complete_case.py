"""Complete cases: only subjects whom every party knows, and with every cell; then VCDS or EVCDS on those.

Who is known where is public in this setting, so leaving the others out costs nothing; the N of the criterion is theirs.
"""

from __future__ import annotations

from functools import partial

from experiments.baselines import copula
from experiments.study import Fit, Outcome, Study, keep_complete_cases
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT


def fit(study: Study, method: copula.Method = "vcds", *, aligned: bool = False, variant: str = OWN_VARIANT) -> Outcome:
    """Synthetic tables from the complete cases alone."""
    return copula.fit(keep_complete_cases(study), method, aligned=aligned, variant=variant)


cc_vcds: Fit = fit
cc_evcds: Fit = partial(fit, method="evcds", aligned=True)
cc_vcds_printed: Fit = partial(fit, variant=PRINTED_VARIANT)
cc_evcds_printed: Fit = partial(cc_evcds, variant=PRINTED_VARIANT)
