"""Noise and coins, what they cost, and who may spend it: accounting, filters for caps, budgets, prices, policies.

It imports data and what stands below; storage, mpc, statistics, protocols and all above may import it.
Read accounting.py first, then release.py.
"""
