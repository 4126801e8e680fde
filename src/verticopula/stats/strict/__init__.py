"""The statistics of method `strict`: from a budget to a plan of secure sums, and from opened sums to a copula.

Imported by `protocol`, `simulate` and `auditing`. Start with `score_plan.py` (what is summed), then `strict_fit.py`.
"""
