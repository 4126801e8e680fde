"""What a party allows. It is the party's own file; no coordinator writes it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from verticopula.errors import BudgetExceeded, PolicyRefused, Problem, SchemaError
from verticopula.privacy.release import ALL_COLUMNS, Release
from verticopula.privacy.statement import format_epsilon, party_epsilons
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.methods import METHODS, RAW_REGRESSION

_FEWEST_EXACT = 2  # subjects of a release without noise, whatever the policy says


class Caps(BaseModel):
    """The largest epsilon ever to be spent on this party's table, at each unit it can account for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variable: float | None = Field(default=None, gt=0)
    client: float | None = Field(default=None, gt=0)
    block: float | None = Field(default=None, gt=0)


class Policy(BaseModel):
    """A party's own rules. Without a policy file everything is allowed, and nothing is capped.

    Attributes
    ----------
    columns : the columns it shares; None for all
    methods : the protocols it takes part in; None for all that add noise. `raw-glm`, a regression on the
        raw columns, shows exact values to the coordinator and must be named.
    caps : the largest epsilon ever to be spent, over all studies in its ledger
    delta : the δ at which the `block` cap is counted, and Gaussian noise at every unit
    min_subjects : the smallest number of observed subjects from which a column may be released. It is compared with the
        mask of observed cells, which everybody in the study knows; exact values are of two subjects at least
    synthetic : `lead` if the study lead's joined table may hold this party's synthetic columns, `keep` if not
    allow_seeded : whether a coordinator may ask for noise from a seed it knows, which is no protection at all
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    caps: Caps = Caps()
    delta: float = Field(default=DEFAULT_DELTA, gt=0, lt=1)
    min_subjects: int = Field(default=0, ge=0)
    synthetic: Literal["lead", "keep"] = "lead"
    allow_seeded: bool = False

    def __init__(self, /, **raw: Any) -> None:
        try:
            super().__init__(**raw)
        except ValidationError as error:
            raise SchemaError(Problem(".".join(map(str, e["loc"])), e["msg"]) for e in error.errors()) from None

    @field_validator("methods")
    @classmethod
    def _methods_are_known(cls, methods: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """A misspelt name would refuse every study without a word."""
        known = (*METHODS, RAW_REGRESSION)
        strangers = [name for name in methods or () if name not in known]
        if strangers:
            raise ValueError(f"no such method: {', '.join(strangers)}; known: {', '.join(known)}")
        return methods

    @classmethod
    def from_toml(cls, path: str | Path) -> Policy:
        """Read a policy file; SchemaError lists every problem.

        Parameters
        ----------
        path : the TOML file
        """
        where = Path(path).name
        try:
            raw = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SchemaError([Problem(where, f"cannot be read as TOML ({type(error).__name__})")]) from None
        try:
            return cls(**raw)
        except SchemaError as error:
            raise SchemaError(Problem(f"{where}, {p.where}", p.what) for p in error.problems) from None

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

    def check(self, party: str, method: str, proposed: Iterable[Release], spent: Iterable[Release]) -> None:
        """Raise PolicyRefused or BudgetExceeded if these releases go beyond the policy.

        Called before anything is drawn.

        Parameters
        ----------
        party : for the message
        method : its name
        proposed : what would be released
        spent : what the party's ledger already holds
        """
        proposed = list(proposed)
        if method == RAW_REGRESSION and method not in (self.methods or ()):
            raise PolicyRefused(
                f"party {party!r} does not take part in method {method!r}: it sends exact values, so the policy must "
                "name it"
            )
        if self.methods is not None and method not in self.methods:
            raise PolicyRefused(f"party {party!r} does not take part in method {method!r}")
        self.check_columns(party, (release.column for release in proposed if release.column != ALL_COLUMNS))
        for release in proposed:
            if release.n_subjects < max(self.min_subjects, _FEWEST_EXACT if release.what == "exact" else 0):
                # Without the number: what leaves of a mask leaves in one message, and in no error.
                raise PolicyRefused(
                    f"party {party!r}, column {release.column!r}: fewer observed subjects than its policy asks for"
                )
        if self.caps == Caps():
            return
        total = party_epsilons([*spent, *proposed], self.delta)
        for unit, cap in self.caps.model_dump(exclude_none=True).items():
            would_be = getattr(total, unit)
            if not would_be <= cap * (1 + 1e-9):  # also where it is no number
                raise BudgetExceeded(
                    f"party {party!r}: epsilon per {unit} would become {format_epsilon(would_be)}, "
                    f"above its cap of {cap:g}; nothing was drawn"
                )
