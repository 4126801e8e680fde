"""The constants of the tilted copula that were chosen, not derived."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TiltedTuning:
    """Chosen constants of pooling, openings, choice of tables and fit.

    A word in brackets says what a constant was chosen on; without one it was chosen by hand, not tuned.

    - [lost]: tables of a generator that was not kept (random Bayesian networks and latent classes of 14 and 15 columns,
      40,000 people) and the public table magic in 16 cells a column, at (0.8, 1e-5). Most lie on a plateau. The choice
      cannot be repeated; `python -m benchmarks tilted_tuning` measures eight of them beside their neighbours.
    - [generated]: `benchmarks/generated_tables.py`, seed 100, columns of all kinds, 30,000 people.
    - [binary]: generated binary columns.
    - [sme]: `make_sme` with 71,827 people, epsilon 1 and 3, and seeds that no page reports; `score_caps` and
      `most_square` with 20,000 people, too.
    - [magic]: the public table magic.

    That all tables of a response of at most `most_classes` cells are opened, and that it has no latent then, was
    decided on magic, bean and tables of `benchmarks/generated_tables.py` (16,000 people, seeds 200 and 201, a binary
    last column), at (3, 1e-6) with blocks missing. Both were thought of when splits 0, 10 and 11 of shoppers and SBA
    loans were looked at; split 0 of either is one of those that docs/results/public.md reports.
    No constant was chosen on NLTCS, ACS, BR2000, Adult, shoppers or SBA loans.

    Attributes
    ----------
    most_cells : pooled cells of a column, but for an empty one
    rarest_share : [lost] a rarer cell is pooled
    empty_deviations : a cell within so many standard deviations of its noise counts as empty
    no_empty_deviations : a column whose empty values are within so many of them is taken for one without any
    margins_share, tables_share : [lost] parts of mu^2 for margins and for the second opening; the first one has the
        rest
    few_columns : [sme] with more columns than this, tables get less in inverse proportion, and margins in proportion
        to the root of it: the copula has to say more
    most_stretch : largest ratio of variances by regression and by margins
    copula_only_margins : [binary] part of mu^2 for margins where there is nothing for tables to say
    selection_share : [sme] part of mu^2 for base features by presence, where blocks are missing; margins and the first
        opening give it up in equal parts
    base_lack : share of people that a party may lack whose columns count as everybody's
    most_correction : largest ratio that selection changes a cell by
    regression_ridge, most_ridge : [sme] of regressions on the base, relative to the mean square of its features, for
        each standard deviation of noise on a mean product; and at most
    selection_rows : rows of the model that show what selection does
    selection_steps, selection_ridge : of the search for weights of presence, and the ridge that keeps them finite; that
        it grows with hundreds of features was set on the table of 500 columns whose time `benchmarks scale` reports
    score_caps : [sme] least and largest cap of a cell's mean latent, before scores get variance 1
    most_square : [sme] largest square that one column's score may have, where one normal column has about 1.5
    rarest_value : a score is standardised as if either end were at least this frequent
    weakest_slope : of a score on its latent, where one divides by it
    flat_variance : a score with less says nothing about its latent
    farthest_shift : of a latent in the population, in standard deviations
    most_factors : of the correlations' structure
    inside_weight : what a pair inside a party counts for the factors, so that a party's own structure does not pass
        for a common factor
    most_residual : largest variance of correlations around the factors
    least_loading : added to a factor's mean squared loading
    real_factor : mean squared loading from which a factor is counted in the report
    smallest_eigenvalue : of fitted correlations
    prior_variance : of a correlation about which nothing is known, where row weights are chosen
    weight_steps, farthest_weight : of the search for row weights, both in logarithms of a party's factor c_k
    nominal_weight, shape_weight : [lost] squared length of a nominal column's indicators and of an ordered column's
        second feature in a record, where a normal score has about 1.5
    empty_weight : the same of the indicator of an empty value
    most_explained : [generated] part of any contrast of a nominal column's cells that latents may explain
    rarest_category : a category's threshold is taken as if it, and all others, were at least this frequent
    shifts_along_factors, shifts_anywhere : prior variances of categories' shifts that are tried: g times the factors'
        part, and tau^2 in every direction
    smooth_length : [lost] how far apart two cells of an ordered column are, in grades, when their deviations have a
        correlation of 1/e
    own_part : [lost] part of a deviation's variance that neighbouring cells do not share
    product_part : [lost] part of independence in the scale of deviations from a table
    least_evidence : log likelihood that a pair's deviations must gain over none for its table to be opened
    most_readings : pairs without a table that products of features tilt at most
    least_ratio : a cell of a posterior table is at least this part of the expected one
    distance_factor : total variation distance of a table whose cells deviate by a standard deviation of 1
    enough_gain : [lost] part of the most that tables can take away at which no more are chosen
    response_weight : [magic] what the distance of a table of the response counts, where other tables' count 1
    most_classes : cells of a response that count as classes
    most_tables : opened at most
    sweeps : of every stage of the fit
    first_step, later_step, least_step : of theta, on the logarithm of a ratio: at first, at a stage's start, at least
    growing_distance : ratio of a sweep's distance to the last one's above which the step is made smaller
    smaller_step : what it is multiplied by then
    margin_step : of margins' tilts
    most_at_once : tables of one column that may take a whole step together
    most_tilt : largest theta
    calibration_sweeps, calibration_step : [lost] of the last sweeps, which take sampling error out of the rows' tables
    most_lost : part of the dependence that calibration is taken to lose at most
    averaged_sweeps : over which theta, and the model's own tables, are averaged before that
    fitted_rows : [generated] least and most rows that a fit works with, whatever the number of people is
    fitted_cells : of those rows at most, so that many columns take fewer rows; chosen for time, not for accuracy
    fresh_sweeps : [lost] of rows that are drawn anew
    most_calibrated : pairs without theta whose tables are calibrated, too; with more of them none is
    """

    most_cells: int = 16
    rarest_share: float = 0.004
    empty_deviations: float = 2.0
    no_empty_deviations: float = 3.0
    margins_share: float = 0.2
    tables_share: float = 0.55
    few_columns: int = 20
    most_stretch: float = 2.0
    copula_only_margins: float = 0.2
    selection_share: float = 0.1
    base_lack: float = 0.001
    most_correction: float = 4.0
    regression_ridge: float = 4.0
    most_ridge: float = 0.3
    selection_rows: int = 30_000
    selection_steps: int = 100
    selection_ridge: float = 1e-2
    score_caps: tuple[float, float] = (0.2, 2.0)
    most_square: float = 4.0
    rarest_value: float = 0.01
    weakest_slope: float = 0.05
    flat_variance: float = 0.1
    farthest_shift: float = 2.0
    most_factors: int = 8
    inside_weight: float = 0.1
    most_residual: float = 0.1
    least_loading: float = 1e-3
    real_factor: float = 0.01
    smallest_eigenvalue: float = 0.01
    prior_variance: float = 0.02
    weight_steps: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125)
    farthest_weight: float = 4.0
    nominal_weight: float = 1.0
    shape_weight: float = 0.3
    empty_weight: float = 0.3
    most_explained: float = 0.1
    rarest_category: float = 1e-3
    shifts_along_factors: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
    shifts_anywhere: tuple[float, ...] = (0.0, *(10.0 ** (k / 2 - 5.0) for k in range(9)))
    smooth_length: float = 0.5
    own_part: float = 0.3
    product_part: float = 0.1
    least_evidence: float = 2.0
    most_readings: int = 200
    least_ratio: float = 0.02
    distance_factor: float = 0.4
    enough_gain: float = 0.95
    response_weight: float = 3.0
    most_classes: int = 4
    most_tables: int = 400
    sweeps: tuple[int, ...] = (12, 12, 12, 12)
    first_step: float = 0.7
    later_step: float = 0.4
    least_step: float = 0.1
    growing_distance: float = 1.05
    smaller_step: float = 0.7
    margin_step: float = 0.3
    most_at_once: float = 3.0
    most_tilt: float = 6.0
    calibration_sweeps: int = 1
    calibration_step: float = 1.0
    most_lost: float = 0.1
    averaged_sweeps: int = 8
    fitted_rows: tuple[int, int] = (20_000, 30_000)
    fitted_cells: int = 1_200_000
    fresh_sweeps: int = 15
    most_calibrated: int = 300


TILTED_TUNING = TiltedTuning()
