"""What a reader of a study must know, found in one place: for the summary, the report's page and Python's warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from verticopula.errors import AlignedWarning, NotPrivateWarning, StudyWarning, WeakPrivacyWarning, WeakResultWarning
from verticopula.formatting import count_of, format_percent, format_small, join_names
from verticopula.privacy.statement import PrivacyStatement, format_epsilon, state_privacy
from verticopula.schema.columns import ColumnKey
from verticopula.schema.methods import PRINTED_VARIANT, REFINED, STRICT
from verticopula.schema.setting_choices import BINOMIAL_SAMPLER
from verticopula.schema.units import Unit
from verticopula.stats.copula import FittedCopula, find_rare
from verticopula.stats.fit_result import FitResult
from verticopula.stats.sampler_choice import BINOMIAL_COST
from verticopula.stats.strict.gaussian_margins import count_deviation
from verticopula.stats.strict.tuning_strict import STRICT_TUNING
from verticopula.stats.strict_report import StrictReport
from verticopula.study.correlation_errors import AGAINST_POPULATION, typical_error
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.tilted_pairs import find_tilting


@dataclass(frozen=True)
class WarningThresholds:
    """When a reader is warned. All were chosen by hand, not tuned.

    Attributes
    ----------
    low_overlap : common subjects; with fewer a correlation is mostly noise
    few_in_pattern : subjects of a rare missing pattern
    heap_share : share of all mass in the outermost cell, and twice its neighbour's, that is a heap at a bound
    few_observed : subjects; with fewer a margin is mostly noise
    noise_deviations : of a count; a column whose values are fewer cannot be told from one without any
    nearly_all : share of all mass in one cell that leaves nothing to associate
    mostly_rare : share of the people in categories that are too rare to learn from
    noisy : a typical standard error of correlations above this leaves little to see
    """

    low_overlap: int = 30
    few_in_pattern: int = 10
    heap_share: float = 0.05
    few_observed: int = 10
    noise_deviations: float = 4.0
    nearly_all: float = STRICT_TUNING.nearly_all
    mostly_rare: float = 0.5
    noisy: float = 0.25


WARN_AT = WarningThresholds()

ALIGNED_ROWS = StudyWarning(
    "aligned",
    "stop",
    "Aligned rows: synthetic row i is a noisy copy of subject i",
    "Epsilons per comparison were not made for that.",
    "Use such tables for comparisons in the house, not for publication; sample without “aligned” for anything else.",
)

# Those that Python warns of, too: about what must not leave, and results that say nothing.
CATEGORIES: dict[str, type[UserWarning]] = {
    "seeded": NotPrivateWarning,
    "bounds": NotPrivateWarning,
    "exact": NotPrivateWarning,
    PRINTED_VARIANT: NotPrivateWarning,
    "delta": WeakPrivacyWarning,
    "aligned": AlignedWarning,
    "nothing-learnt": WeakResultWarning,
    "unsupported": WeakResultWarning,
    "noisy": WeakResultWarning,
}

_RANK = {"stop": 0, "care": 1, "note": 2}


def find_warnings(fitted: FittedStudy) -> list[StudyWarning]:
    """Every warning that a fitted study deserves, the gravest first."""
    finders = (_privacy, _sampler, _range, _thin, _overlap, _missing, _fit)
    return gravest_first(warning for find in finders for warning in find(fitted))


def gravest_first(warnings: Iterable[StudyWarning]) -> list[StudyWarning]:
    """The same warnings, those that forbid something before those that are good to know."""
    return sorted(warnings, key=lambda warning: _RANK[warning.level])


def _privacy(fitted: FittedStudy) -> Iterator[StudyWarning]:
    privacy, delta, n = fitted.privacy, fitted.settings.delta, fitted.n_subjects
    yield from privacy.study_warnings
    yield from _earlier(fitted)
    if delta is not None and delta * n >= 1.0:
        yield StudyWarning(
            "delta",
            "care",
            f"delta = {delta:g} is not below 1/{n:,}",
            "Such a delta would allow everything about one of the subjects to be told.",
            f"Run again with one well below, for example {0.01 / n:.0e}.",
        )
    if privacy.as_printed:
        return  # what follows is about epsilons, and there are none
    if fitted.unit in (Unit.VARIABLE, Unit.CLIENT) and any("completed" in entry.mechanism for entry in fitted.releases):
        yield StudyWarning(
            "completed",
            "care",
            f"Rounds on completed columns cost more per {fitted.unit} than was asked for",
            "The coordinator knows the values that people without one are given. Comparisons with them are about one "
            f"person alone, and all of them count: epsilon per {fitted.unit} is "
            f"{format_epsilon(privacy.epsilon(fitted.unit))}.",
            f"Use method '{REFINED.name}': it ranks once, and corrects for missing blocks at no further cost.",
        )
    if fitted.unit in (Unit.VARIABLE, Unit.CLIENT):
        yield warn_of_unit(fitted.unit, privacy)


def _sampler(fitted: FittedStudy) -> Iterator[StudyWarning]:
    if fitted.settings.record.ranks and fitted.settings.sampler == BINOMIAL_SAMPLER:
        yield StudyWarning(
            "binomial-sampler",
            "note",
            "Ranks were drawn by the binomial sampler",
            BINOMIAL_COST,
            "With few people exact coins are possible and better: --sampler exact.",
        )


def warn_of_unit(unit: Unit, privacy: PrivacyStatement) -> StudyWarning:
    """That a unit does not protect a person, with what a person's epsilon is.

    Parameters
    ----------
    unit : of comparisons: `variable` or `client`
    privacy : what the study costs
    """
    per = "one column" if unit == Unit.VARIABLE else "one party's columns"
    return StudyWarning(
        "unit",
        "care",
        f"The budget's unit, {unit}, does not protect a whole person",
        f"It bounds what single comparisons in {per} reveal. Everything about one person together has epsilon "
        f"{format_epsilon(privacy.person)} at δ = {format_small(privacy.delta)}.",
        f"Decide by the epsilon for “person”. If that is too much, use method '{STRICT.name}' with a delta.",
    )


def _earlier(fitted: FittedStudy) -> Iterator[StudyWarning]:
    """What the ledger holds beside this study's own releases."""
    names = list(dict.fromkeys(entry.study for entry in fitted.releases if entry.study != fitted.name))
    if not names:
        return
    own = state_privacy([e for e in fitted.releases if e.study == fitted.name], fitted.settings.delta)
    yield StudyWarning(
        "earlier",
        "care",
        f"The ledger holds releases of {count_of(len(names), 'earlier study', 'earlier studies')}, too",
        "They are in all epsilons here, because releases about the same people add up. This study alone has epsilon "
        f"{format_epsilon(own.epsilon(fitted.unit))} per {fitted.unit}; all of them together have "
        f"{format_epsilon(fitted.privacy.epsilon(fitted.unit))}.",
        "Earlier studies may have been overwritten or interrupted; what was charged stays charged.",
    )


