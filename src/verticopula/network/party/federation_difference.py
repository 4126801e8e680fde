"""What changes from one federation file to another, in sentences for a steward.

Every part of the file is compared, also one that has no words of its own here: a difference that nobody is shown would
be agreed on unread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from verticopula.errors import SettingsError
from verticopula.formatting import count_of, join_names
from verticopula.network.connection.sanitizing import sanitize
from verticopula.schema.federation import Federation
from verticopula.stats.strict.strict_plan import sums_roles

_MOST_SHOWN = 12  # categories or columns in one sentence; all others are counted
_FEW = 3  # entries of a list that is shown as it was and as it is
_LONGEST = 2_000
_WORDS = {
    "response": "The response, whose party's people are the cohort",
    "id": "The id column, or how ids are made alike",
    "bounds_source": "Where bounds and categories come from",
    "operator": "Who runs the coordinator",
    "compute": "Who computes without data",
    "leads": "Who may ask for studies",
    "deadline": "Seconds that a party has for one round",
    "host": "The coordinator's host",
    "port": "The coordinator's port",
}


def describe_change(old: Federation, new: Federation, own: str = "") -> list[str]:
    """Sentences about everything that differs; empty where nothing does but the version.

    Parameters
    ----------
    old, new : the two files
    own : the party that reads it; what is about itself comes first, and says so
    """
    said = list(_parties(old, new, own))
    said += _values("", _head(old), _head(new))
    said += _roles(old, new)
    mine = [line for line in said if own and line.startswith("Your ")]
    return [sanitize(line, _LONGEST) for line in (*mine, *(line for line in said if line not in mine))]


def _head(federation: Federation) -> dict[str, Any]:
    """Everything but the parties and the version, defaults as well."""
    raw = federation.to_dict()
    plain = {key: value for key, value in raw.items() if key not in ("party", "version", "network")}
    plain.setdefault("bounds_source", federation.bounds_source)
    return {**plain, **federation.network.model_dump(mode="json")}


def _parties(old: Federation, new: Federation, own: str) -> Iterator[str]:
    before, after = ({party["name"]: party for party in one.to_dict()["party"]} for one in (old, new))
    for name in before:
        if name not in after:
            yield f"Party {name} leaves."
    for name, party in after.items():
        if name not in before:
            columns = [_describe_column(column) for column in party["column"]]
            yield f"Party {name} joins, with {count_of(len(columns), 'column')}: {_listed(columns)}."
        else:
            yield from _one_party(before[name], party, own)
    kept = [[name for name in one if name in before and name in after] for one in (before, after)]
    if kept[0] != kept[1]:
        yield f"The parties' order becomes {_listed(after)}."


def _one_party(old: Mapping[str, Any], new: Mapping[str, Any], own: str) -> Iterator[str]:
    name = str(new["name"])
    column_of, part_of = ("Your column ", "Your ") if name == own else (f"Column {name}.", f"Party {name}, ")
    before, after = ({column["name"]: column for column in one["column"]} for one in (old, new))
    for column in before:
        if column not in after:
            yield f"{column_of}{column} is taken out."
    for column, said in after.items():
        if column not in before:
            yield f"{column_of}{column} is new: {_describe_column(said)}."
        else:
            yield from _values(f"{column_of}{column}, ", before[column], said)
    kept = [[column for column in one if column in before and column in after] for one in (before, after)]
    if kept[0] != kept[1]:
        yield f"{part_of}columns' order becomes {_listed(after)}."
    rest = [{key: value for key, value in one.items() if key not in ("name", "column")} for one in (old, new)]
    yield from _values(part_of, *rest)


def _values(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """One sentence for every entry that differs."""
    for key in dict.fromkeys((*old, *new)):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        words = f"{prefix}{key}" if prefix else _WORDS.get(key, key)
        if isinstance(before, list) and isinstance(after, list) and max(len(before), len(after)) > _FEW:
            yield f"{words} {_describe_list(before, after)}."
        else:
            yield f"{words}: {_shown(after)}; it was {_shown(before)}."


def _describe_list(old: list[Any], new: list[Any]) -> str:
    """What a long list gains and loses, or that its order is another one."""
    gone, more = ([_shown(value) for value in a if value not in b] for a, b in ((old, new), (new, old)))
    parts = [f"{verb} {_listed(values)}" for verb, values in (("gains", more), ("loses", gone)) if values]
    return " and ".join(parts) or f"has another order: {_listed(map(_shown, new))}"


def _roles(old: Federation, new: Federation) -> Iterator[str]:
    """Who holds shares in secure sums, where that changes: two of the three together could read every score."""
    before, after = (_compute(federation) for federation in (old, new))
    if before != after:
        yield f"Secure sums are computed by {_listed(after) or 'nobody'}; it was {_listed(before) or 'nobody'}."


def _compute(federation: Federation) -> Sequence[str]:
    try:
        return sums_roles(federation)[2]
    except SettingsError:  # a single party has no secure sums
        return ()


def _describe_column(column: Mapping[str, Any]) -> str:
    rest = [f"{key} {_shown(value)}" for key, value in column.items() if key not in ("name", "kind")]
    return " ".join((str(column["name"]), f"({', '.join((str(column['kind']), *rest))})"))


def _listed(names: Iterable[str]) -> str:
    return join_names([str(name) for name in names], _MOST_SHOWN)


def _shown(value: Any) -> str:
    """A value of the file; nothing for one that it leaves out."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) > _MOST_SHOWN:
        return _listed(map(_shown, value))
    return json.dumps(value, ensure_ascii=False)
