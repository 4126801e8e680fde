"""A fitted study: what was asked for, what came out, and what left the parties for it."""

from __future__ import annotations

from dataclasses import dataclass

from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.release import Release
from verticopula.privacy.statement import PrivacyStatement, state_privacy
from verticopula.schema.federation import Federation
from verticopula.schema.study_settings import StudySettings
from verticopula.schema.units import Unit
from verticopula.stats.fit_result import FitResult


@dataclass(frozen=True)
class FittedStudy:
    """Everything that is known of a study at its end. No real data are in it.

    Attributes
    ----------
    name : of the study, as ledgers have it
    federation : who holds which column
    settings : as they were checked, with the unit filled in
    result : the fitted copula and how it came about
    releases : what the parties entered into their ledgers
    """

    name: str
    federation: Federation
    settings: StudySettings
    result: FitResult
    releases: tuple[Release, ...]

    @property
    def unit(self) -> Unit:
        """What the study's epsilon was an epsilon of."""
        return self.settings.record.default_unit if self.settings.unit is None else Unit.parse(self.settings.unit)

    @property
    def gives_aligned_rows(self) -> bool:
        """Whether rows follow the subjects unless others are asked for."""
        return self.settings.gives_aligned_rows

    @property
    def budget(self) -> StudyBudget:
        return StudyBudget.of(self.federation, self.settings)

    @property
    def privacy(self) -> PrivacyStatement:
        """Epsilon at every unit."""
        return state_privacy(self.releases, self.settings.delta)

    @property
    def n_subjects(self) -> int:
        return self.result.n_subjects
