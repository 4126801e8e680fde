"""The fit of method strict: noisy margins and noisy second moments become a copula.

It imports its neighbours in stats and what stands below; protocols and all above may import it.
Read strict_fit.py first.
"""
