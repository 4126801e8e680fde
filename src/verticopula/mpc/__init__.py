"""Secure sums: secret shares, fixed-point numbers, sealed messages, the public plan, noise in shares, verified cells.

It imports storage and what stands below; strict statistics and the protocols may import it.
Read secret_sharing.py first, then sums_plan.py; for proofs on shares verified_cells.py and cell_proofs.py.
"""
