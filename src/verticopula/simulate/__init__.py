"""Studies run in this process: on tables at hand, on data from a fitted copula, on assumed data without coins.

It may import report and lower rooms; estimators, forecasts and audits may import it.
Read in_process.py first.
"""
