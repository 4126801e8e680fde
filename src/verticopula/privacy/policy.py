"""What a party allows. It is the party's own file; no coordinator writes it."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from verticopula.errors import BudgetExceeded, PolicyRefused, Problem, SchemaError
from verticopula.privacy.accounting import Coins
from verticopula.privacy.adaptive_filter import add_mu, add_rho, mu_epsilon, rho_epsilon
from verticopula.privacy.pricing import PRINTED_MARGIN
from verticopula.privacy.release import ALL_COLUMNS, Release
from verticopula.privacy.statement import coins_of, entries_by_column, format_epsilon, person_mus
from verticopula.schema.checked_model import CheckedModel
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.methods import METHODS, PRINTED_VARIANT, RAW_REGRESSION, releases_sums
from verticopula.schema.setting_choices import Alignment

_PUBLIC_KEY = re.compile("[0-9a-f]{64}")
# Subjects of a release without noise, whatever the policy says. Exact sums over few people all but name them.
FEWEST_IN_SUMS = 20
# Those who have a category, in every exact sum: products with its indicator are sums over them alone.
FEWEST_IN_CATEGORY = 5
# Subjects for each column in exact sums: of as many columns as subjects, or more, products give the rows themselves.
ROWS_PER_COLUMN = 3
# What one subject may have of the sum of squares of any combination of a party's columns. Nearly all of it: with long
# tails one subject often has more than half.
LARGEST_LEVERAGE = 0.99
_FEWEST_RAW = {"raw": 2, "raw-moments": FEWEST_IN_SUMS}


class Caps(CheckedModel):
    """The largest epsilon ever to be spent on this party's table, at each unit.

    `person` counts everything in this party's ledger about these people, and releases made with other parties in full.
    What other parties release by themselves is in their ledgers; where parties share a ledger, it counts, too.
    """

    variable: float | None = Field(default=None, gt=0)
    client: float | None = Field(default=None, gt=0)
    block: float | None = Field(default=None, gt=0)
    person: float | None = Field(default=None, gt=0)


class Policy(CheckedModel):
    """A party's own rules. Without a policy file everything is allowed, and nothing is capped.

    Attributes
    ----------
    columns : the columns it shares; None for all
    methods : the protocols it takes part in; None for all that add noise. `raw-glm`, a regression on the
        raw columns, shows raw values, or exact sums and products, to the coordinator and must be named.
    alignments : how it lets rows of one person be found, `hash` or `psi`; None for both. With `psi` a coordinator that
        works together with a party can test guessed ids
    caps : the largest epsilon ever to be spent, over all studies in its ledger; they hold, too, where every study is
        chosen after the last one was seen (`capped_epsilons`)
    delta : the δ at which the `block` and `person` caps are counted, and Gaussian noise at every unit
    min_subjects : the smallest number of observed subjects from which a column may be released. That number is told
        to all parties of a study; raw values are of two subjects at least, exact sums of twenty, in every fold
    synthetic : `lead` if the study lead's joined table may hold this party's synthetic columns, `keep` if not
    review : what stewards are asked about: `nothing` that the rules allow, the `releases` of a study, or `everything`,
        which is also whether a study may begin
    approvals : how many stewards have to say yes; one no is enough for a no
    stewards : name -> public key, as `verticopula steward` prints it; with it only signed decisions count
    consent_days : how long a consent to a study lives, in days
    retention_days : for how many days after a study's end its stored replies, records and requests are kept; None
        keeps them. What was spent stays in the ledger for ever
    open_studies : how many studies may be open from which nothing was released; each shows the coordinator who is
        observed, and some ids if it guesses them
    new_studies : how many studies may be begun within `consent_days`, whatever became of them. What a study shows
        before its releases costs no epsilon, and one of next to no epsilon costs next to nothing
    allow_seeded : whether a coordinator may ask for noise from a seed it knows, which is no protection at all; a policy
        with caps refuses it all the same
    allow_as_printed : whether it takes part in the paper's algorithms as they are printed, which send every column's
        smallest and largest value
    """

    columns: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    alignments: tuple[Alignment, ...] | None = None
    caps: Caps = Caps()
    delta: float = Field(default=DEFAULT_DELTA, gt=0, lt=1)
    min_subjects: int = Field(default=0, ge=0)
    synthetic: Literal["lead", "keep"] = "lead"
    review: Literal["nothing", "releases", "everything"] = "nothing"
    approvals: int = Field(default=1, ge=1, le=9)
    stewards: dict[str, str] = Field(default_factory=dict)
    consent_days: float = Field(default=30.0, gt=0, le=3_650)
    retention_days: float | None = Field(default=None, gt=0, le=36_500)
    open_studies: int = Field(default=10, ge=1)
    new_studies: int = Field(default=50, ge=1)
    allow_seeded: bool = False
    allow_as_printed: bool = False

    def current(self) -> Policy:
        """These rules; a `PolicyFile` reads its own again."""
        return self

    @field_validator("stewards")
    @classmethod
    def _stewards_are_people(cls, stewards: dict[str, str]) -> dict[str, str]:
        """One key each: two names of one key would be one person who approves twice."""
        keys = [key.lower() for key in stewards.values()]
        if not all(_PUBLIC_KEY.fullmatch(key) for key in keys):
            raise ValueError("a steward's key has 64 hexadecimal digits; `verticopula steward` prints it")
        if len(set(keys)) != len(keys):
            raise ValueError("two stewards have the same key; each needs one of their own")
        return dict(zip(stewards, keys, strict=True))

    @model_validator(mode="after")
    def _there_are_enough_stewards(self) -> Policy:
        if self.approvals > 1 and self.approvals > len(self.stewards):
            raise ValueError(f"approvals = {self.approvals} needs as many stewards with keys of their own")
        return self

    @field_validator("methods")
    @classmethod
    def _methods_are_known(cls, methods: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """A misspelt name would refuse every study without a word."""
        known = (*METHODS, RAW_REGRESSION)
        unknown = [name for name in methods or () if name not in known]
        if unknown:
            raise ValueError(f"no such method: {', '.join(unknown)}; known: {', '.join(known)}")
        return methods

    @classmethod
    def from_toml(cls, path: str | Path) -> Policy:
        """Read a policy file; SchemaError lists every problem.

        Parameters
        ----------
        path : the TOML file
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise SchemaError([Problem(Path(path).name, f"cannot be read as TOML ({type(error).__name__})")]) from None
        return cls.from_text(text, Path(path).name)

    @classmethod
    def from_text(cls, text: str, where: str) -> Policy:
        """Read a policy file's content; SchemaError lists every problem.

        Parameters
        ----------
        text : TOML
        where : what the file is called, for messages
        """
        try:
            raw = tomllib.loads(text)
        except ValueError as error:
            raise SchemaError([Problem(where, f"cannot be read as TOML ({type(error).__name__})")]) from None
        try:
            return cls(**raw)
        except SchemaError as error:
            raise SchemaError(Problem(f"{where}, {p.where}", p.what) for p in error.problems) from None

    def rules(self) -> dict[str, Any]:
        """Every rule that was given, by its name: methods, caps.client."""
        given: dict[str, Any] = {}
        for name, value in self.model_dump(mode="json", exclude_unset=True).items():
            given |= {f"{name}.{key}": inner for key, inner in value.items()} if name == "caps" else {name: value}
        return given

    @classmethod
    def from_rules(cls, rules: Mapping[str, Any]) -> Policy:
        """The policy that has these rules; SchemaError lists every problem.

        Parameters
        ----------
        rules : as `rules` gave them
        """
        nested: dict[str, Any] = {}
        for name, value in rules.items():
            outer, _, inner = name.partition(".")
            nested = {**nested, outer: {**nested.get(outer, {}), inner: value}} if inner else {**nested, name: value}
        return cls(**nested)

    @property
    def digest(self) -> str:
        """Of every rule about what is released, given or not: another policy has another digest."""
        said = json.dumps(self.model_dump(mode="json", exclude={"retention_days"}), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(said.encode()).hexdigest()

    def check_columns(self, party: str, columns: Iterable[str]) -> None:
        """Raise PolicyRefused if one of these columns is not shared; even who has a value in it is not told.

        Parameters
        ----------
        party : for the message
        columns : what is asked for
        """
        for column in columns:
            if self.columns is not None and column not in self.columns:
                raise PolicyRefused(f"party {party!r} does not share column {column!r}")

    def check_printed(self, party: str) -> None:
        """Raise PolicyRefused unless the algorithms as printed are allowed.

        Parameters
        ----------
        party : for the message
        """
        if not self.allow_as_printed:
            raise PolicyRefused(
                f"party {party!r} does not take part in variant {PRINTED_VARIANT!r}: it sends the smallest and "
                "largest value of every column, so the policy must say allow_as_printed = true"
            )

    @property
    def only_sums(self) -> bool:
        """Whether all methods that it allows release sums with Gaussian noise; caps then add up mu."""
        return bool(self.methods) and all(map(releases_sums, self.methods or ()))

    def count(self, entries: Iterable[Release], about_people: Iterable[Release]) -> CappedEpsilons:
        """What counts against the caps after these releases.

        Parameters
        ----------
        entries : of the party's own table
        about_people : about the same people, by whatever party
        """
        return capped_epsilons(entries, self.delta, gaussian=self.only_sums, about_people=about_people)

    def check(
        self,
        party: str,
        method: str,
        proposed: Iterable[Release],
        spent: Iterable[Release],
        about_people: Iterable[Release] | None = None,
    ) -> None:
        """Raise PolicyRefused or BudgetExceeded if these releases go beyond the policy.

        Called before anything is drawn.

        Parameters
        ----------
        party : for the message
        method : its name
        proposed : what would be released
        spent : what the party's ledger already holds
        about_people : what the ledger holds about the same people, by whatever party; None for the same
        """
        proposed, spent = list(proposed), list(spent)
        if method == RAW_REGRESSION and method not in (self.methods or ()):
            raise PolicyRefused(
                f"party {party!r} does not take part in method {method!r}: it sends exact values, so the policy must "
                "name it"
            )
        if self.methods is not None and method not in self.methods:
            raise PolicyRefused(f"party {party!r} does not take part in method {method!r}")
        self.check_columns(party, (release.column for release in proposed if release.column != ALL_COLUMNS))
        for release in proposed:
            if release.n_subjects < max(self.min_subjects, _FEWEST_RAW.get(release.what, 0)):
                # Without the number: what leaves of a mask leaves in one message, and in no error.
                raise PolicyRefused(
                    f"party {party!r}, column {release.column!r}: fewer observed subjects than its policy asks for"
                )
            if release.mechanism == PRINTED_MARGIN:
                self.check_printed(party)
        if self.caps == Caps():
            return
        people = spent if about_people is None else list(about_people)
        total = self.count([*spent, *proposed], [*people, *proposed])
        above = {
            unit: f"epsilon per {unit} would become {format_epsilon(getattr(total, unit))}"
            f"{'' if total.is_pure(unit) else f', counted by {total.filter}'}, above its cap of {cap:g}"
            for unit, cap in self.caps.model_dump(exclude_none=True).items()
            if not getattr(total, unit) <= cap * (1 + 1e-9)  # also where it is no number
        }
        if above:
            raise BudgetExceeded(f"party {party!r}: {'; '.join(above.values())}; nothing was drawn", next(iter(above)))


@dataclass(frozen=True)
class CappedEpsilons:
    """What counts against the caps: epsilon at every unit, under adaptive choice of what comes next.

    `filter` says which measure was added up where the composition is not pure.
    """

    variable: float
    client: float
    block: float
    person: float
    filter: str
    has_gaussian: bool

    def is_pure(self, unit: str) -> bool:
        """Whether epsilons were added up at this unit, without a delta.

        Parameters
        ----------
        unit : its name
        """
        return unit in ("variable", "client") and not self.has_gaussian


def capped_epsilons(
    entries: Iterable[Release],
    delta: float,
    *,
    gaussian: bool = False,
    about_people: Iterable[Release] | None = None,
) -> CappedEpsilons:
    """What counts against the caps after these releases.

    A statement (`party_epsilons`) says what was spent, by exact composition. That is not valid where the next request
    depends on earlier answers, and a cap must hold then. Pure epsilons may be added up at `variable` and `client`.
    Otherwise a privacy filter counts (`adaptive_filter.py`), always on the same measure under one policy. Where some
    noise is Gaussian, `variable` and `client` are the larger of the filter and of the pure part's sum: a filter can be
    below the sum of many small epsilons, and no release may lower what counts. Noise from a seed is none to whoever
    knows the seed: everything is infinite then.

    Parameters
    ----------
    gaussian : add up mu, which is exact for Gaussian noise and 25 % above the truth for coins; otherwise rho, which is
        7 % above for either
    about_people : what counts at `person`; None for the same entries
    """
    known = list(entries)
    everything = known if about_people is None else list(about_people)
    if any(entry.noise == "seeded" for entry in (*known, *everything)):
        return CappedEpsilons(*(4 * (math.inf,)), filter="nothing: the noise came from a seed", has_gaussian=True)
    columns = [[Coins(e.epsilon, 1) for e in column] for column in entries_by_column(known)]
    mus = [e.mu for e in known if e.is_gaussian]

    def count(coins: Iterable[Coins], noise: Iterable[float]) -> float:
        if gaussian:
            return mu_epsilon(add_mu(coins, noise), delta)
        return rho_epsilon(add_rho(coins, noise), delta)

    sums = [sum(coin.epsilon for coin in column) for column in columns]
    variable, client = max(sums, default=0.0), sum(sums)
    if mus:  # the larger of both: a release must never lower a count
        variable = max(variable, *(count(column, mus) for column in columns or [[]]))
        client = max(client, count((coin for column in columns for coin in column), mus))
    coins = coins_of(known)
    return CappedEpsilons(
        variable,
        client,
        block=count(coins, mus),
        person=count(coins_of(everything), person_mus(everything)),
        filter="a Gaussian filter" if gaussian else "a zCDP filter",
        has_gaussian=bool(mus),
    )
