"""Transports: what carries a protocol's requests to the parties and their replies back."""
