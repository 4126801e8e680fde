"""Who holds which column, of which kind, within which public bounds or categories.

Bounds and categories are public inputs. Taking them from the data is a deterministic function of
the data (epsilon = infinity), so it happens only where the caller asks for it by name
(`Federation.infer(..., bounds="from-data")`), and the federation then carries the mark.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from verticopula.errors import Problem, SchemaError, SettingsError
from verticopula.formatting import count_of, format_number, join_names, readable
from verticopula.notebook import alarm_html, box, text_html
from verticopula.schema.cell_text import suggest_name
from verticopula.schema.checked_model import STILL_OPEN, CheckedModel
from verticopula.schema.code_lists import with_code_lists
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.constraints import read_constraints
from verticopula.schema.defaults import LARGEST_MESSAGE_GIB, LONGEST_DEADLINE
from verticopula.schema.draft_guesses import draft_federation, require_values
from verticopula.schema.federation_draft import FROM_DATA, FederationDraft
from verticopula.schema.frames import to_polars

_T = TypeVar("_T")
_PARTY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_RESERVED = ("coordinator", "lead", "server", "authority")  # none of them is an organisation's name
JOINED = "joined"  # the file of all parties' synthetic columns side by side; a party's table has the party's name


class Party(CheckedModel):
    """One organisation: its name, its columns, and its own epsilon if it has one.

    Attributes
    ----------
    name : 1 to 64 letters, digits, `-` or `_`
    epsilon : of its releases, in place of the study's; None for the study's
    columns : in the file and in `Federation.from_dict` each is a table `column`
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
    def _relations_name_columns(self) -> Self:
        problems = list(self._relation_problems())
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _relation_problems(self) -> Iterator[str]:
        known = {column.name: column for column in self.columns}
        for column in self.columns:
            if column.relation is None:
                continue
            where, other = f"column {column.name!r}: relation {column.relation!r}", known.get(column.relation)
            if other is None or other is column:
                others = [name for name in known if name != column.name]
                yield f"{where} is not another column of this party{suggest_name(column.relation, others)}"
            elif other.relation is not None:
                yield f"{where} has a relation itself; name {other.relation!r}, or take one of the two out"
            elif other.kind != column.kind:
                yield f"{where} is of kind {other.kind}: a difference needs two columns of one kind"

    @model_validator(mode="after")
    def _constraints_can_be_read(self) -> Self:
        read_constraints(self.constraints, self.written_columns)
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

    def related(self, column: Column) -> Column | None:
        """The column that another one's `relation` names; None without a relation.

        Parameters
        ----------
        column : one of the party's
        """
        return None if column.relation is None else self.column(column.relation)

    @property
    def written_columns(self) -> tuple[Column, ...]:
        """The columns as tables hold them: a column with a relation is its own value there, not a difference."""
        return tuple(self.written(column.name) for column in self.columns)

    def written(self, name: str) -> Column:
        """The column of that name as tables hold it; KeyError if there is none.

        Parameters
        ----------
        name : as the federation file has it
        """
        column = self.column(name)
        return column.as_written(self.related(column))

    def may_be_empty(self, name: str) -> bool:
        """Whether somebody whom the party knows may be without a value in the column. Never a look at the data.

        Parameters
        ----------
        name : of the column; of a party's only one everybody whom it knows has a value
        """
        return len(self.columns) > 1 and not self.column(name).required


