"""The page itself: everything gathered, put into the template, written as one file."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

from verticopula.errors import StudyWarning
from verticopula.formatting import format_small, json_safe
from verticopula.report import (
    association_figures,
    audit_section,
    margin_figures,
    propensity_check,
    quality_score,
    regression_section,
    release_section,
    sensitivity_analysis,
    steward_page,
    study_settings_section,
)
from verticopula.report.glossary import GLOSSARY
from verticopula.report.page_template import page_template, read_asset
from verticopula.report.regression_section import effects_per_deviation, largest_moves
from verticopula.report.report_data import ReportData
from verticopula.report.report_warnings import report_warnings
from verticopula.study.correlation_errors import AGAINST_POPULATION
from verticopula.study.text_summary import margin_shifts

MOST_PATTERNS = 60

# Nothing is loaded from anywhere, and no script runs but the one whose hash is named.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{}'; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(path: str | Path, subject: ReportData) -> Path:
    """Write the page; it opens without a network."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render_report(subject), encoding="utf-8")
    return target


def render_report(subject: ReportData) -> str:
    """The page as text. Every name in it is escaped; without real tables, nothing of real data is in it."""
    context = gather(subject)
    script = read_asset("charts.js") + read_asset("report.js")
    return page_template("report.html.j2").render(
        **context,
        style=Markup(read_asset("report.css")),
        script=Markup(script),
        data=Markup(as_json(context["drawn"])),
        policy=_POLICY.format(base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()),
    )


def gather(subject: ReportData) -> dict[str, Any]:
    """Everything the template shows; `drawn` is what the figures are drawn from."""
    result, federation = subject.result, subject.federation
    regression = regression_section.regression_section(subject)
    columns = margin_figures.describe_margins(subject)
    realised = association_figures.realised_errors(subject)
    moving_fit = sensitivity_analysis.regression_sensitivity(subject)
    expected = association_figures.expected_errors(subject)
    warnings = report_warnings(subject)
    fitted = subject.fitted
    shown = {
        "title": f"Study {federation.name}",
        "version": version("verticopula"),
        "in_house": bool(subject.real),
        "federation": federation,
        "settings": study_settings_section.shown_settings(subject),
        "n_subjects": result.n_subjects,
        "n_columns": len(federation.keys),
        "warnings": warnings,
        "units": release_section.describe_units(fitted.privacy, fitted.unit),
        "releases": release_section.describe_parties(fitted.releases, fitted.privacy),
        "audit": audit_section.audit_section(subject.audit) if subject.real else None,
        "caps": release_section.describe_caps(subject),
        "yes": steward_page.steward_page(_to_decide(subject, warnings)),
        "command": study_settings_section.repeating_command(subject),
        "was_counted": study_settings_section.was_counted(subject),
        "schema": study_settings_section.describe_columns(subject),
        "quality": quality_score.quality_score(subject, columns, realised, expected),
        "glossary": GLOSSARY,
        "delta": format_small(fitted.privacy.delta),
        "missingness": result.missingness,
        "patterns": _patterns(subject),
        "columns": columns,
        "first_column": _most_moved(columns, str(federation.response)),
        "shifts": margin_shifts(result)[:8],
        "pairs": association_figures.strongest_pairs(subject),
        "blocks": association_figures.party_blocks(subject),
        "fit": result.report,
        "repairs": sorted(result.report.margin_repairs.items(), key=lambda item: -item[1])[:5],
        "refinement": result.refinement,
        "expected": expected,
        "against": AGAINST_POPULATION,
        "realised": realised,
        "strict_fit": result.strict,
        "party_pairs": association_figures.party_pairs(subject),
        "tilted_pairs": association_figures.tilted_pairs(subject),
        "scores": propensity_check.propensity_scores(subject),
        "regression": regression,
        "moving": sensitivity_analysis.margin_sensitivity(subject),
        "predicts": fitted.settings.record.models_missing,
        "moving_fit": largest_moves(regression, moving_fit),
        "deltas": sensitivity_analysis.DELTAS,
    }
    return {**shown, "drawn": _drawn(subject, shown, moving_fit)}


def _to_decide(subject: ReportData, warnings: list[StudyWarning]) -> steward_page.StewardStudy:
    """The study as its page for stewards describes it."""
    fitted = subject.fitted
    return steward_page.StewardStudy(
        subject.federation,
        fitted.settings,
        subject.result.n_subjects,
        fitted.releases,
        warnings,
        in_house=bool(subject.real),
        name=fitted.name,
        date=next((entry.time[:10] for entry in fitted.releases if entry.study == fitted.name), ""),
    )


def _drawn(subject: ReportData, shown: dict[str, Any], moving_fit: dict[str, Any] | None) -> dict[str, Any]:
    """What figures are drawn from, under the names that the page's script reads."""
    result, expected, realised, regression = subject.result, shown["expected"], shown["realised"], shown["regression"]
    return {
        "parties": list(result.missingness.parties),
        "subjects": result.n_subjects,
        "patterns": shown["patterns"],
        "columns": shown["columns"],
        "correlation": association_figures.describe_correlation(subject),
        "likelihood": [] if result.refinement is None else list(result.refinement.log_likelihood),
        "expected": {name: expected[name] for name in ("counts", "edges") if name in expected},
        "realised": [] if realised is None else realised["points"],
        "effects": [] if regression is None else effects_per_deviation(regression),
        "deltas": list(sensitivity_analysis.DELTAS),
        "moving": shown["moving"],
        "movingFit": moving_fit,
    }


def as_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, nor begin anything else."""
    text = json.dumps(json_safe(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _patterns(subject: ReportData) -> list[dict[str, Any]]:
    """Which parties know how many; the rarest together, if there are very many."""
    missing = subject.result.missingness
    shown = [{"known": list(map(int, pattern)), "count": count} for pattern, count in missing.patterns[:MOST_PATTERNS]]
    rest = sum(count for _, count in missing.patterns[MOST_PATTERNS:])
    return [*shown, *([{"known": [], "count": rest}] if rest else [])]


def _most_moved(columns: list[dict[str, Any]], response: str) -> str:
    """The column to show first: of numbers, the one that was corrected most; the response where none was."""
    numbers = [column for column in columns if column["kind"] in ("continuous", "count") and column["moved"] > 0.0]
    return str(max(numbers, key=lambda column: column["moved"])["key"]) if numbers else response