def _range(fitted: FittedStudy) -> Iterator[StudyWarning]:
    heaps = list(heaped_columns(fitted))
    if heaps:
        names = [f"{key} ({format_percent(share)} at {end})" for key, end, share in heaps]
        yield StudyWarning(
            "at-bounds",
            "care",
            f"{count_of(len(heaps), 'column')} with a heap of values at a bound",
            f"Synthetic values pile up at the end of the public range: {join_names(names)}.",
            "The range may be too narrow, so that values were clamped, or badly cut: try wider bounds or a log scale.",
        )


def heaped_columns(fitted: FittedStudy) -> Iterator[tuple[ColumnKey, str, float]]:
    """Columns whose outermost cell holds much more than the one beside it; a bound of zero is a natural heap."""
    for key, margin in fitted.result.copula.margins.items():
        shares, bounds = margin.probabilities, margin.column.bounds
        if bounds is None or shares.size < 4:
            continue
        for bound, outer, inner in ((bounds[0], shares[0], shares[1]), (bounds[1], shares[-1], shares[-2])):
            if bound != 0.0 and outer >= WARN_AT.heap_share and outer > 2.0 * inner:
                yield key, f"{bound:,g}", float(outer)


def _thin(fitted: FittedStudy) -> Iterator[StudyWarning]:
    """Columns about which a study can say little: from masks and released margins, never from a party's own check."""
    few = [key for key in fitted.result.missingness.observed if _has_few(fitted.result, key)]
    if few:
        hidden = "" if fitted.result.strict is None else ", as far as the noise on their counts lets one tell"
        yield StudyWarning(
            "few-observed",
            "care",
            f"{count_of(len(few), 'column')} with fewer than {WARN_AT.few_observed} observed subjects{hidden}",
            f"Their synthetic values are mostly noise: {join_names(list(map(str, few)))}.",
            "Leave them out of conclusions, or out of the study.",
        )
    if fitted.result.strict is not None:
        return  # its report names such columns by what the noise leaves of them
    flat = [
        str(key)
        for key, margin in fitted.result.copula.margins.items()
        if key not in few and float(margin.probabilities.max()) >= WARN_AT.nearly_all
    ]
    if flat:
        yield _flat(flat, "Leave them out of conclusions, or out of the study.")
    rare = [str(key) for key in _mostly_rare(fitted.result.copula) if key not in few]
    if rare:
        yield StudyWarning(
            "rare-categories",
            "care",
            f"{count_of(len(rare), 'column')} with most people in rare categories",
            f"Too few people share a category to learn from them. Nearly independent of the rest: {join_names(rare)}.",
            "Join categories into fewer, larger ones, or leave these columns out of conclusions.",
        )


