"""The constants of method `strict` that were chosen, not derived.

Whoever changes one should run `python -m benchmarks strict`: the built-in SME study, and other correlation matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

from verticopula.stats.mixing import MixingSettings

_MIXING = MixingSettings(memory=4, damping=0.5, ridge=1e-6, most_reach=10.0, ridge_on_sums=True)


@dataclass(frozen=True)
class StrictTuning:
    """Chosen constants of the strict plan and fit.

    `score_caps`, `most_square` and `means_weight` were chosen on `make_sme` (20,000 and 71,827 people, epsilon 1 and 3)
    with seeds that no page reports. The others were chosen by hand, not tuned.

    Attributes
    ----------
    moments_share : part of mu^2 that goes to the moments; the margins have the rest
    score_caps : least and largest cap of a cell's mean latent, before scores get variance 1
    most_cells : of a column, pooled
    cell_step : width of a pooled cell in standard deviations of the latent, unless there would be more cells
    most_square : largest square that one column's shared scores may have, where one normal column has about 1.5
    rarest_value : an indicator is standardised as if either value were at least this frequent
    weakest_slope : of a score on its latent, where one divides by it
    flat_variance : a score with less says nothing about its latent
    most_patterns : opened at most
    prior_variance : of a correlation about which nothing is known, where weights of patterns are chosen
    means_weight : how much more than a product a mean counts there: margins rest on them
    most_log_weight : largest logarithm of a squared weight, either way
    most_factors : of the correlations' structure
    inside_weight : what a pair inside a party counts for the factors, so that a party's own structure does not pass
        for a common factor
    most_residual : largest variance of correlations around the factors
    least_loading : added to a factor's mean squared loading
    real_factor : mean squared loading from which a factor is counted in the report
    base_lack : share of people that a latent of the base may lack
    least_square : a pattern's mean squares are at least this share of everybody's
    shift_noise : variance added to that of a shift, where patterns are weighted
    farthest_shift : of a latent in the population, in standard deviations
    most_stretch : of a score's variance against the one it should have
    most_rounds : of the fit
    tolerance : rounds end where no correlation moves by as much
    quiet : EM takes over where noise is below this share of the sampling variance in every pattern
    most_em_steps, em_tolerance : steps of EM at most; they end where no correlation moves by as much
    mixing : of the rounds; half of a plain step, because a whole one overshoots where people differ much
    nearly_all : share of all mass in one cell of a nominal column that leaves nothing to associate
    largest_error : expected; with a larger one a correlation is reported as not supported
    """

    moments_share: float = 0.85
    score_caps: tuple[float, float] = (0.2, 2.0)
    most_cells: int = 12
    cell_step: float = 0.2
    most_square: float = 4.0
    rarest_value: float = 0.01
    weakest_slope: float = 0.05
    flat_variance: float = 0.1
    most_patterns: int = 64
    prior_variance: float = 0.02
    means_weight: float = 16.0
    most_log_weight: float = 2.0
    most_factors: int = 8
    inside_weight: float = 0.1
    most_residual: float = 0.1
    least_loading: float = 1e-3
    real_factor: float = 0.01
    base_lack: float = 0.001
    least_square: float = 0.1
    shift_noise: float = 0.01
    farthest_shift: float = 2.0
    most_stretch: float = 2.0
    most_rounds: int = 20
    tolerance: float = 2e-3
    quiet: float = 0.1
    most_em_steps: int = 300
    em_tolerance: float = 2e-4
    mixing: MixingSettings = _MIXING
    nearly_all: float = 0.995
    largest_error: float = 0.05


STRICT_TUNING = StrictTuning()
