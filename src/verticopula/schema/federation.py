"""Who holds which column, of which kind, within which public bounds or categories.

Bounds and categories are public inputs. Taking them from the data is a deterministic function of
the data (epsilon = infinity), so it happens only where the caller asks for it by name
(`Federation.infer(..., bounds="from-data")`), and the federation then carries the mark.
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from verticopula.errors import Problem, SchemaError, SettingsError
from verticopula.formatting import count_of, format_number, join_names, readable
from verticopula.notebook import alarm_html, box, text_html
from verticopula.schema.cell_text import SECONDS_A_DAY, date_of, day_number, moment_of, second_number, suggest_name
from verticopula.schema.checked_model import STILL_OPEN, CheckedModel
from verticopula.schema.code_lists import with_code_lists
from verticopula.schema.defaults import LONGEST_DEADLINE
from verticopula.schema.federation_draft import FROM_DATA, FederationDraft, draft_federation, require_values
from verticopula.schema.frames import to_polars

Kind = Literal["continuous", "count", "ordinal", "nominal", "binary"]
Scale = Literal["linear", "log", "symlog"]
CountCells = Literal["even", "growing"]
Category = str | int

FAR_FROM_ZERO = 2.0  # a count begins near 0 if its upper bound is more than so many times as far away as its lower one
MOST_ATOMS = 32
LARGEST_COUNT = 2**53 - 1  # it and the next integer are floats
_T = TypeVar("_T")
_PARTY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_RESERVED = ("coordinator", "lead", "server", "authority")  # none of them is an organisation's name
JOINED = "joined"  # the file of all parties' synthetic columns side by side; a party's table has the party's name
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ColumnKey(NamedTuple):
    """A column's address in the federation; prints as `party.column`."""

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
    weight : share of the party's budget relative to its other columns
    decimals : digits after the point in synthetic values of a continuous column
    title, unit : what the report calls the column and what it is measured in, for readers; they change no number
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
    weight: float = 1.0
    decimals: int | None = Field(default=None, ge=0, le=15)
    title: str | None = None
    unit: str | None = None
    dates: bool = False
    times: bool = False

    @field_validator("name")
    @classmethod
    def _name_is_printable(cls, name: str) -> str:
        if not name.strip() or len(name) > 200 or _CONTROL.search(name):
            raise ValueError("a column name needs 1 to 200 printable characters")
        return name

    @field_validator("title", "unit")
    @classmethod
    def _words_are_printable(cls, words: str | None) -> str | None:
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
    def _binary_defaults_to_zero_one(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and raw.get("kind") == "binary" and raw.get("categories") is None:
            return {**raw, "categories": (0, 1)}
        return raw

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
                yield f"a {self.kind} column takes bounds, not categories"
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
        """How many of a date column's units are a day."""
        return SECONDS_A_DAY if self.times else 1

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
        """The column for readers: its title, or its name, and its unit."""
        return f"{self.title or self.name} ({self.unit})" if self.unit else self.title or self.name


class Party(CheckedModel):
    """One organisation: its name, its columns, and its own epsilon if it has one.

    Attributes
    ----------
    decimal : which mark begins decimals where a number is text that can be read two ways, such as `1,234`; None for
        a point
    constraints : what its synthetic rows never contradict, such as `a <= b` and `a > 0 only if b`
    """

    label: ClassVar[str] = "party"

    name: str
    epsilon: float | None = None
    decimal: Literal[".", ","] | None = None
    constraints: tuple[str, ...] = ()
    columns: tuple[Column, ...] = Field(alias="column")

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="after")
    def _constraints_can_be_read(self) -> Self:
        from verticopula.schema.constraints import read_constraints  # it reads this record

        read_constraints(self)
        return self

    @field_validator("name")
    @classmethod
    def _name_is_a_file_name(cls, name: str) -> str:
        if not _PARTY_NAME.fullmatch(name):
            raise ValueError("a party name needs 1 to 64 letters, digits, '-' or '_', starting with a letter or digit")
        if name.casefold() == JOINED:  # some file systems ignore case
            raise ValueError(f"a party cannot be called {name!r}: the table of all parties together has that file name")
        return name

    @field_validator("epsilon")
    @classmethod
    def _epsilon_is_positive(cls, epsilon: float | None) -> float | None:
        if epsilon is not None and not (math.isfinite(epsilon) and epsilon > 0):
            raise ValueError("epsilon must be a positive number")
        return epsilon

    def column(self, name: str) -> Column:
        """The column of that name; KeyError if there is none.

        Parameters
        ----------
        name : as the federation file has it
        """
        return next_or_key_error((c for c in self.columns if c.name == name), name)

    def may_be_empty(self, name: str) -> bool:
        """Whether somebody whom the party knows may be without a value in the column. Never a look at the data.

        Parameters
        ----------
        name : of the column; of a party's only one everybody whom it knows has a value
        """
        return len(self.columns) > 1 and not self.column(name).required


