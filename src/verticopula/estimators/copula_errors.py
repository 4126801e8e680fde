"""How far a regression on synthetic tables may be off, because the copula behind them may be: free post-processing.

No table is drawn. The rows that the model was fitted on are decoded anew with other margins, and errors of the
correlations are carried over to coefficients to first order (`glm/row_effects.py`). Errors are those

- of *people*: maximum likelihood's own, as if all columns of everybody had been seen without noise;
- of *correlations*: what privacy noise and missing blocks add to that. For `vcds` a correlation is a mean product of
  noisy readings over the people that have both columns; for `refined` the draws of the posterior tell its error; for
  `strict` the fit says how much noise of the openings is left;
- of *margins*: noisy cells are drawn again and again;
- of *rows*: their finite number.

Biases are what noise far out in the tails of margins does (`stats/margin_tails.py`), what noise does to margins on
average, and what shrinking does to correlations that were shrunk before. Rows of `strict` are calibrated: what
correlations they lose by that is known, too.

Patterns are taken as dealt to people at random: what a dependence of missingness on data adds to margins is left out.
The margins of nominal columns are taken as known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

from verticopula.estimators.bootstrap import SelectedModel
from verticopula.formatting import join_names
from verticopula.glm.families import find_family
from verticopula.glm.inference import ErrorParts, Inference, infer_from_likelihood, infer_from_parts
from verticopula.glm.row_effects import RowEffects
from verticopula.privacy.budget import coins_per_comparison
from verticopula.privacy.coins import flip_probability
from verticopula.schema.columns import ColumnKey
from verticopula.simulate.rank_simulation import release_counts
from verticopula.stats.correlation import shrink
from verticopula.stats.fit_result import FindPosteriorDraws
from verticopula.stats.margin_tails import shorten_tails
from verticopula.stats.marginals import Marginal
from verticopula.stats.nominal import boundary_matrix, solve_thresholds
from verticopula.stats.ranks import rank_noise_variance
from verticopula.stats.strict.gaussian_margins import count_deviation, estimate_margin
from verticopula.study.fitted_study import FittedStudy

Floats = NDArray[np.float64]
Rng = np.random.Generator

_UNIFORM_LOADING = 0.5 / math.sqrt(math.pi)  # covariance of a normal number with its own grade
_POINTS = 256  # at which a column's values are seen to follow its latent
_GRADES = (np.arange(_POINTS) + 0.5) / _POINTS
_LATENTS = ndtri(_GRADES) / np.std(ndtri(_GRADES))
_EDGE = 1e-9  # grades stay so far from 0 and 1


@dataclass(frozen=True)
class CopulaErrorTuning:
    """Chosen constants of the errors of a copula. All were chosen by hand, not tuned.

    Attributes
    ----------
    draws : of every margin
    seed : of what is drawn: any, since it protects nobody
    """

    draws: int = 6
    seed: int = 0


COPULA_ERROR_TUNING = CopulaErrorTuning()


def why_errors_are_unknown(fitted: FittedStudy, posterior: FindPosteriorDraws | None) -> str:
    """Why nobody knows the errors of the study's copula; empty where they are known.

    Parameters
    ----------
    posterior : draws of the correlations, where the study has them
    """
    known, strict = fitted.settings.record.known_errors, fitted.result.strict
    related = [str(key) for key in fitted.federation.keys if fitted.federation.column(key).relation is not None]
    if related:
        return f"the errors of columns that are modelled as differences are not worked out ({join_names(related, 3)})"
    if fitted.settings.is_printed:
        return "the errors of the paper's algorithms as printed are not known"
    if not known:
        return f"the errors of method {fitted.settings.record.name!r} are known from repetitions of the study only"
    if known == "posterior" and posterior is None:
        return "these tables came without the draws of their correlations"
    if strict is not None and not strict.learnt:
        return "nothing stood out of the noise, and columns are drawn independently"
    return ""


@threadpool_limits.wrap(limits=1, user_api="blas")  # the matrices are small: threads only wait for each other
@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a fit that runs off is found by what is not finite
def infer_from_copula(
    fitted: FittedStudy, posterior: FindPosteriorDraws | None, model: SelectedModel, columns: Floats, y: Floats
) -> Inference | None:
    """Intervals of the selected coefficients from the known errors of the fitted copula; None where one is not finite.

    Parameters
    ----------
    posterior : draws of the correlations, where the study has them
    columns, y : (n, s), (n,) the selected features and the response of the rows that the model was fitted on
    """
    rng = np.random.default_rng(COPULA_ERROR_TUNING.seed)
    errors = _CopulaErrors.of(fitted, model, columns, y, rng)
    family = find_family(model.family)
    effects = RowEffects(family, model.intercept is not None)
    likely = errors.decode({key: own.likely for key, own in errors.columns.items()})
    middle = effects.maximise(*likely, model.estimate)
    drawn = [errors.decode(errors.draw_margins(rng)) for _ in range(COPULA_ERROR_TUNING.draws)]
    moves = np.array([effects.maximise(*rows, middle) for rows in drawn]) - middle
    if not (np.isfinite(middle).all() and np.isfinite(moves).all()):
        return None
    first = int(effects.has_intercept)
    people = infer_from_likelihood(
        likely[0], middle[first:], float(middle[0]) if first else None, likely[1], family, model.n_effective
    ).standard_error
    gradients = effects.gradients(likely[0], middle, errors.loadings)
    gradients[:, errors.within] = 0.0
    calibrated = fitted.result.strict is not None
    parts = ErrorParts(
        people=people,
        correlations=np.sqrt(errors.correlation_variance(gradients, posterior)),
        margins=moves,
        rows=people * (0.0 if calibrated else math.sqrt(model.n_effective / model.n_rows)),
        doubtful_bias=model.estimate - middle + moves.mean(axis=0) + _carry(gradients, errors.shrinkage()),
        known_bias=_carry(gradients, errors.rows_off()) if calibrated else np.zeros(middle.size),
    )
    return infer_from_parts(model.estimate, parts, model.n_effective, model.cuts)


def _carry(gradients: Floats, errors: Floats) -> Floats:
    return np.asarray(np.sum(gradients * errors, axis=(1, 2)))


@dataclass(frozen=True)
class _ColumnErrors:
    """A column of the regression, and what its margin may be off by.

    Attributes
    ----------
    places : of its features in the regression's; -1 for the response
    margin, likely : as fitted, and without the noise in its tails
    shares : (C,) of the cells of people with the likely margin
    grades : (n,) of the rows; None for a nominal column, whose values stay as they are
    n_known : people that have a value
    spare : what fewer people than the study has add to the variance of a share, over the share
    """

    places: NDArray[np.int64]
    margin: Marginal
    likely: Marginal
    shares: Floats
    grades: Floats | None
    n_known: int
    spare: float

    def loading(self) -> Floats:
        """(d, w) covariances of its features with its latents, those that the regression has not among them."""
        if self.grades is None:
            return boundary_matrix(solve_thresholds(self.likely.probabilities))[1:]
        return np.array([[np.mean(self.likely.quantile(_GRADES) * _LATENTS)]])

    def value_noise(self) -> Floats:
        """(w,) variance of its values as readings of its latents, beyond the latents' own."""
        if self.grades is None:
            return np.array([_grade_noise(latent, 0.0) for latent in self.margin.latents()])
        values = self.likely.quantile(_GRADES)
        return np.array([np.var(values) / max(float(np.mean(values * _LATENTS)) ** 2, 1e-300) - 1.0])


