"""What an audit found, as text and as JSON. Rates, bounds and names of columns; no cell of anybody's data."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from verticopula.auditing.releases.attack_plan import MechanismFinding
from verticopula.auditing.tables.findings import Finding
from verticopula.formatting import json_numbers, readable
from verticopula.privacy.statement import PrivacyStatement, format_epsilon
from verticopula.schema.units import Unit

REFUTED = "A claim is refuted: the release leaks more than it says."


@dataclass(frozen=True)
class AuditReport:
    """One study's audit.

    Attributes
    ----------
    study : its name
    unit : what the study's epsilon was asked for
    party : the only one that was audited; None for all
    seed : of the audit; None where it cannot be repeated
    stated : the study's own privacy statement, at its own size
    confidence : of all bounds in `mechanism` together, and of all intervals in `tables`
    mechanism : what attacks on claims found, one finding a claim
    tables : what attacks on synthetic tables found
    notes : what was left out, and why
    """

    study: str
    unit: str
    party: str | None
    confidence: float
    seed: int | None
    stated: PrivacyStatement
    mechanism: tuple[MechanismFinding, ...]
    tables: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every claim survived."""
        return all(finding.measured.holds for finding in self.mechanism)

    def left_open(self) -> list[str]:
        """What a claim per comparison says nothing about, measured and accounted for."""
        lines = []
        for finding in self.mechanism:
            unit = finding.measured.claim.unit
            if unit not in (Unit.BLOCK, Unit.PERSON) or not finding.what.startswith("everything"):
                continue
            lines.append(
                f"{finding.what}, {finding.change}, {finding.pairs} people: at least "
                f"{finding.measured.epsilon_low:.2f} measured and {format_epsilon(finding.measured.claim.epsilon)} "
                f"accounted for with {finding.n_subjects} subjects; in the study itself "
                f"{format_epsilon(self._in_study(finding, unit))}"
            )
        return lines

    def _in_study(self, finding: MechanismFinding, unit: str) -> float:
        """The study's own figure, at its own size."""
        if unit == Unit.PERSON:
            return self.stated.person
        return self.stated.parties[finding.what.removeprefix("everything from ")].block

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; infinite epsilons as text."""
        return {
            "study": self.study,
            "unit": self.unit,
            "party": self.party,
            "confidence": self.confidence,
            "seed": self.seed,
            "holds": self.holds,
            "mechanism": [_mechanism_dict(finding) for finding in self.mechanism],
            "left_open": self.left_open(),
            "tables": [{**asdict(f), "suspicious": f.is_suspicious} for f in self.tables],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        return json.dumps(json_numbers(self.to_dict(), "inf"), indent=1) + "\n"

    def to_text(self) -> str:
        """The same for a reader."""
        who = f", party {self.party}" if self.party else ""
        lines = [f"Audit of {self.study}{who}", ""]
        if self.mechanism:
            lines += [
                "Claims, each attacked with its own kind of neighbour",
                f"(all bounds hold together with confidence {self.confidence:g}; epsilon is at least 'measured')",
            ]
            for finding in self.mechanism:
                lines += [f"  {line}" for line in (*describe_mechanism(finding), f"  {meaning(finding)}")]
            open_lines = self.left_open()
            if open_lines:
                lines += ["", "What is left open for a whole block or person:", *(f"  {line}" for line in open_lines)]
        if self.tables:
            lines += ["", f"The synthetic table (all intervals hold together with confidence {self.confidence:g})"]
            for table in self.tables:
                lines += [f"  {table.name}: {describe_value(table)}", f"    {table.means}"]
        lines += ["", *self.notes, "", verdict(self)]
        return readable("\n".join(lines) + "\n")


def verdict(report: AuditReport) -> str:
    """The audit's outcome in one line."""
    lines = []
    if report.mechanism:
        fine = "No claim was refuted. That is not a proof: another attack may do better."
        lines.append(fine if report.holds else REFUTED)
    if report.tables:
        suspicious = [f.name for f in report.tables if f.is_suspicious]
        lines.append(
            f"Beyond chance: {'; '.join(suspicious)}." if suspicious else "The table shows nothing beyond chance."
        )
        undecided = [f.name for f in report.tables if not f.conclusive]
        if undecided:
            lines.append(f"Too few people to say: {'; '.join(undecided)}.")
    return " ".join(lines)


def describe_mechanism(finding: MechanismFinding) -> list[str]:
    """What, against what, and the figures."""
    m = finding.measured
    at = f" at delta {m.claim.delta:g}" if m.claim.delta else ""
    lines = [
        f"{m.outcome}: {finding.what}; {finding.change} ({finding.pairs}, {finding.n_subjects} subjects)",
        f"  claimed {format_epsilon(m.claim.epsilon)} per {m.claim.unit}{at}, measured at least "
        f"{m.epsilon_low:.3f} (so many trials, {m.trials:,}, can show no more than {m.visible:.3f})",
    ]
    if m.point is not None and not m.holds:
        lines.append(
            f"  elsewhere on its curve: claimed {m.point.epsilon:.3f} at delta {m.point.delta:.3g}, measured "
            f"{m.point.measured:.3f}"
        )
    return lines


def meaning(finding: MechanismFinding) -> str:
    """One sentence for a person in the data."""
    m = finding.measured
    if not m.holds:
        return "You are protected less than you were promised."
    odds = math.exp(min(m.epsilon_low, 700.0))
    if odds < 1.05:
        return "This attack, with so many trials, learns next to nothing about you from it."
    return f"Somebody who suspects one of two things about you can become {odds:,.1f} times as sure from it."


def describe_value(finding: Finding) -> str:
    """Value, interval, what chance gives, and the baseline."""
    text = f"{finding.value:.4f} [{finding.low:.4f}, {finding.high:.4f}]"
    if not math.isnan(finding.expected):
        text += f", by chance {finding.expected:.4g}"
    return text if finding.baseline is None else f"{text}, baseline {finding.baseline:.4f}"


def _mechanism_dict(finding: MechanismFinding) -> dict[str, Any]:
    m = finding.measured
    return {
        "what": finding.what,
        "change": finding.change,
        "pairs": finding.pairs,
        "n_subjects": finding.n_subjects,
        "unit": m.claim.unit,
        "claimed": m.claim.epsilon,
        "delta": m.claim.delta,
        "measured_low": m.epsilon_low,
        "most_visible": m.visible,
        "trials": m.trials,
        "confidence": m.confidence,
        "curve_point": None if m.point is None else asdict(m.point),
        "holds": m.holds,
        "outcome": m.outcome,
        "means": meaning(finding),
    }
