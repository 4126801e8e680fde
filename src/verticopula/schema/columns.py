"""A column: its name and address, its kind, and its public bounds or categories."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeGuard

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from verticopula.errors import SettingsError
from verticopula.schema.cell_text import date_of, day_number, moment_of, second_number, suggest_name
from verticopula.schema.checked_model import STILL_OPEN, CheckedModel
from verticopula.schema.defaults import SECONDS_PER_DAY

Kind = Literal["continuous", "count", "ordinal", "nominal", "binary"]
Scale = Literal["linear", "log", "symlog"]
CountCells = Literal["even", "growing"]
Category = str | int

FAR_FROM_ZERO = 2.0  # a count begins near 0 if its upper bound is more than so many times as far away as its lower one
MOST_ATOMS = 32
LARGEST_COUNT = 2**53 - 1  # it and the next integer are floats
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ColumnKey(NamedTuple):
    """A column's address in the federation; prints as `party.column`.

    Attributes
    ----------
    party : the name of the party that holds it
    column : its name there
    """

    party: str
    column: str

    def __str__(self) -> str:
        return f"{self.party}.{self.column}"

    @classmethod
    def parse(cls, text: str) -> ColumnKey:
        """The inverse of `str`: a party's name has no dot.

        Parameters
        ----------
        text : `party.column`
        """
        return cls(*text.split(".", 1))


class Column(CheckedModel):
    """One column: its kind and its public range.

    Attributes
    ----------
    name : as the party's table has it
    kind : `continuous`, `count`, `ordinal`, `nominal` or `binary`
    bounds : two numbers, public; needed for `continuous` and `count`. For `count`, two dates make it a column of days,
        and two dates with a time one of seconds
    categories : public list; in order for `ordinal`; two for `binary` (default 0, 1)
    scale : how a continuous range is cut: `linear`, `log` (bounds > 0) or `symlog`
    threshold : of `symlog`: values well below it are cut evenly, values well above it by their logarithm
    cells : how the range of a `count` column is cut where it has too many values for a cell each: `even`, or `growing`
        away from the lower bound; by default `growing` for counts that begin near 0 (`has_even_cells`)
    atoms : single values of a continuous or count column that many people have, such as 0; each is a cell of its own,
        and synthetic values are exactly that
    clamp : values outside the bounds are expected, so their party is not told; they are moved to the nearest bound in
        any case
    other : one of the categories, which stands for every value that is not listed; without it such a value counts as
        empty
    required : whether everybody whom the party knows has a value; if not, an empty value is a cell of its own in
        studies by `strict`. An empty value in a required column counts as the first category or the lower bound there
    relation : another column of the party, which this one often equals. The column is then modelled as its difference
        from that one: bounds, scale, cells and atoms are those of the difference, and 0 is an atom of it by default
    weight : share of the party's budget relative to its other columns
    decimals : digits after the point in synthetic values of a continuous column
    title, measured_in : what the report calls the column, and what its values are (`EUR`), for readers; they change
        no number
    dates : whether the bounds were given as dates; they and the values are then days since 1970-01-01
    times : whether these dates have a time; they and the values are then seconds
    """

    label: ClassVar[str] = "column"

    name: str
    kind: Kind
    bounds: tuple[float, float] | None = None
    categories: tuple[Category, ...] | None = None
    scale: Scale = "linear"
    threshold: float = 1.0
    cells: CountCells | None = None
    atoms: tuple[float, ...] = ()
    clamp: bool = False
    other: Category | None = None
    required: bool = False
    relation: str | None = None
    weight: float = 1.0
    decimals: int | None = Field(default=None, ge=0, le=15)
    title: str | None = None
    measured_in: str | None = None
    dates: bool = False
    times: bool = False

    @field_validator("name")
    @classmethod
    def _name_is_printable(cls, name: str) -> str:
        if not name.strip() or len(name) > 200 or _CONTROL.search(name):
            raise ValueError("a column name needs 1 to 200 printable characters")
        return name

    @field_validator("title", "measured_in")
    @classmethod
    def _text_is_printable(cls, words: str | None) -> str | None:
        if words is not None and (not words.strip() or len(words) > 200 or _CONTROL.search(words)):
            raise ValueError("it needs 1 to 200 printable characters")
        return words

    @field_validator("categories", mode="before")
    @classmethod
    def _categories_are_text_or_whole(cls, categories: Any) -> Any:
        for category in categories or ():
            if isinstance(category, bool) or not isinstance(category, (str, int)):
                raise ValueError("categories must be strings or whole numbers")
        return categories

    @model_validator(mode="before")
    @classmethod
    def _older_files_say_unit(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and "unit" in raw and "measured_in" not in raw:
            return {"measured_in" if key == "unit" else key: value for key, value in raw.items()}
        return raw

    @model_validator(mode="before")
    @classmethod
    def _binary_defaults_to_zero_one(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and raw.get("kind") == "binary" and raw.get("categories") is None:
            return {**raw, "categories": (0, 1)}
        return raw

    @model_validator(mode="before")
    @classmethod
    def _equal_values_are_an_atom(cls, raw: Any) -> Any:
        bounds = raw.get("bounds") if isinstance(raw, Mapping) and raw.get("relation") is not None else None
        if not isinstance(bounds, (list, tuple)) or "atoms" in raw or not all(map(is_number, bounds)):
            return raw
        return {**raw, "atoms": (0.0,)} if len(bounds) == 2 and bounds[0] <= 0 <= bounds[1] else raw

    @model_validator(mode="before")
    @classmethod
    def _bounds_may_be_dates_or_blank(cls, raw: Any) -> Any:
        bounds = raw.get("bounds") if isinstance(raw, Mapping) else None
        if not isinstance(bounds, (list, tuple)):
            return raw
        if not bounds:
            return {key: value for key, value in raw.items() if key != "bounds"}
        times = any(_has_time(bound) for bound in bounds)
        number_of = second_of if times else day_of
        ends = [number_of(bound) for bound in bounds]
        if None in ends:
            return raw
        atoms = [number_of(atom) for atom in raw.get("atoms", ())]
        return {**raw, "bounds": ends, "atoms": atoms, "dates": True, "times": times}

    @model_validator(mode="after")
    def _range_fits_kind(self) -> Self:
        problems = list(self._range_problems())
        if problems:
            raise ValueError("; ".join(problems))
        if self.kind in ("continuous", "count") and self.bounds is None:
            raise PydanticCustomError(
                STILL_OPEN,
                "public bounds are still open: write bounds = [low, high], the smallest and the largest value that "
                "are possible",
            )
        if self.kind not in ("continuous", "count") and not self.categories:
            raise PydanticCustomError(
                STILL_OPEN,
                "the public list of categories is still open: write categories = [...], or categories_file = "
                '"codes.txt"',
            )
        return self

    def _range_problems(self) -> Iterator[str]:
        if not (math.isfinite(self.weight) and self.weight > 0):
            yield "weight must be a positive number"
        if self.kind in ("continuous", "count"):
            yield from self._bounds_problems()
            if self.categories is not None:
                yield f"a {self.kind} column takes bounds, not categories; if its values are words, its kind is nominal"
            if self.other is not None:
                yield f"other is for columns with categories, not for a {self.kind} column"
        else:
            yield from self._categories_problems()
            if self.bounds is not None:
                yield f"a {self.kind} column takes categories, not bounds"
        if self.scale != "symlog" and self.threshold != 1.0:
            yield "threshold is for scale = 'symlog'"
        if not (math.isfinite(self.threshold) and self.threshold > 0):
            yield "threshold must be a positive number"
        if self.kind != "count" and self.cells is not None:
            yield "cells is for count columns"
        yield from self._atoms_problems()
        if self.relation is not None and (self.kind not in ("continuous", "count") or self.dates):
            yield "relation is for continuous and count columns, and their bounds are numbers: those of the difference"
        if self.kind != "continuous":
            if self.scale != "linear":
                yield "scale is for continuous columns"
            if self.decimals is not None:
                yield "decimals is for continuous columns"
        if self.kind not in ("continuous", "count") and self.clamp:
            yield "clamp is for continuous and count columns"

    def _bounds_problems(self) -> Iterator[str]:
        if self.bounds is None:
            return
        if self.dates and self.kind != "count":
            yield 'dates are whole days or seconds: kind = "count"'
        low, high = self.bounds
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            yield "bounds must be two finite numbers, low < high"
            return
        if not math.isfinite(high - low):
            yield "bounds are too far apart"
        if self.scale == "log" and low <= 0:
            yield "scale = 'log' needs a lower bound above 0 (use 'symlog')"
        if self.kind == "count":
            if low != int(low) or high != int(high):
                yield "a count column needs whole bounds"
            elif max(abs(low), abs(high)) > LARGEST_COUNT:
                yield "count bounds must lie below 2^53"

    def _atoms_problems(self) -> Iterator[str]:
        if not self.atoms:
            return
        if self.kind not in ("continuous", "count"):
            yield "atoms are for continuous and count columns"
        elif self.bounds is not None and not all(self.bounds[0] <= atom <= self.bounds[1] for atom in self.atoms):
            yield "atoms must lie within the bounds"
        if sorted(set(self.atoms)) != list(self.atoms):
            yield "atoms must differ from each other and rise"
        if len(self.atoms) > MOST_ATOMS:
            yield f"at most {MOST_ATOMS} atoms"
        if self.kind == "count" and any(atom != int(atom) for atom in self.atoms):
            yield "atoms of a count column are whole"
        if self.decimals is not None and any(round(atom, self.decimals) != atom for atom in self.atoms):
            yield "atoms have no more digits than decimals says"

    def _categories_problems(self) -> Iterator[str]:
        if not self.categories:
            return
        texts = [str(c) for c in self.categories]
        if len(set(texts)) != len(texts):
            yield "categories must differ from each other"
        if self.other is not None and str(self.other) not in texts:
            yield "other must be one of the listed categories"
        if any(not t.strip() for t in texts):
            yield "a category must not be blank (blank means missing)"
        if self.kind == "binary" and len(texts) != 2:
            yield "a binary column has exactly two categories"
        elif len(texts) < 2:
            yield "at least two categories are needed"

    @property
    def is_discrete(self) -> bool:
        return self.kind != "continuous"

    @property
    def per_day(self) -> int:
        """How many of a date column's numbers are a day."""
        return SECONDS_PER_DAY if self.times else 1

    def date_text(self, number: float) -> str:
        """A date column's value as ISO has it.

        Parameters
        ----------
        number : days, or seconds, since 1970-01-01
        """
        return moment_of(number).isoformat() if self.times else date_of(number).isoformat()

    @property
    def has_ties(self) -> bool:
        """Whether people may have the same value by what is public."""
        return self.is_discrete or bool(self.atoms)

    @property
    def has_even_cells(self) -> bool:
        """Whether a count column's wide range is cut evenly: where it does not begin near 0, and for dates."""
        if self.cells is not None or self.bounds is None:
            return self.cells == "even"
        low, high = self.bounds
        return self.dates or FAR_FROM_ZERO * abs(low) >= high

    @property
    def heading(self) -> str:
        """The column for readers: its title, or its name, and what it is measured in."""
        named = self.title or self.name
        words = named if self.relation is None else f"{named} minus {self.relation}"
        return f"{words} ({self.measured_in})" if self.measured_in else words

    def as_written(self, other: Column | None) -> Column:
        """The column as tables hold it: itself, or for one with a relation the sum of its difference and the other.

        Parameters
        ----------
        other : the column that `relation` names; None without one
        """
        if other is None or self.bounds is None or other.bounds is None:
            return self
        ends = (other.bounds[0] + self.bounds[0], other.bounds[1] + self.bounds[1])
        plain = {"relation": None, "bounds": ends, "atoms": (), "scale": "linear", "threshold": 1.0, "cells": None}
        return self.model_copy(update={**plain, "dates": other.dates, "times": other.times})


