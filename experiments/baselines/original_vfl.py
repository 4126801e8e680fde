"""Original-VFL: a regression between the parties on their real columns, without any protection.

`library`: Algorithm 4 as the package has it. `bayes`: the posterior drawn party after party. There is no federated fit
with a ridge, so under that judge this label has the library's.
"""

from __future__ import annotations

from experiments.study import NOTHING_PROTECTED, Outcome, Study, keep_common


def fit(study: Study) -> Outcome:
    """The real tables, which stay apart."""
    tables = keep_common(study.federation, study.tables)
    return Outcome(NOTHING_PROTECTED, tables[study.federation.response.party].height, tables, stay_apart=True)
