"""A copula tilted by tables: p(x) = copula(x) times the product over chosen pairs of exp theta_ab[x_a, x_b].

Everything here is a function of released numbers, and of a source of randomness for synthetic rows. It is the model of
method strict, and imports nothing of it. It imports its neighbours in stats and what stands below; protocols and all
above may import it. Read opening_plan.py first, then study_fit.py and tilted_fit.py.
"""
