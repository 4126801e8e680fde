"""Statistics, pure functions: ranks, margins, correlations, copulas, and a file or folder per method that fits them.

It may import mpc (the plan of sums) and lower rooms; regressions, protocols and higher rooms may import it.
Read copula.py first, then vcds.py; strict/ has the fit from noisy sums. Folders import plain files, not the other way.
"""
