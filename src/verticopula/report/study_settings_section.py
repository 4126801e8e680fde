"""What a study was asked for: its settings, the command that repeats it, and its columns with their public ranges."""

from __future__ import annotations

import shlex
from typing import Any

from verticopula.formatting import format_number
from verticopula.report.margin_figures import format_value
from verticopula.report.report_data import ReportData
from verticopula.schema.columns import Column
from verticopula.schema.methods import PRINTED_VARIANT

# Settings whose option has another name, or none: it is switched on.
_OPTIONS = {"random_state": "seed", "variant": PRINTED_VARIANT, "per_round": "per-round"}
_SWITCHES = ("variant", "per_round")


def shown_settings(subject: ReportData) -> dict[str, Any]:
    """What the study was asked for, without its seed on a page that may leave the house.

    The page has noisy margins, and whoever knows the seed can take the noise off them.
    """
    hidden = () if subject.real else ("random_state",)
    return {name: value for name, value in subject.fitted.settings.to_dict().items() if name not in hidden}


def repeating_command(subject: ReportData) -> str:
    """The command that asks for the same study again, on tables in one folder. `submit` takes the same settings.

    Folders of policies and vault are the user's own, and have a word in their place.
    """
    parts = ["verticopula", "run", "federation.toml", "--data", "tables/", "--out", "study/"]
    for name, value in shown_settings(subject).items():
        option = f"--{_OPTIONS.get(name, name.replace('_', '-'))}"
        if name not in _SWITCHES:
            parts += [option, f"{value:g}" if isinstance(value, float) else str(value)]
        elif value:
            parts.append(option)
    if was_counted(subject):
        parts += ["--policies", "POLICIES", "--vault", "VAULT"]
    return shlex.join(parts)


def was_counted(subject: ReportData) -> bool:
    """Whether a vault knows whom the study was about, so that it counts against caps."""
    return any(release.table for release in subject.fitted.releases)


def describe_columns(subject: ReportData) -> list[dict[str, Any]]:
    """Every column for a reader: whose it is, what it is called and measured in, and its public range."""
    return [
        {
            "party": party.name,
            "name": column.name,
            "title": column.title or "",
            "measured_in": column.measured_in or "",
            "kind": "dates" if column.dates else column.kind,
            "range": _range(column),
        }
        for party in subject.federation.parties
        for column in party.columns
    ]


def _range(column: Column) -> str:
    if column.bounds is not None:
        whole = column.kind == "count"
        low, high = (
            format_value(int(bound) if whole else bound, column) if whole else format_number(bound, 6)
            for bound in column.bounds
        )
        return f"{low} to {high}" + ("" if column.scale == "linear" else f", {column.scale} scale")
    shown = [str(category) for category in column.categories or ()]
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return ", ".join(shown[:8]) + more
