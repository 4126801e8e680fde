"""A party's policy as its file has it at this moment: a rule that is tightened on disk holds from the next request."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from verticopula.errors import PolicyRefused, SchemaError
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.release import Release

logger = logging.getLogger(__name__)


class PolicyFile:
    """What a `Policy` answers, read from its file for every question.

    A file that cannot be read refuses everything until it can. So does one that has lost all of its rules: a file
    that is being replaced may be empty for a moment, and an empty policy allows everything.

    Parameters
    ----------
    path : the TOML file; SchemaError lists every problem that it has at the beginning
    party : for messages
    """

    def __init__(self, path: Path, party: str) -> None:
        self._path, self._party = path, party
        self._last = Policy.from_toml(path)
        self._may_be_empty = self._last == Policy()

    def current(self) -> Policy:
        """The policy as it stands on disk; PolicyRefused if it cannot be read, and only the party's log says why."""
        try:
            found = Policy.from_toml(self._path)
        except SchemaError as error:
            logger.error("policy: %s", error)
            raise PolicyRefused(
                f"party {self._party!r}: its policy file cannot be read; nothing is released until it can"
            ) from None
        if found == Policy() and not self._may_be_empty:
            logger.error("policy: %s holds no rules any more; start again to do without", self._path.name)
            raise PolicyRefused(
                f"party {self._party!r}: its policy file holds no rules any more; nothing is released until it does"
            )
        if found != self._last:
            logger.warning("policy: %s has changed; it is used from now on", self._path.name)
            self._last = found
        return found

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.current().columns

    @property
    def methods(self) -> tuple[str, ...] | None:
        return self.current().methods

    @property
    def caps(self) -> Caps:
        return self.current().caps

    @property
    def delta(self) -> float:
        return self.current().delta

    @property
    def min_subjects(self) -> int:
        return self.current().min_subjects

    @property
    def synthetic(self) -> Literal["lead", "keep"]:
        return self.current().synthetic

    @property
    def consent_days(self) -> float:
        return self.current().consent_days

    @property
    def open_studies(self) -> int:
        return self.current().open_studies

    @property
    def allow_seeded(self) -> bool:
        return self.current().allow_seeded

    @property
    def allow_as_printed(self) -> bool:
        return self.current().allow_as_printed

    def check_columns(self, party: str, columns: Iterable[str]) -> None:
        """As `Policy.check_columns`.

        Parameters
        ----------
        party, columns : as there
        """
        self.current().check_columns(party, columns)

    def check(
        self,
        party: str,
        method: str,
        proposed: Iterable[Release],
        spent: Iterable[Release],
        about_people: Iterable[Release] | None = None,
    ) -> None:
        """As `Policy.check`.

        Parameters
        ----------
        party, method, proposed, spent, about_people : as there
        """
        self.current().check(party, method, proposed, spent, about_people)
