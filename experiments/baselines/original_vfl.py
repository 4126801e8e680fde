"""Original-VFL: a regression between the parties on their real columns, without any protection.

Ours is judged like every other table, but between the parties: `paper` and `library` by the package's Algorithm 4,
`bayes` by a posterior drawn party after party. As printed, Algorithm 4 is itself the judge.
"""

from __future__ import annotations

import warnings

import numpy as np

from experiments.study import NOTHING_PROTECTED, MethodFailure, Outcome, Study, keep_common
from verticopula import VerticalGLM
from verticopula.errors import VerticopulaError
from verticopula.schema.methods import PRINTED_VARIANT


def fit(study: Study) -> Outcome:
    """The real tables, which stay apart."""
    tables = keep_common(study.federation, study.tables)
    height = tables[study.federation.response.party].height
    return Outcome(NOTHING_PROTECTED, height, tables, stay_apart=True, synthetic=False)


def fit_printed(study: Study) -> Outcome:
    """The coefficients of Algorithm 4 as printed, its strength chosen by 2N f + df log N."""
    federation, tables = study.federation, keep_common(study.federation, study.tables)
    response = tables[federation.response.party][federation.response.column].to_numpy().astype(np.float64)
    columns = {
        party.name: tables[party.name].select(names).to_numpy().astype(np.float64)
        for party in federation.parties
        if (names := [c.name for c in party.columns if (party.name, c.name) != federation.response])
    }
    model = VerticalGLM(study.family, fit_intercept=False, variant=PRINTED_VARIANT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(columns, response)
    except VerticopulaError as error:
        raise MethodFailure(str(error)) from error
    return Outcome(NOTHING_PROTECTED, response.size, coef=np.concatenate(list(model.coef_.values())))
