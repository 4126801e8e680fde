"""The statistics: ranks, margins, correlations, copulas, and a file or folder per method that fits them.

Pure functions of arrays and a source of randomness. It imports mpc (the plan of sums) and what stands below;
regressions, protocols and all above may import it.
Read copula.py first, then vcds.py; strict/ has the fit from noisy sums.
"""
