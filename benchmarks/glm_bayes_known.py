"""On the data sets of `glm_bayes`: what somebody who knows the design reaches, at whatever threshold.

If even he cannot have the paper's RMSE, G-Means and FDR at once, no rule that has to learn from the data can be
expected to. His probabilities and means, and the library's on the same data sets, are kept beside the results, so that
other thresholds can be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.glm_bound import Bound, KnownPrior, sample_known
from benchmarks.glm_common import make_section_5_1
from benchmarks.glm_original import average_scores
from experiments.designs import SimulationDesign
from experiments.metrics import direction, score_coef
from verticopula.glm.bayes import Posterior, sample_posterior

Floats = NDArray[np.float64]
Pair = tuple[float, float]

SWEEPS = {1000: 800, 3000: 800, 5000: 300}  # of each of the two runs, by N; the first quarter is left out
DECIMALS = 6  # of what is kept
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
EVERY_THRESHOLD = (*np.arange(0.05, 0.995, 0.01).round(2).tolist(), 0.995, 0.999)


@dataclass(frozen=True)
class Opinions:
    """One rule's view of all replications.

    Attributes
    ----------
    mean, inclusion : (R, p)
    chain_difference : (R,) how far its runs are apart
    """

    mean: Floats
    inclusion: Floats
    chain_difference: Floats

    def average(self, truth: Floats, threshold: float) -> dict[str, Pair]:
        """Mean and standard error by metric, of the means where the probability is above the threshold."""
        return average_scores(
            [score_coef(coef, truth) for coef in np.where(self.inclusion > threshold, self.mean, 0.0)]
        )

    def among(self, chosen: NDArray[np.bool_]) -> Opinions:
        """Of these replications only."""
        return Opinions(self.mean[chosen], self.inclusion[chosen], self.chain_difference[chosen])


@dataclass(frozen=True)
class Contrast:
    """Both rules on the replications of one N, and (R,) the share of the smaller class in each."""

    known: Opinions
    ours: Opinions
    smaller_class: Floats


def draw_known(n: int, count: int) -> Contrast:
    """Of somebody who knows the logistic design, with runs from the truth and from the library's answer."""
    design = SimulationDesign(model="logistic")
    prior = KnownPrior(design.coef_size, 1.0 - design.sparsity)
    known, ours, shares = [], [], []
    for seed in range(count):
        problem, truth = make_section_5_1("logistic", n, seed, fit_intercept=False)
        here = sample_posterior(problem.features(), problem.y, problem.family, fit_intercept=False)
        starts = (truth, here.mean)
        known.append(sample_known(problem.x, problem.y, starts, here.mean, prior, sweeps=SWEEPS[n]))
        ours.append(here)
        shares.append(min(problem.y.mean(), 1.0 - problem.y.mean()))
    return Contrast(_gather(known), _gather(ours), np.array(shares))


def _gather(told: Sequence[Bound | Posterior]) -> Opinions:
    return Opinions(*(np.array([getattr(one, f.name) for one in told]) for f in fields(Opinions)))


def keep(path: Path, contrasts: Mapping[int, Contrast]) -> None:
    """By N."""
    arrays = {}
    for n, one in contrasts.items():
        arrays[f"{n}/smaller_class"] = one.smaller_class
        for rule, told in (("known", one.known), ("ours", one.ours)):
            arrays |= {f"{n}/{rule}/{f.name}": getattr(told, f.name) for f in fields(told)}
    small: dict[str, Any] = {name: array.astype(np.float32) for name, array in arrays.items()}
    np.savez_compressed(path, **small)


def load(path: Path) -> dict[int, Contrast]:
    """Rounded to what was kept: a share of sweeps that equals a threshold must not come back above it."""
    found = {}
    with np.load(path) as file:
        kept = {name: file[name].astype(np.float64).round(DECIMALS) for name in file.files}
    for n in dict.fromkeys(int(name.partition("/")[0]) for name in kept):
        known, ours = (
            Opinions(*(kept[f"{n}/{rule}/{f.name}"] for f in fields(Opinions))) for rule in ("known", "ours")
        )
        found[n] = Contrast(known, ours, kept[f"{n}/smaller_class"])
    return found


@dataclass(frozen=True)
class Nearest:
    """The threshold that comes nearest to all three measures of a cell.

    Attributes
    ----------
    threshold : where the largest shortfall is least
    shortfall : the largest there, in standard errors; 0 where all measures are reached
    found : the measures there, with standard errors
    """

    threshold: float
    shortfall: float
    found: Mapping[str, Pair]

    @property
    def verdict(self) -> str:
        if self.shortfall == 0.0:
            return "attainable"
        return "within two standard errors" if self.shortfall <= 2.0 else "not at any threshold"


def seek(opinions: Opinions, truth: Floats, bars: Mapping[str, float], thresholds: Sequence[float]) -> Nearest:
    """By metric a bar; a standard error is that of our own mean."""
    best: Nearest | None = None
    for threshold in thresholds:
        found = opinions.average(truth, threshold)
        short = 0.0
        for metric, bar in bars.items():
            ours, error = found[metric]
            gap = direction(metric) * (bar - ours)
            if gap > 0.0:
                short = max(short, gap / error if error > 0.0 else np.inf)
        if best is None or short < best.shortfall:
            best = Nearest(threshold, short, found)
    if best is None:
        raise ValueError("no threshold to look at")
    return best
