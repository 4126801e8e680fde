"""Attacks on releases and on synthetic tables: what is claimed against what can be measured ([docs/audit.md])."""

from verticopula.audit.claims import Claim
from verticopula.audit.findings import Finding
from verticopula.audit.mechanism import Measured, Neighbours, audit_release
from verticopula.audit.report import AuditReport
from verticopula.audit.study import AuditSettings, audit_study
from verticopula.audit.sums import SumsMeasured, audit_sums
from verticopula.audit.sums_neighbours import SumsNeighbours, replaced_block, replaced_person

__all__ = [
    "AuditReport",
    "AuditSettings",
    "Claim",
    "Finding",
    "Measured",
    "Neighbours",
    "SumsMeasured",
    "SumsNeighbours",
    "audit_release",
    "audit_study",
    "audit_sums",
    "replaced_block",
    "replaced_person",
]
