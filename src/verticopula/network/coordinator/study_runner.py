"""One study, from its settings to its files, over the coordinator's transport."""

from __future__ import annotations

import logging
import math
import shutil
import warnings
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from verticopula.errors import AlignedWarning, NotPrivateWarning, SettingsError, WeakPrivacyWarning, WeakResultWarning
from verticopula.estimators.default_regression import CONFIDENCE_LEVEL, fit_if_cheap
from verticopula.estimators.regression_checks import check_settings as check_regression
from verticopula.estimators.regression_files import write_regression
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.estimators.vertical_glm import VerticalGLM
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.network.connection.control_messages import SubmitRequest
from verticopula.network.coordinator.study_records import StudyRecord, StudyStore
from verticopula.protocol.secure_sums import close_sums
from verticopula.protocol.study_lifecycle import begin_study, close_study, deliver_blocks
from verticopula.report.report_data import ReportData
from verticopula.report.report_page import write_report
from verticopula.schema.conditions import ALIGNED_EXCLUDES, describe_conditions, parse_conditions, read_conditions
from verticopula.schema.defaults import LONGEST_DEADLINE, REPORT_FILE
from verticopula.schema.federation import Federation
from verticopula.schema.methods import RAW_REGRESSION
from verticopula.schema.study_settings import StudySettings, check_moments_roles, check_roles
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import RecordStore
from verticopula.study.missing_values import check_missing
from verticopula.study.study_folder import LEDGER_FILE, withhold_study, write_study
from verticopula.study.study_warnings import ALIGNED_ROWS
from verticopula.study.synthetic_tables import SyntheticTables
from verticopula.transport.delivery import Transport, drive

logger = logging.getLogger(__name__)

_MOST_ROWS = 100_000_000
_WITHHELD = "The fitted model, the margins and the report are not sent: the blocks could be drawn again from them."


def check_study(federation: Federation, kind: str, settings: Any, deadline: float, rows: int | None = None) -> None:
    """SettingsError for a study that could not be run; it is checked before any request is sent."""
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise SettingsError("the study's settings cannot be read")
    check_deadline(deadline)
    if rows is not None and not 1 <= rows <= _MOST_ROWS:
        raise SettingsError(f"--rows lies between 1 and {_MOST_ROWS:,}")
    try:
        if kind == "regression":
            model = VerticalGLM(**settings)
            check_regression(model.get_params())
            if model.family == "gaussian":
                check_moments_roles(federation)
        else:
            asked = Synthesizer.from_settings(federation, StudySettings.from_dict(settings)).check()
            check_roles(federation, asked.record)
            if asked.gives_aligned_rows and rows is not None:
                raise SettingsError(
                    f"method {asked.title!r} gives one row for every subject of the cohort: leave out --rows"
                )
    except TypeError:
        raise SettingsError("the study's settings have a name or a value that this version does not know") from None


def check_wanted_rows(federation: Federation, request: SubmitRequest) -> None:
    """SettingsError where rows are asked for that no study could have."""
    read_conditions(federation, parse_conditions(request.conditions))
    check_missing(request.missing or None)
    if request.kind == "regression" and (request.conditions or request.missing):
        raise SettingsError("--condition and --missing are about synthetic rows, and a regression has none")
    if request.aligned and (request.conditions or request.missing):
        raise SettingsError(ALIGNED_EXCLUDES)


def check_deadline(seconds: float) -> None:
    """SettingsError for a deadline that would never come, or has passed."""
    if not (math.isfinite(seconds) and 0.0 < seconds <= LONGEST_DEADLINE):
        raise SettingsError("the deadline is a positive number of seconds, 30 days at most")


