"""“May I say yes?”: what a data steward needs for a decision, on one page that can be printed and signed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verticopula.errors import StudyWarning
from verticopula.formatting import format_small, odds_in_words
from verticopula.privacy.statement import format_epsilon
from verticopula.report.report_data import ReportData

MOST_NAMED = 6  # warnings, and parties in the table: the page must stay one page


def steward_page(
    subject: ReportData, warnings: Sequence[StudyWarning], releases: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What left, for how much, what speaks against it, and what to look at before signing.

    Parameters
    ----------
    subject : the study
    warnings : all of the report's
    releases : as `describe_parties` gave them
    """
    privacy = subject.fitted.privacy
    grave = [warning for warning in warnings if warning.level in ("stop", "care")]
    return {
        "person": format_epsilon(privacy.person),
        "delta": format_small(privacy.delta),
        "odds": odds_in_words(privacy.person),
        "protects": privacy.person <= SMALL_ENOUGH,
        "parties": [
            {
                "name": release["name"],
                "what": release["what"],
                "block": release["epsilons"][2],
                "columns": len(release["columns"]),
            }
            for release in releases[:MOST_NAMED]
        ],
        "more_parties": max(len(releases) - MOST_NAMED, 0),
        "grave": [{"level": warning.level, "title": warning.title} for warning in grave[:MOST_NAMED]],
        "more_grave": max(len(grave) - MOST_NAMED, 0),
        "stayed": _stayed(subject),
        "checks": _checks(subject),
    }


# By hand: e^10 is about 22,000. Above that an epsilon bounds no guess that anybody makes.
SMALL_ENOUGH = 10.0


def _stayed(subject: ReportData) -> str:
    """What never left, and what did although one would not expect it."""
    if not subject.fitted.settings.is_private:
        return "Rows. But whoever knows the seed can take the noise off again."
    if subject.fitted.settings.is_printed or subject.federation.bounds_from_data:
        return "Rows. But the smallest and the largest value of columns did leave, without noise."
    return "Rows, and anybody's exact values."


def _checks(subject: ReportData) -> list[str]:
    """Questions that no program can answer."""
    found = [
        "The columns are those that we agreed to share.",
        "Bounds and categories come from what is publicly known, not from the data.",
        "The epsilon for a person is one that we can answer for.",
        "Others learn which people we know. That is public already, or no secret.",
    ]
    if not subject.fitted.method.ranks:
        found.append("The three who computed do not work together: two of them could read every cell.")
    if subject.real:
        found.append("This copy stays in the house.")
    return found
