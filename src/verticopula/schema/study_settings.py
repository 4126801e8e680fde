"""A study's settings: one description from the constructor to the saved file and the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from verticopula.errors import SettingsError
from verticopula.schema.defaults import COORDINATOR as COORDINATOR
from verticopula.schema.defaults import DEFAULT_ROUNDS
from verticopula.schema.dependence import DEFAULT_DEPENDENCE, check_dependence
from verticopula.schema.federation import Federation
from verticopula.schema.methods import (
    DEFAULT_METHOD,
    METHODS,
    OWN_VARIANT,
    PRINTED_VARIANT,
    Method,
    check_variant,
    find_method,
)
from verticopula.schema.printed_choices import DEFAULT_RANK_CORRELATION, PrintedChoices, choose_interpretation
from verticopula.schema.units import Unit


@dataclass(frozen=True)
class StudySettings:
    """What a study lead asks for.

    Attributes
    ----------
    method : a name in `schema/methods.py`
    epsilon : what it bounds is said by `unit`; None where its two parts are given
    delta : needed for units `block` and `person`
    unit : None for the method's default
    random_state : a seed makes everything reproducible and **not private**
    epsilon_ranks, epsilon_marginals : in place of `epsilon`, the two parts
    sampler : `exact` flips every comparison; `binomial` is O(n) and costs twice the coins
    rounds : how often ranks are released, where the method repeats them
    per_round : spend the ranks' epsilon in every round instead of splitting it over them
    variant : `verticopula` for our variant of the method, `as-printed` for the paper's algorithm
    rank_correlation : which one `as-printed` computes correlations from
    dependence : of methods that rank: `copula`, or `tilted` by tables of the same ranks
    """

    method: str = DEFAULT_METHOD.name
    epsilon: float | None = 1.0
    delta: float | None = None
    unit: str | None = None
    random_state: int | None = None
    epsilon_ranks: float | None = None
    epsilon_marginals: float | None = None
    sampler: str = "exact"
    rounds: int = DEFAULT_ROUNDS
    per_round: bool = False
    variant: str = OWN_VARIANT
    rank_correlation: str = DEFAULT_RANK_CORRELATION
    dependence: str = DEFAULT_DEPENDENCE

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> StudySettings:
        """What `to_dict` gave, or a lead sent; SettingsError for names that are no settings.

        Parameters
        ----------
        raw : the plain values, by name
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(str(name) for name in raw if name not in known)
        if unknown:
            raise SettingsError(f"these are no settings of a study: {', '.join(unknown)}")
        parts = "epsilon_ranks" in raw or "epsilon_marginals" in raw
        return cls(**{**({"epsilon": None} if parts else {}), **raw})

    def to_dict(self) -> dict[str, Any]:
        """As plain values; what does not matter for the method is left out, and so is what is not given."""
        unused = set() if self.record.repeats_ranks else {"rounds", "per_round"}
        unused |= set() if self.record.ranks else {"sampler"}
        unused |= {"sampler"} if self.is_printed else {"variant", "rank_correlation"}  # older versions know neither
        unused |= {"dependence"} if self.dependence == DEFAULT_DEPENDENCE else set()  # nor this one
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value is not None and name not in unused}

    @property
    def record(self) -> Method:
        """The method's record; SettingsError if there is no such method."""
        return find_method(self.method)

    @property
    def is_printed(self) -> bool:
        """Whether the paper's algorithm is to be run as it is printed."""
        return self.variant == PRINTED_VARIANT

    @property
    def printed_choices(self) -> PrintedChoices:
        """How the algorithms as printed read what the paper leaves open."""
        return choose_interpretation(self.rank_correlation)

    @property
    def gives_aligned_rows(self) -> bool:
        """Whether the algorithm itself gives out rows that follow the subjects (Algorithms 2 and 3 as printed)."""
        return self.is_printed and self.record.aligned_rows

    @property
    def title(self) -> str:
        """The method, and its variant unless that is verticopula's own."""
        return f"{self.method}, {self.variant}" if self.is_printed else self.method

    @property
    def is_private(self) -> bool:
        """Whether noise is secret: a seed undoes it."""
        return self.random_state is None

    def checked(self, federation: Federation) -> StudySettings:
        """These settings with the unit filled in, if they make sense for the federation; SettingsError otherwise.

        Epsilons are checked where they become a budget (`StudyBudget.of`).

        Parameters
        ----------
        federation : of the study
        """
        method = self.record
        if self.per_round and not method.repeats_ranks:
            able = " or ".join(repr(one.name) for one in METHODS.values() if one.repeats_ranks)
            raise SettingsError(f"per_round is for method {able}; {method.name!r} ranks once")
        self._check_variant(method)
        self._check_dependence(method)
        seed = self.random_state
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer))):
            raise SettingsError("random_state must be a whole number or None")
        unit = method.default_unit if self.unit is None else Unit.parse(self.unit)
        check_parties(federation, method)
        if self.is_printed and unit not in method.units_of(self.variant):
            known = " or ".join(repr(one.value) for one in method.units_of(self.variant))
            raise SettingsError(
                f"variant {self.variant!r} has the units {known}: it sends ranges of the data, and keeps no epsilon "
                f"per {unit.value}"
            )
        if unit not in method.units:
            known = " or ".join(repr(one.value) for one in method.units)
            others = " or ".join(repr(one.name) for one in METHODS.values() if unit in one.units)
            raise SettingsError(
                f"method {method.name!r} has the units {known}, not {unit.value!r}. For that unit use method {others}"
            )
        return replace(self, unit=unit.value, random_state=None if seed is None else int(seed))

    def _check_variant(self, method: Method) -> None:
        check_variant(method, self.variant)
        choose_interpretation(self.rank_correlation)
        if self.is_printed and self.sampler != "exact":
            raise SettingsError(f"variant {self.variant!r} flips every comparison: it has the sampler 'exact' only")
        if not self.is_printed and self.rank_correlation != DEFAULT_RANK_CORRELATION:
            raise SettingsError(f"rank_correlation is for variant {PRINTED_VARIANT!r}")

    def _check_dependence(self, method: Method) -> None:
        check_dependence(self.dependence)
        if self.dependence != DEFAULT_DEPENDENCE and (self.is_printed or not method.ranks):
            able = " or ".join(repr(one.name) for one in METHODS.values() if one.ranks)
            raise SettingsError(f"dependence is for method {able} in verticopula's variant")


