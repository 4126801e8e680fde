"""Generalised linear models with selection: families, penalties, paths, the central and the federated solver.

It imports stats and what stands below; protocols and all above may import it.
Read central_solver.py first: it is the oracle of the rest.
"""
