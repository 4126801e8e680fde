"""What a party and a coordinator keep on disk: ledger, vault, stored replies, known tables, the journal of rounds.

It may import privacy and lower rooms; protocols and higher rooms may import it.
Read ledger.py first, then vault.py and known_tables.py.
"""
