"""Studies run in this process: on tables at hand, on data from a fitted copula, on assumed data without coins.

It imports report and what stands below; estimators, forecasts and audits may import it.
Read in_process.py first.
"""
