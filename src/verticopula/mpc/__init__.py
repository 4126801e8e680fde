"""Secure sums: shares of cells, proofs about them, sealed messages, the public plan, noise in shares.

It imports storage and what stands below; statistics, protocols and all above may import it.
Read verified_cells.py first, then cell_proofs.py, proof_rounds.py, verified_sums.py and sums_plan.py.
"""
