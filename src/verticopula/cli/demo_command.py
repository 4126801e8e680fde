"""`verticopula demo`: a study on the built-in federation, from inputs to regression."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticopula.cli.glm_command import fit_and_write
from verticopula.cli.screen_output import write_and_show
from verticopula.cli.shared_options import (
    AsPrinted,
    ChosenMethod,
    Delta,
    Epsilon,
    Quiet,
    RankCorrelationName,
    Seed,
    UnitName,
    progress_bar,
    variant_of,
)
from verticopula.errors import SettingsError
from verticopula.schema.defaults import IN_HOUSE_FILE, REPORT_FILE
from verticopula.schema.study_settings import StudySettings

if TYPE_CHECKING:
    from verticopula.study.synthetic_tables import SyntheticTables


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to write.")] = Path("verticopula-demo"),
    subjects: Annotated[
        int, typer.Option(help="Number of simulated enterprises (the paper's study has 71827).")
    ] = 20_000,
    method: ChosenMethod = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: UnitName = None,
    as_printed: AsPrinted = False,
    rank_correlation: RankCorrelationName = StudySettings.rank_correlation,
    seed: Seed = None,
    quiet: Quiet = False,
) -> None:
    """A five-party study on a built-in federation with blocks missing at random: inputs, tables, ledger, regression."""
    from verticopula.cli.demo_truth import compare_with_truth
    from verticopula.data.input_files import write_inputs
    from verticopula.datasets import make_sme
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.report.report_data import ReportData, read_real
    from verticopula.report.report_page import write_report
    from verticopula.study.study_folder import LEDGER_FILE, REGRESSION_FOLDER, prepare_folder, read_regression
    from verticopula.study.study_warnings import ALIGNED_ROWS

    study = make_sme(subjects)
    asked = StudySettings.from_options(
        method=method,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        seed=seed,
        variant=variant_of(as_printed),
        rank_correlation=rank_correlation,
    )
    synthesizer = Synthesizer.from_settings(study.federation, asked)
    synthesizer.check()
    prepare_folder(out, overwrite=True)
    write_inputs(study.federation, study.tables, out)
    with progress_bar(quiet) as progress:
        synthesizer.fit(study.tables, ledger=out / LEDGER_FILE, progress=progress)
    tables = synthesizer.sample()
    aligned = synthesizer.study_.gives_aligned_rows
    truth = "\n".join(compare_with_truth(study, synthesizer, tables))
    write_and_show(out, synthesizer, tables, quiet, f"\n{truth}\n", notes=(str(ALIGNED_ROWS),) if aligned else ())
    regression = _fit_regression(tables, str(study.federation.response), out / REGRESSION_FOLDER, quiet=quiet)
    facts = read_regression(out)
    fitted, real = synthesizer.study_, read_real(study.federation, study.tables)
    reports = [
        write_report(out / REPORT_FILE, ReportData(fitted, regression=facts, aligned=aligned)),
        write_report(out / IN_HOUSE_FILE, ReportData(fitted, real, facts, aligned)),
    ]
    if not quiet:
        print(f"\n{regression}")
        print("Look at:   " + "\n           ".join(f"{path}" for path in reports))
        command = Path(sys.argv[0])  # as it was called: it need not be on the PATH
        inputs = f"{out}/federation.toml --data {out}/data"
        print(f"Try next:  {command} check {inputs}")
        print(f"           {command} run {inputs} --out my-study")
        print(f"           {command} glm {out} --bootstrap 20")


def _fit_regression(tables: SyntheticTables, response: str, out: Path, *, quiet: bool) -> str:
    """What to show of a regression on the synthetic tables, which may have nothing to explain in a very small study."""
    try:
        with progress_bar(quiet) as progress:
            return str(fit_and_write(tables, response, out, progress=progress))
    except SettingsError as error:
        return f"No regression: {error}. More --subjects or a larger --epsilon leave more to explain."
