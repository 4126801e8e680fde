"""A whole audit of one study: its claims, and its synthetic tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from verticopula.auditing.audit_report import AuditReport
from verticopula.auditing.bounds.mechanism_audit import check_trials
from verticopula.auditing.releases.attack_plan import (
    MechanismFinding,
    StudyTerms,
    check_columns,
    plan_attacks,
    run_attacks,
)
from verticopula.auditing.sums.strict_attacks import attack_strict
from verticopula.auditing.tables.aligned_attack import attack_aligned
from verticopula.auditing.tables.encoded_rows import GradeScale
from verticopula.auditing.tables.findings import Finding
from verticopula.auditing.tables.holdout import (
    AuditedPeople,
    audited,
    check_same_people,
    given_holdout,
    repeat_without,
    restrict,
)
from verticopula.auditing.tables.sdmetrics_findings import HOW_TO_INSTALL, is_installed, sdmetrics_findings
from verticopula.auditing.tables.table_attacks import AttackedTable, attack_tables
from verticopula.data.tables import AlignedTable, align_tables
from verticopula.errors import SettingsError
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.privacy.budget import coins_per_comparison
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.methods import STRICT
from verticopula.schema.progress import Progress

Frames = Mapping[str, pl.DataFrame]

_ATTACKS = 10  # on tables, the aligned ones and SDMetrics' included

REPEATED = (
    "Nothing was released and no budget was spent: the study was repeated in this process, with the same settings, "
    "without the people who were left out, and forgotten."
)

STRICT_ALONE = (
    f"tables of method {STRICT.name!r} come from the sums of all parties together: one party alone cannot repeat its "
    "part. Its claims can be attacked, with --claims-only; that needs nobody's data"
)
PRINTED_CLAIMS = (
    "the paper's algorithms as printed make no claim that an attack could break: epsilon is infinite. Their tables can "
    "be attacked, with --tables-only (attack_claims=False)"
)
STRICT_OUTPUT = (
    f"The tables of whole studies of method {STRICT.name!r} were not attacked one by one: --output-trials is for "
    "methods that rank."
)


@dataclass(frozen=True)
class AuditSettings:
    """How many trials an audit makes, of what, and how sure its findings are.

    Attributes
    ----------
    trials : releases per claim; attacks on many columns get fewer
    confidence : with which all bounds on claims hold together, and all intervals of the attacks on tables
    holdout_share : of the people to leave out of a repetition of the study
    party : audit only this party's part, with its table alone
    random_state : makes the audit repeatable; its own noise protects nobody
    workers : processes that draw releases
    output_trials : whole studies up to their synthetic tables, attacked too; none if zero, because they are slow
    columns : `all` or `one-per-kind`; all if not given where a single party is audited
    """

    trials: int = 4000
    confidence: float = 0.95
    holdout_share: float = 0.5
    party: str | None = None
    random_state: int | None = None
    workers: int = 1
    output_trials: int = 0
    columns: str | None = None


def audit_study(
    synthesizer: Synthesizer,
    settings: AuditSettings | None = None,
    *,
    synthetic: Frames | None = None,
    real: Frames | None = None,
    holdout: Frames | None = None,
    aligned_rows: bool = False,
    attack_claims: bool = True,
    attack_tables: bool | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """What attacks on a study's claims and on its synthetic tables found.

    Parameters
    ----------
    synthesizer : fitted
    settings : how many trials, how sure, which party; the defaults of `AuditSettings` if not given
    synthetic : the study's tables, needed if a `holdout` is given
    real : the real tables; without them only claims are attacked, on chosen data sets
    holdout : tables of people who were not in the study; without them the study is repeated in memory
    aligned_rows : whether the study's rows follow its people
    attack_claims : whether the claims about releases are attacked
    attack_tables : whether the synthetic tables are attacked; by default where `real` are given
    progress : called with (what, done, total)
    """
    settings = AuditSettings() if settings is None else settings
    attack_tables = real is not None if attack_tables is None else attack_tables
    _check_settings(synthesizer, settings, attack_claims=attack_claims, attack_tables=attack_tables)
    rng = np.random.default_rng(settings.random_state)
    federation = audited(synthesizer, settings.party)
    tables: dict[str, AlignedTable] | None = None
    if real is not None:
        tables = align_tables(federation, real, need_overlap=False)
        check_same_people(synthesizer, federation, tables)
    notes: list[str] = []
    found: list[Finding] = []
    if attack_tables:
        if real is None or tables is None:
            raise SettingsError("attacks on tables need the study's own real tables (--data)")
        if holdout is None:
            _, fresh = restrict(synthesizer, settings.party, settings.random_state)
            subjects = repeat_without(
                fresh, tables, settings.holdout_share, aligned_rows=aligned_rows, rng=rng, progress=progress
            )
            notes.append(REPEATED)
        else:
            subjects = given_holdout(synthesizer, federation, real, holdout, synthetic or {})
        found = _attack(subjects, aligned_rows, settings.confidence, rng)
        if not is_installed():
            notes.append(HOW_TO_INSTALL)
    measured: list[MechanismFinding] = []
    if attack_claims:
        measured, said = _attack_claims(synthesizer, settings, tables, rng, progress)
        notes += said
    return AuditReport(
        study=synthesizer.federation.name,
        unit=synthesizer.study_.unit.value,
        party=settings.party,
        confidence=settings.confidence,
        seed=settings.random_state,
        stated=synthesizer.privacy_,
        mechanism=tuple(measured),
        tables=tuple(found),
        notes=tuple(notes),
    )


def _check_settings(
    synthesizer: Synthesizer, settings: AuditSettings, *, attack_claims: bool, attack_tables: bool
) -> None:
    """SettingsError for an audit that this study, or this party of it, cannot have."""
    check_trials(settings.trials, settings.confidence)
    if settings.columns is not None:
        check_columns(settings.columns)
    asked = synthesizer.study_.settings
    if attack_claims and asked.is_printed:
        raise SettingsError(PRINTED_CLAIMS)
    names = [p.name for p in synthesizer.federation.parties]
    if settings.party is not None and settings.party not in names:
        raise SettingsError(f"no party {settings.party!r} in this study; there are {', '.join(names)}")
    if attack_tables and not asked.record.ranks and settings.party is not None:
        raise SettingsError(STRICT_ALONE)


def _attack_claims(
    synthesizer: Synthesizer,
    settings: AuditSettings,
    tables: Mapping[str, AlignedTable] | None,
    rng: np.random.Generator,
    progress: Progress | None,
) -> tuple[list[MechanismFinding], list[str]]:
    """What attacks on the releases found, and what a reader must know of them."""
    if synthesizer.study_.settings.record.ranks:
        attacks = plan_attacks(
            _terms(synthesizer),
            tables=tables,
            party=settings.party,
            output_trials=settings.output_trials,
            columns=settings.columns,
            rng=rng,
        )
        found = run_attacks(
            attacks,
            settings.trials,
            confidence=settings.confidence,
            seed=settings.random_state,
            workers=settings.workers,
            progress=progress,
        )
        return found, []
    found, notes = attack_strict(
        synthesizer,
        settings.trials,
        confidence=settings.confidence,
        party=settings.party,
        seed=settings.random_state,
        workers=settings.workers,
        progress=progress,
    )
    return found, [*notes, STRICT_OUTPUT] if settings.output_trials else notes


def _terms(synthesizer: Synthesizer) -> StudyTerms:
    delta = DEFAULT_DELTA if synthesizer.delta is None else synthesizer.delta
    from_data = synthesizer.federation.bounds_from_data
    return StudyTerms(
        synthesizer.federation,
        synthesizer.result_.budgets,
        synthesizer.study_.budget.sampler,
        synthesizer.study_.settings.method,
        delta,
        bounds_from_data=from_data,
        budget=synthesizer.study_.budget,
        dependence=synthesizer.study_.settings.dependence,
    )


def _attack(subjects: AuditedPeople, aligned_rows: bool, confidence: float, rng: np.random.Generator) -> list[Finding]:
    federation = subjects.synthesizer.federation
    scale = GradeScale(federation, {name: subjects.synthetic[name] for name in subjects.members})
    members, others, rows = scale.people(subjects.members), scale.people(subjects.others), scale.synthetic
    exposed = AttackedTable.draw(members, others, rows, rng)
    confidence = 1.0 - (1.0 - confidence) / _ATTACKS  # all intervals hold together
    found = list(attack_tables(exposed, confidence, rng))
    if aligned_rows and len(rows) >= len(members):
        sampler = subjects.synthesizer.study_.budget.sampler
        coins = {
            key: subjects.synthesizer.result_.budgets[key].epsilon_ranks
            / coins_per_comparison(federation.column(key), sampler)
            for key in scale.keys
        }
        own = rows.rows(slice(0, len(members)))
        found += attack_aligned(members, own, coins, confidence, rng)
    if is_installed():
        found += sdmetrics_findings(exposed, confidence, rng)
    return found
