"""Mistakes in statistics that add noise."""

from __future__ import annotations

from tests.mutation.judges import (
    COIN_ENUMERATION,
    FLIP_RATES,
    GAUSSIAN_MARGINS,
    LARGE_TABLES,
    RANK_SAMPLER,
    STRICT_STUDY,
)
from tests.mutation.runner import Mutant, one_of

MUTANTS = (
    Mutant(
        "cells-two-half-noise",
        "stats/marginals.py",
        "noise.discrete_laplace(counts[:1], 1.0 / epsilon, *label)",
        "noise.discrete_laplace(counts[:1], 0.5 / epsilon, *label)",
        "a binary column's margin would have half the noise",
        FLIP_RATES,
    ),
    Mutant(
        "cells-sensitivity-one",
        "stats/marginals.py",
        "return noise.discrete_laplace(counts, 2.0 / epsilon, *label)",
        "return noise.discrete_laplace(counts, 1.0 / epsilon, *label)",
        "a replaced value moves two counts",
        FLIP_RATES,
    ),
    Mutant(
        "ranks-twice-epsilon",
        "stats/ranks.py",
        "CoinStream(keystream, flip_threshold(epsilon))",
        "CoinStream(keystream, flip_threshold(2.0 * epsilon))",
        "comparisons would be at twice their epsilon",
        COIN_ENUMERATION,
    ),
    Mutant(
        "ranks-binomial-half-theta",
        "stats/binomial_ranks.py",
        "theta = flip_threshold(epsilon) / 2**64",
        "theta = flip_threshold(epsilon) / 2**65",
        "the binomial sampler would flip half as often",
        FLIP_RATES,
    ),
    Mutant(
        "ranks-ties-by-row",
        "stats/ranks.py",
        "+ rows + _break_ties(lower, upper, keystream)",
        "+ rows + np.arange(lower.size) - lower",
        "ties would show the order of the rows without noise",
        COIN_ENUMERATION,
    ),
    Mutant(
        "ranks-binomial-ties-without-noise",
        "stats/binomial_ranks.py",
        "won + draw_binomials(ties, 0.5, keystream)",
        "won + ties / 2.0",
        "the binomial sampler would show without noise who shares a value",
        one_of(RANK_SAMPLER, "every_rank_has_its_exact_distribution"),
    ),
    Mutant(
        "ranks-binomial-blocks-share-coins",
        "stats/binomial_ranks.py",
        '[f"rows {row // NOISE_ROWS}" for row in',
        '["rows" for row in',
        "with a seed, the ranks of rows a block apart would have the same noise",
        one_of(LARGE_TABLES, "every_block_of_rows_has_random_bits_of_its_own"),
    ),
    Mutant(
        "empty-value-in-required-column",
        "stats/strict/gaussian_margins.py",
        "n_cells if may_be_empty else 0",
        "n_cells",
        "an empty value where the schema has no cell for it would show as an error or an odd count",
        one_of(STRICT_STUDY, "an_empty_value_in_a_required_column_is_a_value_to_everybody_else"),
    ),
    Mutant(
        "margins-sensitivity-one",
        "stats/strict/gaussian_margins.py",
        "return 1.0 if n_cells == 2 else math.sqrt(2.0)",
        "return 1.0",
        "a replaced value moves two counts",
        one_of(STRICT_STUDY, "a_replaced_value_moves_one_count_or_two"),
    ),
    Mutant(
        "margins-half-mu",
        "stats/strict/gaussian_margins.py",
        "return cell_sensitivity(gaussian_cell_count(column, n_known, deviation) + may_be_empty) / deviation",
        "return cell_sensitivity(gaussian_cell_count(column, n_known, deviation) + may_be_empty) / (2.0 * deviation)",
        "margins would be charged by half",
        GAUSSIAN_MARGINS,
    ),
    Mutant(
        "margins-not-smoothed",
        "stats/strict/gaussian_margins.py",
        "scale = count_deviation(deviation) * (1.0 + 2.0**-50)",
        "scale = float(deviation)",
        "discrete noise would not be worth the continuous one",
        GAUSSIAN_MARGINS,
    ),
)
