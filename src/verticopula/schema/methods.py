"""Every method there is: one record each, which help, summaries, forecasts, audits, reports and the network read.

Facts and words only. Which protocol and which statistics belong to a name is bound in `protocol/method_registry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from verticopula.errors import SettingsError, StudyWarning
from verticopula.schema.units import Unit

# A variant says which algorithm a method's name stands for: verticopula's own, or the paper's as it is printed.
OWN_VARIANT = "verticopula"
PRINTED_VARIANT = "as-printed"
VARIANTS: Mapping[str, str] = MappingProxyType(
    {
        OWN_VARIANT: "verticopula's own",
        PRINTED_VARIANT: "the paper's algorithm; it sends ranges of the data, so epsilon is infinite",
    }
)


# What every place says where a method that ranks can be chosen; how much it comes to, a study's price says.
RANKS_AND_PERSONS = (
    "Its epsilon bounds single comparisons: for a person it is far larger, and grows with the number of people"
)


@dataclass(frozen=True)
class Method:
    """One way to fit a copula.

    Attributes
    ----------
    name : as users write it
    help : what it is for, in a few words
    units : what its epsilon can be an epsilon of; the first is the default
    missing_blocks : what a reader must know where blocks are missing
    ranks : whether parties release noisy ranks of their subjects; otherwise sums over them that nobody sees
        without noise
    presence_by_party : whether parties say whom they know, and keep to themselves which values are empty
    repeats_ranks : whether ranks are released in several rounds
    aligned_rows : whether synthetic row i can follow subject i
    needs_overlap : whether two columns without common subjects are an error
    models_missing : whether it fits how columns that were observed together depend on those that were not
    fewest_parties : with which it makes sense
    printed : the paper's algorithm that `as-printed` runs; "" where the method is verticopula's alone
    known_errors : where the errors of its copula are known from: noise of `ranks`, its `posterior`, or the noise of
        its `openings`; "" where only repetitions of a whole study say
    default_epsilon : where nobody gives one, per its default unit
    """

    name: str
    help: str
    units: tuple[Unit, ...]
    missing_blocks: StudyWarning
    ranks: bool = True
    presence_by_party: bool = False
    repeats_ranks: bool = False
    aligned_rows: bool = True
    needs_overlap: bool = True
    models_missing: bool = False
    fewest_parties: int = 1
    printed: str = ""
    known_errors: Literal["", "ranks", "posterior", "openings"] = ""
    default_epsilon: float = 1.0

    @property
    def default_unit(self) -> Unit:
        return self.units[0]

    @property
    def protects_person(self) -> bool:
        """Whether its epsilon is one of a person unless another unit is asked for."""
        return self.default_unit is Unit.PERSON

    @property
    def offer(self) -> str:
        """What it is for, and what its epsilon means for a person: what is shown where it can be chosen."""
        return self.help if self.protects_person else f"{self.help}. {RANKS_AND_PERSONS}"

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that there are of it."""
        return tuple(VARIANTS) if self.printed else (OWN_VARIANT,)

    def units_of(self, variant: str) -> tuple[Unit, ...]:
        """What its epsilon can be an epsilon of.

        The paper's algorithms send ranges of the data, so they keep no epsilon for a block or a person.

        Parameters
        ----------
        variant : one of `variants`
        """
        kept = (Unit.CLIENT, Unit.VARIABLE)
        return tuple(unit for unit in self.units if unit in kept) if variant == PRINTED_VARIANT else self.units


_RANK_UNITS = (Unit.CLIENT, Unit.VARIABLE, Unit.BLOCK, Unit.PERSON)
_AT_RANDOM = StudyWarning(
    "missing-blocks",
    "note",
    "Blocks are taken to be missing at random",
    "The correction is right if what is missing depends on what was observed, and wrong if it depends on the missing "
    "values themselves.",
    "The report shows how far results would move if that were not so.",
)