def _mostly_rare(copula: FittedCopula) -> Iterator[ColumnKey]:
    """Nominal columns most of whose people are in categories of which nothing was learnt."""
    rare = find_rare(copula.layout, copula.margins)
    for key, part in zip(copula.layout.keys, copula.layout.slices, strict=True):
        if part.stop - part.start > 1:
            share = float(copula.margins[key].probabilities[rare[part]].sum())
            if share >= WARN_AT.mostly_rare:
                yield key


def _flat(columns: list[str], action: str) -> StudyWarning:
    return StudyWarning(
        "flat",
        "care",
        f"{count_of(len(columns), 'column')} with nearly all values in one cell",
        f"Nothing can be learnt about their associations: {join_names(columns)}.",
        action,
    )


def _has_few(result: FitResult, key: ColumnKey) -> bool:
    """Whether a column has few values, or may have: in a strict study empty values are private."""
    known, empty = result.missingness.observed[key], result.observed_margins[key].empty
    noise = count_deviation(result.spending.deviations[key]) if result.spending is not None and empty > 0.0 else 0.0
    return known * (1.0 - empty) < max(WARN_AT.few_observed, WARN_AT.noise_deviations * noise)


def _overlap(fitted: FittedStudy) -> Iterator[StudyWarning]:
    result = fitted.result
    keys, apart = fitted.result.copula.layout.latent_keys, set(result.missingness.never_together)
    close = np.argwhere(np.triu(result.report.overlap < WARN_AT.low_overlap, 1))
    few = {(keys[j], keys[k]) for j, k in close if keys[j] != keys[k]} - apart
    if few:
        between = sorted({(a.party, b.party) for a, b in few})
        yield StudyWarning(
            "low-overlap",
            "care",
            f"{count_of(len(few), 'pair')} of columns share fewer than {WARN_AT.low_overlap} subjects",
            f"Their correlation is mostly noise (between {join_names([f'{a} and {b}' for a, b in between])}).",
            "Do not rest a conclusion on these pairs; look at their standard error in the heat map.",
        )
    if apart:
        between = sorted({(a.party, b.party) for a, b in result.missingness.never_together})
        widest = max(result.unidentified, key=lambda pair: pair.high - pair.low, default=None)
        example = (
            f" For {widest.first} and {widest.second}, {widest.used:.2f} was used; anything from {widest.low:.2f} to "
            f"{widest.high:.2f} fits."
            if widest
            else ""
        )
        yield StudyWarning(
            "unidentified",
            "care",
            f"{join_names([f'{a} and {b}' for a, b in between])} were never observed together in "
            f"{count_of(len(apart), 'pair')} of columns",
            f"What associates them beyond the other columns cannot be known from these data.{example}",
            "Treat these correlations as an assumption, or find subjects that both parties know.",
        )


