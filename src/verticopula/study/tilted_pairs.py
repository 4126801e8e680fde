"""Which pairs of columns tables tilt, whatever the method: for the summary and the report's page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from verticopula.schema.columns import ColumnKey
from verticopula.schema.dependence import TILTED_DEPENDENCE
from verticopula.stats.strict_report import TiltedPair
from verticopula.stats.tilted_ranks.class_tilting import ClassMixture
from verticopula.stats.tilting.table_prior import copula_table
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula
from verticopula.study.fitted_study import FittedStudy


@dataclass(frozen=True)
class TiltingOverview:
    """What tables have done to a study's copula.

    Attributes
    ----------
    pairs : those that tables tilt, the most important first; `missed` of a study by ranks is nothing but `added`
    response, classes : whose classes have models of their own, and how many there are; "" and 0 where there is one
        model of everybody
    hidden : whether tables were asked for, and the noise hides some column's cells, so that nothing is tilted
    by_ranks : whether tables were read from noisy ranks, and not opened
    """

    pairs: tuple[TiltedPair, ...]
    response: str = ""
    classes: int = 0
    hidden: bool = False
    by_ranks: bool = False


def find_tilting(fitted: FittedStudy) -> TiltingOverview:
    """What tables have done to this study's copula."""
    strict, copula = fitted.result.strict, fitted.result.copula
    if strict is not None:
        return TiltingOverview(strict.pairs)
    if isinstance(copula, ClassMixture):
        pairs = _by_ranks(zip(copula.models, (copula.shares / copula.shares.sum()).tolist(), strict=True))
        return TiltingOverview(pairs, str(copula.response), len(copula.models), by_ranks=True)
    if isinstance(copula, TiltedStudyCopula):
        return TiltingOverview(_by_ranks([(copula, 1.0)]), by_ranks=True)
    return TiltingOverview((), hidden=fitted.settings.dependence == TILTED_DEPENDENCE and len(copula.layout.keys) > 1)


def _by_ranks(models: Iterable[tuple[TiltedStudyCopula, float]]) -> tuple[TiltedPair, ...]:
    """The pairs of all models, with their distances weighted by the models' shares."""
    added: defaultdict[tuple[ColumnKey, ColumnKey], float] = defaultdict(float)
    for copula, share in models:
        model, keys = copula.model, copula.layout.keys
        for (a, b), target in copula.targets.items():
            latents = model.latent_of[a], model.latent_of[b]
            r = float(model.correlation[latents]) if min(latents) >= 0 else 0.0
            alone = copula_table(model.columns[a], model.columns[b], r)
            added[keys[a], keys[b]] += share * 0.5 * float(np.abs(target - alone).sum())
    found = [TiltedPair(str(a), str(b), False, distance, distance) for (a, b), distance in added.items()]
    return tuple(sorted(found, key=lambda pair: -pair.added))
