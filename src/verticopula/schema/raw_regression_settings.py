"""The settings of a regression on raw columns, as a lead asks for it: cheap to import."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from verticopula.errors import SettingsError
from verticopula.formatting import join_names
from verticopula.schema.methods import OWN_VARIANT, RAW_REGRESSION
from verticopula.schema.setting_choices import BY_BIC, BY_CROSS_VALIDATION, FAMILY_NAMES, PENALTY_NAMES, setting
from verticopula.schema.study_settings import StudySettings

_OF_BUDGETS = ("epsilon", "delta", "unit", "epsilon_ranks", "epsilon_marginals")


@dataclass(frozen=True)
class RawRegressionSettings:
    """What a lead may say about a regression on raw columns; `VerticalGLM` has these by the same names, and more.

    Attributes
    ----------
    family : of the response
    penalty : of the coefficients
    select : a rule for the penalty's strength, or that strength
    """

    family: str = setting(
        f"The response's family: {', '.join(FAMILY_NAMES)}.", "gaussian", dict.fromkeys(FAMILY_NAMES, "")
    )
    penalty: str = setting(
        f"The coefficients' penalty: {', '.join(PENALTY_NAMES)}.", "scad", dict.fromkeys(PENALTY_NAMES, "")
    )
    select: str | float = setting(
        f"How strong the penalty is: {BY_BIC}, {BY_CROSS_VALIDATION}, or a number for a strength of your own.", BY_BIC
    )

    @classmethod
    def from_options(cls, **given: str | None) -> RawRegressionSettings:
        """What a command or a form was told, with the default of everything that is None.

        Parameters
        ----------
        given : settings by name, `select` as it was typed
        """
        told = {name: value for name, value in given.items() if value is not None}
        select = strength_or_rule(told.pop("select", BY_BIC))
        return cls(**told, select=select)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, which are arguments of `VerticalGLM`."""
        return asdict(self)


def strength_or_rule(text: str) -> str | float:
    """How a regression selects columns: a strength where the text is a number, the name of a rule otherwise.

    Parameters
    ----------
    text : as it was typed
    """
    try:
        return float(text)
    except ValueError:
        return text


def read_settings(**given: Any) -> StudySettings | RawRegressionSettings:
    """What a lead asks for between organisations: by the method's name a study, or a regression on raw columns.

    Parameters
    ----------
    given : settings of both, by name; None for what was not said
    """
    regression = {one.name: given.pop(one.name, None) for one in fields(RawRegressionSettings)}
    if given["method"] != RAW_REGRESSION:
        return StudySettings.from_options(**given)
    budget = [name for name in _OF_BUDGETS if given.get(name) is not None]
    if budget:
        raise SettingsError(
            f"{join_names(budget)} cannot be given for {RAW_REGRESSION}: exact sums or values leave, and epsilon is "
            "infinite"
        )
    if given["variant"] not in (None, OWN_VARIANT):
        raise SettingsError(f"variant {given['variant']!r} is not for {RAW_REGRESSION}")
    return RawRegressionSettings.from_options(**regression)
