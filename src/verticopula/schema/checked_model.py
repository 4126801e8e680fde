"""Records that check themselves when they are made, and list everything that is wrong in one SchemaError."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from verticopula.errors import Problem, SchemaError

STILL_OPEN = "still_open"  # the type of an error that is a question without an answer


class CheckedModel(BaseModel):
    """A frozen record of known keys. Made from keywords, a mapping or JSON, it raises SchemaError and nothing else.

    Attributes
    ----------
    label : what the record is called in a problem, with its name; "" where problems are about the whole file
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    label: ClassVar[str] = ""

    def __init__(self, /, **raw: Any) -> None:
        between = self.problems_between(raw)
        try:
            super().__init__(**raw)
        except ValidationError as error:
            raise SchemaError([*between, *self._problems(error, raw)]) from None
        if between:
            raise SchemaError(between)

    # Pydantic would call an __init__ of our own for records inside records, too. Their problems would then lose the
    # places that the outer record knows. The tests of the federation file's problems fail if this stops working.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def problems_between(cls, raw: Mapping[str, Any]) -> list[Problem]:
        """Problems between parts of the record, which no part has by itself.

        Parameters
        ----------
        raw : what the record is made from
        """
        return []

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """The record that a mapping describes; SchemaError lists every problem.

        Parameters
        ----------
        obj : the mapping, or a record
        options : as pydantic has them
        """
        raw = obj if isinstance(obj, Mapping) else {}
        between = cls.problems_between(raw) if raw else []
        try:
            made = super().model_validate(obj, **options)
        except ValidationError as error:
            raise SchemaError([*between, *cls._problems(error, raw)]) from None
        if between:
            raise SchemaError(between)
        return made

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """The record that a text describes; SchemaError lists every problem.

        Parameters
        ----------
        json_data : JSON
        options : as pydantic has them
        """
        try:
            raw = json.loads(json_data)
        except ValueError:
            raise SchemaError([Problem(cls.__name__.lower(), "is not valid JSON")]) from None
        return cls.model_validate(raw, **options)

    @classmethod
    def _problems(cls, error: ValidationError, raw: Mapping[str, Any]) -> Iterator[Problem]:
        name = raw.get("name")
        own = [f"{cls.label} {name!r}" if name else cls.label] if cls.label else []
        for one in error.errors():
            where = ", ".join([*own, *_places(one["loc"], raw)])
            yield Problem(where or cls.__name__.lower(), _describe(one, cls), one["type"] == STILL_OPEN)


def _places(steps: tuple[int | str, ...], raw: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a record on the way to a problem, by name where they have one."""
    here: Any = raw
    singular = {"parties": "party", "columns": "column"}
    for index, step in enumerate(steps):
        here = here[step] if isinstance(here, Mapping) and step in here else here
        if isinstance(step, int):
            here = here[step] if isinstance(here, (list, tuple)) and step < len(here) else {}
            label = singular.get(str(steps[index - 1]), str(steps[index - 1]))
            name = here.get("name") if isinstance(here, Mapping) else None
            yield f"{label} {name!r}" if name else f"{label} number {step + 1}"
        elif index + 1 == len(steps) or not isinstance(steps[index + 1], int):
            yield str(step)


def _describe(error: Any, model: type[CheckedModel]) -> str:
    """One of pydantic's errors in words."""
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(error["loc"][-1]), list(key_names(model)), n=1)
        return "unknown key" + (f"; did you mean {close[0]!r}?" if close else "")
    if error["type"] == "missing":
        return "is required"
    if error["type"] == "literal_error":
        known = re.findall("'([^']*)'", error["ctx"]["expected"])
        close = difflib.get_close_matches(str(error["input"]), known, n=1)
        return f"must be one of {error['ctx']['expected']}" + (f"; did you mean {close[0]!r}?" if close else "")
    return str(error["msg"]).removeprefix("Value error, ")


def key_names(model: type[CheckedModel]) -> Iterator[str]:
    """Every key that a record of this kind may have, those of the records inside it included.

    Parameters
    ----------
    model : the kind of record
    """
    for name, field in model.model_fields.items():
        yield from dict.fromkeys((name, field.alias or name))
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, CheckedModel):
                yield from key_names(kind)
