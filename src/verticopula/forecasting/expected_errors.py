"""What a forecast says, from what it is made, and how simulations' errors become typical figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.simulate.assumptions import AssumedPresence, Assumptions
from verticopula.simulate.rank_simulation import Cohort, draw_cohort

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """What to expect of one method at one unit.

    Attributes
    ----------
    epsilon_ranks : per comparison, the largest over the columns; None for `strict`, which compares nobody
    before : root mean square error of the latent correlations before shrinkage; half of the assumed truths are worse.
        For `strict` a typical pair's standard error from noise and sample alone, before other pairs help
    after : the same of the matrix that is used; noise that is shrunk away leaves the truth's own size
    within, between : typical standard error of a pair of columns of one party, of two parties; None without such pairs
    margins : mean Kolmogorov distance of the margins
    low, high : eight of ten assumed truths have an error before shrinkage between these; for `strict` an error of the
        matrix that is used
    """

    method: str
    unit: str
    epsilon_ranks: float | None
    before: float
    after: float
    within: float | None
    between: float | None
    margins: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Forecast:
    """Expected errors by method and unit, what they assume, and one sentence of advice.

    Attributes
    ----------
    n_subjects, epsilon, delta : as they were asked for
    typical_correlation : size of the correlations that is assumed
    observed : party -> share of the people whom it knows
    rows : one for each method and unit
    advice : which method, and how far its results can be trusted
    """

    n_subjects: int
    epsilon: float
    delta: float
    typical_correlation: float
    observed: Mapping[str, float]
    rows: tuple[Expected, ...]
    advice: str

    def row(self, method: str, unit: str) -> Expected:
        """The row of that method and unit; KeyError where there is none.

        Parameters
        ----------
        method : one of `verticopula.METHODS`
        unit : `variable`, `client`, `block` or `person`
        """
        return {(row.method, row.unit): row for row in self.rows}[method, unit]

    def to_dict(self) -> dict[str, Any]:
        """The forecast as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class SimulationSetting:
    """What studies are simulated on. The same seed gives the same truths, whatever the method."""

    federation: Federation
    n_subjects: int
    typical_correlation: float
    presence: AssumedPresence
    known_shares: Mapping[ColumnKey, Floats]
    seed: int

    def cohorts(
        self, truths: int, each: int, n_simulated: int, *, graded: bool
    ) -> Iterator[tuple[int, int, Cohort, np.random.Generator]]:
        """(which truth, which repetition, its subjects, the stream that they were drawn from) of all simulations.

        Parameters
        ----------
        truths : how many there are; each is drawn from the seed and its number
        each : simulations of every truth
        n_simulated : subjects in each of them
        graded : whether a method will rank them
        """
        for number in range(truths):
            own = np.random.default_rng([self.seed, number])
            truth = Assumptions.draw(self.federation, self.typical_correlation, own, self.presence, self.known_shares)
            for again in range(each):
                rng = np.random.default_rng([self.seed, number, again])
                cohort = draw_cohort(
                    self.federation, truth, self.n_subjects, n_simulated, self.presence, rng, graded=graded
                )
                yield number, again, cohort, rng


def sizes(errors: Sequence[Sequence[Floats]], reduction: float) -> Floats:
    """(truths,) root mean square error of each truth, as the whole study would have it.

    A simulation on fewer subjects has its errors scaled by `reduction`. That is right for accidents; a bias
    does not fall with the number of subjects. Its square is the mean product of two simulations' errors of one truth;
    as a share of all squares it is the same for all truths here, and none if it could be an accident itself.
    """
    if errors[0][0].size == 0:
        return np.zeros(len(errors))
    squares = np.array([np.mean([np.mean(e**2) for e in of_truth]) for of_truth in errors])
    if reduction < 1.0:
        products = np.concatenate([a * b for of_truth in errors for i, a in enumerate(of_truth) for b in of_truth[:i]])
        bias, accident = float(products.mean()), float(products.std() / math.sqrt(products.size))
        kept = max(bias - accident**2 / max(bias, 1e-300), 0.0) / max(float(squares.mean()), 1e-300)
        squares = squares * (1.0 + (1.0 / reduction**2 - 1.0) * min(kept, 1.0))
    return np.asarray(np.sqrt(squares))


def typical(errors: Floats) -> float | None:
    """Standard error of a typical pair: half of a normal's absolute errors are below 0.6745 of it."""
    return float(np.median(np.abs(errors)) / 0.6745) if errors.size else None
