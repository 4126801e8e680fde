"""Noise and coins, what they cost, and who may spend it: accounting, filters for caps, budgets, prices, policies.

It may import data and lower rooms; storage, mpc, statistics, protocols and higher rooms may import it.
Read accounting.py first, then release.py.
"""
