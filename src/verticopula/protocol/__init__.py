"""Protocols: what is said between the coordinator and the parties, without any input or output."""
