"""A request in plain sentences: what leaves, to whom, and what it could tell about one person.

Prompt, command line and console take their words from here, so that a steward reads the same everywhere. Words of the
requester's own are not in these sentences: they have fields of their own, which every view marks as not checked.
"""

from __future__ import annotations

import math

from verticopula.formatting import count_of, describe_odds, format_small, format_time
from verticopula.privacy.statement import SEEDED, format_epsilon, format_remaining
from verticopula.schema.units import Unit
from verticopula.storage.steward_requests import RequestContent, StewardRequest, UnitPrice

_IDS = {
    "hash": "Keyed hashes of your subject ids, so that rows of one person are found.",
    "psi": "Masked points of your subject ids, so that rows of one person are found.",
}
_WHOM = {
    Unit.VARIABLE: "one comparison of two people in one column, or one person's part in its counts",
    Unit.CLIENT: "the same in all your columns together",
    Unit.BLOCK: "everything you hold about one person",
    Unit.PERSON: "everything all parties hold about one person",
}


def what_is_asked(content: RequestContent) -> str:
    """What a request is about, in a few words.

    Parameters
    ----------
    content : the request's
    """
    words = {"beginning": "to begin the study", "releases": "to release"}
    if content.stage == "federation":
        return "to change the federation file from version {} to {}".format(*content.versions)
    return words[content.stage]


def who_asks(content: RequestContent) -> str:
    """Who asks, in a word: the certificate's name, or else what they say.

    Parameters
    ----------
    content : the request's
    """
    if content.stage == "federation":
        return "the authority"
    return content.lead or content.requester or "not said"


def what_changes(content: RequestContent) -> list[str]:
    """Sentences about a new federation file.

    Parameters
    ----------
    content : the request's
    """
    if content.stage != "federation":
        return []
    old, new = content.versions
    return [
        f"The federation file changes from version {old} to version {new}.",
        *(content.changes or ("Nothing but the version changes.",)),
    ]


def what_a_yes_means(content: RequestContent) -> list[str]:
    """Sentences about what follows from agreeing to a new federation file.

    Parameters
    ----------
    content : the request's
    """
    if content.stage != "federation":
        return []
    return [
        "Once everybody who stays has agreed, studies that begin have the new file. Until then nothing changes.",
        "Studies that have begun end with the file they began with. Nothing is released by a yes: your policy and your "
        "caps hold as before, and every study is asked about as before.",
        "The new file has the digest " + content.proposal + ".",
    ]


def what_leaves(content: RequestContent) -> list[str]:
    """Sentences about what would leave the party.

    Parameters
    ----------
    content : the request's
    """
    if content.stage == "beginning":
        mask = "Whom you have any value of." if content.tells_presence else "Which of your cells are empty."
        return [_IDS.get(content.alignment, "Hashes of your subject ids."), mask, "No value leaves at this stage."]
    said = []
    for entry in content.leaves:
        column = "All your columns" if entry.column == "*" else f"Column {entry.column}"
        often = f", {entry.times} times" if entry.times > 1 else ""
        said.append(f"{column}: {entry.words}{often}, of {count_of(entry.people, 'subject')} ({entry.price}).")
    return said


def to_whom(content: RequestContent) -> list[str]:
    """Sentences about who would get it.

    Parameters
    ----------
    content : the request's
    """
    if content.stage == "beginning":
        said = ["The coordinator gets it, and finds out how many of your subjects other parties have, too."]
        if content.tells_presence:
            said.append("All other parties are told whom you have any value of.")
        if content.alignment == "psi":
            said.append("A lying coordinator that works together with a party can test guessed ids.")
        return [*said, "The releases themselves are another question, which you will be asked later."]
    kinds = {entry.what for entry in content.leaves}
    if "raw" in kinds:
        return [
            "The coordinator gets exact values, without noise: the response, and every column that a model wants.",
            "Other parties get residuals of these models. They tell the response, and something of the first columns.",
            "The study lead gets the regression's result.",
        ]
    if "raw-moments" in kinds:
        return [
            "The coordinator gets exact sums and products, without noise. It gets no row and no prediction.",
            "It may ask for the sums of up to 100 groups of subjects instead, which it chooses.",
            "Other parties get random seeds, which say nothing about your values. Together with one of them, the "
            "coordinator could read your columns.",
            "The study lead gets the regression's result.",
        ]
    said = ["The coordinator gets it, and fits a model from it."]
    if kinds & {"gram", "tables"}:
        said.append("Sums over all parties' columns are computed on secret shares: only the noisy sums are opened.")
    return [
        *said,
        "The study lead gets synthetic tables and the fitted model; every party gets its own synthetic columns.",
        "Nothing of this leaves before every party has said yes to exactly this.",
    ]


