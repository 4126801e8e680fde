"""A study on one page of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness
from verticopula.privacy.statement import PrivacyStatement
from verticopula.schema.federation import Federation
from verticopula.schema.units import Unit
from verticopula.stats.fit_result import FitResult
from verticopula.stats.strict.strict_report import StrictReport

LOW_OVERLAP = 30


def summarise(federation: Federation, settings: Mapping[str, Any], result: FitResult, privacy: PrivacyStatement) -> str:
    """What was fitted, what it cost and what was repaired; warnings first."""
    lines = [
        f"Study {federation.name!r}: {result.n_subjects:,} subjects, {len(federation.keys)} columns, "
        f"{len(federation.parties)} parties, response {federation.response}"
    ]
    cautions = [*data_warnings(result, settings["method"]), *filter(None, [delta_warning(settings, result.n_subjects)])]
    lines += [f"! {warning}" for warning in (*privacy.warnings, *cautions)]
    lines += ["", "Settings"]
    lines += [f"  {name}: {value}" for name, value in settings.items() if value is not None]
    lines += ["", "Privacy", *(f"  {line}" for line in privacy.lines()[len(privacy.warnings) :])]
    lines += ["", "Observed subjects", *(f"  {line}" for line in missingness_lines(result.missingness))]
    report = result.report
    q = report.standard_error.shape[0]
    off = ~np.eye(q, dtype=bool)
    repairs = sorted(report.marginal_repairs.items(), key=lambda item: -item[1])[:3]
    lines += [
        "",
        "Repairs (how much post-processing changed)",
        f"  correlation, typical standard error before shrinking: {_typical(report.standard_error[off]):.4f}",
        f"  shrinkage towards rank {report.shrink_rank}: {report.shrink_change:.4f} mean absolute change of an entry",
        f"  repair to a correlation matrix: {report.psd_change:.4f} largest change of an entry "
        f"(smallest eigenvalue before: {report.smallest_eigenvalue:.4f})",
        "  cell probabilities made valid, largest total change: "
        + ", ".join(f"{key} {change:.4f}" for key, change in repairs),
    ]
    lines += _refinement_lines(result)
    return "\n".join(lines) + "\n"


def delta_warning(settings: Mapping[str, Any], n_subjects: int) -> str:
    """What to say about a delta that is not well below 1/N; nothing otherwise."""
    delta = settings.get("delta")
    if delta is None or not Unit.parse(settings["unit"]).needs_delta or delta * n_subjects < 1.0:
        return ""
    return (
        f"delta = {delta:g} is not below 1/{n_subjects:,}: such a delta would allow everything about one of the "
        f"subjects to be told. Choose it well below, for example {0.01 / n_subjects:.0e}."
    )


def _typical(values: NDArray[np.float64]) -> float:
    """Median; zero if there are none, as in a study of one column."""
    return float(np.median(values)) if values.size else 0.0


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


def _strict_lines(report: StrictReport) -> Iterator[str]:
    state = "settled" if report.converged else "NOT settled"
    yield (
        f"Strict fit: {state} after {report.iterations} round(s); {report.rank} factor(s) out of the noise; "
        f"{report.patterns} pattern(s) opened, {report.left_out:,} subject(s) in none"
    )
    yield "  error of a correlation (expected / realised, noise included) by parties:"
    names = report.parties
    for a in range(len(names)):
        for b in range(a, len(names)):
            if a == b and not report.raw_error[a, a] > 0.0:
                continue
            where = names[a] if a == b else f"{names[a]} and {names[b]}"
            mark = "" if report.supported[a, b] else "  NOT SUPPORTED by the data at this budget"
            known = np.isfinite(report.raw_error[a, b])  # otherwise no opened sum is about the two
            realised = f"{report.realised_error[a, b]:.3f}" if known else "nothing opened"
            yield f"    {where}: {report.expected_error[a, b]:.3f} / {realised}{mark}"


def margin_shifts(result: FitResult) -> list[tuple[str, float]]:
    """Per column, the largest difference between observed and corrected cumulative shares; largest first."""
    shifts = []
    for key, observed in result.observed_marginals.items():
        change = result.copula.marginals[key].probabilities - observed.probabilities
        moved = np.sum(np.abs(change)) / 2.0 if observed.column.kind == "nominal" else np.max(np.abs(np.cumsum(change)))
        shifts.append((str(key), float(moved)))
    return sorted(shifts, key=lambda item: -item[1])


def margins_table(result: FitResult) -> pl.DataFrame:
    """Observed and corrected distribution function of every column at the upper end of its cells.

    `value` is that end: a number, or the number of a category in the schema's list. Unordered categories
    have their shares in place of a distribution function.
    """
    parts = []
    for key, observed in result.observed_marginals.items():
        both = [observed.probabilities, result.copula.marginals[key].probabilities]
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


def data_warnings(result: FitResult, method: str) -> Iterator[str]:
    """What in the data itself should make a reader careful."""
    overlap = result.report.overlap
    few = np.argwhere(np.triu(overlap < LOW_OVERLAP, 1))
    if few.size:
        labels = result.copula.layout.labels
        j, k = few[0]
        yield (
            f"{len(few)} pair(s) of columns have fewer than {LOW_OVERLAP} common subjects "
            f"(such as {labels[j]} and {labels[k]}): their correlation is mostly noise."
        )
    yield from _unidentified_warning(result)
    typical = _typical(result.report.standard_error[~np.eye(overlap.shape[0], dtype=bool)])
    if typical > 0.25:
        yield (
            f"At this budget the typical standard error of a correlation is {typical:.2f} before shrinking: "
            "associations are mostly noise."
        )
    if result.missingness.complete_cases < result.n_subjects:
        yield _MISSING_WARNINGS[method]
    if result.strict is not None and result.strict.unsupported:
        pairs = [f"{a} and {b}" if a != b else f"within {a}" for a, b in result.strict.unsupported]
        more = f" and {len(pairs) - 3} more, listed below" if len(pairs) > 3 else ""
        yield f"At this budget the data do not support correlations of: {', '.join(pairs[:3])}{more}."
    if result.strict is not None and result.strict.flat:
        yield (
            "Nearly all values lie in one cell, so nothing could be learnt about associations of: "
            f"{', '.join(result.strict.flat)}."
        )
    if result.refinement is not None and not result.refinement.converged:
        yield f"The refinement had not settled after {result.refinement.rounds} rounds; its last moves are below."


def _unidentified_warning(result: FitResult) -> Iterator[str]:
    pairs: dict[tuple[str, str], int] = {}
    for first, second in result.missingness.never_together:
        pairs[first.party, second.party] = pairs.get((first.party, second.party), 0) + 1
    for (first_party, second_party), count in pairs.items():
        yield (
            f"{first_party} and {second_party} were never observed together in {count} pair(s) of columns: what "
            "associates them beyond the other columns cannot be known from these data."
        )
    widest = sorted(result.unidentified, key=lambda pair: pair.low - pair.high)[:3]
    for pair in widest:
        yield (
            f"  {pair.first} and {pair.second}: {pair.used:.2f} was used; anything from {pair.low:.2f} to "
            f"{pair.high:.2f} fits."
        )


_MISSING_WARNINGS = {
    "vcds": "Blocks are missing. VCDS is right only if they are missing completely at random; see method 'refined'.",
    "evcds": "Blocks are missing. EVCDS hardly corrects for it: its margins and correlations stay close to those of "
    "the observed subjects; see method 'refined'.",
    "ievcds": "Blocks are missing. IEVCDS corrects for it only in part; see method 'refined'.",
    "refined": "Blocks are missing. The refinement is right if they are missing at random given what is observed.",
    "strict": "Blocks are missing. The correction is right if they are missing at random given what is observed.",
}
