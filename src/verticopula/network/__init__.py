"""Between organisations: start-up kits, processes and sessions, on NVIDIA FLARE's messaging layer.

It imports auditing and what stands below; commands may import it.
Read party_process.py and coordinator.py first; flare_link.py is the only way to the wire.
"""