def about_one_person(content: RequestContent) -> list[str]:
    """Sentences about what somebody who sees all of it could find out about one person.

    Parameters
    ----------
    content : the request's
    """
    if content.seeded:
        return [f"{SEEDED.title}. {SEEDED.meaning}"]
    if content.stage == "beginning":
        return ["Whether somebody is among your subjects stays hidden from whoever does not hold the parties' key."]
    if any(math.isinf(price.study) for price in content.prices):
        if any(entry.what == "raw-moments" for entry in content.leaves):
            return [
                "No bound: the sums are exact, so whoever knows everybody else in a group can find out all about one "
                "person.",
                "Another regression shows the sums of those who are in one of the two, at least 20 people. Several can "
                "be added and subtracted until one person is left.",
            ]
        return ["No bound: exact values or ranges leave, so anything in them may be told about a person."]
    said = [
        f"To somebody who knows everything else, the odds of a guess about {_WHOM[Unit(price.unit)]} change "
        f"{describe_odds(price.study)} "
        f"(epsilon {format_epsilon(price.study)} per {price.unit})."
        for price in content.prices
    ]
    if content.delta:
        said.append(f"Where a bound needs a delta, it is {format_small(content.delta)}.")
    return said


def price_sentences(content: RequestContent) -> list[str]:
    """Sentences about what was spent, what it would be with this study, and what would be left under caps.

    Parameters
    ----------
    content : the request's
    """
    return [_price_sentence(price) for price in content.prices]


def standing_sentence(request: StewardRequest) -> str:
    """One sentence about where a request stands, and what it waits for.

    Parameters
    ----------
    request : as it stands
    """
    if request.state == "pending":
        said = f"{count_of(len(request.yeses), 'yes', 'yeses')} of {request.content.approvals} given"
        return f"Pending: {said if request.content.approvals > 1 else 'waits for a steward'}."
    if request.state == "approved":
        return f"Approved by {', '.join(one.steward for one in request.yeses)}."
    if request.state == "denied":
        last = request.decisions[-1]
        return f"Denied by {last.steward}{f': {last.reason}' if last.reason else '.'}"
    return f"{request.state.capitalize()}."


def request_sections(request: StewardRequest) -> list[tuple[str, list[str]]]:
    """A request for a person: headings, and the lines below each.

    Parameters
    ----------
    request : as it stands
    """
    content = request.content
    until = f"It was asked {format_time(request.asked)}, and is over {format_time(request.expires)}."
    standing = ("Where it stands", [standing_sentence(request), until])
    if content.stage == "federation":
        asks = [f"signed by: the federation's authority, whose certificate has the fingerprint {content.authority}"]
        return [
            ("Who asks", asks),
            ("What changes", what_changes(content)),
            ("What a yes means", what_a_yes_means(content)),
            standing,
        ]
    sections = [
        ("Who asks, and why", asker_lines(content)),
        ("What leaves", what_leaves(content)),
        ("To whom", to_whom(content)),
        ("What it could tell about one person", about_one_person(content)),
        ("Its price", price_sentences(content)),
        standing,
    ]
    return [(title, lines) for title, lines in sections if lines]


def asker_lines(content: RequestContent) -> list[str]:
    """Who asks, and why: the certificate's name first; everything else is what somebody says, and is marked.

    Parameters
    ----------
    content : the request's
    """
    certified = f"{content.lead}, by certificate" if content.lead else "nobody whose certificate could be checked"
    said = {"says to be": content.requester, "contact": content.contact, "because": content.purpose}
    said["use of the tables"] = content.use
    return [f"asked by: {certified}", *(f"| {name}: {words or 'not said'}" for name, words in said.items())]


def _price_sentence(price: UnitPrice) -> str:
    known = ", as far as your ledger knows" if price.unit == Unit.PERSON else ""
    before, study, after = (format_epsilon(one) for one in (price.before, price.study, price.after))
    spent = f"Epsilon per {price.unit}{known}: {before} so far, {study} for this study, {after} with it"
    if price.cap is None or price.left_before is None or price.left_after is None:
        return f"{spent}; no cap."
    left = f"{format_remaining(price.left_before)} left before, {format_remaining(price.left_after)} after"
    return f"{spent}; cap {price.cap:g}, of which {left}."
