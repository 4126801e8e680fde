"""A fitted study: its record, its file and folder, its prices, its warnings, its summary as text.

It may import transport and lower rooms; reports, simulations and higher rooms may import it.
Read fitted_study.py first, then study_warnings.py.
"""
