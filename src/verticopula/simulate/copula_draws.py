"""Copulas that a study could have found as well: draws of its error, for no budget and at a small part of its cost.

The fitted copula is taken for the population. For every draw as many people are drawn from it as the study has,
and hidden in its pattern of missing blocks. Their cells are counted with the noise of the study, and become margins as
in the study. The correlations are those

- of pairs of noisy ranks, shrunk and repaired, where the method does just that;
- of the posterior, where the method has one (`stats/posterior_draws.py`);
- of these people, with the noise of the openings as large as the fit says that it still is, for sums over people.

Patterns are dealt to people at random, so what a dependence of missingness on data adds to margins is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness, count_common
from verticopula.data.tables import AlignedTable, EncodedColumn
from verticopula.privacy.budget import coins_per_comparison
from verticopula.privacy.coins import flip_probability
from verticopula.schema.columns import ColumnKey
from verticopula.simulate.rank_simulation import SimulatedRelease, draw_coin_noise, grade_values, release_counts
from verticopula.simulate.repeat_study import draw_from_copula
from verticopula.stats.copula import FittedCopula
from verticopula.stats.fit_result import FindPosteriorDraws
from verticopula.stats.marginals import Marginal, to_cells
from verticopula.stats.matrix_repair import nearest_correlation
from verticopula.stats.pairwise import correlate_pairs, fit_pairwise
from verticopula.stats.ranks import rank_noise_variance
from verticopula.stats.strict.gaussian_margins import count_deviation, estimate_margin
from verticopula.study.fitted_study import FittedStudy

Floats = NDArray[np.float64]
Rng = np.random.Generator


@dataclass(frozen=True)
class CopulaDrawTuning:
    """Chosen constants of draws. All were chosen by hand, not tuned.

    Attributes
    ----------
    people : most in a draw. Larger studies are drawn with fewer, and errors scaled as in `rank_simulation.py`
    """

    people: int = 20_000


COPULA_DRAW_TUNING = CopulaDrawTuning()


def why_errors_are_unknown(fitted: FittedStudy, posterior: FindPosteriorDraws | None) -> str:
    """Why nobody knows the errors of the study's copula; empty where they are known.

    Parameters
    ----------
    posterior : draws of the correlations, where the study has them
    """
    known, strict = fitted.method.known_errors, fitted.result.strict
    if fitted.settings.is_printed:
        return "the errors of the paper's algorithms as printed are not known"
    if not known:
        return f"the errors of method {fitted.method.name!r} are known from repetitions of the study only"
    if known == "posterior" and posterior is None:
        return "these tables came without the draws of their correlations"
    if strict is not None and not strict.learnt:
        return "nothing stood out of the noise, and columns are drawn independently"
    return ""


def draw_copulas(
    fitted: FittedStudy, posterior: FindPosteriorDraws | None, n_draws: int, seed: int
) -> Iterator[FittedCopula]:
    """Copulas that the study could have found, where their errors are known.

    Parameters
    ----------
    posterior : draws of the correlations, where the study has them
    seed : any: what is drawn protects nobody
    """
    result = fitted.result
    plain = FittedCopula(result.copula.layout, result.copula.marginals, result.copula.correlation)
    missingness = keep_share(result.missingness, min(COPULA_DRAW_TUNING.people / result.n_subjects, 1.0))
    louder = math.sqrt(result.n_subjects / missingness.n_subjects)
    fewer = replace(fitted, result=replace(result, copula=plain, missingness=missingness))
    draw = _PeopleDraw(fewer, result.n_subjects / missingness.n_subjects)
    kept = np.empty((0, 0, 0)) if posterior is None else posterior().deviations
    for number in range(n_draws):
        rng = np.random.default_rng([seed, number])
        tables = draw_from_copula(fewer, rng)
        marginals = draw.margins(tables, rng)
        if fitted.method.known_errors == "ranks":
            correlation, _ = fit_pairwise(draw.release(tables, marginals, rng))
            errors = (correlation - plain.correlation) / louder
        elif fitted.method.known_errors == "posterior":
            errors = kept[number * len(kept) // n_draws]  # far apart: neighbours of a chain are alike
        else:
            errors = draw.opening_errors(draw.release(tables, marginals, rng), rng) / louder
        moved = {
            key: replace(
                own, probabilities=own.probabilities + (marginals[key].probabilities - own.probabilities) / louder
            )
            for key, own in plain.marginals.items()
        }
        yield FittedCopula(plain.layout, moved, nearest_correlation(plain.correlation + errors).correlation)


def keep_share(missingness: Missingness, share: float) -> Missingness:
    """The same pattern among so many fewer people."""
    patterns = tuple((pattern, round(share * count)) for pattern, count in missingness.patterns)
    observed = {key: round(share * count) for key, count in missingness.observed.items()}
    n = sum(count for _, count in patterns)
    return replace(missingness, n_subjects=n, patterns=patterns, observed=observed)


@dataclass(frozen=True)
class _PeopleDraw:
    """What the study would have released about people from its own copula.

    Attributes
    ----------
    fitted : with the pattern of those who are drawn
    fold : of how many times as many people the study is. Noise is then larger by the root of that, as sampling is
    """

    fitted: FittedStudy
    fold: float

    def margins(self, tables: Mapping[str, AlignedTable], rng: Rng) -> dict[ColumnKey, Marginal]:
        """Margins from noisy cell counts."""
        found = {}
        for key, own in self.fitted.result.observed_marginals.items():
            cells = _column(tables, key)
            codes = to_cells(cells.values[cells.observed], own.column, own.probabilities.size)
            counts = np.bincount(codes, minlength=own.probabilities.size).astype(np.float64)
            found[key] = self._margin(key, own, counts, codes.size, rng)
        return found

    def _margin(self, key: ColumnKey, own: Marginal, counts: Floats, n: int, rng: Rng) -> Marginal:
        spending = self.fitted.result.spending
        if n == 0:
            return own
        if spending is None:
            epsilon = math.sqrt(self.fold) * self.fitted.result.budgets[key].epsilon_marginal
            return release_counts(own.column, counts, n, epsilon, rng)
        deviation = spending.deviations[key] / math.sqrt(self.fold)
        noisy = np.round(counts + count_deviation(deviation) * rng.standard_normal(counts.size)).astype(np.int64)
        if counts.size == 2:
            noisy[1] = n - noisy[0]
        return estimate_margin(own.column, noisy, n, deviation)

    def release(
        self, tables: Mapping[str, AlignedTable], marginals: Mapping[ColumnKey, Marginal], rng: Rng
    ) -> SimulatedRelease:
        """Grades of the people, noisy where the method ranks them."""
        result, layout = self.fitted.result, self.fitted.result.copula.layout
        masks, grades, noise = [], [], []
        for key, part in zip(layout.keys, layout.slices, strict=True):
            cells, column = _column(tables, key), marginals[key].column
            values, n = cells.values[cells.observed], int(cells.observed.sum())
            flip = 0.0
            if self.fitted.method.ranks:
                coins = coins_per_comparison(column, self.fitted.budget.sampler)
                flip = flip_probability(result.budgets[key].epsilon_ranks / coins)
            width = part.stop - part.start
            for offset, latent in zip(range(width), marginals[key].latents(), strict=True):
                of_latent = (values == offset).astype(np.float64) if width > 1 else values
                grade, ties = grade_values(of_latent, column.is_discrete) if n else (values, values)
                masks.append(cells.observed)
                noisy = self.fitted.method.ranks and n > 1
                ranked = round(self.fold * n)  # by whom a grade's noise is made smaller
                grades.append(grade + draw_coin_noise(ties, ranked, flip, rng) if noisy else grade)
                noise.append(rank_noise_variance(ranked, flip, latent.tied_share) / ranked**2 if noisy else 0.0)
        observed = np.column_stack(masks)
        return SimulatedRelease(layout, marginals, observed, (), np.empty(0), tuple(grades), np.array(noise))

    def opening_errors(self, release: SimulatedRelease, rng: Rng) -> Floats:
        """(q, q) errors of correlations from sums over people: these people, and the openings' noise."""
        result, layout = self.fitted.result, release.layout
        strict, centre = result.strict, result.copula.correlation
        assert strict is not None
        party = np.array([strict.parties.index(key.party) for key in layout.latent_keys])
        raw, expected = (error[np.ix_(party, party)] for error in (strict.raw_error, strict.expected_error))
        kept = np.divide(expected, raw, out=np.ones_like(raw), where=np.isfinite(raw) & (raw > 0.0))
        people = np.maximum(self.fold * count_common(release.observed), 1.0)
        sampling = (1.0 - centre**2) ** 2 / people
        own = np.sqrt(self.fold * np.maximum((kept * result.report.standard_error) ** 2 - sampling, 0.0))
        noise = np.triu(own * rng.standard_normal(own.shape), 1)
        error = correlate_pairs(release).correlation - centre + noise + noise.T
        error[layout.nominal_blocks() | np.eye(len(layout.labels), dtype=bool)] = 0.0
        return np.asarray(error)


def _column(tables: Mapping[str, AlignedTable], key: ColumnKey) -> EncodedColumn:
    return tables[key.party].columns[key.column]