class IdRule(CheckedModel):
    """The subject-id column and how its values are normalised before they are compared."""

    name: str = "subject_id"
    rules: tuple[str, ...] = ()

    @field_validator("rules")
    @classmethod
    def _rules_are_known(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for rule in rules:
            if rule not in ("strip", "upper", "lower") and not re.fullmatch(r"zfill:[1-9][0-9]?", rule):
                raise ValueError(f"unknown id rule {rule!r}; known: strip, upper, lower, zfill:N")
        return rules


class Network(CheckedModel):
    """Where the parties meet.

    Attributes
    ----------
    host : the coordinator's name or address, as the parties reach it; it stands in its certificate
    port : the one port that must be open there
    deadline : seconds that a party has for one round of a study
    operator : the organisation that runs the coordinator; a party's name where it is that party's
    compute : an organisation without data, which computes in strict studies of two parties in the coordinator's place
    """

    host: str = "localhost"
    port: int = Field(default=8102, ge=1, le=65_535)
    deadline: float = Field(default=3_600.0, gt=0, le=LONGEST_DEADLINE)
    operator: str | None = None
    compute: str | None = None

    @field_validator("host")
    @classmethod
    def _host_is_a_name(cls, host: str) -> str:
        if not _HOST_NAME.fullmatch(host):
            raise ValueError("host must be a host name or an IPv4 address, without scheme or port")
        return host

    @field_validator("operator", "compute")
    @classmethod
    def _names_are_like_a_party_s(cls, name: str | None) -> str | None:
        if name is not None and not _PARTY_NAME.fullmatch(name):
            raise ValueError("a name needs 1 to 64 letters, digits, '-' or '_', starting with a letter or digit")
        return name


class Federation(CheckedModel):
    """The whole study's schema. Immutable."""

    name: str = "study"
    response: ColumnKey
    id: IdRule = IdRule()
    parties: tuple[Party, ...] = Field(alias="party")
    bounds_source: Literal["public", "from-data"] = "public"
    network: Network = Network()

    model_config = ConfigDict(populate_by_name=True)

    @classmethod
    def problems_between(cls, raw: Mapping[str, Any]) -> list[Problem]:
        """Names that are used twice, a response or a compute party that nobody can be.

        Parameters
        ----------
        raw : in the layout of the federation file
        """
        return _problems_between(raw)

    @field_validator("response", mode="before")
    @classmethod
    def _response_is_party_dot_column(cls, response: Any) -> Any:
        if response == "":
            raise PydanticCustomError(
                STILL_OPEN,
                'is still open: write response = "party.column", the column to be explained; the people of that '
                "party are the study's",
            )
        if isinstance(response, str):
            party, dot, column = response.partition(".")
            if not dot or not party or not column:
                raise ValueError('response must read "party.column"')
            return ColumnKey(party, column)
        return response

    @field_validator("id", mode="before")
    @classmethod
    def _id_may_be_a_name(cls, value: Any) -> Any:
        if value == "":
            raise PydanticCustomError(STILL_OPEN, "is still open: the name of the id column that all tables share")
        return {"name": value} if isinstance(value, str) else value

    # ---- reading and writing -------------------------------------------------------------

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Federation:
        """The federation that a nested mapping describes; SchemaError lists every problem.

        Parameters
        ----------
        raw : in the layout of the federation file
        """
        return cls(**raw)

    @classmethod
    def from_toml(cls, path: str | Path) -> Federation:
        """The federation of a file; SchemaError lists every problem.

        Parameters
        ----------
        path : the TOML file
        """
        where = Path(path).name
        try:
            raw = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise SchemaError([Problem(where, "no such file")]) from None
        except (OSError, UnicodeDecodeError):
            raise SchemaError([Problem(where, "cannot be read as UTF-8 text")]) from None
        except tomllib.TOMLDecodeError as error:
            raise SchemaError([Problem(where, f"is not valid TOML: {error}")]) from None
        raw, unread = with_code_lists(raw, Path(path).parent)
        try:
            made = cls.from_dict(raw)
        except SchemaError as error:
            found = [p for p in error.problems if not any(u.where.startswith(f"{p.where}, ") for u in unread)]
            raise SchemaError([*unread, *found]) from None
        if unread:
            raise SchemaError(unread)
        return made

    @classmethod
    def infer(
        cls,
        tables: Mapping[str, Any],
        *,
        response: str,
        bounds: str,
        id: str = "subject_id",
        name: str = "study",
    ) -> Federation:
        """A federation guessed from tables, for trying things out: epsilon is then infinite.

        Parameters
        ----------
        tables : party -> pandas or polars DataFrame
        response : `party.column`
        bounds : `from-data`, which accepts by name that the ranges leak; nothing else is possible
        id : name of the subject-id column
        name : of the federation
        """
        if bounds != FROM_DATA:
            raise SettingsError(
                f'inferring a federation takes the ranges from the data, which is not private: bounds="{FROM_DATA}" '
                "accepts that, and Federation.draft asks for them instead"
            )
        frames = {party: to_polars(table, party) for party, table in tables.items()}
        draft = draft_federation(frames, response=response, bounds=bounds, id=id, name=name)
        require_values(draft)
        return cls.from_dict(draft.to_dict())

    @staticmethod
    def draft(
        tables: Mapping[str, Any], *, response: str | None = None, id: str | None = None, name: str = "study"
    ) -> FederationDraft:
        """A federation file guessed from tables, with blanks for bounds and categories; `to_toml` writes it.

        Parameters
        ----------
        tables : party -> pandas or polars DataFrame
        response : `party.column`; None to guess it
        id : name of the subject-id column; None to guess it
        name : of the federation
        """
        frames = {party: to_polars(table, party) for party, table in tables.items()}
        return draft_federation(frames, response=response, id=id, name=name)

    def to_dict(self) -> dict[str, Any]:
        """The federation as plain values, in the layout of the federation file."""
        head: dict[str, Any] = {"name": self.name, "response": str(self.response)}
        head["id"] = {"name": self.id.name, "rules": list(self.id.rules)} if self.id.rules else self.id.name
        if self.bounds_source != "public":
            head["bounds_source"] = self.bounds_source
        if self.network != Network():
            head["network"] = self.network.model_dump(exclude_none=True)
        head["party"] = [
            {
                "name": party.name,
                **({} if party.epsilon is None else {"epsilon": party.epsilon}),
                **({} if party.decimal is None else {"decimal": party.decimal}),
                **({"constraints": list(party.constraints)} if party.constraints else {}),
                "column": [_column_to_dict(column) for column in party.columns],
            }
            for party in self.parties
        ]
        return head

    def to_toml(self, path: str | Path | None = None) -> str:
        """The federation file's text; also written to `path` if one is given.

        Parameters
        ----------
        path : where to write it; None for nowhere
        """
        text = tomli_w.dumps(self.to_dict())
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    # ---- looking things up ---------------------------------------------------------------

    def party(self, name: str) -> Party:
        """The party of that name; KeyError if there is none.

        Parameters
        ----------
        name : as the federation file has it
        """
        return next_or_key_error((p for p in self.parties if p.name == name), name)

    def column(self, key: ColumnKey) -> Column:
        """The column at that address; KeyError if there is none.

        Parameters
        ----------
        key : party and column
        """
        return self.party(key.party).column(key.column)

    @property
    def bounds_from_data(self) -> bool:
        """Whether bounds or categories were taken from the data, which nothing protects."""
        return self.bounds_source == FROM_DATA

    @property
    def keys(self) -> tuple[ColumnKey, ...]:
        """All columns' addresses, party by party, in file order."""
        return tuple(ColumnKey(p.name, c.name) for p in self.parties for c in p.columns)

    def __str__(self) -> str:
        parties = ", ".join(f"{p.name} ({len(p.columns)})" for p in self.parties)
        return readable(f"Federation {self.name!r}: {parties}; response {self.response}")

    def __repr__(self) -> str:
        return f"<{self}>"

    def _repr_html_(self) -> str:
        return _federation_html(self)


def next_or_key_error(candidates: Iterator[_T], name: str) -> _T:
    """The first candidate, or a KeyError that says which name was not found."""
    for candidate in candidates:
        return candidate
    raise KeyError(name)


def _column_to_dict(column: Column) -> dict[str, Any]:
    values = column.model_dump(exclude_defaults=True)
    for key in ("bounds", "categories", "atoms"):
        if key in values:
            values[key] = list(values[key])
    for key in ("bounds", "atoms"):
        if column.kind == "count" and key in values:
            values[key] = [column.date_text(number) if column.dates else int(number) for number in values[key]]
    for shown in ("dates", "times"):  # by the bounds
        values.pop(shown, None)
    return values


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
    return SECONDS_A_DAY * day_number(bound) if isinstance(bound, datetime.date) else None


def _has_time(bound: Any) -> bool:
    """Whether it is a date with a time, or the text of one."""
    if isinstance(bound, str):
        return day_of(bound) is None and second_of(bound) is not None
    return isinstance(bound, datetime.datetime)


def _problems_between(raw: Mapping[str, Any]) -> list[Problem]:
    """Problems between parts of the file; looked for in the raw mapping, so that they are
    reported together with the problems inside the parts."""
    problems: list[Problem] = []
    parties = _mappings(raw.get("party", raw.get("parties")))
    if not parties:
        problems.append(Problem("federation", "at least one [[party]] is needed"))
    folded = Counter(str(p.get("name", "")).casefold() for p in parties)
    for name, count in folded.items():
        if count > 1:  # party names become file names, and some file systems ignore case
            problems.append(Problem(f"party {name!r}", f"the name is used by {count} parties (case does not count)"))
    problems += _compute_problems(raw.get("network"), list(folded))
    id_value = raw.get("id", "subject_id")
    id_value = dict(id_value) if isinstance(id_value, BaseModel) else id_value
    id_name = id_value.get("name", "subject_id") if isinstance(id_value, Mapping) else id_value
    known: set[tuple[str, str]] = set()
    for party in parties:
        columns = _mappings(party.get("column", party.get("columns")))
        names = Counter(str(c.get("name", "")) for c in columns)
        known |= {(str(party.get("name")), name) for name in names}
        where = f"party {party.get('name', '?')!r}"
        if not columns:
            problems.append(Problem(where, "at least one [[party.column]] is needed"))
        for name, count in names.items():
            if count > 1:
                problems.append(Problem(f"{where}, column {name!r}", f"is listed {count} times"))
            if name == id_name:
                problems.append(Problem(f"{where}, column {name!r}", "is the subject id and cannot be a study column"))
    response = raw.get("response")
    response = str(response) if isinstance(response, ColumnKey) else response
    if isinstance(response, str) and "." in response:
        party_name, _, column = response.partition(".")
        if (party_name, column) not in known:
            hint = suggest_name(response, [f"{party}.{column}" for party, column in sorted(known)])
            problems.append(Problem("response", f"{response!r} is not a column of this federation{hint}"))
    return problems


def _compute_problems(network: Any, folded: list[str]) -> list[Problem]:
    """What is wrong with the compute party without data; `folded` are the parties' names, case-folded."""
    raw = dict(network) if isinstance(network, BaseModel) else network
    name = raw.get("compute") if isinstance(raw, Mapping) else None
    if not isinstance(name, str):
        return []
    where = "network, compute"
    if name.casefold() in _RESERVED:
        return [Problem(where, f"cannot be called {name!r}, which is somebody else")]
    if name.casefold() in folded:
        return [Problem(where, f"{name!r} holds data; the third compute party is an organisation without any")]
    if len(folded) != 2:
        return [Problem(where, "is for two parties: of three or more, the first three of the file compute")]
    return []


def _mappings(parts: Any) -> list[Mapping[str, Any]]:
    """Those parts of a list that are, or can be written as, mappings."""
    plain = [dict(p) if isinstance(p, BaseModel) else p for p in parts] if isinstance(parts, (list, tuple)) else []
    return [p for p in plain if isinstance(p, Mapping)]


def seeded_study_name(federation: Federation) -> str:
    """What seeded noise is keyed by: the same for every study of a federation, so that simulations can be repeated."""
    return f"{federation.name}-seeded"


def _federation_html(federation: Federation) -> str:
    """Parties, columns and their public ranges."""
    rows = [
        [key.party, key.column, column.kind, _public_range(column), "response" if key == federation.response else ""]
        for key in federation.keys
        for column in [federation.column(key)]
    ]
    lines = [
        f"Federation <b>{text_html(federation.name)}</b>: {count_of(len(federation.parties), 'party', 'parties')}, "
        f"{count_of(len(federation.keys), 'column')}, response {text_html(str(federation.response))}"
    ]
    if federation.bounds_from_data:
        lines.append(alarm_html("Bounds or categories were taken from the data: epsilon will be infinite."))
    return box(lines, ["party", "column", "kind", "public range", ""], rows)


def _public_range(column: Column) -> str:
    if column.bounds is not None:
        low, high = column.bounds
        if column.dates:
            return f"{column.date_text(low)} to {column.date_text(high)}"
        scale = "" if column.scale == "linear" else f", {column.scale}"
        return f"{format_number(low)} to {format_number(high)}{scale}{', clamped' if column.clamp else ''}"
    return join_names([str(category) for category in column.categories or ()], 6)