VCDS = Method(
    "vcds",
    "complete data, or missing completely at random; verticopula's variant of the paper's Algorithm 1",
    _RANK_UNITS,
    StudyWarning(
        "missing-blocks",
        "care",
        "VCDS does not correct for missing blocks",
        "It is right only if blocks are missing completely at random; otherwise everybody is taken to be like the "
        "observed.",
        "Use method 'refined': it corrects, and costs the same budget.",
    ),
    aligned_rows=False,
    printed="Algorithm 1",
    known_errors="ranks",
)
EVCDS = Method(
    "evcds",
    "missing at random, verticopula's variant of the paper's Algorithm 2",
    _RANK_UNITS,
    StudyWarning(
        "missing-blocks",
        "care",
        "EVCDS hardly corrects for missing blocks",
        "Its margins and correlations stay close to those of the observed subjects.",
        "Use method 'refined': it corrects, and costs the same budget.",
    ),
    printed="Algorithm 2",
)
IEVCDS = Method(
    "ievcds",
    "missing at random, verticopula's variant of the paper's Algorithm 3",
    _RANK_UNITS,
    StudyWarning(
        "missing-blocks",
        "care",
        "IEVCDS corrects for missing blocks only in part",
        "Its margins and correlations remain between those of the observed subjects and of everybody.",
        "Use method 'refined': it corrects fully where blocks are missing at random, and spends ranks once.",
    ),
    repeats_ranks=True,
    printed="Algorithm 3",
)
REFINED = Method(
    "refined",
    "missing at random, at the same cost as vcds",
    _RANK_UNITS,
    _AT_RANDOM,
    needs_overlap=False,
    models_missing=True,
    known_errors="posterior",
)
STRICT = Method(
    "strict",
    "protects a whole person: units person and block, with a delta",
    (Unit.PERSON, Unit.BLOCK),
    _AT_RANDOM,
    ranks=False,
    presence_by_party=True,
    aligned_rows=False,
    needs_overlap=False,
    models_missing=True,
    fewest_parties=2,
    known_errors="openings",
    default_epsilon=3.0,
)
DEFAULT_METHOD = STRICT  # of who names none: the one whose epsilon is a person's

_METHODS = {m.name: m for m in (VCDS, REFINED, EVCDS, IEVCDS, STRICT)}
METHODS: Mapping[str, Method] = MappingProxyType(_METHODS)

# A regression on raw columns is no way to fit a copula, but policies name it like one: it sends raw values.
RAW_REGRESSION = "raw-glm"
# Its variant in which second moments leave, and neither the response nor another column: for gaussian responses.
MOMENTS_VARIANT = "second-moments"


def find_method(name: str) -> Method:
    """The method of that name; SettingsError names the known ones."""
    if name not in METHODS:
        raise SettingsError(f"unknown method {name!r}; known: {', '.join(METHODS)}")
    return METHODS[name]


def tells_presence_by_party(name: str) -> bool:
    """Whether parties say only whom they know in studies by that method; not so for names that are no method's."""
    return name in METHODS and METHODS[name].presence_by_party


def releases_sums(name: str) -> bool:
    """Whether parties release sums with Gaussian noise, and no ranks, by that method; not so for names of no method."""
    return name in METHODS and not METHODS[name].ranks


def runs_on_engine(name: str, variant: str) -> bool:
    """Whether a party's rows can stay with the workers of an engine: it releases ranks and margins, once.

    Parameters
    ----------
    name : of a method, or of a regression on raw columns, which does not
    variant : of it
    """
    found = METHODS.get(name)
    return found is not None and found.ranks and not found.repeats_ranks and variant == OWN_VARIANT


def check_variant(method: Method, variant: str) -> None:
    """SettingsError unless there is this variant of the method."""
    if variant not in VARIANTS:
        raise SettingsError(f"unknown variant {variant!r}; known: {', '.join(VARIANTS)}")
    if variant not in method.variants:
        able = ", ".join(one.name for one in METHODS.values() if variant in one.variants)
        raise SettingsError(
            f"method {method.name!r} is not in the paper, so it has no variant {variant!r}; {able} have"
        )


def printed_help() -> str:
    """What `--as-printed` does, in a line for `--help`."""
    named = ", ".join(f"{one.printed} for {one.name}" for one in METHODS.values() if one.printed)
    return (
        f"The paper's algorithm as it is printed, in place of verticopula's variant: {named}. It sends the smallest "
        "and largest value of every column, so epsilon is infinite. For comparisons only."
    )


def methods_help() -> str:
    """All methods, what they are for and what their epsilon means for a person, in a line for `--help`."""
    offered = "; ".join(f"{method.name} ({method.help})" for method in METHODS.values())
    ranking = ", ".join(method.name for method in METHODS.values() if not method.protects_person)
    return f"{offered}. Of {ranking}: {RANKS_AND_PERSONS[0].lower()}{RANKS_AND_PERSONS[1:]}"