def _missing(fitted: FittedStudy) -> Iterator[StudyWarning]:
    missing = fitted.result.missingness
    if missing.complete_cases == missing.n_subjects:
        return
    yield replace(fitted.settings.record.missing_blocks, code=f"method-{fitted.settings.record.name}")
    rare = [count for _, count in missing.patterns if count < WARN_AT.few_in_pattern]
    example = (
        f" {count_of(len(rare), 'pattern')} hold{'s' if len(rare) == 1 else ''} fewer than {WARN_AT.few_in_pattern} "
        "subjects."
        if rare
        else ""
    )
    yield StudyWarning(
        "patterns",
        "note",
        "Who is known to whom leaves without a price",
        "No epsilon covers the pattern of missing blocks, and under missing at random it says something about the "
        f"people: that a clinic knows somebody is news.{example}",
        "Do not take part if being known to a party is itself a secret.",
    )


def _strict(report: StrictReport | None) -> Iterator[StudyWarning]:
    if report is None:
        return
    if not report.learnt:
        yield StudyWarning(
            "nothing-learnt",
            "care",
            "Nothing could be learnt about how columns depend on each other at this budget",
            "No correlation and no table stands out of the noise. Synthetic columns are independent of each other.",
            "Use the margins only. More subjects, fewer columns or a larger epsilon would help.",
        )
    elif report.unsupported:
        pairs = [f"{a} and {b}" if a != b else f"within {a}" for a, b in report.unsupported]
        yield StudyWarning(
            "unsupported",
            "care",
            f"The data do not support correlations of {count_of(len(pairs), 'pair')} of parties at this budget",
            f"There the fit says what the other pairs let one expect: {join_names(pairs)}.",
            "Do not rest a conclusion on these pairs. More subjects in common or a larger epsilon would help.",
        )
    if report.flat:
        yield _flat(
            list(report.flat),
            "They are drawn independently of everything else. A coarser column, or a larger epsilon, would help.",
        )


def _fit(fitted: FittedStudy) -> Iterator[StudyWarning]:
    typical = typical_error(fitted)
    if typical > WARN_AT.noisy:
        instead = f"; to protect a whole person, method '{STRICT.name}'" if fitted.settings.record.ranks else ""
        yield StudyWarning(
            "noisy",
            "care",
            "Correlations are mostly noise at this budget",
            f"The typical standard error of a correlation is {typical:.2f} before shrinking, {AGAINST_POPULATION}.",
            f"More subjects, fewer columns, or a larger epsilon{instead}; margins may still be of use.",
        )
    refinement = fitted.result.refinement
    if refinement is not None and not refinement.converged:
        yield StudyWarning(
            "not-converged",
            "care",
            f"The refinement had not converged after {refinement.rounds} rounds",
            f"In the last round a correlation still moved by {refinement.correlation_change:.1e} and a margin by "
            f"{refinement.curve_change:.1e}.",
            "Small moves do little harm; large ones mean that the data hardly determine the model.",
        )
    if find_tilting(fitted).hidden:
        yield StudyWarning(
            "tables-hidden",
            "care",
            "No table could be read from the noisy ranks, so the copula stands alone",
            "The noise hides which cell a subject is in, in at least one column.",
            "More subjects, coarser columns or a larger epsilon would help; dependence='copula' asks for no tables.",
        )
    yield from _strict(fitted.result.strict)
