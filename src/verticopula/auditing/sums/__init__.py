"""Attacks on secure sums: on both openings, by who sees them and by a party that shares no cells.

It may import releases and bounds, not tables; the whole audit may import it.
Read sums_attacks.py first, then strict_attacks.py.
"""
