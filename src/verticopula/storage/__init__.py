"""What a party and a coordinator keep on disk: ledger, vault, replies, known tables, journal, requests to stewards.

It may import privacy and lower rooms; protocols and higher rooms may import it.
Read ledger.py first, then vault.py and known_tables.py.
"""
