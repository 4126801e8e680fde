"""What a party and a coordinator keep on disk: ledger, vault, stored replies, known tables, the journal of rounds.

It imports privacy and what stands below; protocols and all above may import it.
Read ledger.py first, then vault.py and known_tables.py.
"""
