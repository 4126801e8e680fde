"""Measured claims: speed, memory, growth and accuracy. `python -m benchmarks --help`."""
