"""Generalised linear models with selection: families, penalties, paths, the central and the federated solver.

It imports stats and what stands below; protocols and all above may import it.
Read strength_path.py first: it says what a path is, and where it ends.
"""
