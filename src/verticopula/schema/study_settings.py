"""A study's settings: one description from the constructor and the commands to the saved file and the network.

Every setting is declared here, once: its name, default, choices and the help that commands and forms show. Cheap to
import, because commands read it for `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

from verticopula.errors import SettingsError
from verticopula.schema.defaults import COORDINATOR as COORDINATOR
from verticopula.schema.defaults import DEFAULT_DELTA, DEFAULT_ROUNDS
from verticopula.schema.dependence import DEFAULT_DEPENDENCE, DEPENDENCES, check_dependence
from verticopula.schema.methods import (
    DEFAULT_METHOD,
    IEVCDS,
    METHODS,
    OWN_VARIANT,
    PRINTED_VARIANT,
    VARIANTS,
    VCDS,
    Method,
    check_variant,
    find_method,
    methods_help,
    printed_help,
)
from verticopula.schema.printed_choices import (
    DEFAULT_RANK_CORRELATION,
    RANK_CORRELATIONS,
    PrintedChoices,
    choose_interpretation,
)
from verticopula.schema.setting_choices import EXACT_SAMPLER, SAMPLER_CHOICES, explain_choices, setting
from verticopula.schema.units import Unit

if TYPE_CHECKING:
    from verticopula.schema.federation import Federation

_SAVED_NAMES = {"seed": "random_state"}  # scikit-learn's word, which constructors and saved files have


def _by_method(shown: Callable[[Method], str]) -> str:
    """A default that depends on the method: what that of the default method is, and of others that differ."""
    own, others = shown(DEFAULT_METHOD), dict.fromkeys(shown(one) for one in METHODS.values())
    rest = " or ".join(other for other in others if other != own)
    return f"{own} by method {DEFAULT_METHOD.name}, {rest} by others"


_DEFAULT_UNITS = _by_method(lambda method: method.default_unit.value)
_DEFAULT_EPSILONS = _by_method(lambda method: f"{method.default_epsilon:g} per {method.default_unit}")


@dataclass(frozen=True)
class StudySettings:
    """What a study lead asks for.

    Attributes
    ----------
    method : a name in `schema/methods.py`; who names none gets `DEFAULT_METHOD`
    epsilon : what it bounds is said by `unit`; None for the method's default, or where its two parts are given
    delta : of units `block` and `person`; None for `DEFAULT_DELTA`
    unit : None for the method's default
    seed : makes everything reproducible and **not private**; scikit-learn's `random_state`
    epsilon_ranks, epsilon_marginals : in place of `epsilon`, the two parts
    sampler : `exact` flips every comparison; `binomial` is O(n) and costs twice the coins; `auto` for one of the two,
        by the number of comparisons
    rounds : how often ranks are released, where the method repeats them
    per_round : spend the ranks' epsilon in every round instead of splitting it over them
    variant : `verticopula` for our variant of the method, `as-printed` for the paper's algorithm
    rank_correlation : which one `as-printed` computes correlations from
    dependence : of methods that rank: `copula`, or `tilted` by tables of the same ranks
    """

    method: str = setting(f"{methods_help()}.", choices={one.name: one.offer for one in METHODS.values()})
    epsilon: float | None = setting(
        f"Privacy budget; the unit says what it bounds. Default: {_DEFAULT_EPSILONS}. Half of it is for ranks, if "
        "there are any.",
        None,
    )
    delta: float | None = setting(
        f"Of units block and person: how likely the bound may fail. Default: {DEFAULT_DELTA:g}.", None
    )
    unit: str | None = setting(
        "What epsilon bounds: variable (one comparison or value in one column), client (the same, over a party's "
        "columns), block (one person's whole block at a party), person (one person's data at all parties). "
        f"Default: {_DEFAULT_UNITS}.",
        None,
        {unit.value: unit.meaning for unit in Unit},
    )
    seed: int | None = setting("Reproducible, and therefore NOT PRIVATE. For simulation only.", None)
    epsilon_ranks: float | None = setting("Instead of epsilon: the ranks' part.", None)
    epsilon_marginals: float | None = setting("Instead of epsilon: the marginals' part.", None)
    sampler: str = setting(f"How ranks are drawn: {explain_choices(SAMPLER_CHOICES)}.", EXACT_SAMPLER, SAMPLER_CHOICES)
    rounds: int = setting(f"{IEVCDS.name}: how often ranks are sent.", DEFAULT_ROUNDS)
    per_round: bool = setting(f"{IEVCDS.name}: the ranks' epsilon in every round, not split over them.", False)
    variant: str = setting(printed_help(), OWN_VARIANT, VARIANTS)
    rank_correlation: str = setting(
        f"With the paper's algorithm: {' or '.join(RANK_CORRELATIONS)}.",
        DEFAULT_RANK_CORRELATION,
        dict.fromkeys(RANK_CORRELATIONS, ""),
    )
    dependence: str = setting(f"Methods that rank: {explain_choices(DEPENDENCES)}.", DEFAULT_DEPENDENCE, DEPENDENCES)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> StudySettings:
        """What `to_dict` gave, or a lead sent; SettingsError for names that are no settings.

        Parameters
        ----------
        raw : the plain values, by the names of saved files
        """
        names = {_SAVED_NAMES.get(one.name, one.name): one.name for one in fields(cls)}
        unknown = sorted(str(name) for name in raw if name not in names)
        if unknown:
            raise SettingsError(f"these are no settings of a study: {', '.join(unknown)}")
        if "method" not in raw:
            raise SettingsError("a study's settings name its method")
        return cls(**{names[name]: value for name, value in raw.items()})

    @classmethod
    def from_options(cls, **given: Any) -> StudySettings:
        """What a command or a form was told, with the default of everything that is None.

        Parameters
        ----------
        given : settings by name; SettingsError where epsilon is given beside one of its parts
        """
        told = {name: value for name, value in given.items() if value is not None}
        if "epsilon" in told and told.keys() & {"epsilon_ranks", "epsilon_marginals"}:
            raise SettingsError("give either epsilon, or epsilon for ranks and epsilon for marginals")
        return cls(**{"method": DEFAULT_METHOD.name, **told}).filled()

    def filled(self) -> StudySettings:
        """The same with unit, epsilon and delta as they are where nobody names others."""
        method = self.record
        unit = method.default_unit if self.unit is None else Unit.parse(self.unit)
        parts = self.epsilon_ranks is not None or self.epsilon_marginals is not None
        epsilon = method.default_epsilon if self.epsilon is None and not parts else self.epsilon
        delta = DEFAULT_DELTA if self.delta is None and unit.needs_delta else self.delta
        return replace(self, unit=unit.value, epsilon=epsilon, delta=delta)

    def to_arguments(self) -> dict[str, Any]:
        """All of them, by the names that `Synthesizer` and saved files have."""
        return {_SAVED_NAMES.get(name, name): value for name, value in vars(self).items()}

    def to_dict(self) -> dict[str, Any]:
        """As plain values; what does not matter for the method is left out, and so is what is not given."""
        unused = set() if self.record.repeats_ranks else {"rounds", "per_round"}
        unused |= set() if self.record.ranks else {"sampler"}
        unused |= {"sampler"} if self.is_printed else {"variant", "rank_correlation"}  # older versions know neither
        unused |= {"dependence"} if self.dependence == DEFAULT_DEPENDENCE else set()  # nor this one
        return {name: value for name, value in self.to_arguments().items() if value is not None and name not in unused}

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
        return self.seed is None

    def checked(self, federation: Federation) -> StudySettings:
        """These settings, filled, if they make sense for the federation; SettingsError otherwise.

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
        seed = self.seed
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral)):
            raise SettingsError("random_state, or --seed, must be a whole number or None")
        filled = self.filled()
        unit = Unit.parse(str(filled.unit))
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
        return replace(filled, seed=None if seed is None else int(seed))

    def _check_variant(self, method: Method) -> None:
        check_variant(method, self.variant)
        choose_interpretation(self.rank_correlation)
        if self.is_printed and self.sampler != EXACT_SAMPLER:
            raise SettingsError(
                f"variant {self.variant!r} flips every comparison: it has the sampler {EXACT_SAMPLER!r} only"
            )
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
            f"others. For a single table use a synthesizer for one table, or method {VCDS.name!r}"
        )
    if not method.ranks and COORDINATOR in names:
        raise SettingsError(f"method {method.name!r}: a party cannot be called {COORDINATOR!r}, which is somebody else")


