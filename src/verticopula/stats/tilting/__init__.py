"""A copula tilted by tables: p(x) = copula(x) times the product over chosen pairs of exp theta_ab[x_a, x_b].

It may import its neighbours in stats, but not strict, whose model it is; protocols and higher rooms may import it.
Read opening_plan.py first, then study_fit.py and tilted_fit.py.
"""
