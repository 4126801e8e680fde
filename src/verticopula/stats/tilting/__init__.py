"""A copula tilted by tables: p(x) = copula(x) times the product over chosen pairs of exp theta_ab[x_a, x_b].

Everything here is a function of released numbers, and of a source of randomness for synthetic rows; only
simulated_openings.py, which tests and benchmarks use, sees codes of people.
It imports its neighbours in stats and what stands below; protocols and all above may import it.
Read tilted_fit.py first, then tilted_model.py.
"""
