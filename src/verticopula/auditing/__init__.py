"""Attacks on releases and on synthetic tables: what is claimed against what can be measured.

It may import forecasting and lower rooms; network and commands may import it. Its rooms stand on bounds.
Read study_audit.py first, then bounds/mechanism_audit.py.
"""

from verticopula.auditing.audit_report import AuditReport
from verticopula.auditing.bounds.claims import Claim
from verticopula.auditing.bounds.mechanism_audit import MeasuredClaim, Neighbours, audit_release
from verticopula.auditing.study_audit import AuditSettings, audit_study
from verticopula.auditing.sums.dealer_attacks import audit_forgeries
from verticopula.auditing.sums.sums_attacks import MeasuredSums, audit_sums
from verticopula.auditing.sums.sums_neighbours import SumsNeighbours, replaced_block, replaced_record
from verticopula.auditing.tables.findings import Finding

__all__ = [
    "AuditReport",
    "AuditSettings",
    "Claim",
    "Finding",
    "MeasuredClaim",
    "MeasuredSums",
    "Neighbours",
    "SumsNeighbours",
    "audit_forgeries",
    "audit_release",
    "audit_study",
    "audit_sums",
    "replaced_block",
    "replaced_record",
]
