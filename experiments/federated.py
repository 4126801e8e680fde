"""The judges' regressions where every party keeps its columns: for tables that nobody may join."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiments.bayes_parts import sample_in_parts
from experiments.scad import choose_fits, find_refit_rule
from experiments.study import stack_numbers
from verticopula.glm.bayes import Posterior
from verticopula.glm.families import find_family
from verticopula.glm.feature_design import Features
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import geometric_strengths
from verticopula.protocol.party.regression_handler import RegressionHandler
from verticopula.protocol.regression_path import RegressionSettings, federated_path
from verticopula.schema.federation import Federation
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

Floats = NDArray[np.float64]
Tables = Mapping[str, pl.DataFrame]

TOLERANCE = 1e-3


def trace_in_parts(federation: Federation, tables: Tables, family_name: str) -> tuple[Floats, Floats]:
    """The library's federated path (SCAD), no intercept as in the paper: penalised, and refitted."""
    _, y = stack_numbers(federation, tables)
    blocks = _blocks(federation, tables)
    handlers = {name: RegressionHandler.holding(name, own) for name, own in blocks.items()}
    family, n_columns = find_family(family_name), sum(own.values.shape[1] for own in blocks.values())
    rule = find_refit_rule(y.size, n_columns)
    settings = RegressionSettings(family, Penalty.build("scad"), False, TOLERANCE, refit=rule)
    path = drive(
        federated_path(list(handlers), y, settings, geometric_strengths, study="original"), InProcessTransport(handlers)
    )
    fits = choose_fits(path.points, family, rule)
    return fits.penalised.coef, fits.refitted.coef


def sample_posterior_in_parts(federation: Federation, tables: Tables, family_name: str) -> Posterior:
    """The posterior over all columns, drawn party after party."""
    _, y = stack_numbers(federation, tables)
    blocks = list(_blocks(federation, tables).values())
    return sample_in_parts(blocks, y, find_family(family_name), fit_intercept=False)[0]


def _blocks(federation: Federation, tables: Tables) -> dict[str, Features]:
    """Every party's covariates, its columns in the federation's order; without a party that has none."""
    blocks = {}
    for party in federation.parties:
        names = [c.name for c in party.columns if (party.name, c.name) != federation.response]
        if names:
            values = tables[party.name].select(names).to_numpy().astype(np.float64)
            blocks[party.name] = Features.plain(values, names)
    return blocks
