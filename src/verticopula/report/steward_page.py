"""What a data steward needs on one page: to decide by before a study, and as a record of the decision after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

from verticopula.errors import StudyWarning
from verticopula.formatting import count_of, describe_odds, format_small
from verticopula.privacy.release import Release
from verticopula.privacy.statement import PrivacyStatement, format_epsilon, state_privacy
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.report.page_template import page_template, read_asset
from verticopula.report.release_section import WHAT_LEAVES
from verticopula.report.report_data import CapChange
from verticopula.schema.columns import Column
from verticopula.schema.federation import Federation
from verticopula.schema.study_settings import StudySettings
from verticopula.schema.units import Unit

MOST_NAMED = 6  # warnings, and parties in the table: the page must stay one page
_MOST_COLUMNS, _MOST_RECORDED = 8, 3
# By hand: e^10 is about 22,000. Above that an epsilon bounds no guess that anybody makes.
SMALL_ENOUGH = 10.0
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class StewardStudy:
    """A study that a steward is asked about, or has said yes to.

    Attributes
    ----------
    n_subjects : size of the cohort
    releases : what will leave, or has left
    warnings : what speaks against it
    is_over : whether it has left
    party : whose steward is asked; None for the record of all parties
    dearer : units at which the releases before a study cost more than the study will
    caps : what the study adds to what counts against the party's caps
    in_house : whether the page was made with real tables
    name : of the study, where it has one; every run has another
    date : of the page, or of the first release
    """

    federation: Federation
    settings: StudySettings
    n_subjects: int
    releases: Sequence[Release]
    warnings: Sequence[StudyWarning]
    is_over: bool = True
    party: str | None = None
    dearer: frozenset[Unit] = frozenset()
    caps: tuple[CapChange, ...] = ()
    in_house: bool = False
    name: str = ""
    date: str = ""


def write_steward_page(path: Path, study: StewardStudy) -> Path:
    """Write the page on which one party's steward decides; it opens without a network.

    Parameters
    ----------
    path : of the file
    study : before anything was spent, for one party
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    page = page_template("steward.html.j2").render(
        yes=steward_page(study), style=Markup(read_asset("report.css")), policy=_POLICY, version=version("verticopula")
    )
    path.write_text(page, encoding="utf-8")
    return path


def steward_page(study: StewardStudy) -> dict[str, Any]:
    """What leaves, to whom and for how much, what speaks against it, and what to look at before signing.

    Parameters
    ----------
    study : before or after it
    """
    privacy = state_privacy(study.releases, study.settings.delta)
    grave = [warning for warning in study.warnings if warning.level in ("stop", "care")]
    names = [party.name for party in study.federation.parties if study.party in (None, party.name)]
    ranks = study.settings.record.ranks
    return {
        "is_over": study.is_over,
        "party": study.party,
        "study": study.federation.name,
        "name": study.name,
        "date": study.date,
        "federation": federation_fingerprint(study.federation)[:12],
        "method": study.settings.title,
        "n_subjects": study.n_subjects,
        "person": format_epsilon(privacy.person),
        "delta": format_small(privacy.delta),
        "odds": describe_odds(privacy.person),
        "protects": privacy.person <= SMALL_ENOUGH,
        "prices": _prices(study, privacy),
        "parties": [_party(study, name, privacy) for name in names[:MOST_NAMED]],
        "more_parties": max(len(names) - MOST_NAMED, 0),
        "receiver": _RECEIVERS[ranks],
        "unpriced": _UNPRICED[ranks],
        "grave": [{"level": warning.level, "title": warning.title} for warning in grave[:MOST_NAMED]],
        "more_grave": max(len(grave) - MOST_NAMED, 0),
        "caps": [
            {
                "unit": change.unit,
                "before": format_epsilon(change.before),
                "after": ("at most " if change.at_most else "") + format_epsilon(change.after),
                "cap": f"{change.cap:g}",
                "refused": change.after > change.cap and not change.at_most,
            }
            for change in study.caps
        ],
        "stayed": _stayed(study, privacy),
        "checks": _checks(study),
    }


_RECEIVERS = {
    True: "The coordinator, who makes synthetic tables from it for whoever asked for the study.",
    False: "Cell counts: the coordinator and all parties with data. Shares: the three who compute. What they open "
    "has noise, and goes to the coordinator.",
}
_WHO_LEARNS = {True: "The coordinator learns", False: "The coordinator and all other parties learn"}
_UNPRICED = {
    True: "Hashes of ids, whom a party knows, and who has a value in which column: to the coordinator. Bounds and "
    "categories of the columns are public.",
    False: "Hashes of ids: to the coordinator. Whom a party knows: to the coordinator and all other parties. Bounds "
    "and categories of the columns are public.",
}


def _prices(study: StewardStudy, privacy: PrivacyStatement) -> list[str]:
    """Epsilon at every unit in words, of one party where it is about one."""
    found = []
    for unit in Unit:
        epsilon = privacy.epsilon(unit)
        if study.party is not None and unit is not Unit.PERSON:
            epsilon = getattr(privacy.parties[study.party], unit.value)
        most = "at most " if unit in study.dearer else ""
        found.append(f"{most}{format_epsilon(epsilon)} per {unit.value}")
    return found


def _party(study: StewardStudy, name: str, privacy: PrivacyStatement) -> dict[str, Any]:
    own_columns = study.federation.party(name).columns
    # The record is of all parties, and must stay one page.
    columns = [column.name if study.party is None else _with_range(column) for column in own_columns]
    most = _MOST_COLUMNS if study.party is not None else _MOST_RECORDED
    people = max((entry.n_subjects for entry in study.releases if entry.party == name), default=0)
    own = privacy.parties.get(name)
    return {
        "name": name,
        "what": f"{WHAT_LEAVES[study.settings.record.ranks]} of {count_of(len(columns), 'column')}, "
        f"{count_of(people, 'subject')} at most",
        "columns": columns[:most],
        "more_columns": max(len(columns) - most, 0),
        "block": "0" if own is None else format_epsilon(own.block),
    }


def _with_range(column: Column) -> str:
    """A column's name with the range that it is shared in."""
    if column.bounds is not None:
        low, high = (f"{bound:g}" if isinstance(bound, (int, float)) else str(bound) for bound in column.bounds)
        return f"{column.name} ({low} to {high})"
    return f"{column.name} ({count_of(len(column.categories or ()), 'category', 'categories')})"


def _stayed(study: StewardStudy, privacy: PrivacyStatement) -> str:
    """What never leaves, and what does although one would not expect it."""
    if not study.settings.is_private:
        return "Rows. But whoever knows the seed can take the noise off again."
    if study.settings.is_printed or privacy.bounds_from_data:
        return "Rows. But the smallest and the largest value of columns leave, without noise."
    return "Rows, and anybody's exact values."


def _checks(study: StewardStudy) -> list[str]:
    """Questions that no program can answer."""
    found = [
        "The columns are those that we agreed to share.",
        "Bounds and categories come from what is publicly known, not from the data.",
        "The epsilon for a person is one that we can answer for.",
        f"{_WHO_LEARNS[study.settings.record.ranks]} which people we know. That is public already, or no secret.",
    ]
    if not study.settings.record.ranks:
        found.append("The three who compute do not work together: two of them could read every cell.")
    if study.in_house:
        found.append("This copy stays in the house.")
    return found
