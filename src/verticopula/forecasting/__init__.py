"""Errors to expect of a study before any budget is spent, at every unit, and one sentence of advice.

It imports estimators and what stands below; commands may import it.
Read forecast.py first.
"""
