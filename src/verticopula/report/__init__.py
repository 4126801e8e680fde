"""report.html: one self-contained page about a study, for stewards, leads and statisticians.

It imports study and what stands below; estimators, network and commands may import it.
Read page.py first.
"""

from verticopula.report.page import IN_HOUSE_FILE, REPORT_FILE, render_report, write_report
from verticopula.report.report_subject import Subject

__all__ = ["IN_HOUSE_FILE", "REPORT_FILE", "Subject", "render_report", "write_report"]
