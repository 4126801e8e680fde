"""What a study will be worth before any budget is spent: expected errors by method and unit, and advice.

Imported by `cli`. Start with `forecast.py`.
"""
