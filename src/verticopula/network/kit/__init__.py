"""Kits: an organisation's certificates, whom it trusts, and the federation file that the authority has signed.

It imports no other room of network; all of them may import it.
Read startup_kit.py first, then trust_store.py.
"""
