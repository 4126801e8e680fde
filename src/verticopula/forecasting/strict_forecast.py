"""What to expect of a strict study: simulations of it (`strict_simulation.py`), summed up."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.forecasting.expected_errors import Expected, SimulationSetting, sizes
from verticopula.privacy.budget import StudyBudget
from verticopula.simulate.strict_simulation import StrictErrors, simulate_strict
from verticopula.stats.copula import Layout

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StrictForecastSize:
    """How much a forecast of a strict study simulates: a choice of seconds against accuracy, made by hand.

    Attributes
    ----------
    subjects : in a simulation, if the study has them
    values : simulated in all: subjects times latents times simulations
    latents : times simulations: a fit takes longer than drawing its subjects
    truths : fewest and most
    """

    subjects: int = 60_000
    values: int = 6_000_000
    latents: int = 100
    truths: tuple[int, int] = (4, 8)


STRICT_FORECAST_SIZE = StrictForecastSize()


def expect_strict(
    setting: SimulationSetting, method: str, unit: str, budget: StudyBudget
) -> tuple[Expected, float, float]:
    """(the row, a typical pair's standard error before other pairs help, mu of the sums)."""
    federation, n_subjects = setting.federation, setting.n_subjects
    width = len(Layout.of({key: federation.column(key) for key in federation.keys}).labels)
    simulated = min(n_subjects, STRICT_FORECAST_SIZE.subjects)
    each = 1 if simulated == n_subjects else 2  # a bias is what two simulations of a truth have in common
    affordable = min(
        STRICT_FORECAST_SIZE.latents / (each * width), STRICT_FORECAST_SIZE.values / (each * simulated * width)
    )
    truths = int(np.clip(math.ceil(affordable), *STRICT_FORECAST_SIZE.truths))
    found: list[list[StrictErrors]] = [[] for _ in range(truths)]
    for number, _, cohort, rng in setting.cohorts(truths, each, simulated, graded=False):
        found[number].append(simulate_strict(federation, budget, cohort, rng))
    after = sizes([[e.after for e in of_truth] for of_truth in found], math.sqrt(simulated / n_subjects))
    every = [e for of_truth in found for e in of_truth]
    raw, within = np.concatenate([e.raw for e in every]), np.concatenate([e.within for e in every])
    low, middle, high = np.quantile(after, [0.1, 0.5, 0.9])
    before = _median(raw) or 0.0
    row = Expected(
        method,
        unit,
        None,
        before,
        float(middle),
        _median(raw[within]),
        _median(raw[~within]),
        float(np.mean([e.margins.mean() for e in every])),
        float(low),
        float(high),
    )
    return row, before, float(np.median([e.mu for e in every]))


def _median(errors: Floats) -> float | None:
    return float(np.median(errors)) if errors.size else None
