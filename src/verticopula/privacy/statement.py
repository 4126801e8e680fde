"""Epsilon at every unit, computed from the ledger's releases and nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from verticopula.errors import SettingsError, StudyWarning
from verticopula.formatting import format_small
from verticopula.notebook import alarm_html, box
from verticopula.privacy.accounting import Coins, composed_epsilon
from verticopula.privacy.gaussian_dp import compose
from verticopula.privacy.pricing import PRINTED_MARGIN
from verticopula.privacy.release import Release
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.methods import PRINTED_VARIANT
from verticopula.schema.units import Unit

NOTICE_FILE = "READ-ME-FIRST.txt"  # stands beside synthetic tables that a warning belongs to
_DIGEST = re.compile("[0-9a-f]{64}")


SEEDED = StudyWarning(
    "seeded",
    "stop",
    "NOT PRIVATE: the noise came from a seed",
    "Whoever knows or guesses the seed can subtract the noise and has the exact answers.",
    "For simulation only. Run the study again without a seed before anything leaves.",
)
BOUNDS_FROM_DATA = StudyWarning(
    "bounds",
    "stop",
    "Bounds or categories were taken from the data",
    "Smallest and largest values, or rare categories, are in the open: epsilon is infinite at every unit.",
    "Write public bounds and categories into the federation file and run again.",
)
RAW_VALUES = StudyWarning(
    "exact",
    "stop",
    "A regression on raw columns sent exact values",
    "It needs them: epsilon is infinite at every unit.",
    "Regress on the synthetic tables instead where a bound is needed.",
)
RAW_MOMENTS = StudyWarning(
    "exact-moments",
    "stop",
    "A regression on raw columns sent exact sums and products",
    "Means, standard deviations and correlations of the columns left without noise: epsilon is infinite at every unit.",
    "Regress on the synthetic tables instead where a bound is needed.",
)
AS_PRINTED = StudyWarning(
    PRINTED_VARIANT,
    "stop",
    "The paper's algorithm as printed: ranges of the data are in the open",
    "Every column's smallest and largest value left without noise, which the paper does not charge: epsilon is "
    "infinite at every unit.",
    "For comparisons only. Use verticopula's variant of the method, with public bounds, where a bound is needed.",
)


@dataclass(frozen=True)
class PartyEpsilons:
    """One party's epsilon at the units it can account for alone.

    Gaussian noise has no epsilon without a δ. Where there is some, `variable` and `client` are the pure part plus the
    epsilon at δ of all the Gaussian noise together.
    """

    variable: float
    client: float
    block: float


@dataclass(frozen=True)
class PrivacyStatement:
    """What was spent, at every unit.

    Attributes
    ----------
    delta : the δ of `block` and `person`; `variable` and `client` are pure, unless there is Gaussian noise
    parties : every party's own figures
    person : all parties together
    is_private : False if the noise was seeded
    bounds_from_data : True if a range was taken from the data; all units are then infinite
    raw : True if values left without noise; all units are then infinite
    raw_moments : the same of sums and products
    gaussian : True if some noise is Gaussian; every unit then has the δ
    as_printed : True if a margin was released as the paper prints it; all units are then infinite
    has_ranks : False if no comparison of two people was released
    """

    delta: float
    parties: dict[str, PartyEpsilons]
    person: float
    is_private: bool
    bounds_from_data: bool
    raw: bool = False
    raw_moments: bool = False
    gaussian: bool = False
    as_printed: bool = False
    has_ranks: bool = True

    def meaning(self, unit: Unit) -> str:
        """What the epsilon at this unit bounds, in one line.

        Parameters
        ----------
        unit : what it is an epsilon of
        """
        if unit is Unit.VARIABLE and not self.has_ranks:
            return "one person's value in one column; the largest over columns"
        if unit is Unit.CLIENT and not self.has_ranks:
            return "the same; the largest over parties"
        return unit.meaning

    def has_delta(self, unit: Unit) -> bool:
        """Whether the epsilon at this unit is one at `delta`.

        Parameters
        ----------
        unit : what it is an epsilon of
        """
        return unit.needs_delta or self.gaussian

    def epsilon(self, unit: Unit) -> float:
        """The study's epsilon at one unit.

        Parameters
        ----------
        unit : what it is an epsilon of
        """
        if unit is Unit.PERSON:
            return self.person
        return max((getattr(p, unit.value) for p in self.parties.values()), default=0.0)

    @property
    def study_warnings(self) -> tuple[StudyWarning, ...]:
        """What a reader must know before the numbers."""
        held = (
            (not self.is_private, SEEDED),
            (self.bounds_from_data, BOUNDS_FROM_DATA),
            (self.raw, RAW_VALUES),
            (self.raw_moments, RAW_MOMENTS),
            (self.as_printed, AS_PRINTED),
        )
        return tuple(warning for holds, warning in held if holds)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The same as lines of text."""
        return tuple(map(str, self.study_warnings))

    def lines(self) -> list[str]:
        """The statement as text."""
        lines = [*self.warnings, "epsilon by unit (what it bounds):"]
        for unit in Unit:
            at = f" at delta = {self.delta:g}" if self.has_delta(unit) else ""
            lines.append(f"  {unit.value:<9} {format_epsilon(self.epsilon(unit)):>9}{at}: {self.meaning(unit)}")
        lines.append("by party (variable / client / block):")
        for name, party in self.parties.items():
            figures = " / ".join(format_epsilon(e) for e in (party.variable, party.client, party.block))
            lines.append(f"  {name}: {figures}")
        if self.gaussian:
            lines.append("Gaussian noise protects a person's whole block at once: it counts in full at every unit.")
        lines.append(
            "Which subjects each party knows leaves without a price; where data are missing at random, "
            "that itself says something about them."
        )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return _statement_html(self)


