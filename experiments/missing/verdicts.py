"""How a cell is judged: against the paper, against references on the complete data, against our own methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.judge import JudgeName, name_score
from experiments.methods import ORACLE, ORIGINAL
from experiments.metrics import direction
from experiments.paper import Printed, PrintedKey
from experiments.results import NOISELESS, CellRows
from experiments.runner import MARGINS
from experiments.store import name_entry
from reporting.tables import mean, standard_error

EPSILON = 1.0  # of unit variable; what the paper's tables have
REFINED = {"aligned": "Refined-aligned", "free": "Refined"}
RIVALS = {"aligned": ("EVCDS", "IEVCDS"), "free": ("EVCDS-free", "IEVCDS-free")}
METHODS = ("VCDS", "EVCDS", "EVCDS-free", "IEVCDS", "IEVCDS-free", "Refined", "Refined-aligned")
NOISELESS_METHODS = ("EVCDS", "IEVCDS", "Refined", "Refined-aligned")
CHECKS = {
    "paper_rmse/aligned": "refined aligned: RMSE below the paper's best",
    "paper_rmse/free": "refined free: RMSE below the paper's best",
    "paper_gmeans/aligned": "refined aligned: G-Means above the paper's best",
    "paper_gmeans/free": "refined free: G-Means above the paper's best",
    "own_rmse/aligned": "refined aligned: RMSE below our EVCDS and IEVCDS",
    "own_rmse/free": "refined free: RMSE below our EVCDS and IEVCDS",
    "own_gmeans/aligned": "refined aligned: G-Means above our EVCDS and IEVCDS",
    "own_gmeans/free": "refined free: G-Means above our EVCDS and IEVCDS",
    "margins": "refined: margins nearer than VCDS's",
    "evcds": "our EVCDS aligned: RMSE no worse than printed",
    "evcds/gmeans": "our EVCDS aligned: G-Means no worse than printed",
    "evcds/fdr": "our EVCDS aligned: FDR no worse than printed",
    "ievcds": "our IEVCDS aligned: RMSE no worse than printed",
    "ievcds/gmeans": "our IEVCDS aligned: G-Means no worse than printed",
    "ievcds/fdr": "our IEVCDS aligned: FDR no worse than printed",
}
Paper = Mapping[PrintedKey, Printed]


@dataclass(frozen=True)
class MeasuredLead:
    """By how much something is better than what it is measured by.

    Attributes
    ----------
    amount, standard_error : against the printed figure, or against our own rival
    adjusted : against the worse of that and the references on the complete data
    without_noise : as `adjusted`, for what is possible without noise on the same masks; None if not measured
    """

    amount: float
    standard_error: float
    adjusted: float
    without_noise: float | None = None

    @classmethod
    def paired(cls, differences: Sequence[float]) -> MeasuredLead:
        """Over a rival on the same data sets: no reference applies."""
        amount = mean(differences)
        return cls(amount, standard_error(differences), amount)

    @property
    def met(self) -> bool:
        return self.amount > 0

    @property
    def met_adjusted(self) -> bool:
        return self.adjusted > 0

    @property
    def met_within_error(self) -> bool:
        return self.adjusted > -2 * self.standard_error

    @property
    def out_of_reach(self) -> bool:
        """Short of the bar, and so is what is possible without noise: no budget would help."""
        return not self.met_adjusted and self.without_noise is not None and self.without_noise <= 0

    @property
    def verdict(self) -> str:
        if self.met:
            return "yes"
        if self.met_adjusted:
            return "yes, as the references"
        return "out of reach" if self.out_of_reach else "short"

    def __str__(self) -> str:
        return f"{self.verdict}: {self.amount:+.4f} ({self.standard_error:.4f})"


def printed_figure(paper: Paper, found: CellRows, method: str, metric: str) -> float:
    """The paper's mean for one of its copula methods in this cell."""
    model, mechanism, n = found.cell
    table = {"linear": ("table4", "table6"), "logistic": ("table5", "table7")}[model][method != "VCDS"]
    return paper[PrintedKey(table, model, mechanism, n, EPSILON, method, metric)].mean


def compare(found: CellRows, paper: Paper, judge: JudgeName) -> dict[str, MeasuredLead]:
    """One lead per entry of CHECKS, by a judge."""
    leads = {}
    for draw, ours in REFINED.items():
        for metric, best in (("rmse", min), ("gmeans", max)):
            bar = best(printed_figure(paper, found, method, metric) for method in ("EVCDS", "IEVCDS"))
            leads[f"paper_{metric}/{draw}"] = _lead_over_paper(found, ours, judge, metric, bar)
            rivals = [_paired_lead(found, ours, rival, judge, metric) for rival in RIVALS[draw]]
            leads[f"own_{metric}/{draw}"] = min(rivals, key=lambda lead: lead.amount)
    leads["margins"] = _paired_lead(found, "Refined", "VCDS", judge, MARGINS)
    for method in ("EVCDS", "IEVCDS"):
        for metric, name in (("rmse", ""), ("gmeans", "/gmeans"), ("fdr", "/fdr")):
            bar = printed_figure(paper, found, method, metric)
            leads[method.lower() + name] = _lead_over_paper(found, method, judge, metric, bar)
    return {name: leads[name] for name in CHECKS}


