"""Original-C: the parties' real columns in one place, without any protection. What the tables are measured against."""

from __future__ import annotations

from experiments.study import NOTHING_PROTECTED, Outcome, Study, keep_common


def fit(study: Study) -> Outcome:
    """The real tables themselves, for the judge to fit."""
    tables = keep_common(study.federation, study.tables)
    return Outcome(NOTHING_PROTECTED, tables[study.federation.response.party].height, tables, synthetic=False)
