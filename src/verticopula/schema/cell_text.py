"""What the text of a cell says: no value, a number, a date, a code.

Every cell is read by itself, by rules that are public. If one cell could change how others are read, one person's value
would move everybody's, and no epsilon would cover that. What a cell alone leaves open (is `1,234` more than a thousand,
or a little more than one?) is decided by the party's `decimal` in the federation file.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.schema.defaults import SECONDS_PER_DAY

# Spellings of "no value", in lower case; in a column of categories only those that are not one of its categories.
EMPTY_SPELLINGS = frozenset(
    {"", "na", "n/a", "n.a.", "#n/a", "nan", "nat", "null", "none", "<na>", "-", "--", "–", "—", ".", "?"}
)

_EPOCH = datetime.date(1970, 1, 1)
_MIDNIGHT = datetime.datetime(1970, 1, 1)
_CLOCK = r"^([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?$"
_GROUP = " \u00a0\u2007\u2009\u202f'’"  # between thousands; a comma or a point may stand there, too
_SPACED = rf"^[+-]?[0-9]{{1,3}}(?:[{_GROUP}][0-9]{{3}})+(?:[.,][0-9]+)?$"
_COMMA_GROUPS = r"^[+-]?[0-9]{1,3}(?:(?:,[0-9]{3}){2,}(?:\.[0-9]+)?|,[0-9]{3}\.[0-9]+)$"
_POINT_GROUPS = r"^[+-]?[0-9]{1,3}(?:(?:\.[0-9]{3}){2,}(?:,[0-9]+)?|\.[0-9]{3},[0-9]+)$"
_ONE_COMMA = r"^[+-]?[1-9][0-9]{0,2},[0-9]{3}$"
_ONE_POINT = r"^[+-]?[1-9][0-9]{0,2}\.[0-9]{3}$"
_DECIMAL_COMMA = r"^[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?$"
_DECIMAL_POINT = r"^[+-]?[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?$"
WHOLE_FLOAT = r"^(-?[0-9]+)[.,]0+$"
_DATES = (
    (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]*Z?)?$", "%Y-%m-%d"),
    (r"^[0-9]{4}/[0-9]{2}/[0-9]{2}(?: [0-9:.]*)?$", "%Y/%m/%d"),
    (r"^[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}(?: [0-9:.]*)?$", "%d.%m.%Y"),
)


@dataclass(frozen=True, repr=False)
class ParsedNumbers:
    """Numbers of a column of text. It has no repr: raw values must not end up in a log.

    Attributes
    ----------
    values : (rows,) NaN where the cell holds no number
    two_ways : (rows,) cells such as `1,234` and `1.234`, which the decimal mark decides
    with_comma : how many cells can only be read with a decimal comma
    with_point : how many cells can only be read with a decimal point
    """

    values: NDArray[np.float64]
    two_ways: NDArray[np.bool_]
    with_comma: int
    with_point: int


def strip_text(series: pl.Series) -> pl.Series:
    """The text of every cell without blanks around it; whole floats without a point, dates as ISO has them."""
    if series.dtype == pl.String:
        return series.str.strip_chars()
    if series.dtype.is_float():
        whole = series.is_nan().fill_null(True).not_() & (series == series.round(0)) & (series.abs() < 2.0**53)
        text = pl.select(
            pl.when(whole).then(series.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(series.cast(pl.String))
        ).to_series()
        return pl.select(pl.when(series.is_nan()).then(None).otherwise(text)).to_series()
    return series.cast(pl.String).str.strip_chars()


def is_empty(text: pl.Series) -> pl.Series:
    """Which cells of stripped text hold no value."""
    return text.is_null() | text.str.to_lowercase().is_in(list(EMPTY_SPELLINGS)).fill_null(True)


def drop_zero_decimals(text: pl.Series) -> pl.Series:
    """The text with `7.0` as `7`: a column of whole numbers with gaps is often written like that."""
    has_one = text.str.contains(WHOLE_FLOAT).any()  # much faster than to replace
    return text.str.replace(WHOLE_FLOAT, "$1") if has_one else text


def parse_numbers(text: pl.Series, decimal: str | None = None) -> ParsedNumbers:
    """Numbers with a decimal point or comma, and with or without marks between thousands.

    Parameters
    ----------
    text : stripped
    decimal : `.` or `,`: which one it is where a cell can be read both ways; None for `.`
    """
    text = text.str.replace("^\u2212", "-")
    one_comma, one_point, spaced = (_fits(text, pattern) for pattern in (_ONE_COMMA, _ONE_POINT, _SPACED))
    comma_groups, point_groups = _fits(text, _COMMA_GROUPS), _fits(text, _POINT_GROUPS)
    decimal_comma = _fits(text, _DECIMAL_COMMA) & ~one_comma
    drop_comma, drop_point = comma_groups, point_groups
    if decimal == ",":
        drop_point = drop_point | one_point
    else:
        drop_comma = drop_comma | one_comma
    frame = pl.DataFrame({"text": text, "spaced": spaced, "comma": drop_comma, "point": drop_point})
    cell = pl.col("text")
    plain = (
        pl.when("spaced")
        .then(cell.str.replace_all(f"[{_GROUP}]", ""))
        .when("comma")
        .then(cell.str.replace_all(",", "", literal=True))
        .when("point")
        .then(cell.str.replace_all(".", "", literal=True))
        .otherwise(cell)
    )
    numbers = frame.select(plain.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)).to_series()
    with_point = (_fits(text, _DECIMAL_POINT) & ~one_point) | comma_groups
    return ParsedNumbers(
        numbers.fill_null(float("nan")).to_numpy().astype(np.float64),
        (one_comma | one_point).to_numpy(),
        int((decimal_comma | point_groups).sum()),
        int(with_point.sum()),
    )


def _fits(text: pl.Series, pattern: str) -> pl.Series:
    return text.str.contains(pattern).fill_null(False)


def parse_days(text: pl.Series) -> NDArray[np.float64]:
    """Days since 1970-01-01 of dates such as 2024-12-31, 2024/12/31 and 31.12.2024; NaN for anything else.

    The hour is left out. Dates such as 12/11/2024 are not read: they are different days on the two sides of an ocean.
    """
    days = pl.Series([None], dtype=pl.Date).extend_constant(None, max(len(text) - 1, 0))[: len(text)]
    for pattern, form in _DATES:
        fits = _fits(text, pattern)
        if fits.any():
            day = text.str.replace(r"[T ].*$", "").str.to_date(form, strict=False)
            days = days.zip_with(~fits, day)
    return (days.cast(pl.Int32).cast(pl.Float64).fill_null(float("nan"))).to_numpy().astype(np.float64)


def parse_seconds(text: pl.Series) -> NDArray[np.float64]:
    """Seconds since 1970-01-01 of dates with a time such as 2024-12-31 23:59 or 2024-12-31T23:59:58; NaN for others.

    A date alone is its midnight. Parts of seconds are left out.
    """
    clock = text.str.extract(r"[T ]([^T ]*?)Z?$", 1).fill_null("").replace("", "0:00")
    hours, minutes, seconds = (
        clock.str.extract(_CLOCK, group).fill_null(absent).cast(pl.Float64).to_numpy().astype(np.float64)
        for group, absent in ((1, "nan"), (2, "nan"), (3, "0"))
    )
    is_time = (hours < 24) & (minutes < 60) & (seconds < 60)
    return np.where(is_time, SECONDS_PER_DAY * parse_days(text) + 3600 * hours + 60 * minutes + seconds, np.nan)


def day_number(date: datetime.date) -> int:
    """Days since 1970-01-01."""
    if isinstance(date, datetime.datetime):
        date = date.date()
    return (date - _EPOCH).days


def date_of(day: float) -> datetime.date:
    """The inverse of `day_number`."""
    return _EPOCH + datetime.timedelta(days=int(day))


def second_number(moment: datetime.datetime) -> int:
    """Seconds since 1970-01-01; a moment without a time zone is taken as it stands."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return int((moment - _MIDNIGHT).total_seconds())


def moment_of(second: float) -> datetime.datetime:
    """The inverse of `second_number`."""
    return _MIDNIGHT + datetime.timedelta(seconds=int(second))


def looks_mistyped(wanted: str, given: str) -> bool:
    """Whether two names differ only in blanks, underscores, hyphens or case."""
    return _folded(wanted) == _folded(given)


def _folded(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def _is_part(one: str, other: str) -> bool:
    """Whether the shorter of two names stands in the longer one; names of a letter or two stand everywhere."""
    short, long = sorted((one, other), key=len)
    return len(short) > 2 and short in long


def suggest_name(wanted: str, known: list[str]) -> str:
    """`; did you mean 'x'?` where one of the known names is close, and nothing otherwise."""
    import difflib

    close = [name for name in known if looks_mistyped(wanted, name)]
    close = close or [name for name in known if _is_part(_folded(wanted), _folded(name))]
    close = close or difflib.get_close_matches(wanted, known, n=1, cutoff=0.75)
    return f"; did you mean {close[0]!r}?" if close else ""