def check_roles(federation: Federation, method: Method) -> None:
    """SettingsError where nobody is named who holds the third compute role, or who would hold two of the three.

    Two roles are two of three shares, which show every score. The file is what all organisations agreed on; who really
    runs a process, no program can check. A study in one process follows the same rule, so that its federation file is
    one that organisations can use.
    """
    names, network = [party.name for party in federation.parties], federation.network
    if method.ranks or len(names) != 2 or network.compute is not None:
        return
    remedy = (
        'Name an organisation without data in the federation file, [network] compute = "NAME", which runs `verticopula '
        'compute` (in Python, network={"compute": "NAME"}). In one process nobody has to run it. Or choose a method '
        f"that ranks by name, such as {VCDS.name}: it does not protect a person"
    )
    if network.operator is None:
        raise SettingsError(
            f"method {method.name!r} needs three that compute, and there are two parties. {remedy}. Or, if neither "
            'party runs the coordinator, let that be the third, and say whose it is: [network] operator = "NAME"'
        )
    if network.operator.casefold() in {name.casefold() for name in names}:
        raise SettingsError(
            f"method {method.name!r}: {network.operator!r} runs the coordinator and is one of two parties, so it would "
            f"hold two of the three compute roles and could read every score. {remedy}"
        )


def check_moments_roles(federation: Federation) -> None:
    """SettingsError where a party of a gaussian regression on raw columns runs the coordinator.

    The coordinator has every party's masked columns, and a party the seeds of all masks: together they are the columns.
    """
    operator = federation.network.operator
    if operator is not None and operator.casefold() in {party.name.casefold() for party in federation.parties}:
        raise SettingsError(
            f"{operator!r} runs the coordinator and is a party, so it could read the raw columns of all others in a "
            "gaussian regression; let an organisation without data run the coordinator, or regress on synthetic tables"
        )


def can_have(federation: Federation, method: Method) -> bool:
    """Whether the method makes sense for these parties."""
    try:
        check_parties(federation, method)
    except SettingsError:
        return False
    return True
