"""What was released, by whom, when and at what epsilon, in a steward's words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from verticopula.privacy.ledger import Release
from verticopula.privacy.statement import PrivacyStatement, format_epsilon
from verticopula.privacy.units import Unit
from verticopula.report.subject import Subject
from verticopula.report.words import odds, several, small

_SENTENCES = {
    Unit.VARIABLE: "What one comparison of two subjects, and one person's value, reveals in one column. "
    "It says little about a person, who takes part in a comparison with everybody else.",
    Unit.CLIENT: "The same, added up over all columns of one party. Still single comparisons, not a person.",
    Unit.BLOCK: "Everything one party holds about one person. This is what a steward answers for.",
    Unit.PERSON: "Everything all parties together hold about one person. This is what the person would ask about.",
}


def describe_units(subject: Subject) -> list[dict[str, Any]]:
    """Every unit with its epsilon and what that means; the one that was asked for is marked."""
    privacy = subject.synthesizer.privacy_
    return [
        {
            "unit": unit.value,
            "epsilon": format_epsilon(privacy.epsilon(unit)),
            "delta": small(privacy.delta) if unit.needs_delta else "0",
            "sentence": _SENTENCES[unit],
            "odds": odds(privacy.epsilon(unit)),
            "asked": unit == subject.synthesizer.unit,
        }
        for unit in Unit
    ]


def describe_parties(subject: Subject) -> list[dict[str, Any]]:
    """Every party's releases, column by column, and what they cost."""
    privacy = subject.synthesizer.privacy_
    entries = subject.synthesizer.ledger_
    return [
        _party(name, [entry for entry in entries if entry.party == name], privacy)
        for name in dict.fromkeys(entry.party for entry in entries)
    ]


def _party(name: str, entries: list[Release], privacy: PrivacyStatement) -> dict[str, Any]:
    own = privacy.parties[name]
    times = sorted(entry.time for entry in entries)
    columns = list(dict.fromkeys(entry.column for entry in entries))
    known = max(entry.n_subjects for entry in entries)
    marks = [f"{noise} noise" for noise in sorted({entry.noise for entry in entries})]
    marks += [f"{bounds} bounds" for bounds in sorted({entry.bounds for entry in entries})]
    return {
        "name": name,
        "when": _moment(times[0])
        if times[0][:16] == times[-1][:16]
        else f"{_moment(times[0])} to {_moment(times[-1])}",
        "what": f"noisy ranks and noisy cell counts of {several(len(columns), 'column')}, {known:,} subjects at most",
        "marks": ", ".join(marks),
        "epsilons": [format_epsilon(value) for value in (own.variable, own.client, own.block)],
        "sentence": f"This bounds what one comparison or value reveals: it changes the odds of a guess "
        f"{odds(own.variable)}. For a whole person at this party epsilon is {format_epsilon(own.block)} "
        f"at δ = {small(privacy.delta)}: {odds(own.block)}.",
        "columns": [_column(column, (e for e in entries if e.column == column)) for column in columns],
    }


def _column(name: str, entries: Iterable[Release]) -> dict[str, Any]:
    own = list(entries)
    ranks = [entry for entry in own if entry.what == "ranks"]
    others = [entry for entry in own if entry.what != "ranks"]
    return {
        "name": name,
        "subjects": max(entry.n_subjects for entry in own),
        "per_comparison": format_epsilon(sum(entry.epsilon for entry in ranks)) if ranks else "–",
        "rounds": len(ranks),
        "per_value": format_epsilon(sum(entry.epsilon for entry in others)) if others else "–",
        "mechanism": "; ".join(dict.fromkeys(entry.mechanism for entry in own)),
    }


def _moment(time: str) -> str:
    """A time of the ledger without what is finer than a minute."""
    return time[:16].replace("T", " ") + (" UTC" if time.endswith(("Z", "+00:00")) else "")
