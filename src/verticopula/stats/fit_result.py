"""What the coordinator knows at the end of a study, whatever the method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import FEWEST_IN_COMMON, Missingness
from verticopula.privacy.budget import ColumnBudget
from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.em import regress
from verticopula.stats.marginals import Marginal
from verticopula.stats.pairwise import FitReport
from verticopula.stats.posterior_draws import PosteriorDraws
from verticopula.stats.refinement import RefineReport
from verticopula.stats.strict_report import StrictReport

Floats = NDArray[np.float64]

AlignedDraw = Callable[[np.random.Generator], Floats]
FindPosteriorDraws = Callable[[], PosteriorDraws]


@dataclass(frozen=True)
class Unidentified:
    """Two columns that (all but) no subject has both of.

    Their correlation given everything else cannot be learnt. `used` is what the model holds; any
    value from `low` to `high` fits the data equally well.
    """

    first: str
    second: str
    used: float
    low: float
    high: float


@dataclass(frozen=True)
class StrictSpending:
    """What a strict study has released, as its price needs it.

    Attributes
    ----------
    deviations : column -> standard deviation of the noise on each of its cell counts
    mu : Gaussian differential privacy of the first opening, for a whole record
    mu_person : for a whole person, whose blocks may stand in several records where rows were not agreed on
    factors : party -> what replacing its block moves the first opening by, relative to a whole person
    subjects : party -> how many people it knows
    tables, tables_person : of the second opening, for a block and for a person, whatever pairs are chosen
    selection : party -> what it released of its own features by presence costs a block
    empties : columns in which those whom their party knows may be without a value
    """

    deviations: Mapping[ColumnKey, float]
    mu: float
    mu_person: float
    factors: Mapping[str, float]
    subjects: Mapping[str, int]
    tables: float = 0.0
    tables_person: float = 0.0
    selection: Mapping[str, float] = field(default_factory=dict)
    empties: frozenset[ColumnKey] = frozenset()


@dataclass(frozen=True)
class FitResult:
    """A fitted copula and how it came about.

    Attributes
    ----------
    copula : margins and correlation of the population
    observed_margins : margins of the observed subjects; the same where nothing was corrected
    report : repairs
    missingness : who is observed where
    budgets : what each column spent; empty for `strict`, which has its `spending`
    refinement : how the iteration went, for `refined`
    unidentified : pairs of latents about which the data say nothing
    margin_sensitivity : for `evcds` and `ievcds`, the most that one replaced value can move any margin, given the
        drawn latents; what noise on the margin itself would have had to cover
    draw_aligned : latents (N, q) of the cohort's own subjects; None where there is no aligned release
        or where the study was loaded from a file, which does not keep the releases
    posterior_draws : called, it returns draws of the correlations from their posterior; None likewise, and for
        methods that have none
    strict, spending : how a strict fit went, and what it has spent
    """

    copula: FittedCopula
    observed_margins: Mapping[ColumnKey, Marginal]
    report: FitReport
    missingness: Missingness
    budgets: Mapping[ColumnKey, ColumnBudget]
    refinement: RefineReport | None = None
    unidentified: tuple[Unidentified, ...] = ()
    margin_sensitivity: float | None = None
    draw_aligned: AlignedDraw | None = None
    posterior_draws: FindPosteriorDraws | None = None
    strict: StrictReport | None = None
    spending: StrictSpending | None = None

    @property
    def n_subjects(self) -> int:
        return self.missingness.n_subjects

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle keeps: as in a saved study, no releases, and so nothing that is drawn from them."""
        return {**vars(self), "draw_aligned": None, "posterior_draws": None}


def find_unidentified(correlation: Floats, layout: Layout, overlap: NDArray[np.int64]) -> tuple[Unidentified, ...]:
    """Pairs without a common subject, and the range of correlations that fits what is known.

    Given the latents C known with both, r_jk = r_jC R_CC^-1 r_Ck + (partial correlation) *
    sqrt(v_j v_k), and nothing says what the partial correlation is.
    """
    known = overlap >= FEWEST_IN_COMMON
    found = []
    regressions: dict[bytes, Floats] = {}
    everything = np.arange(overlap.shape[0])
    for j, k in np.argwhere(np.triu(~known, 1)):
        given = np.flatnonzero(known[j] & known[k])
        if given.tobytes() not in regressions:
            regressions[given.tobytes()] = regress(correlation, given, everything)
        weights = regressions[given.tobytes()]
        middle = float(weights[j] @ correlation[given, k])
        spare = [max(1.0 - float(weights[i] @ correlation[given, i]), 0.0) for i in (j, k)]
        reach = float(np.sqrt(spare[0] * spare[1]))
        found.append(
            Unidentified(
                layout.labels[j],
                layout.labels[k],
                float(correlation[j, k]),
                max(middle - reach, -1.0),
                min(middle + reach, 1.0),
            )
        )
    return tuple(found)