def run_study(
    record: StudyRecord,
    federation: Federation,
    transport: Transport,
    records: StudyStore,
    authenticity: Authenticity | None = None,
) -> None:
    """Run the study's rounds and write its result; repeated after a crash, it makes the same files.

    `authenticity` : how parties know the coordinator's public keys, where it is a compute party in a strict study
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)  # the summary says it first
        warnings.simplefilter("ignore", AlignedWarning)
        warnings.simplefilter("ignore", WeakPrivacyWarning)
        warnings.simplefilter("ignore", WeakResultWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        scratch = records.result_folder(record.study).with_suffix(".scratch")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        if record.kind == "synthesis":
            _synthesise(record, federation, transport, scratch, records.compute_records(record.study), authenticity)
        else:
            _regress(record, federation, transport, scratch)
        records.remember_witnesses(drive(close_study(federation, record.study), transport))
        if record.needs_keys and federation.network.compute is not None:
            drive(close_sums(federation.network.compute, record.study), transport)
    shutil.rmtree(records.result_folder(record.study), ignore_errors=True)
    scratch.rename(records.result_folder(record.study))


def _synthesise(
    record: StudyRecord,
    federation: Federation,
    transport: Transport,
    out: Path,
    kept: RecordStore,
    authenticity: Authenticity | None,
) -> None:
    synthesizer = Synthesizer.from_settings(federation, StudySettings.from_dict(record.settings))
    compute_handler = None if authenticity is None else synthesizer.make_compute_handler(kept, authenticity)
    synthesizer.fit_transport(
        transport,
        study=record.study,
        alignment=record.alignment,
        witnesses=record.witnesses,
        requester=record.requester,
        purpose=record.purpose,
        compute_handler=compute_handler,
        server_seed=record.server_seed,
    )
    conditions, missing = parse_conditions(record.conditions), record.missing or None
    chosen = bool(conditions) or missing is not None
    aligned = record.aligned or (synthesizer.study_.gives_aligned_rows and not chosen)
    values = synthesizer.draw(record.rows, aligned, conditions=conditions, missing=missing)
    drive(deliver_blocks(federation, record.study, values), transport)
    begun = synthesizer.begun_
    keepers = [] if begun is None else [name for name, keeps in begun.keeps_block.items() if keeps]
    tables = synthesizer.decode(values)
    for name in keepers:
        del tables[name]
    notes: tuple[str, ...] = (str(ALIGNED_ROWS),) if aligned else ()
    if conditions:
        notes += (describe_conditions(record.conditions),)
    if synthesizer.kept_ is not None:
        notes += (str(synthesizer.kept_),)
    if keepers:
        names = ", ".join(repr(name) for name in keepers)
        notes += (f"{names} kept synthetic blocks to themselves. {_WITHHELD}",)
    summary = synthesizer.summary() + "".join(f"\n! {note}\n" for note in notes)
    Ledger(out / LEDGER_FILE).append(synthesizer.ledger_)
    write_study(out, synthesizer.study_, tables, summary, notes)
    if keepers:
        withhold_study(out)
        return
    _report(record, synthesizer, tables, out / REPORT_FILE, aligned)


def _report(record: StudyRecord, synthesizer: Synthesizer, tables: SyntheticTables, path: Path, aligned: bool) -> None:
    """The lead's report, from releases alone. The study has been paid for, so it does not fail for want of a page."""
    try:
        facts = None if aligned or record.conditions else fit_if_cheap(synthesizer.study_, tables)
        write_report(path, ReportData(synthesizer.study_, regression=facts, aligned=aligned))
    except Exception as error:
        logger.warning("%s: no report could be written (%s)", record.study, type(error).__name__)


def _regress(record: StudyRecord, federation: Federation, transport: Transport, out: Path) -> None:
    rounds = begin_study(
        federation,
        record.study,
        RAW_REGRESSION,
        alignment=record.alignment,
        witnesses=record.witnesses,
        requester=record.requester,
        purpose=record.purpose,
    )
    begun = drive(rounds, transport)
    model = VerticalGLM(**record.settings)
    model.fit_transport(transport, federation, study=record.study, begun=begun)
    write_regression(out, model, CONFIDENCE_LEVEL)