def _lead_over_paper(found: CellRows, method: str, judge: JudgeName, metric: str, printed: float) -> MeasuredLead:
    """The lead of a method's mean over a printed figure, and over the worse of it and the references.

    Without noise, a refined table is held against the best table of any method: a weakness of its own must not
    pass for one of the design. EVCDS and IEVCDS are what the paper wrote, so each is held against itself. Fewer data
    sets are made without noise, and data sets differ: what noise costs on these is taken off the mean of all.
    """
    sign, score = direction(metric), name_score(judge, metric)
    values = found.values(name_entry(method, EPSILON), score)
    bar = min(sign * value for value in (printed, *complete_data_references(found, judge, metric)))
    others = NOISELESS_METHODS if method in REFINED.values() else (method,)
    gains = [
        mean([sign * (quiet - noisy) for quiet, noisy in pairs])
        for other in others
        if (pairs := _pair(found, name_entry(other, NOISELESS), name_entry(method, EPSILON), score))
    ]
    adjusted = sign * mean(values) - bar
    return MeasuredLead(
        sign * (mean(values) - printed),
        standard_error(values),
        adjusted,
        adjusted + max(gains) if gains else None,
    )


def complete_data_references(found: CellRows, judge: JudgeName, metric: str) -> list[float]:
    """What the same selection finds on the complete data and, for RMSE, the oracle."""
    references = [mean(values)] if (values := found.values(ORIGINAL, name_score(judge, metric))) else []
    oracles = found.values(ORACLE, name_score(judge, "rmse")) if metric == "rmse" else []
    if oracles:
        # The median: where a class is rare, likelihood nearly separates the classes and one oracle is far off.
        references.append(float(np.median(oracles)))
    return references


def _paired_lead(found: CellRows, ours: str, rival: str, judge: JudgeName, metric: str) -> MeasuredLead:
    """Over the data sets on which both have an answer; no judge is asked about margins."""
    score = metric if metric == MARGINS else name_score(judge, metric)
    pairs = _pair(found, name_entry(ours, EPSILON), name_entry(rival, EPSILON), score)
    return MeasuredLead.paired([direction(metric) * (a - b) for a, b in pairs])


def _pair(found: CellRows, first: str, second: str, score: str) -> list[tuple[float, float]]:
    """One score of both entries on the data sets on which both have an answer."""
    both = [
        (r.entries[first].scores, r.entries[second].scores) for r in found.rows if {first, second} <= r.entries.keys()
    ]
    return [(a[score], b[score]) for a, b in both if score in a and score in b]


def count_verdicts(leads: Mapping[str, Sequence[Mapping[str, MeasuredLead]]]) -> dict[str, dict[str, dict[str, int]]]:
    """Per check and model (the keys of `leads`): the cells, and how many are what `MeasuredLead` says."""
    kinds = ("met", "met_adjusted", "met_within_error", "out_of_reach")
    return {
        name: {
            model: {"cells": len(cells), **{kind: sum(getattr(own[name], kind) for own in cells) for kind in kinds}}
            for model, cells in leads.items()
        }
        for name in CHECKS
    }


def summarise(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    """The verdicts in sentences."""

    def of(name: str, *models: str, kind: str = "met") -> str:
        chosen = [counts[name][m] for m in models or counts[name] if m in counts[name]]
        met, cells = (sum(own[what] for own in chosen) for what in (kind, "cells"))
        return f"{met} of {cells}"

    def near(name: str) -> str:
        return of(name, kind="met_within_error")

    return (
        f"Linear: the refined method's aligned rows have an RMSE below the paper's EVCDS and IEVCDS in "
        f"{of('paper_rmse/aligned', 'linear')} cells and higher G-Means in {of('paper_gmeans/aligned', 'linear')} "
        f"(free rows: {of('paper_rmse/free', 'linear')} and {of('paper_gmeans/free', 'linear')}). "
        f"Logistic: its RMSE is below that of our own EVCDS and IEVCDS in {of('own_rmse/aligned', 'logistic')} cells "
        f"aligned and {of('own_rmse/free', 'logistic')} free, and below the paper's best in "
        f"{of('paper_rmse/aligned', 'logistic')} aligned and {of('paper_rmse/free', 'logistic')} free. "
        f"Its G-Means are above those of our own EVCDS and IEVCDS in {of('own_gmeans/aligned', 'linear')} linear and "
        f"{of('own_gmeans/aligned', 'logistic')} logistic cells aligned, {of('own_gmeans/free', 'linear')} and "
        f"{of('own_gmeans/free', 'logistic')} free. "
        f"Its margins are nearer to the complete data's than VCDS's in {of('margins')} cells. "
        f"Our own EVCDS and IEVCDS, aligned, have an RMSE no worse than printed in "
        f"{of('evcds')} and {of('ievcds')} cells, G-Means in {of('evcds/gmeans')} and {of('ievcds/gmeans')}, an FDR in "
        f"{of('evcds/fdr')} and {of('ievcds/fdr')}; within two standard errors, or as the references, in "
        f"{near('evcds')} and {near('ievcds')}, {near('evcds/gmeans')} and {near('ievcds/gmeans')}, "
        f"{near('evcds/fdr')} and {near('ievcds/fdr')}."
    )
