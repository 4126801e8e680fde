"""A fitted study: its record, its file and folder, its prices, its warnings, its summary as text.

It imports transport and what stands below; reports, simulations and all above may import it.
Read fitted_study.py first, then study_warnings.py.
"""
