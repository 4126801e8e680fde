"""Who is the same person at two parties: keyed hashes of ids, or private set intersection without a key.

It may import mpc and lower rooms; the protocols may import it.
Read keyed_hashes.py first.
"""
