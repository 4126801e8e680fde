"""What was released, by whom, when and at what epsilon, in a steward's words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from verticopula.formatting import count_of, describe_odds, format_small, shorten_time
from verticopula.privacy.release import ALL_COLUMNS, Release
from verticopula.privacy.statement import PartyEpsilons, PrivacyStatement, format_epsilon, format_price
from verticopula.report.report_data import ReportData
from verticopula.schema.units import Unit

_SENTENCES = {
    Unit.VARIABLE: "What one comparison of two subjects, or one person's part in the noisy counts, reveals in one "
    "column. It protects neither a value nor a person, who is compared with everybody else.",
    Unit.CLIENT: "The same, added up over all columns of one party. Still single comparisons, not a person.",
    Unit.BLOCK: "Everything one party holds about one person. This is what a steward answers for.",
    Unit.PERSON: "Everything all parties together hold about one person. This is what the person would ask about.",
}

_ALL_OF_IT = " The Gaussian noise is counted in full, as for a whole person."


def describe_units(privacy: PrivacyStatement, asked: Unit) -> list[dict[str, Any]]:
    """Every unit with its epsilon and what that means; the one that was asked for is marked."""
    return [
        {
            "unit": unit.value,
            "epsilon": format_epsilon(privacy.epsilon(unit)),
            "delta": format_small(privacy.delta) if privacy.has_delta(unit) else "0",
            "sentence": _SENTENCES[unit] + (_ALL_OF_IT if privacy.gaussian and not unit.needs_delta else ""),
            "odds": describe_odds(privacy.epsilon(unit)),
            "asked": unit == asked,
        }
        for unit in Unit
    ]


def describe_parties(entries: Sequence[Release], privacy: PrivacyStatement) -> list[dict[str, Any]]:
    """Every party's releases, column by column, and what they cost."""
    return [
        _party(name, [entry for entry in entries if entry.party == name], privacy)
        for name in dict.fromkeys(entry.party for entry in entries)
    ]


def _party(name: str, entries: list[Release], privacy: PrivacyStatement) -> dict[str, Any]:
    own = privacy.parties[name]
    times = sorted(entry.time for entry in entries)
    columns = list(dict.fromkeys(entry.column for entry in entries))
    named = count_of(len([column for column in columns if column != ALL_COLUMNS]), "column")
    at_most = f"{max(entry.n_subjects for entry in entries):,} subjects at most"
    marks = [f"{noise} noise" for noise in sorted({entry.noise for entry in entries})]
    marks += [f"{bounds} bounds" for bounds in sorted({entry.bounds for entry in entries})]
    return {
        "name": name,
        "when": shorten_time(times[0])
        if times[0][:16] == times[-1][:16]
        else f"{shorten_time(times[0])} to {shorten_time(times[-1])}",
        "what": f"{WHAT_LEAVES[all(entry.what != 'gram' for entry in entries)]} of {named}, {at_most}",
        "marks": ", ".join(marks),
        "epsilons": [format_epsilon(value) for value in (own.variable, own.client, own.block)],
        "sentence": _sentence(own, privacy, gaussian=any(entry.is_gaussian for entry in entries)),
        "columns": [_column(column, (e for e in entries if e.column == column)) for column in columns],
    }


def describe_caps(subject: ReportData) -> list[dict[str, Any]]:
    """What was spent of every cap, the fullest first; nothing on a page that may leave the house."""
    uses = sorted(subject.caps, key=lambda use: -use.spent / use.cap) if subject.real else []
    return [
        {
            "party": use.party,
            "unit": use.unit,
            "spent_text": format_epsilon(use.spent),
            "cap": use.cap,
            "share": use.spent / use.cap,
        }
        for use in uses
    ]


# By whether a method ranks people.
WHAT_LEAVES = {
    True: "noisy ranks and noisy cell counts",
    False: "noisy cell counts, and shares of scores that are opened as noisy sums only,",
}


def _sentence(own: PartyEpsilons, privacy: PrivacyStatement, *, gaussian: bool) -> str:
    person = (
        f"For a whole person at this party epsilon is {format_epsilon(own.block)} at δ = "
        f"{format_small(privacy.delta)}: {describe_odds(own.block)}."
    )
    if gaussian:
        return f"{person} “mu” is how far one person moves a release, in standard deviations of its Gaussian noise."
    change = describe_odds(own.variable)
    lesser = f"What one comparison shows, or one part in noisy counts, changes the odds of a guess {change}."
    return f"{lesser} {person}"


def _column(name: str, entries: Iterable[Release]) -> dict[str, Any]:
    own = list(entries)
    ranks = [entry for entry in own if entry.what == "ranks"]
    others = [entry for entry in own if entry.what != "ranks" and not entry.is_gaussian]
    gaussian = [format_price(entry) for entry in own if entry.is_gaussian]
    pure = [format_epsilon(sum(entry.epsilon for entry in others))] if others else []
    return {
        "name": "all columns together" if name == ALL_COLUMNS else name,
        "subjects": max(entry.n_subjects for entry in own),
        "per_comparison": format_epsilon(sum(entry.epsilon for entry in ranks)) if ranks else "–",
        "rounds": len(ranks),
        "per_value": "; ".join([*pure, *gaussian]) or "–",
        "mechanism": "; ".join(dict.fromkeys(entry.mechanism for entry in own)),
    }
