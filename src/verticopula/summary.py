"""A study on one page of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from verticopula.privacy.statement import PrivacyStatement
from verticopula.protocol.vcds import VcdsResult
from verticopula.schema import Federation

LOW_OVERLAP = 30


def summarise(
    federation: Federation, settings: Mapping[str, Any], result: VcdsResult, privacy: PrivacyStatement
) -> str:
    """What was fitted, what it cost and what was repaired; warnings first."""
    lines = [
        f"Study {federation.name!r}: {result.n_subjects:,} subjects, {len(federation.keys)} columns, "
        f"{len(federation.parties)} parties, response {federation.response}"
    ]
    lines += [f"! {warning}" for warning in (*privacy.warnings, *data_warnings(federation, result))]
    lines += ["", "Settings"]
    lines += [f"  {name}: {value}" for name, value in settings.items() if value is not None]
    lines += ["", "Privacy", *(f"  {line}" for line in privacy.lines()[len(privacy.warnings) :])]
    lines += ["", "Observed subjects"]
    lines += [f"  {name}: {share:.2%}" for name, share in observed_share(federation, result).items()]
    report = result.report
    q = report.standard_error.shape[0]
    off = ~np.eye(q, dtype=bool)
    repairs = sorted(report.marginal_repairs.items(), key=lambda item: -item[1])[:3]
    lines += [
        "",
        "Repairs (how much post-processing changed)",
        f"  correlation, typical standard error before shrinking: {np.median(report.standard_error[off]):.4f}",
        f"  shrinkage towards rank {report.shrink_rank}: {report.shrink_change:.4f} mean absolute change of an entry",
        f"  repair to a correlation matrix: {report.psd_change:.4f} largest change of an entry "
        f"(smallest eigenvalue before: {report.smallest_eigenvalue:.4f})",
        "  cell probabilities made valid, largest total change: "
        + ", ".join(f"{key} {change:.4f}" for key, change in repairs),
    ]
    return "\n".join(lines) + "\n"


def observed_share(federation: Federation, result: VcdsResult) -> dict[str, float]:
    """Per party, the share of the cohort with a value in its best-observed column."""
    counts = np.diag(result.report.overlap)
    shares: dict[str, float] = {party.name: 0.0 for party in federation.parties}
    for key, part in zip(result.copula.layout.keys, result.copula.layout.slices, strict=True):
        shares[key.party] = max(shares[key.party], float(counts[part.start]) / result.n_subjects)
    return shares


def data_warnings(federation: Federation, result: VcdsResult) -> Iterator[str]:
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
    typical = float(np.median(result.report.standard_error[~np.eye(overlap.shape[0], dtype=bool)]))
    if typical > 0.25:
        yield (
            f"At this budget the typical standard error of a correlation is {typical:.2f} before shrinking: "
            "associations are mostly noise."
        )
    if min(observed_share(federation, result).values()) < 1.0:
        yield "Blocks are missing. VCDS is right only if they are missing completely at random."
