"""Attacks on finished synthetic tables: people who were in the study against people who were left out.

It may import bounds, neither releases nor sums; the whole audit may import it.
Read table_attacks.py first.
"""
