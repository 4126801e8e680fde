"""Secure sums: shares of cells, proofs about them, sealed messages, the public plan, noise in shares.

It may import storage and lower rooms; statistics, protocols and higher rooms may import it.
Read verified_cells.py first, then cell_proofs.py, proof_rounds.py with proof_messages.py, and verified_sums.py.
"""
