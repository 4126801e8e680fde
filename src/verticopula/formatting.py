"""Numbers and names as a reader sees them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_JOINER = "\u200d"  # holds composed emoji together
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def readable(text: str) -> str:
    """The text with what cannot be seen, or turns the direction of writing, spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(character) for character in text)


def is_invisible(character: str) -> bool:
    """Whether it cannot be seen, or turns the direction of writing."""
    return unicodedata.category(character) in _INVISIBLE


def _spelled(character: str) -> str:
    if character in (_JOINER, "\n") or not is_invisible(character):
        return character
    return f"\u27e8U+{ord(character):04X}\u27e9"


def json_safe(value: Any) -> Any:
    """Plain values for the page's data: readable names, and None for numbers that JSON has no word for."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {json_safe(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(item) for item in value]
    return json_numbers(value)


def json_numbers(value: Any, infinite: str | None = None) -> Any:
    """The value with `infinite` for infinite numbers and None for NaN: JSON has no word for them."""
    if value is None or isinstance(value, (str, int)):  # first: asking for a mapping takes longest
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else infinite
    if isinstance(value, Mapping):
        return {key: json_numbers(item, infinite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_numbers(item, infinite) for item in value]
    return value


def format_number(value: float | None, digits: int = 3) -> str:
    """Some significant digits, thousands apart; nothing for what is not a number."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0.0:
        return "0"
    size = abs(value)
    if size < 1e-4 or size >= 1e9:
        return _short_power(f"{value:.{digits - 1}e}")
    places = max(digits - 1 - math.floor(math.log10(size)), 0)
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_percent(share: float, digits: int = 1) -> str:
    """A share in per cent; small ones never look like none."""
    if 0.0 < share < 0.5 * 10.0 ** -(digits + 2):
        return f"< {10.0**-digits:.{digits}f} %"
    return f"{100.0 * share:.{digits}f} %"


def count_of(count: int, noun: str, plural: str | None = None) -> str:
    """`1 column`, `2 columns`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def join_names(names: list[str], most: int = 4) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def describe_odds(epsilon: float) -> str:
    """What an epsilon says, in words: by how much it lets the odds of a guess change."""
    if math.isinf(epsilon):
        return "no bound at all"
    factor = math.exp(min(epsilon, 50.0))
    if factor > 1e6:
        return "more than a million times: no bound in practice"
    return f"at most {format_number(math.ceil(factor * 100.0) / 100.0, 4)} times"


def format_time(seconds: float) -> str:
    """A moment for a reader, to the minute."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):  # a peer may say anything
        return "an unknown time"


def shorten_time(time: str) -> str:
    """A time in ISO 8601, as a ledger has it, to the minute."""
    return time[:16].replace("T", " ") + (" UTC" if time.endswith(("Z", "+00:00")) else "")


def format_small(value: float) -> str:
    """A small number as people write it: 1e-6."""
    return _short_power(f"{value:g}")


def _short_power(text: str) -> str:
    return re.sub(r"e([+-])0*", lambda found: "e" + found[1].replace("+", ""), text)
