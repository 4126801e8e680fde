"""What several commands share: options, the progress bar, and whether FLARE is there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import progress as rich_progress
from rich.console import Console

from verticopula.errors import SettingsError
from verticopula.schema.methods import DEFAULT_METHOD, OWN_VARIANT, PRINTED_VARIANT, RAW_REGRESSION, STRICT
from verticopula.schema.progress import Progress
from verticopula.schema.raw_regression_settings import RawRegressionSettings, read_settings
from verticopula.schema.setting_choices import ALIGNMENTS, BY_BIC, BY_POSTERIOR, GAPS_IN_ROWS, explain_choices, help_of
from verticopula.schema.study_settings import StudySettings

_REGRESSION_PANEL = f"A regression on raw columns: --method {RAW_REGRESSION}"
_DEFAULT_METHOD = f"Default: {DEFAULT_METHOD.name}."


def _setting(name: str, *short: str, more: str = "") -> Any:
    """The option of one setting of a study, with the help that the setting has."""
    said = f"{help_of(StudySettings, name)} {more}".strip()
    return typer.Option(f"--{name.replace('_', '-')}", *short, help=said)


def _regression(name: str, more: str = "", panel: str | None = None) -> Any:
    """The option of one setting of a regression."""
    said = f"{help_of(RawRegressionSettings, name)} {more}".strip()
    return typer.Option(f"--{name}", help=said, rich_help_panel=panel)


FederationFile = Annotated[Path, typer.Argument(help="The federation file (TOML).", show_default=False)]

# A study's settings, one option each.
ChosenMethod = Annotated[str | None, _setting("method", more=_DEFAULT_METHOD)]
LeadMethod = Annotated[
    str | None,
    _setting(
        "method",
        more=f"Or {RAW_REGRESSION}, a regression on the raw columns, which every party's policy must name. "
        f"{_DEFAULT_METHOD}",
    ),
]
Epsilon = Annotated[float | None, _setting("epsilon", "-e")]
Delta = Annotated[float | None, _setting("delta")]
UnitName = Annotated[str | None, _setting("unit")]
Seed = Annotated[int | None, _setting("seed")]
EpsilonRanks = Annotated[float | None, _setting("epsilon_ranks")]
EpsilonMarginals = Annotated[float | None, _setting("epsilon_marginals")]
SamplerName = Annotated[str, _setting("sampler")]
RoundCount = Annotated[int, _setting("rounds")]
PerRound = Annotated[bool, typer.Option("--per-round", help=help_of(StudySettings, "per_round"))]
AsPrinted = Annotated[bool, typer.Option(f"--{PRINTED_VARIANT}", help=help_of(StudySettings, "variant"))]
RankCorrelationName = Annotated[str, _setting("rank_correlation")]
DependenceName = Annotated[str, _setting("dependence")]

# A regression's.
FamilyOption = Annotated[str, _regression("family", panel=_REGRESSION_PANEL)]
GlmFamily = Annotated[str | None, _regression("family", "Default: by the response's kind.")]
PenaltyOption = Annotated[str, _regression("penalty", panel=_REGRESSION_PANEL)]
GlmPenalty = Annotated[str, _regression("penalty")]
SelectOption = Annotated[str, _regression("select", panel=_REGRESSION_PANEL)]
GlmSelect = Annotated[str, _regression("select", f"Or {BY_POSTERIOR}, for columns by their posterior probability.")]

# What synthetic rows are to be.
RowCount = Annotated[int | None, typer.Option("--rows", help="Synthetic rows. Default: as many as subjects.")]
ConditionTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--condition",
        help="What all synthetic rows are to have in a column, such as agency.default=1 or bank.income=1000..5000; "
        "may be given several times.",
        metavar="PARTY.COLUMN=VALUE",
    ),
]
MissingName = Annotated[
    str | None,
    typer.Option(
        "--missing",
        help=f"Gaps in synthetic tables: {explain_choices(GAPS_IN_ROWS)}. Default: empty values by "
        f"method {STRICT.name}, no gaps by others.",
        show_default=False,
    ),
]
Aligned = Annotated[
    bool, typer.Option("--aligned", help="Row i follows subject i: a noisy copy of the cohort. For comparisons only.")
]
AlignmentName = Annotated[
    str, typer.Option("--alignment", help=f"How subjects are matched: {explain_choices(ALIGNMENTS)}.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the tables of a study already in --out.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but errors.")]


def variant_of(as_printed: bool) -> str:
    """The variant that --as-printed asks for, or ours."""
    return PRINTED_VARIANT if as_printed else OWN_VARIANT


@dataclass(frozen=True)
class StudyOptions:
    """A study's settings, as they were typed: None for what was not said."""

    method: ChosenMethod = None
    epsilon: Epsilon = None
    delta: Delta = None
    unit: UnitName = None
    epsilon_ranks: EpsilonRanks = None
    epsilon_marginals: EpsilonMarginals = None
    sampler: SamplerName = StudySettings.sampler
    rounds: RoundCount = StudySettings.rounds
    per_round: PerRound = StudySettings.per_round
    as_printed: AsPrinted = False
    rank_correlation: RankCorrelationName = StudySettings.rank_correlation
    dependence: DependenceName = StudySettings.dependence
    seed: Seed = None

    def settings(self) -> StudySettings:
        """With the default of everything that was not said; SettingsError where options exclude each other."""
        return StudySettings.from_options(**self._by_setting())

    def _by_setting(self) -> dict[str, Any]:
        given = {name: value for name, value in vars(self).items() if name != "as_printed"}
        return {**given, "variant": variant_of(self.as_printed)}


@dataclass(frozen=True)
class LeadOptions(StudyOptions):
    """The same between organisations, where a study may be a regression on raw columns."""

    method: LeadMethod = None
    family: FamilyOption = RawRegressionSettings.family
    penalty: PenaltyOption = RawRegressionSettings.penalty
    select: SelectOption = BY_BIC

    def study_or_regression(self) -> StudySettings | RawRegressionSettings:
        """The settings of a study or of a regression, by the method's name."""
        return read_settings(**self._by_setting())


@dataclass(frozen=True)
class RowOptions:
    """Which synthetic rows are wanted."""

    rows: RowCount = None
    condition: ConditionTexts = None
    missing: MissingName = None
    aligned: Aligned = False

    @property
    def conditions(self) -> tuple[str, ...]:
        return tuple(self.condition or ())


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress]:
    """A progress bar on standard error; none if quiet or not a terminal."""
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    # Not what the console thinks: notebooks and build servers ask for colours without being a terminal.
    hidden = quiet or not sys.stderr.isatty()
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bars:
        task = bars.add_task("starting", total=None)

        def show(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield show


def need_flare() -> None:
    """SettingsError unless NVIDIA FLARE is installed, which everything between organisations needs."""
    if importlib.util.find_spec("nvflare") is None:
        raise SettingsError("this needs NVIDIA FLARE: pip install 'verticopula[nvflare]'")
