"""A study on one page of text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from verticopula.data.missingness import Missingness
from verticopula.formatting import readable
from verticopula.schema.methods import STRICT
from verticopula.stats.fit_result import FitResult
from verticopula.stats.strict_report import StrictReport
from verticopula.study.correlation_errors import AGAINST_POPULATION, typical_error
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.study_warnings import find_warnings
from verticopula.study.tilted_pairs import TiltingOverview, find_tilting


def summarise_study(fitted: FittedStudy) -> str:
    """What was fitted, what it cost and what was repaired; warnings first."""
    federation, result, privacy = fitted.federation, fitted.result, fitted.privacy
    lines = [
        f"Study {federation.name!r}: {result.n_subjects:,} subjects, {len(federation.keys)} columns, "
        f"{len(federation.parties)} parties, response {federation.response}"
    ]
    lines += [f"! {warning}" for warning in find_warnings(fitted)]
    lines += ["", "Settings"]
    lines += [f"  {name}: {value}" for name, value in fitted.settings.to_dict().items()]
    lines += ["", "Privacy", *(f"  {line}" for line in privacy.lines()[len(privacy.warnings) :])]
    lines += ["", "Observed subjects", *(f"  {line}" for line in missingness_lines(result.missingness))]
    report = result.report
    repairs = sorted(report.margin_repairs.items(), key=lambda item: -item[1])[:3]
    lines += [
        "",
        "Repairs (how much post-processing changed)",
        f"  correlation, typical standard error before shrinking: {typical_error(fitted):.4f}, {AGAINST_POPULATION}",
        f"  shrinkage towards rank {report.shrink_rank}: {report.shrink_change:.4f} mean absolute change of an entry",
        f"  repair to a correlation matrix: {report.psd_change:.4f} largest change of an entry "
        f"(smallest eigenvalue before: {report.smallest_eigenvalue:.4f})",
        "  cell probabilities made valid, largest total change: "
        + ", ".join(f"{key} {change:.4f}" for key, change in repairs),
    ]
    lines += _refinement_lines(result)
    lines += _tilting_lines(find_tilting(fitted))
    return readable("\n".join(line.replace("\n", " ") for line in lines) + "\n")


def missingness_lines(missing: Missingness, most_patterns: int = 6) -> Iterator[str]:
    """Rates, common subjects and the most frequent patterns, for a reader."""
    for index, party in enumerate(missing.parties):
        empty = missing.empty_cells[party]
        more = f", {empty:,} empty cells inside them" if empty else ""
        yield f"{party}: {missing.overlap[index, index]:,} ({1.0 - missing.rate(party):.2%} of the cohort){more}"
    if missing.complete_cases < missing.n_subjects:
        yield f"known to every party: {missing.complete_cases:,} ({missing.complete_cases / missing.n_subjects:.2%})"
        for pattern, count in missing.patterns[:most_patterns]:
            names = [party for party, seen in zip(missing.parties, pattern, strict=True) if seen]
            yield f"  {count:,} known to exactly: {', '.join(names)}"
        left = len(missing.patterns) - most_patterns
        if left > 0:
            yield f"  and {left} more pattern(s)"


def _refinement_lines(result: FitResult) -> Iterator[str]:
    if result.refinement is not None:
        done = result.refinement
        state = "converged" if done.converged else "NOT converged"
        yield ""
        yield (
            f"Refinement: {state} after {done.rounds} round(s) over {done.patterns} missing pattern(s); last moves "
            f"{done.correlation_change:.1e} (correlation), {done.curve_change:.1e} (margins); "
            f"ridge of {done.prior_subjects:.1f} imaginary subjects"
        )
    if result.strict is not None:
        yield ""
        yield from _strict_lines(result.strict)
    if result.margin_sensitivity is not None:
        yield ""
        yield (
            f"Given the drawn latents, one replaced value moves a margin by at most {result.margin_sensitivity:.4f}. "
            "Noise was added to counts instead, where it moves one: the same margins with less noise."
        )
    moves = margin_shifts(result)
    if moves and moves[0][1] > 0.0:
        yield "Margins moved most from what was observed: " + ", ".join(f"{k} by {v:.3f}" for k, v in moves[:3])


_SHOWN_PAIRS = 10


def _strict_lines(report: StrictReport) -> Iterator[str]:
    yield f"{STRICT.name.capitalize()} fit, over {report.patterns:,} pattern(s) of parties that know a person"
    if not report.learnt:
        yield "  NOTHING could be learnt about dependence at this budget: columns are independent of each other"
    yield (
        f"  {report.rank} factor(s) out of the noise; correlations lie around them with a standard deviation of "
        f"{report.spread_within:.3f} inside a party, {report.spread_between:.3f} between parties"
    )
    yield "  correlations by parties (expected error / distance of opened from fitted ones, noise included):"
    names = report.parties
    for a in range(len(names)):
        for b in range(a, len(names)):
            if not report.raw_error[a, b] > 0.0:
                continue  # no two ordered columns
            where = names[a] if a == b else f"{names[a]} and {names[b]}"
            mark = "" if report.supported[a, b] else "  NOT SUPPORTED by the data at this budget"
            known = np.isfinite(report.raw_error[a, b])  # otherwise no opened sum is about the two
            apart = f"{report.realised_error[a, b]:.3f}" if known else "nothing opened"
            yield f"    {where}: {report.expected_error[a, b]:.3f} / {apart}{mark}"


def _tilting_lines(tilting: TiltingOverview) -> Iterator[str]:
    """Which tables tilt the copula, and by how much."""
    pairs = tilting.pairs
    if tilting.classes:
        yield ""
        yield f"A model for each of {tilting.classes} classes of {tilting.response}, which are read surely"
    if not pairs:
        return
    opened = sum(pair.opened for pair in pairs)
    yield ""
    if tilting.by_ranks:
        yield (
            f"Tables, read from the noisy ranks, tilt {len(pairs)} pair(s) of columns; distance between a pair's table "
            "and the copula's:"
        )
    else:
        yield (
            f"Tables: {opened} opened, {len(pairs) - opened} more pair(s) tilted by products; distance between a "
            "pair's table and the copula's (as expected before / as added):"
        )
    for pair in pairs[:_SHOWN_PAIRS]:
        how = "" if pair.opened or tilting.by_ranks else " (products)"
        before = "" if tilting.by_ranks else f"{pair.missed:.3f} / "
        yield f"  {pair.first} and {pair.second}{how}: {before}{pair.added:.3f}"
    if len(pairs) > _SHOWN_PAIRS:
        yield f"  and {len(pairs) - _SHOWN_PAIRS} more pair(s)"


def margin_shifts(result: FitResult) -> list[tuple[str, float]]:
    """Per column, the largest difference between observed and corrected cumulative shares; largest first."""
    shifts = []
    for key, observed in result.observed_margins.items():
        change = result.copula.margins[key].probabilities - observed.probabilities
        moved = np.sum(np.abs(change)) / 2.0 if observed.column.kind == "nominal" else np.max(np.abs(np.cumsum(change)))
        shifts.append((str(key), float(moved)))
    return sorted(shifts, key=lambda item: -item[1])


def margins_table(result: FitResult) -> pl.DataFrame:
    """Observed and corrected distribution function of every column at the upper end of its cells.

    `value` is that end: a number, or the number of a category in the schema's list. Unordered categories
    have their shares in place of a distribution function.
    """
    parts = []
    for key, observed in result.observed_margins.items():
        both = [observed.probabilities, result.copula.margins[key].probabilities]
        if observed.column.kind != "nominal":
            both = [np.cumsum(shares) for shares in both]
        parts.append(
            pl.DataFrame(
                {
                    "column": [str(key)] * both[0].size,
                    "value": observed.upper_ends(),
                    "observed": both[0],
                    "corrected": both[1],
                }
            )
        )
    return pl.concat(parts)
