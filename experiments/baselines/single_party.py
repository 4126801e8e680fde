"""Single party: only the columns of the party that holds the response; then VCDS or EVCDS on those."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from experiments.baselines import copula
from experiments.study import Fit, Outcome, Study
from verticopula.schema.federation import Federation


def fit(study: Study, method: copula.Method = "vcds", *, aligned: bool = False) -> Outcome:
    """Synthetic tables of one party."""
    party = study.federation.response.party
    alone = Federation.from_dict(
        {
            **study.federation.to_dict(),
            "party": [raw for raw in study.federation.to_dict()["party"] if raw["name"] == party],
        }
    )
    return copula.fit(replace(study, federation=alone, tables={party: study.tables[party]}), method, aligned=aligned)


single_vcds: Fit = fit
single_evcds: Fit = partial(fit, method="evcds", aligned=True)
