"""Original-VFL: Algorithm 4 between the parties on their real columns, without any protection.

The library's federated path (sharing ADMM, SCAD, BIC on refits), no intercept as in the paper. It has no ridge, so this
label is judged by the library's rule whatever judges the others.
"""

from __future__ import annotations

import numpy as np

from experiments.study import NOTHING_PROTECTED, MethodFailure, Outcome, Study, keep_common, stack_numbers
from verticopula.glm.design import Features
from verticopula.glm.families import find_family
from verticopula.glm.path import RefitRule, choose_point, geometric_strengths, information_criterion
from verticopula.glm.penalties import Penalty
from verticopula.protocol.admm import RegressionSettings, federated_path
from verticopula.protocol.regression_desk import RegressionDesk
from verticopula.transport.base import drive
from verticopula.transport.inprocess import InProcessTransport

TOLERANCE = 1e-3
MAX_ROUNDS = 2000


def fit(study: Study) -> Outcome:
    """Coefficients that the parties find together."""
    tables = keep_common(study.federation, study.tables)
    _, y = stack_numbers(study.federation, tables)
    desks = {}
    for party in study.federation.parties:
        names = [c.name for c in party.columns if (party.name, c.name) != study.federation.response]
        if names:
            values = tables[party.name].select(names).to_numpy().astype(np.float64)
            desks[party.name] = RegressionDesk.holding(party.name, Features.plain(values, names))
    family = find_family(study.family)
    rule = RefitRule(float(np.log(y.size)), y.size)
    settings = RegressionSettings(family, Penalty.build("scad"), False, TOLERANCE, MAX_ROUNDS, refit=rule)
    path = drive(
        federated_path(list(desks), y, settings, geometric_strengths, study="original"), InProcessTransport(desks)
    )
    scores = [
        information_criterion(family, point.refit.loss, point.degrees_of_freedom, rule.n_subjects, rule.charge)
        if point.refit
        else np.inf
        for point in path.points
    ]
    refit = path.points[choose_point(scores)].refit if scores else None
    if refit is None:
        raise MethodFailure("no strength of the path could be fitted again")
    return Outcome(NOTHING_PROTECTED, y.size, coef=refit.coef)
