"""What operators need of a process: its lock and signals, logs, health, metrics, the trail of what stewards decided.

It may import every other room of network; the demonstration and commands may import it.
Read kit_process.py first.
"""
