"""report.html: one self-contained page about a study, for stewards, leads and statisticians.

It imports study and what stands below; estimators, network and commands may import it.
Read report_page.py first.
"""
