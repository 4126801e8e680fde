"""The form in which a lead asks for a study: the settings of `verticopula submit`, field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from verticopula.errors import Problem, SchemaError
from verticopula.network.submission import Submission
from verticopula.schema.defaults import DEFAULT_ROUNDS
from verticopula.schema.dependence import COPULA_DEPENDENCE, TILTED_DEPENDENCE
from verticopula.schema.methods import METHODS, RAW_REGRESSION, REFINED, printed_help
from verticopula.schema.printed_choices import RANK_CORRELATIONS
from verticopula.schema.units import Unit

FieldKind = Literal["text", "number", "whole", "choice", "tick"]
_LONGEST_VALUE = 4_000


@dataclass(frozen=True)
class FormField:
    """One field: its name in `Submission`, and what the page says of it.

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


def _same(*values: str) -> dict[str, str]:
    return dict(zip(values, values, strict=True))


_METHODS_CHOICES = {
    "": f"{REFINED.name}, the default: who is missing is not known before",
    **{method.name: f"{method.name}: {method.help}" for method in METHODS.values()},
    RAW_REGRESSION: f"{RAW_REGRESSION}: a regression on the raw columns; every party's policy must name it",
}
_UNITS_CHOICES = {"": "the method's default", **{unit.value: f"{unit.value}: {unit.meaning}" for unit in Unit}}

FORM_FIELDS = (
    FormField("requester", "Who asks", hint="A name and an organisation, for the parties' stewards.", required=True),
    FormField("purpose", "Purpose", hint="Why, in one sentence, for the parties' stewards.", required=True),
    FormField("contact", "Contact", hint="How the stewards reach you."),
    FormField("use", "Use of the tables", hint="What the tables will be used for, and by whom."),
    FormField("method", "Method", "choice", choices=_METHODS_CHOICES),
    FormField("epsilon", "Epsilon", "number", "Privacy budget; the unit says what it bounds. Default 1."),
    FormField("unit", "Unit", "choice", choices=_UNITS_CHOICES),
    FormField("delta", "Delta", "number", "Needed for units block and person, such as 1e-6."),
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
        choices={
            "": "what the method gives",
            "complete": "complete: none",
            "as-observed": "as-observed: as many as there are",
        },
        rare=True,
    ),
    FormField(
        "alignment",
        "How subjects are matched",
        "choice",
        choices={"hash": "hash, under the kits' common key", "psi": "psi, without a common key; slower"},
        rare=True,
    ),
    FormField("epsilon_ranks", "Epsilon for ranks", "number", "Instead of epsilon: the ranks' part.", rare=True),
    FormField(
        "epsilon_marginals", "Epsilon for marginals", "number", "Instead of epsilon: the marginals' part.", rare=True
    ),
    FormField(
        "sampler",
        "Sampler",
        "choice",
        choices={"exact": "exact", "binomial": "binomial, for very many subjects"},
        rare=True,
    ),
    FormField(
        "dependence",
        "Dependence",
        "choice",
        choices={
            COPULA_DEPENDENCE: COPULA_DEPENDENCE,
            TILTED_DEPENDENCE: f"{TILTED_DEPENDENCE} by tables of the same ranks, at no cost",
        },
        rare=True,
    ),
    FormField(
        "rounds", "Rounds", "whole", f"Where a method repeats ranks: how often. Default {DEFAULT_ROUNDS}.", rare=True
    ),
    FormField("per_round", "The ranks' epsilon in every round", "tick", rare=True),
    FormField(
        "deadline",
        "Deadline",
        "number",
        "Seconds that a party has for one round. Default: the federation's.",
        rare=True,
    ),
    FormField("aligned", "Row i follows subject i", "tick", "For comparisons only.", rare=True),
    FormField("as_printed", "The paper's algorithm as printed", "tick", printed_help(), rare=True),
    FormField(
        "rank_correlation",
        "Rank correlation",
        "choice",
        "With the paper's algorithm.",
        choices=_same(*RANK_CORRELATIONS),
        rare=True,
    ),
    FormField(
        "family",
        "Family",
        "choice",
        "Of a regression on raw columns.",
        choices=_same("gaussian", "binomial", "poisson"),
        rare=True,
    ),
    FormField(
        "penalty",
        "Penalty",
        "choice",
        "Of a regression on raw columns.",
        choices=_same("scad", "mcp", "lasso", "none"),
        rare=True,
    ),
    FormField(
        "select", "Selection", "text", "Of a regression on raw columns: bic, cv or a strength. Default bic.", rare=True
    ),
    FormField("seed", "Seed", "whole", "Reproducible, and therefore NOT PRIVATE. For simulation only.", rare=True),
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
    return Submission(**given)


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
