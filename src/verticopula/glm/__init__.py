"""Generalised linear models with selection: families, penalties, paths, the solver, columns that come from parties.

It may import stats and lower rooms; protocols and higher rooms may import it.
Read strength_path.py first: it says what a path is, and where it ends.
"""