@dataclass(frozen=True)
class _CopulaErrors:
    """The part of a fitted copula that a regression uses.

    Attributes
    ----------
    columns : the response first
    rows : the selected features and the response
    places : (q,) latents of these columns
    owners : (q,) the column of each
    loadings : (q,), (s, q) covariances of response and features with the latents
    """

    study: FittedStudy
    columns: Mapping[ColumnKey, _ColumnErrors]
    rows: tuple[Floats, Floats]
    places: NDArray[np.int64]
    owners: tuple[ColumnKey, ...]
    loadings: tuple[Floats, Floats]

    @classmethod
    def of(cls, study: FittedStudy, model: SelectedModel, columns: Floats, y: Floats, rng: Rng) -> _CopulaErrors:
        """Those of a regression's response and selected columns."""
        response, layout = ColumnKey.parse(model.response), study.result.copula.layout
        found = {response: _describe_column(study, response, np.array([-1]), y, rng)}
        kept, at = {response: np.array([True])}, 0
        for party, codings in model.codings.items():
            ends = np.cumsum([len(coding.names) for coding in codings])[:-1]
            for coding, coef in zip(codings, np.split(model.coef[party], ends), strict=True):
                key, size = ColumnKey(party, coding.name), int(np.count_nonzero(coef))
                if size:
                    kept[key] = coef != 0.0
                    found[key] = _describe_column(study, key, at + np.arange(size), columns[:, at], rng)
                at += size
        parts = {key: layout.slices[layout.keys.index(key)] for key in found}
        places = np.concatenate([np.arange(part.start, part.stop) for part in parts.values()])
        owners = tuple(key for key, part in parts.items() for _ in range(part.start, part.stop))
        features = np.zeros((at, places.size))
        begin = parts[response].stop - parts[response].start
        own = np.zeros(places.size)
        own[:begin] = found[response].loading()[0]
        for key, column in list(found.items())[1:]:
            loading = column.loading()[kept[key]]
            features[column.places, begin : begin + loading.shape[1]] = loading
            begin += loading.shape[1]
        return cls(study, found, (columns, y), places, owners, (own, features))

    @property
    def correlation(self) -> Floats:
        """(q, q) of the latents."""
        return np.asarray(self.study.result.copula.correlation[np.ix_(self.places, self.places)])

    @property
    def within(self) -> NDArray[np.bool_]:
        """(q, q) whether two latents are of one column."""
        numbers = np.array([list(self.columns).index(key) for key in self.owners])
        return np.asarray(numbers[:, None] == numbers)

    # ---- margins -------------------------------------------------------------------------

    def decode(self, margins: Mapping[ColumnKey, Marginal]) -> tuple[Floats, Floats]:
        """The rows as they would be with other margins, at the same grades."""
        features, y = self.rows[0].copy(), self.rows[1]
        for key, own in self.columns.items():
            if own.grades is None:
                continue
            values = margins[key].quantile(own.grades)
            if own.places[0] < 0:
                y = values
            else:
                features[:, own.places[0]] = values
        return features, y

    def draw_margins(self, rng: Rng) -> dict[ColumnKey, Marginal]:
        """Margins as the study could have found them, with new noise on all of them."""
        return {key: self._draw_margin(key, own, rng) for key, own in self.columns.items()}

    def _draw_margin(self, key: ColumnKey, own: _ColumnErrors, rng: Rng) -> Marginal:
        if own.grades is None or own.n_known == 0:
            return own.likely
        sampled = np.sqrt(own.spare * own.shares) * rng.standard_normal(own.shares.size)
        counts = own.n_known * (own.shares + sampled - own.shares * sampled.sum())
        found = _release(self.study, key, counts, own.n_known, rng)
        return shorten_tails(found, _cell_deviation(self.study, key) / own.n_known)

    def rows_off(self) -> Floats:
        """(q, q) what correlations of the rows' latents are away from the copula's, where rows show them."""
        error, places, latents = np.zeros_like(self.correlation), [], []
        for j, key in enumerate(self.owners):
            own = self.columns[key]
            if own.grades is not None and not own.margin.column.has_ties:
                places.append(j)
                latents.append(ndtri(own.grades))
        if len(places) > 1:
            chosen = np.ix_(places, places)
            error[chosen] = np.corrcoef(latents) - self.correlation[chosen]
        return error

    # ---- correlations --------------------------------------------------------------------

    def correlation_variance(self, gradients: Floats, posterior: FindPosteriorDraws | None) -> Floats:
        """What noise and missing blocks add to the variance of every coefficient through the correlations."""
        n, values = self.study.result.n_subjects, np.concatenate([c.value_noise() for c in self.columns.values()])
        ideal = pair_variance(gradients, self.correlation, values, [(np.ones(len(self.owners), dtype=bool), n)])
        known = self.study.settings.record.known_errors
        if known == "posterior":
            assert posterior is not None
            drawn = posterior().deviations[:, self.places[:, None], self.places]
            found = np.var(np.tensordot(gradients, drawn, axes=([1, 2], [1, 2])), axis=1, ddof=1)
        elif known == "ranks":
            found = pair_variance(gradients, self.correlation, self._rank_noise(), self._patterns())
        else:
            found = pair_variance(gradients, self.correlation, values, self._patterns())
            found = found + np.sum((2.0 * np.triu(gradients, 1) * self._opening_noise()) ** 2, axis=(1, 2))
        return np.asarray(np.maximum(found - ideal, 0.0))

    def shrinkage(self) -> Floats:
        """(q, q) what shrinking moves correlations by, where a method does nothing but that."""
        if self.study.settings.record.known_errors != "ranks":
            return np.zeros_like(self.correlation)
        copula, variance = self.study.result.copula, self.study.result.report.standard_error**2
        shrunk = shrink(copula.correlation, variance, copula.layout.nominal_blocks() | (variance == 0.0))
        return np.asarray((shrunk.correlation - copula.correlation)[np.ix_(self.places, self.places)])

    def _patterns(self) -> list[tuple[NDArray[np.bool_], int]]:
        """Which latents are known together, and of how many people."""
        missingness = self.study.result.missingness
        at = [missingness.parties.index(key.party) for key in self.owners]
        return [(np.array(pattern)[at], count) for pattern, count in missingness.patterns]

    def _rank_noise(self) -> Floats:
        """(q,) variance of noisy ranks as readings of their latents, beyond the latents' own."""
        result, found = self.study.result, []
        latents = [latent for own in self.columns.values() for latent in own.margin.latents()]
        for key, latent in zip(self.owners, latents, strict=True):
            coins = coins_per_comparison(self.columns[key].margin.column, self.study.budget.sampler)
            flip = flip_probability(result.budgets[key].epsilon_ranks / coins)
            n = max(result.missingness.observed[key], 2)
            found.append(_grade_noise(latent, rank_noise_variance(n, flip, latent.tied_share) / n**2))
        return np.array(found)

    def _opening_noise(self) -> Floats:
        """(q, q) standard deviation of what the openings' noise leaves in a correlation."""
        result, centre = self.study.result, self.correlation
        strict = result.strict
        assert strict is not None
        party = np.array([strict.parties.index(key.party) for key in self.owners])
        raw, expected = (error[np.ix_(party, party)] for error in (strict.raw_error, strict.expected_error))
        kept = np.divide(expected, raw, out=np.ones_like(raw), where=np.isfinite(raw) & (raw > 0.0))
        pairs = np.ix_(self.places, self.places)
        sampling = (1.0 - centre**2) ** 2 / np.maximum(result.report.overlap[pairs], 1.0)
        return np.asarray(np.sqrt(np.maximum((kept * result.report.standard_error[pairs]) ** 2 - sampling, 0.0)))


