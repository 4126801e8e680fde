"""Studies simulated on assumed data: what a method would find, without parties, messages or a budget.

Imported by `estimators`, `forecasting` and above. Start with `assumptions.py`, then `rank_simulation.py`.
"""
