"""Original-VFL: a regression between the parties on their real columns, without any protection.

`library`: Algorithm 4 as the package has it. `bayes`: the posterior drawn party after party.
"""

from __future__ import annotations

from experiments.study import NOTHING_PROTECTED, Outcome, Study, keep_common


def fit(study: Study) -> Outcome:
    """The real tables, which stay apart."""
    tables = keep_common(study.federation, study.tables)
    height = tables[study.federation.response.party].height
    return Outcome(NOTHING_PROTECTED, height, tables, stay_apart=True, synthetic=False)
