"""Errors to expect of a study before any budget is spent, at every unit, and one sentence of advice.

It may import estimators and lower rooms; commands may import it.
Read forecast.py first.
"""
