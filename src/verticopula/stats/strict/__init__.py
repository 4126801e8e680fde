"""Method strict: what it may spend, margins with noise, the plan of its openings, and the fit to what they opened.

Its model, a copula tilted by tables, is stats/tilting. It may import its neighbours in stats and lower rooms;
protocols and higher rooms may import it. Read strict_plan.py first, then strict_fit.py.
"""