def day_of(bound: Any) -> int | None:
    """Days since 1970-01-01 of a date or of its ISO text; None for anything else."""
    if isinstance(bound, str):
        try:
            bound = datetime.date.fromisoformat(bound)
        except ValueError:
            return None
    return day_number(bound) if isinstance(bound, datetime.date) else None


def second_of(bound: Any) -> int | None:
    """Seconds since 1970-01-01 of a date, with or without a time, or of its ISO text; None for anything else."""
    if isinstance(bound, str):
        try:
            bound = datetime.datetime.fromisoformat(bound)
        except ValueError:
            return None
    if isinstance(bound, datetime.datetime):
        return second_number(bound)
    return SECONDS_PER_DAY * day_number(bound) if isinstance(bound, datetime.date) else None


def _has_time(bound: Any) -> bool:
    """Whether it is a date with a time, or the text of one."""
    if isinstance(bound, str):
        return day_of(bound) is None and second_of(bound) is not None
    return isinstance(bound, datetime.datetime)


def read_value(column: Column, value: Any, where: str) -> float:
    """A public value as the column's number or code; SettingsError if the column cannot have it.

    Parameters
    ----------
    column : whose value it is
    value : a category, a number, a date, or the text of one
    where : for the message
    """
    if column.categories is not None:
        labels = [str(category) for category in column.categories]
        text = str(int(value)) if isinstance(value, bool) and str(value) not in labels else str(value)
        if text not in labels:
            raise SettingsError(f"{where}: {text!r} is not one of its categories{suggest_name(text, labels)}")
        return float(labels.index(text))
    number_of = second_of if column.times else day_of if column.dates else _number_of
    number = number_of(value)
    if number is None:
        raise SettingsError(f"{where}: expected a {'date' if column.dates else 'number'}, got {value!r}")
    low, high = column.bounds or (number, number)
    if not low <= number <= high:
        raise SettingsError(f"{where}: {value} lies outside its public bounds, so no row can have it")
    return float(number)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number, also one of NumPy's; True and False are none, infinities are."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _number_of(value: Any) -> float | None:
    """A finite number, also from its text; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None