def format_epsilon(epsilon: float) -> str:
    """Three significant digits, rounded up, so that no printed epsilon understates."""
    if math.isinf(epsilon):
        return "infinite"
    if epsilon <= 0.0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
    rounded = math.ceil(epsilon / step - 1e-9) * step
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"


def format_remaining(epsilon: float) -> str:
    """Three significant digits, rounded down, so that no printed remainder overstates."""
    if not epsilon > 0.0:
        return "0"
    if math.isinf(epsilon):
        return "infinite"
    step = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
    rounded = math.floor(epsilon / step + 1e-9) * step
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"


def state_privacy(releases: Iterable[Release], delta: float | None = None) -> PrivacyStatement:
    """Account for every release at every unit."""
    entries = list(releases)
    at = DEFAULT_DELTA if delta is None else delta
    names = list(dict.fromkeys(entry.party for entry in entries))
    parties = {name: party_epsilons([e for e in entries if e.party == name], at) for name in names}
    return PrivacyStatement(
        delta=at,
        parties=parties,
        person=composed_epsilon(coins_of(entries), at, compose(person_mus(entries))),
        is_private=all(e.noise == "secure" for e in entries),
        bounds_from_data=any(e.bounds == "from-data" for e in entries),
        raw=any(e.what == "raw" for e in entries),
        raw_moments=any(e.what == "raw-moments" for e in entries),
        gaussian=any(e.is_gaussian for e in entries),
        as_printed=any(e.mechanism == PRINTED_MARGIN for e in entries),
        has_ranks=not entries or any(e.what == "ranks" for e in entries),
    )


def party_epsilons(entries: list[Release], delta: float) -> PartyEpsilons:
    """One party's releases at the units it can account for alone."""
    columns = [sum(entry.epsilon for entry in column) for column in entries_by_column(entries)]
    mu = compose(entry.mu for entry in entries if entry.is_gaussian)
    more = composed_epsilon((), delta, mu)
    return PartyEpsilons(
        variable=max(columns, default=0.0) + more,
        client=sum(columns) + more,
        block=composed_epsilon(coins_of(entries), delta, mu),
    )


def entries_by_column(entries: Iterable[Release]) -> list[list[Release]]:
    """Everything that is not Gaussian, column by column; SettingsError for an epsilon that is no number or below 0.

    Entries are about one column if they have its name, or a name that a vault gave to its content: a column that is
    called otherwise in the next study is the same column.
    """
    columns: dict[str, list[Release]] = {}  # every name of a column -> its entries, one list for all of its names
    for entry in entries:
        if entry.is_gaussian:
            continue
        if not entry.epsilon >= 0.0:
            raise SettingsError("a release's epsilon is a number that is not below 0")
        names = [f"column {entry.column}", *(f"content {name}" for name in entry.content.split("+") if name)]
        found = {id(columns[name]): columns[name] for name in names if name in columns}
        whole = max(found.values(), key=len, default=[])
        for other in found.values():
            if other is not whole:
                whole += other
                columns |= {name: whole for name, known in columns.items() if known is other}
        whole.append(entry)
        columns |= dict.fromkeys(names, whole)
    return list({id(known): known for known in columns.values()}.values())


def coins_of(entries: Iterable[Release]) -> list[Coins]:
    """The coins of everything that is not Gaussian."""
    return [entry.coins for entry in entries if not entry.is_gaussian]


def person_mus(entries: Iterable[Release]) -> list[float]:
    """The Gaussian noise that a replaced person moves, release by release.

    A joint release is in the ledgers of all parties whose data went into it, and was made once; a party that made it
    twice has two entries. Two entries are about the same release only if they name the same plan and keys
    (`Release.joint`). Old entries name their study there. Parties may call themselves anything, so such entries count
    once only where no vault wrote them, that is in the ledger of one study.
    """
    alone: list[float] = []
    joint: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        if entry.is_gaussian:
            known = joint.setdefault(entry.joint, {}).setdefault(entry.party, []) if _merges(entry) else alone
            known.append(entry.mu_person)
    return [*alone, *(max(compose(mus) for mus in parties.values()) for parties in joint.values())]


def _merges(entry: Release) -> bool:
    return bool(_DIGEST.fullmatch(entry.joint)) or (entry.joint != "" and entry.table == "")


def format_price(entry: Release) -> str:
    """What one entry costs, for a reader: an epsilon and what it is of, or how far a person moves Gaussian noise."""
    if entry.is_gaussian:
        whole = f", all parties {entry.mu_person:.4g}" if entry.mu_person > entry.mu else ""
        return f"mu {entry.mu:.4g} per block{whole}"
    # A completed round counts all comparisons with values that the coordinator knows (`Pricing.completed_round`).
    single = entry.what == "ranks" and "completed" not in entry.mechanism
    return f"{format_epsilon(entry.epsilon)} per {'comparison' if single else 'value'}"


def _statement_html(statement: PrivacyStatement) -> str:
    """Epsilon at every unit, and what it bounds."""
    rows = [
        [
            unit.value,
            format_epsilon(statement.epsilon(unit)),
            format_small(statement.delta) if statement.has_delta(unit) else "0",
            statement.meaning(unit),
        ]
        for unit in Unit
    ]
    lines = ["<b>Privacy</b>", *(alarm_html(line) for line in statement.warnings)]
    return box(lines, ["unit", "ε", "δ", "what it bounds"], rows)