def _describe_column(
    study: FittedStudy, key: ColumnKey, places: NDArray[np.int64], values: Floats, rng: Rng
) -> _ColumnErrors:
    """A column by its fitted margin and its values in the rows."""
    result = study.result
    margin, n = result.copula.margins[key], result.missingness.observed[key]
    likely = shorten_tails(margin, _cell_deviation(study, key) / max(n, 1))
    shares, grades = likely.probabilities, None
    if len(margin.latents()) == 1:
        grades = margin.cdf(values)
        if margin.column.is_discrete:  # anywhere inside of the value's own grades
            grades -= rng.random(values.size) * (grades - margin.cdf(values - 1.0))
        grades = np.clip(grades, _EDGE, 1.0 - _EDGE)
    if margin.column.kind == "continuous":  # smoothing moves a little between cells
        shares = np.maximum(np.diff(likely.cdf(likely.upper_ends()), prepend=0.0), 0.0)
    spare = 1.0 / n - 1.0 / result.n_subjects if n else 0.0
    return _ColumnErrors(places, margin, likely, shares / shares.sum(), grades, n, max(spare, 0.0))


def _cell_deviation(study: FittedStudy, key: ColumnKey) -> float:
    """Standard deviation of the noise on a count."""
    spending = study.result.spending
    if spending is not None:
        return count_deviation(spending.deviations[key])
    return 2.0 * math.sqrt(2.0) / study.result.budgets[key].epsilon_marginal