class IdRule(CheckedModel):
    """The subject-id column and how its values are normalised before they are compared.

    Attributes
    ----------
    name : of the column, in all tables
    rules : `strip`, `upper`, `lower` and `zfill:N`, in the order in which they are applied
    """

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
    leads : who may ask for studies; each has a kit and a certificate of this name
    part_mib : the longest message that travels whole, in MiB; a longer one travels in parts of this size
    message_gib : the longest message that anybody takes in parts, in GiB: so much disk one may need at its receiver
    """

    host: str = "localhost"
    port: int = Field(default=8102, ge=1, le=65_535)
    deadline: float = Field(default=3_600.0, gt=0, le=LONGEST_DEADLINE)
    operator: str | None = None
    compute: str | None = None
    leads: tuple[str, ...] = Field(default=("lead",), min_length=1)
    part_mib: int = Field(default=16, ge=1, le=64)
    message_gib: int = Field(default=64, ge=1, le=LARGEST_MESSAGE_GIB)

    @field_validator("host")
    @classmethod
    def _host_is_a_name(cls, host: str) -> str:
        if not _HOST_NAME.fullmatch(host):
            raise ValueError("host must be a host name or an IPv4 address, without scheme or port")
        return host

    @field_validator("leads")
    @classmethod
    def _leads_have_names_of_their_own(cls, leads: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_PARTY_NAME.fullmatch(name) for name in leads):
            raise ValueError("a lead's name needs 1 to 64 letters, digits, '-' or '_'")
        if len({name.lower() for name in leads}) != len(leads):
            raise ValueError("two leads have the same name")
        return leads

    @field_validator("operator", "compute")
    @classmethod
    def _names_are_like_a_party_s(cls, name: str | None) -> str | None:
        if name is not None and not _PARTY_NAME.fullmatch(name):
            raise ValueError("a name needs 1 to 64 letters, digits, '-' or '_', starting with a letter or digit")
        return name

    def chosen(self) -> dict[str, Any]:
        """What is set, as plain values; of settings that came later, only what is not as it is by default."""
        plain = {name for name in ("part_mib", "message_gib") if getattr(self, name) == getattr(Network(), name)}
        return self.model_dump(mode="json", exclude=plain)


class Federation(CheckedModel):
    """The whole study's schema. Immutable.

    Attributes
    ----------
    name : of the study
    version : 1, and one more whenever parties agree on a changed file
    response : the column to be explained; the people of its party are the study's
    id : the id column that all tables share, and how ids are compared
    parties : all of them, with their columns. In the file and in `from_dict` each is a table `party`
    bounds_source : `public`, or `from-data` where `infer` took the bounds from the tables: that is not private
    network : who takes part in a study between organisations: leads, the coordinator's operator, who computes
    """

    name: str = "study"
    version: int = Field(1, ge=1, le=2**31)
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
        head: dict[str, Any] = {"name": self.name}
        if self.version != 1:
            head["version"] = self.version
        head["response"] = str(self.response)
        head["id"] = {"name": self.id.name, "rules": list(self.id.rules)} if self.id.rules else self.id.name
        if self.bounds_source != "public":
            head["bounds_source"] = self.bounds_source
        if self.network != Network():
            chosen = {name: value for name, value in self.network.chosen().items() if value is not None}
            if self.network.leads == Network().leads:
                del chosen["leads"]
            head["network"] = chosen
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
    if column.relation is not None:  # without them 0 would be one
        values.setdefault("atoms", [])
    return values


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
    problems += _lead_problems(raw.get("network"), list(folded))
    id_value = raw.get("id", "subject_id")
    id_value = dict(id_value) if isinstance(id_value, BaseModel) else id_value
    id_name = id_value.get("name", "subject_id") if isinstance(id_value, Mapping) else id_value
    known: set[tuple[str, str]] = set()
    related: set[tuple[str, str]] = set()
    for party in parties:
        columns = _mappings(party.get("column", party.get("columns")))
        related |= {(str(party.get("name")), str(c.get("name"))) for c in columns if c.get("relation") is not None}
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
        if (party_name, column) in related:
            problems.append(
                Problem("response", f"{response!r} has a relation, and a difference cannot be the response")
            )
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


def _lead_problems(network: Any, folded: list[str]) -> list[Problem]:
    """What is wrong with the leads' names; `folded` are the parties' names, case-folded."""
    raw = dict(network) if isinstance(network, BaseModel) else network
    names = raw.get("leads") if isinstance(raw, Mapping) else None
    if not isinstance(names, (list, tuple)) or tuple(names) == Network().leads:
        return []
    others = {*folded, *_RESERVED, *(str(raw[name]).casefold() for name in ("host", "compute") if raw.get(name))}
    others -= {"lead"}
    return [
        Problem("network, leads", f"cannot be called {name!r}, which is somebody else")
        for name in names
        if isinstance(name, str) and name.casefold() in others
    ]


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