def check_parties(federation: Federation, method: Method) -> None:
    """SettingsError unless the method makes sense for these parties."""
    names = [party.name for party in federation.parties]
    if len(names) < method.fewest_parties:
        raise SettingsError(
            f"method {method.name!r} needs at least {method.fewest_parties} parties: it hides what one holds from the "
            f"others. For a single table use a synthesizer for one table, or method {DEFAULT_METHOD.name!r}"
        )
    if not method.ranks and COORDINATOR in names:
        raise SettingsError(f"method {method.name!r}: a party cannot be called {COORDINATOR!r}, which is somebody else")


def check_roles(federation: Federation, method: Method) -> None:
    """SettingsError where one organisation might hold two of the three compute roles, in a study between organisations.

    Two roles are two of three shares, which show every score. The file is what all organisations agreed on; who really
    runs a process, no program can check.
    """
    names, network = [party.name for party in federation.parties], federation.network
    if method.ranks or len(names) != 2 or network.compute is not None:
        return
    remedy = (
        'Name an organisation without data in the federation file, [network] compute = "NAME", which runs `verticopula '
        "compute`"
    )
    if network.operator is None:
        raise SettingsError(
            f"method {method.name!r} between two parties: the coordinator would be the third to compute, and the "
            f"federation file does not say whose it is. {remedy}; or, if neither party runs the coordinator, say who "
            'does: [network] operator = "NAME"'
        )
    if network.operator.casefold() in {name.casefold() for name in names}:
        raise SettingsError(
            f"method {method.name!r}: {network.operator!r} runs the coordinator and is one of two parties, so it would "
            f"hold two of the three compute roles and could read every score. {remedy}"
        )


def can_have(federation: Federation, method: Method) -> bool:
    """Whether the method makes sense for these parties."""
    try:
        check_parties(federation, method)
    except SettingsError:
        return False
    return True


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