def _release(study: FittedStudy, key: ColumnKey, counts: Floats, n: int, rng: Rng) -> Marginal:
    """A margin from these counts with the study's noise."""
    result, column = study.result, study.federation.column(key)
    if result.spending is None:
        return release_counts(column, counts, n, result.budgets[key].epsilon_marginal, rng)
    deviation = result.spending.deviations[key]
    noisy = np.round(counts + count_deviation(deviation) * rng.standard_normal(counts.size)).astype(np.int64)
    if counts.size == 2:
        noisy[1] = n - noisy[0]
    return estimate_margin(column, noisy, n, deviation)


def _grade_noise(latent: Marginal, coins: float) -> float:
    """Variance of a column's grades as readings of its latent, beyond the latent's own.

    Parameters
    ----------
    coins : variance that coins add to a grade
    """
    grades, jumps = latent.grade_steps
    loading = _UNIFORM_LOADING
    if latent.column.has_ties:
        loading = float(np.sum(jumps * np.exp(-0.5 * ndtri(grades) ** 2)) / math.sqrt(2.0 * math.pi))
    return (latent.grade_variance + coins) / max(loading, 1e-6) ** 2 - 1.0


def pair_variance(
    gradients: Floats, correlation: Floats, noise: Floats, patterns: list[tuple[NDArray[np.bool_], int]]
) -> Floats:
    """(s,) variances of sums of (gradient) x (error of a correlation), each from the people that have both columns.

    A correlation is the mean product of two readings r = z + e, less half of it for each z^2 that is known to be 1 on
    average. A sum of those is a quadratic form in normal numbers, whose variance is known.

    Parameters
    ----------
    gradients : (s, q, q) symmetric, 0 on the diagonal
    noise : (q,) variances of e
    patterns : which readings are known together, and of how many people
    """
    together = sum(count * np.outer(seen, seen) for seen, count in patterns)
    share = gradients / np.maximum(together, 1.0)
    total = np.zeros(len(gradients))
    for seen, count in patterns:
        form = share * np.outer(seen, seen)
        scaled = form - np.eye(noise.size) * np.sum(form * correlation, axis=2)[:, :, None]
        products = scaled @ correlation
        noisy = form * noise
        sampled = 2.0 * np.sum(products * products.transpose(0, 2, 1), axis=(1, 2))
        across = 4.0 * np.sum(noisy * (form @ correlation).transpose(0, 2, 1), axis=(1, 2))
        total += count * (sampled + across + 2.0 * np.sum(noisy * noisy.transpose(0, 2, 1), axis=(1, 2)))
    return total
