"""Between two ends: mutual TLS by NVIDIA FLARE's messaging layer, who may connect, sessions, messages about studies.

It may import kit; the three sides and operations may import it.
Read sessions.py first; flare_link.py is the only way to the wire.
"""
