"""The statistics: ranks, margins, correlations, copulas, and a file or folder per method that fits them.

Pure functions of arrays and a source of randomness; imports mpc (the plan of sums) and what stands below.
Read copula.py first, then vcds.py; strict/ has the fit from noisy sums.
"""
