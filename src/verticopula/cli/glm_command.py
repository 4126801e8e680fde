"""`verticopula glm`: a regression on the synthetic tables of a study."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticopula.cli.shared_options import GlmFamily, GlmPenalty, GlmSelect, Quiet, progress_bar
from verticopula.errors import SettingsError
from verticopula.schema.progress import Progress
from verticopula.schema.raw_regression_settings import RawRegressionSettings, strength_or_rule
from verticopula.schema.setting_choices import BY_BIC

if TYPE_CHECKING:
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.glm.regression_summary import RegressionSummary
    from verticopula.schema.federation import Federation
    from verticopula.study.synthetic_tables import SyntheticTables


def glm(
    folder: Annotated[Path, typer.Argument(help="The folder that `run` or `demo` wrote.", show_default=False)],
    response: Annotated[
        str | None, typer.Option("--response", help="party.column; default: the federation's response.")
    ] = None,
    family: GlmFamily = None,
    penalty: GlmPenalty = RawRegressionSettings.penalty,
    select: GlmSelect = BY_BIC,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="party.column to leave out; may be given several times.")
    ] = None,
    intercept: Annotated[bool, typer.Option("--intercept/--no-intercept", help="Fit an intercept.")] = True,
    bootstrap: Annotated[
        int,
        typer.Option(
            help="Intervals from so many repetitions of the whole study on data from the fitted copula: for methods "
            "without quick ones. Costs time, no budget."
        ),
    ] = 0,
    ignore: Annotated[
        bool,
        typer.Option(
            "--ignore-noise-and-selection",
            help="Intervals of maximum likelihood, which ignore privacy noise, missing blocks and the selection of "
            "columns: too short.",
        ),
    ] = False,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write; default: FOLDER/regression.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """A regression on a study's synthetic tables: selected columns, coefficients, intervals.

    Example: [bold]verticopula glm my-study --response registry.turnover --penalty mcp --bootstrap 50[/]
    """
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.study.study_folder import REGRESSION_FOLDER, read_study

    if bootstrap and ignore:
        raise SettingsError("give either --bootstrap or --ignore-noise-and-selection")
    if not 0.0 < confidence < 1.0:
        raise SettingsError("--confidence must lie between 0 and 1")
    study, tables = read_study(folder)
    synthesizer = Synthesizer.from_study(study)
    kept = _leave_out(tables, without or [])
    with progress_bar(quiet) as progress:
        summary = fit_and_write(
            kept,
            response or str(synthesizer.federation.response),
            out or folder / REGRESSION_FOLDER,
            family=family,
            penalty=penalty,
            select=select,
            fit_intercept=intercept,
            synthesizer=synthesizer,
            bootstrap=bootstrap,
            ignore=ignore,
            confidence=confidence,
            progress=progress,
        )
    if not quiet:
        print(summary)
        print(f"Written to {out or folder / REGRESSION_FOLDER}")


def fit_and_write(
    tables: SyntheticTables,
    response: str,
    out: Path,
    *,
    family: str | None = None,
    penalty: str = RawRegressionSettings.penalty,
    select: str = BY_BIC,
    fit_intercept: bool = True,
    synthesizer: Synthesizer | None = None,
    bootstrap: int = 0,
    ignore: bool = False,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> RegressionSummary:
    """Fit, write everything to a folder, and return what to show."""
    from sklearn.exceptions import ConvergenceWarning

    from verticopula.estimators.regression_files import write_regression
    from verticopula.estimators.vertical_glm import VerticalGLM

    model = VerticalGLM(
        family or _family_of(tables.federation, response), penalty, fit_intercept, strength_or_rule(select)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the summary says it first
        model.fit(tables, response, progress=progress)
    if synthesizer is not None and bootstrap:
        model.bootstrap(synthesizer, bootstrap, progress=progress)
    if ignore:
        model.ignore_noise_and_selection()
    write_regression(out, model, confidence)
    return model.summary(confidence)


def _family_of(federation: Federation, response: str) -> str:
    from verticopula.estimators.default_regression import family_of_kind
    from verticopula.schema.columns import ColumnKey

    party, dot, _ = response.partition(".")
    known = {str(key) for key in federation.keys}
    if not dot or response not in known:
        near = ", ".join(sorted(key for key in known if key.startswith(f"{party}."))) or ", ".join(sorted(known)[:5])
        raise SettingsError(f"no column {response!r} in this study; --response is party.column, such as {near}")
    kind = federation.column(ColumnKey.parse(response)).kind
    if kind == "nominal":
        raise SettingsError(f"{response} has unordered categories: no family here fits it")
    return family_of_kind(kind)


def _leave_out(tables: SyntheticTables, names: list[str]) -> SyntheticTables:
    """The tables without some columns."""
    from verticopula.study.synthetic_tables import SyntheticTables

    kept = dict(tables)
    for name in names:
        party, _, column = name.partition(".")
        if party not in kept or column not in kept[party].columns:
            raise SettingsError(f"--without {name}: no such column; it reads party.column")
        kept[party] = kept[party].drop(column)
    left = {party: table for party, table in kept.items() if table.width}
    return SyntheticTables(left, tables.federation, tables.n_subjects, tables.posterior_draws, tables.study)
