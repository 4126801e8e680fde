"""Warnings, first on the page: what is the case, what it means, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from verticopula.formatting import listed, percent, several, small
from verticopula.privacy.statement import format_epsilon
from verticopula.report.report_subject import Subject, real_columns
from verticopula.schema.federation import ColumnKey
from verticopula.schema.units import Unit
from verticopula.stats.strict.strict_report import StrictReport
from verticopula.study.text_summary import LOW_OVERLAP, delta_warning

FEW_IN_PATTERN = 10
PILED_UP = 0.05  # of all mass in the outermost cell, and twice its neighbour's, is a heap at a bound
NOISY = 0.25  # a typical standard error of correlations above this leaves little to see

_RANK = {"stop": 0, "care": 1, "note": 2}


@dataclass(frozen=True)
class Caution:
    """One warning.

    Attributes
    ----------
    code : its name, which never changes
    level : `stop` (do not share or publish as it is), `care` (results may mislead), `note` (good to know)
    """

    code: str
    level: Literal["stop", "care", "note"]
    title: str
    meaning: str
    action: str


def find_cautions(subject: Subject) -> list[Caution]:
    """Every warning that this study deserves, the gravest first."""
    found = [*_privacy(subject), *_range(subject), *_overlap(subject), *_missing(subject), *_fit(subject)]
    return sorted(found, key=lambda caution: _RANK[caution.level])


def _privacy(subject: Subject) -> Iterator[Caution]:
    privacy = subject.synthesizer.privacy_
    if subject.real:
        yield Caution(
            "in-house",
            "stop",
            "This copy was made with real tables",
            f"It shows exact shares and counts of {listed(list(subject.real))}, without any noise.",
            "Keep it in the house. The report without real tables is the one to pass on.",
        )
    if not privacy.is_private:
        yield Caution(
            "seeded",
            "stop",
            "Not private: the noise came from a seed",
            "Whoever knows or guesses the seed can subtract the noise and has the exact answers.",
            "For simulation only. Run the study again without a seed before anything leaves.",
        )
    if privacy.bounds_from_data:
        yield Caution(
            "bounds",
            "stop",
            "Bounds or categories were taken from the data",
            "Smallest and largest values, or rare categories, are in the open: epsilon is infinite at every unit.",
            "Write public bounds and categories into the federation file and run again.",
        )
    if privacy.exact:
        yield Caution(
            "exact",
            "stop",
            "Exact values were sent",
            "A regression on raw columns needs them: epsilon is infinite at every unit.",
            "Regress on the synthetic tables instead where a bound is needed.",
        )
    if subject.aligned:
        yield Caution(
            "aligned",
            "stop",
            "Synthetic rows follow the real subjects one by one",
            "Row i is a noisy copy of subject i; epsilons per comparison were not made for that.",
            "Use such tables for comparisons in the house; sample without “aligned” for anything else.",
        )
    weak = delta_warning(subject.synthesizer.settings_, subject.result.n_subjects)
    if weak:
        yield Caution("delta", "care", "δ is too large for this many subjects", weak, "Run again with a smaller δ.")
    if subject.synthesizer.unit in (Unit.VARIABLE, Unit.CLIENT):
        per = "one column" if subject.synthesizer.unit == Unit.VARIABLE else "one party's columns"
        yield Caution(
            "unit",
            "care",
            f"The budget's unit, {subject.synthesizer.unit}, does not protect a whole person",
            f"It bounds what single comparisons and values in {per} reveal. Everything about one person together has "
            f"epsilon {format_epsilon(privacy.person)} at δ = {small(privacy.delta)}.",
            "Decide by the line for “person” in the table below; ask for unit “person” or “block” if that is too much.",
        )


def _range(subject: Subject) -> Iterator[Caution]:
    clamped = {str(key): column.clamped for key, column in real_columns(subject).items() if column.clamped}
    if clamped:
        yield Caution(
            "clamped",
            "care",
            f"{several(sum(clamped.values()), 'value')} outside the public bounds",
            f"They were moved to the nearest bound: {listed([f'{name} ({n:,})' for name, n in clamped.items()])}.",
            "If they are not errors, widen these columns' bounds in the federation file.",
        )
    heaps = list(piled_up(subject))
    if heaps:
        names = [f"{key} ({percent(share)} at {end})" for key, end, share in heaps]
        yield Caution(
            "at-bounds",
            "care",
            f"{several(len(heaps), 'column')} with a heap of values at a bound",
            f"Synthetic values pile up at the end of the public range: {listed(names)}.",
            "The range may be too narrow, so that values were clamped, or badly cut: try wider bounds or a log scale.",
        )


def piled_up(subject: Subject) -> Iterator[tuple[ColumnKey, str, float]]:
    """Columns whose outermost cell holds much more than the one beside it; a bound of zero is a natural heap."""
    for key, marginal in subject.result.copula.marginals.items():
        shares, bounds = marginal.probabilities, marginal.column.bounds
        if bounds is None or shares.size < 4:
            continue
        for bound, outer, inner in ((bounds[0], shares[0], shares[1]), (bounds[1], shares[-1], shares[-2])):
            if bound != 0.0 and outer >= PILED_UP and outer > 2.0 * inner:
                yield key, f"{bound:,g}", float(outer)


def _overlap(subject: Subject) -> Iterator[Caution]:
    result = subject.result
    keys, apart = subject.latent_keys, set(result.missingness.never_together)
    close = np.argwhere(np.triu(result.report.overlap < LOW_OVERLAP, 1))
    few = {(keys[j], keys[k]) for j, k in close if keys[j] != keys[k]} - apart
    if few:
        between = sorted({(a.party, b.party) for a, b in few})
        yield Caution(
            "low-overlap",
            "care",
            f"{several(len(few), 'pair')} of columns share fewer than {LOW_OVERLAP} subjects",
            f"Their correlation is mostly noise (between {listed([f'{a} and {b}' for a, b in between])}).",
            "Do not rest a conclusion on these pairs; look at their standard error in the heat map.",
        )
    if apart:
        between = sorted({(a.party, b.party) for a, b in result.missingness.never_together})
        widest = max(result.unidentified, key=lambda pair: pair.high - pair.low, default=None)
        example = (
            f" For {widest.first} and {widest.second}, anything from {widest.low:.2f} to {widest.high:.2f} fits."
            if widest
            else ""
        )
        yield Caution(
            "unidentified",
            "care",
            f"{several(len(apart), 'pair')} of columns were never observed together",
            f"What associates them beyond the other columns cannot be known (between "
            f"{listed([f'{a} and {b}' for a, b in between])}).{example}",
            "Treat these correlations as an assumption, or find subjects that both parties know.",
        )


_METHODS: dict[str, tuple[Literal["care", "note"], str, str, str]] = {
    "vcds": (
        "care",
        "VCDS does not correct for missing blocks",
        "It is right only if blocks are missing completely at random; otherwise everybody is taken to be like the "
        "observed.",
        "Use method “refined”: it corrects, and costs the same budget.",
    ),
    "evcds": (
        "care",
        "EVCDS hardly corrects for missing blocks",
        "Its margins and correlations stay close to those of the observed subjects.",
        "Use method “refined”: it corrects, and costs the same budget.",
    ),
    "ievcds": (
        "care",
        "IEVCDS corrects for missing blocks only in part",
        "Its margins and correlations remain between those of the observed subjects and of everybody.",
        "Use method “refined”: it corrects fully where blocks are missing at random, and spends ranks once.",
    ),
    "strict": (
        "note",
        "Blocks are taken to be missing at random",
        "The correction is right if what is missing depends on what was observed, and wrong if it depends on the "
        "missing values themselves.",
        "See below how far results would move if that were not so.",
    ),
    "refined": (
        "note",
        "Blocks are taken to be missing at random",
        "The correction is right if what is missing depends on what was observed, and wrong if it depends on the "
        "missing values themselves.",
        "See below how far results would move if that were not so.",
    ),
}


def _missing(subject: Subject) -> Iterator[Caution]:
    missing = subject.result.missingness
    if missing.complete_cases == missing.n_subjects:
        return
    level, title, meaning, action = _METHODS[subject.synthesizer.method]
    yield Caution(f"method-{subject.synthesizer.method}", level, title, meaning, action)
    rare = [count for _, count in missing.patterns if count < FEW_IN_PATTERN]
    example = (
        f" {several(len(rare), 'pattern')} hold{'s' if len(rare) == 1 else ''} fewer than {FEW_IN_PATTERN} subjects."
        if rare
        else ""
    )
    yield Caution(
        "patterns",
        "note",
        "Who is known to whom is public here",
        "No epsilon covers the pattern of missing blocks, and under missing at random it says something about the "
        f"people: that a court knows somebody is news.{example}",
        "Do not take part if being known to a party is itself a secret.",
    )


def _strict(report: StrictReport | None) -> Iterator[Caution]:
    if report is None:
        return
    if report.unsupported:
        pairs = [f"{a} and {b}" if a != b else f"within {a}" for a, b in report.unsupported]
        yield Caution(
            "unsupported",
            "care",
            f"The data do not support correlations of {several(len(pairs), 'pair')} of parties at this budget",
            f"There the fit says what the other pairs let one expect: {listed(pairs)}.",
            "Do not rest a conclusion on these pairs. More subjects in common or a larger epsilon would help.",
        )
    if report.flat:
        yield Caution(
            "flat",
            "care",
            f"{several(len(report.flat), 'column')} with nearly all values in one cell",
            f"Nothing can be learnt about their associations at this budget: {listed(list(report.flat))}.",
            "They are drawn independently of everything else. A coarser column, or a larger epsilon, would help.",
        )
    if not report.converged:
        yield Caution(
            "not-converged",
            "care",
            f"The fit had not settled after {several(report.iterations, 'round')}",
            f"In the last round a correlation still moved by {report.change:.1e}.",
            "Small moves do little harm; large ones mean that the data hardly determine the model.",
        )


def _fit(subject: Subject) -> Iterator[Caution]:
    error = subject.result.report.standard_error
    off = ~np.eye(error.shape[0], dtype=bool)
    typical = float(np.median(error[off])) if off.any() else 0.0
    if typical > NOISY:
        yield Caution(
            "noisy",
            "care",
            "Correlations are mostly noise at this budget",
            f"The typical standard error of a correlation is {typical:.2f} before shrinking.",
            "More subjects, fewer columns, or a larger epsilon; margins may still be of use.",
        )
    refinement = subject.result.refinement
    if refinement is not None and not refinement.converged:
        yield Caution(
            "not-converged",
            "care",
            f"The refinement had not settled after {refinement.rounds} rounds",
            f"In the last round a correlation still moved by {refinement.correlation_change:.1e} and a margin by "
            f"{refinement.curve_change:.1e}.",
            "Small moves do little harm; large ones mean that the data hardly determine the model.",
        )
    yield from _strict(subject.result.strict)
    regression = subject.regression
    if regression is not None and (regression["warnings"] or not regression["converged"]):
        yield Caution(
            "regression",
            "care",
            "The regression has warnings of its own",
            " ".join(regression["warnings"]) or "It did not converge.",
            "Read its table with that in mind.",
        )
    for note in subject.notes:
        yield Caution("study-note", "note", "About this study", note, "Nothing to do; it is as the party wished.")
