"""report.html: one self-contained page about a study, for stewards, leads and statisticians.

It may import study and lower rooms; estimators, network and commands may import it.
Read report_page.py first.
"""
