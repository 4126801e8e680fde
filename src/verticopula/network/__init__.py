"""Between organisations: kits, processes, sessions and the steward's consent, on NVIDIA FLARE's messaging layer.

It may import auditing and lower rooms; commands may import it.
Read party_process.py and coordinator.py first; flare_link.py is the only way to the wire.
"""
