"""Measured claims: speed, memory, growth and accuracy. `python -m benchmarks --help`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
