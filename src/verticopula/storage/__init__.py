"""What a party and a coordinator keep on disk: the ledger, the vault, stored replies, the journal of rounds.

It imports privacy and what stands below; protocols, network and commands may import it.
Read ledger.py first, then vault.py.
"""
