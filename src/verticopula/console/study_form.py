"""The form in which a lead asks for a study: the settings of `verticopula submit`, field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from verticopula.errors import Problem, SchemaError
from verticopula.network.lead.submission import Submission
from verticopula.schema.methods import DEFAULT_METHOD, RAW_REGRESSION
from verticopula.schema.raw_regression_settings import RawRegressionSettings, read_settings
from verticopula.schema.setting_choices import ALIGNMENTS, GAPS_IN_ROWS, choices_of, help_of
from verticopula.schema.study_settings import StudySettings

FieldKind = Literal["text", "number", "whole", "choice", "tick"]
_LONGEST_VALUE = 4_000


@dataclass(frozen=True)
class FormField:
    """One field: the name of a setting or of a field of `Submission`, and what the page says of it.

    Attributes
    ----------
    choices : value -> what it says; the empty value is the default
    rare : whether it stands among those that few studies need
    """

    name: str
    label: str
    kind: FieldKind = "text"
    hint: str = ""
    choices: Mapping[str, str] | None = None
    rare: bool = False
    required: bool = False


def _explained(choices: Mapping[Any, str]) -> dict[str, str]:
    return {value: f"{value}: {words}" if words else value for value, words in choices.items()}


def _setting(name: str, label: str, kind: FieldKind = "text", *, rare: bool = False) -> FormField:
    """A setting's field, with the help and the choices that the setting has; of choices the default comes first."""
    owner = RawRegressionSettings if name in _OF_REGRESSIONS else StudySettings
    known, default, hint = choices_of(owner, name), getattr(owner, name, None), help_of(owner, name)
    if kind == "choice":
        said = {} if name not in _UNSAID else {"": _UNSAID[name]}
        choices = {**said, **_explained(known), **_MORE_CHOICES.get(name, {})}
        return FormField(name, label, kind, "" if all(known.values()) else hint, choices, rare)
    if default and "Default" not in hint:
        hint = f"{hint} Default: {default}."
    return FormField(name, label, kind, hint, rare=rare)


_OF_REGRESSIONS = {one.name for one in fields(RawRegressionSettings)}
_OF_STUDIES = {one.name for one in fields(StudySettings)}
_UNSAID = {  # where nothing is chosen
    "method": f"{DEFAULT_METHOD.name}, the default: {DEFAULT_METHOD.offer}",
    "unit": "the method's default",
}
_MORE_CHOICES = {
    "method": {RAW_REGRESSION: f"{RAW_REGRESSION}: a regression on the raw columns; every party's policy must name it"}
}

FORM_FIELDS = (
    FormField("requester", "Who asks", hint="A name and an organisation, for the parties' stewards.", required=True),
    FormField("purpose", "Purpose", hint="Why, in one sentence, for the parties' stewards.", required=True),
    FormField("contact", "Contact", hint="How the stewards reach you."),
    FormField("use", "Use of the tables", hint="What the tables will be used for, and by whom."),
    _setting("method", "Method", "choice"),
    _setting("epsilon", "Epsilon", "number"),
    _setting("unit", "Unit", "choice"),
    _setting("delta", "Delta", "number"),
    FormField("rows", "Synthetic rows", "whole", "Default: as many as subjects."),
    FormField(
        "conditions",
        "Conditions",
        hint="What all synthetic rows are to have, such as agency.default=1; several with semicolons between.",
        rare=True,
    ),
    FormField(
        "missing",
        "Gaps in synthetic tables",
        "choice",
        choices={"": "what the method gives", **_explained(GAPS_IN_ROWS)},
        rare=True,
    ),
    FormField("alignment", "How subjects are matched", "choice", choices=_explained(ALIGNMENTS), rare=True),
    _setting("epsilon_ranks", "Epsilon for ranks", "number", rare=True),
    _setting("epsilon_marginals", "Epsilon for marginals", "number", rare=True),
    _setting("sampler", "Sampler", "choice", rare=True),
    _setting("dependence", "Dependence", "choice", rare=True),
    _setting("rounds", "Rounds", "whole", rare=True),
    _setting("per_round", "The ranks' epsilon in every round", "tick", rare=True),
    FormField(
        "deadline",
        "Deadline",
        "number",
        "Seconds that a party has for one round. Default: the federation's.",
        rare=True,
    ),
    FormField("aligned", "Row i follows subject i", "tick", "For comparisons only.", rare=True),
    _setting("variant", "Variant", "choice", rare=True),
    _setting("rank_correlation", "Rank correlation", "choice", rare=True),
    _setting("family", "Family", "choice", rare=True),
    _setting("penalty", "Penalty", "choice", rare=True),
    _setting("select", "Selection", rare=True),
    _setting("seed", "Seed", "whole", rare=True),
)


def read_study_form(form: Mapping[str, str]) -> Submission:
    """What the form asks for; SchemaError lists every field that cannot be read.

    Parameters
    ----------
    form : field -> what was typed; a field that is empty has its default
    """
    problems: list[Problem] = []
    given: dict[str, Any] = {}
    for one in FORM_FIELDS:
        typed = form.get(one.name, "").strip()
        if one.kind == "tick":
            given[one.name] = typed == "yes"
            continue
        if one.required and not typed:
            problems.append(Problem(one.label, "is needed: stewards decide by it"))
        if not typed:
            continue
        try:
            given[one.name] = _value(one, typed)
        except ValueError as error:
            problems.append(Problem(one.label, str(error)))
    if problems:
        raise SchemaError(problems)
    if "conditions" in given:
        given["conditions"] = tuple(part.strip() for part in given["conditions"].split(";") if part.strip())
    if token := form.get("token", ""):
        given["token"] = token
    asked = {name: given.pop(name, None) for name in _OF_STUDIES | _OF_REGRESSIONS}
    return Submission(read_settings(**asked), **given)


def _value(field: FormField, typed: str) -> str | int | float:
    if len(typed) > _LONGEST_VALUE:
        raise ValueError(f"has more than {_LONGEST_VALUE:,} characters")
    if field.kind == "choice" and typed not in (field.choices or {}):
        raise ValueError("is none of the choices")
    if field.kind == "whole":
        try:
            return int(typed[:30])
        except ValueError:
            raise ValueError("expects a whole number") from None
    if field.kind == "number":
        try:
            number = float(typed)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError("expects a number, such as 0.5 or 1e-6")
        return number
    return " ".join(typed.split()) if field.kind == "text" else typed
