"""A whole audit of one study: its claims, and its synthetic tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from verticopula.auditing.aligned_attack import attack_aligned
from verticopula.auditing.attack_plan import MechanismFinding, StudyTerms, check_columns, plan_attacks, run_attacks
from verticopula.auditing.audit_report import AuditReport
from verticopula.auditing.encoded_rows import Scale
from verticopula.auditing.findings import Finding
from verticopula.auditing.holdout import Subjects, audited, check_same_people, given_holdout, repeat_without, restrict
from verticopula.auditing.mechanism_audit import check_trials
from verticopula.auditing.sdmetrics_findings import HOW_TO_INSTALL, is_installed, sdmetrics_findings
from verticopula.auditing.strict_attacks import attack_strict
from verticopula.auditing.table_attacks import Exposed, attack_tables
from verticopula.data.tables import AlignedTable, align_tables
from verticopula.errors import SettingsError
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.privacy.budget import coins_per_comparison
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.progress import Progress

Frames = Mapping[str, pl.DataFrame]

_ATTACKS = 10  # on tables, the aligned ones and SDMetrics' included

REPEATED = (
    "Nothing was released and no budget was spent: the study was repeated in this process, with the same settings, "
    "without the people who were left out, and forgotten."
)

STRICT_ALONE = (
    "a strict study's tables come from the sums of all parties together: one party alone cannot repeat its part. Its "
    "claims can be attacked, with --mechanism-only; that needs nobody's data"
)
STRICT_OUTPUT = (
    "The tables of whole strict studies were not attacked one by one: --output-trials is for methods that rank."
)


@dataclass(frozen=True)
class AuditSettings:
    """How hard to try.

    Attributes
    ----------
    trials : releases per claim; attacks on many columns get fewer
    confidence : with which all bounds on claims hold together, and all intervals of the attacks on tables
    holdout : share of the people to leave out of a repetition of the study
    party : audit only this party's part, with its table alone
    seed : makes the audit repeatable; its own noise protects nobody
    output_trials : whole studies up to their synthetic tables, attacked too; none if zero, because they are slow
    columns : `all` or `one-per-kind`; all if not given where a single party is audited
    """

    trials: int = 4000
    confidence: float = 0.95
    holdout: float = 0.5
    party: str | None = None
    seed: int | None = None
    workers: int = 1
    output_trials: int = 0
    columns: str | None = None


def audit_study(
    study: Synthesizer,
    settings: AuditSettings | None = None,
    *,
    synthetic: Frames | None = None,
    data: Frames | None = None,
    holdout: Frames | None = None,
    aligned_rows: bool = False,
    mechanism: bool = True,
    release: bool | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """What attacks on a study's claims and on its synthetic tables found.

    Parameters
    ----------
    study : a fitted synthesizer
    settings : how many trials, how sure, which party; the defaults of `AuditSettings` if not given
    synthetic : the study's tables, needed if a `holdout` is given
    data : the real tables; without them only claims are attacked, on chosen data sets
    holdout : tables of people who were not in the study; without them the study is repeated in memory
    aligned_rows : whether the study's rows follow its people
    mechanism : whether the claims about releases are attacked
    release : whether the synthetic tables are attacked; by default where `data` are given
    progress : called with (what, done, total)
    """
    settings = AuditSettings() if settings is None else settings
    release = data is not None if release is None else release
    check_trials(settings.trials, settings.confidence)
    if settings.columns is not None:
        check_columns(settings.columns)
    names = [p.name for p in study.federation.parties]
    if settings.party is not None and settings.party not in names:
        raise SettingsError(f"no party {settings.party!r} in this study; there are {', '.join(names)}")
    rng = np.random.default_rng(settings.seed)
    federation = audited(study, settings.party)
    if release and not study.study_.method.ranks and settings.party is not None:
        raise SettingsError(STRICT_ALONE)
    tables: dict[str, AlignedTable] | None = None
    if data is not None:
        tables = align_tables(federation, data, need_overlap=False)
        check_same_people(study, federation, tables)
    notes: list[str] = []
    found: list[Finding] = []
    if release:
        if data is None or tables is None:
            raise SettingsError("attacks on tables need the study's own real tables (--data)")
        if holdout is None:
            _, fresh = restrict(study, settings.party)
            subjects = repeat_without(
                fresh, tables, settings.holdout, aligned_rows=aligned_rows, rng=rng, progress=progress
            )
            notes.append(REPEATED)
        else:
            subjects = given_holdout(study, federation, data, holdout, synthetic or {})
        found = _attack(subjects, aligned_rows, settings.confidence, rng)
        if not is_installed():
            notes.append(HOW_TO_INSTALL)
    measured: list[MechanismFinding] = []
    if mechanism and not study.study_.method.ranks:
        measured, said = attack_strict(
            study,
            settings.trials,
            confidence=settings.confidence,
            party=settings.party,
            seed=settings.seed,
            workers=settings.workers,
            progress=progress,
        )
        notes += said
        if settings.output_trials:
            notes.append(STRICT_OUTPUT)
    elif mechanism:
        attacks = plan_attacks(
            _terms(study),
            tables=tables,
            party=settings.party,
            output_trials=settings.output_trials,
            columns=settings.columns,
            rng=rng,
        )
        measured = run_attacks(
            attacks,
            settings.trials,
            confidence=settings.confidence,
            seed=settings.seed,
            workers=settings.workers,
            progress=progress,
        )
    return AuditReport(
        study=study.federation.name,
        unit=study.study_.unit.value,
        party=settings.party,
        confidence=settings.confidence,
        seed=settings.seed,
        stated=study.privacy_,
        mechanism=tuple(measured),
        tables=tuple(found),
        notes=tuple(notes),
    )


def _terms(study: Synthesizer) -> StudyTerms:
    delta = DEFAULT_DELTA if study.delta is None else study.delta
    from_data = study.federation.bounds_source == "from-data"
    return StudyTerms(
        study.federation,
        study.result_.budgets,
        study.budget.sampler,
        study.method,
        delta,
        bounds_from_data=from_data,
        request=study.budget,
    )


def _attack(subjects: Subjects, aligned_rows: bool, confidence: float, rng: np.random.Generator) -> list[Finding]:
    federation = subjects.study.federation
    scale = Scale(federation, {name: subjects.synthetic[name] for name in subjects.members})
    members, others, rows = scale.people(subjects.members), scale.people(subjects.others), scale.synthetic
    exposed = Exposed.draw(members, others, rows, rng)
    confidence = 1.0 - (1.0 - confidence) / _ATTACKS  # all intervals hold together
    found = list(attack_tables(exposed, confidence, rng))
    if aligned_rows and len(rows) >= len(members):
        sampler = subjects.study.budget.sampler
        coins = {
            key: subjects.study.result_.budgets[key].epsilon_ranks
            / coins_per_comparison(federation.column(key), sampler)
            for key in scale.keys
        }
        own = rows.rows(slice(0, len(members)))
        found += attack_aligned(members, own, coins, confidence, rng)
    if is_installed():
        found += sdmetrics_findings(exposed, confidence, rng)
    return found
