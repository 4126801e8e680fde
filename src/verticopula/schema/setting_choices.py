"""How a setting is declared, and the values that settings may have, with a few words on each: cheap to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

Alignment = Literal["hash", "psi"]
FamilyName = Literal["gaussian", "binomial", "poisson"]
Missing = Literal["as-observed", "complete"]
PenaltyName = Literal["scad", "mcp", "lasso", "none"]

AS_OBSERVED, COMPLETE = get_args(Missing)
BY_HASH: Alignment = "hash"
EXACT_SAMPLER, BINOMIAL_SAMPLER, AUTO_SAMPLER = "exact", "binomial", "auto"
BY_BIC, BY_CROSS_VALIDATION, BY_POSTERIOR = "bic", "cv", "bayes"

SAMPLERS: Mapping[str, str] = MappingProxyType(
    {
        EXACT_SAMPLER: "flips every comparison",
        BINOMIAL_SAMPLER: "for very many subjects, at two coins a comparison",
    }
)
SAMPLER_CHOICES: Mapping[str, str] = MappingProxyType(  # parties are asked for one of the two
    {**SAMPLERS, AUTO_SAMPLER: "one of the two, by the number of comparisons"}
)
ALIGNMENTS: Mapping[Alignment, str] = MappingProxyType(
    {"hash": "of ids, under the kits' common key", "psi": "no common key; slower"}
)
GAPS_IN_ROWS: Mapping[Missing, str] = MappingProxyType({"complete": "none", "as-observed": "as many as there are"})
FAMILY_NAMES: tuple[FamilyName, ...] = get_args(FamilyName)
PENALTY_NAMES: tuple[PenaltyName, ...] = get_args(PenaltyName)
SELECT_RULES = (BY_BIC, BY_CROSS_VALIDATION, BY_POSTERIOR)


def explain_choices(choices: Mapping[Any, str]) -> str:
    """All values with their words, in a line for `--help`.

    Parameters
    ----------
    choices : value -> what it says
    """
    return ", ".join(f"{value} ({words})" for value, words in choices.items())


def setting(help: str, default: Any = MISSING, choices: Mapping[str, str] | None = None) -> Any:
    """A field of a record of settings, with what commands and forms say of it.

    Parameters
    ----------
    help : what it is, in a sentence or two
    default : its value where nobody names one; without a default it has to be given
    choices : value -> a few words on it; None where there is no list of values
    """
    return field(default=default, metadata={"help": help, "choices": choices or {}})


def help_of(record: type, name: str) -> str:
    """What commands and forms say of a setting.

    Parameters
    ----------
    record : the settings' dataclass
    name : the setting's
    """
    return str(_metadata(record, name)["help"])


def choices_of(record: type, name: str) -> Mapping[str, str]:
    """The values that a setting may have, with a few words on each; empty where there is no list of them.

    Parameters
    ----------
    record : the settings' dataclass
    name : the setting's
    """
    found: Mapping[str, str] = _metadata(record, name)["choices"]
    return found


def _metadata(record: type, name: str) -> Mapping[str, Any]:
    return next(one.metadata for one in fields(record) if one.name == name)
