"""A study repeated on data from its own fitted copula: free post-processing that touches nobody's data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import AlignedTable
from verticopula.privacy.budget import LARGEST_EPSILON
from verticopula.privacy.noise import SeededNoise, server_generator
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import seeded_study_name
from verticopula.schema.setting_choices import BINOMIAL_SAMPLER, EXACT_SAMPLER
from verticopula.schema.study_settings import StudySettings
from verticopula.schema.units import Unit
from verticopula.simulate.in_process import run_in_process
from verticopula.storage.ledger import Ledger
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.synthetic_tables import SyntheticTables, decode_tables


def repeat_study(fitted: FittedStudy, *, seed: int, n_rows: int) -> SyntheticTables:
    """Synthetic tables of a study like the given one, on data from its fitted copula.

    Parameters
    ----------
    seed : of the data, the noise and the rows
    n_rows : of the synthetic tables
    """
    federation, settings = fitted.federation, with_binomial_sampler(fitted)
    result = run_in_process(
        federation,
        settings,
        draw_from_copula(fitted, np.random.default_rng(seed)),
        study=seeded_study_name(federation),
        noise=lambda name: SeededNoise(seed).derive(name),
        rng=server_generator(seed, "fit"),
        ledger=Ledger(),
        ask_consent=False,  # of people who do not exist
    )
    values = result.copula.sample(n_rows, server_generator(seed, "sample", "0"))
    return decode_tables(values, federation, result)


def with_binomial_sampler(fitted: FittedStudy) -> StudySettings:
    """Settings with the same noise on ranks, drawn in no time where that can be.

    The binomial sampler is as noisy as flipping every comparison if it pays for its two coins with twice the epsilon.
    """
    own_budgets = any(party.epsilon is not None for party in fitted.federation.parties)
    budget, ranks = fitted.budget, fitted.settings.record.ranks
    if fitted.settings.is_printed:
        return fitted.settings
    if not ranks or fitted.unit not in (Unit.VARIABLE, Unit.CLIENT) or budget.sampler != EXACT_SAMPLER or own_budgets:
        return fitted.settings
    if 2.0 * budget.epsilon_ranks > LARGEST_EPSILON:
        return fitted.settings
    return replace(
        fitted.settings,
        sampler=BINOMIAL_SAMPLER,
        epsilon=None,
        epsilon_ranks=2.0 * budget.epsilon_ranks,
        epsilon_marginals=budget.epsilon_marginals,
    )


def draw_from_copula(fitted: FittedStudy, rng: np.random.Generator) -> dict[str, AlignedTable]:
    """Subjects from the copula, known to parties in the real study's pattern."""
    result, federation = fitted.result, fitted.federation
    values = result.copula.draw_people(result.n_subjects, rng)
    known = np.repeat(
        [pattern for pattern, _ in result.missingness.patterns],
        [count for _, count in result.missingness.patterns],
        axis=0,
    )
    cohort = {}
    for number, name in enumerate(result.missingness.parties):
        party = federation.party(name)
        columns = {}
        for column in party.columns:
            key = ColumnKey(name, column.name)
            seen = known[:, number].copy()
            spare = int(seen.sum()) - result.missingness.observed[key]
            if spare > 0:  # single empty cells inside the party's blocks
                seen[rng.choice(np.flatnonzero(seen), size=spare, replace=False)] = False
            seen &= np.isfinite(values[key])  # empty values that the copula itself has
            columns[column.name] = EncodedColumn(np.where(seen, values[key], 0.0), seen)
        cohort[name] = AlignedTable(party, columns)
    return cohort
